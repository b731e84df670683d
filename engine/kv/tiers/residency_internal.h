/* engine/kv/tiers/residency_internal.h - sizes of the lower tier, and the parts of a move, shared
 * by opening (residency_open.c), moving (moves.c) and checking (residency_check.c). */
#pragma once
#include "engine/kv/pool/store.h"

/* residency.c. Pages [heads] of a block. Write and read: any thread, while the pages and the place
 * are held. */
WEIR_MUST_CHECK weir_status
kv_write_block(weir_kv_store *store, int32_t block, void *const *pages, weir_error *error);
WEIR_MUST_CHECK weir_status
kv_read_block(weir_kv_store *store, int32_t block, void *const *pages, weir_error *error);
/* The block's pages are below now, and their memory is free; they are in memory now, and their
 * place is free. */
void kv_block_left(weir_kv_store *store, int32_t block, void *const *pages);
void kv_block_came(weir_kv_store *store, int32_t block, void *const *pages);
/* Frees the memory of cold pages that were to be promoted. */
void kv_unback_block(weir_kv_store *store, void *const *pages);
/* Frees places below whose readers have ended since. */
void kv_free_read_places(weir_kv_store *store);

/* moves.c. pages: [KV_MOVES, heads], owned by the caller. */
WEIR_MUST_CHECK weir_status kv_moves_open(weir_kv_store *store, void **pages, weir_error *error);
void kv_moves_close(weir_kv_store *store); /* also if it was not opened */
/* The blocks of these views stay where they are until it is called with none. */
void kv_attend(weir_kv_store *store, const struct weir_kv_view *views, int32_t n_views);
/* Frees a place below. */
void kv_free_place(weir_kv_store *store, int32_t place);

/* KV heads of a layer, at most. */
enum { KV_LAYER_HEADS = 64 };

static inline int64_t kv_blocks_in(const weir_kv_spec *spec, int64_t n_pages)
{
    const int64_t heads = weir_kv_n_heads(spec);
    return heads > 0 ? n_pages / heads : 0;
}

static inline int64_t kv_cold_blocks(const weir_kv_spec *spec)
{
    return kv_blocks_in(spec, weir_kv_cold_pages(spec));
}
