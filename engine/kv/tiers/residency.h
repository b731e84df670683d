/* engine/kv/tiers/residency.h - where the blocks of a store with a tier below are, and moving them.
 * Without one all are in memory and stay there.
 *
 * A block is named by the page of its first layer and head, or as pages [layers * KV heads] at a
 * stride: a place in a table. */
#pragma once
#include "engine/kv/pool/store.h"
#include "engine/kv/tiers/lower_tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the tier below; NULL is not */
bool weir_kv_is_cold(const weir_kv_store *store, const void *page);
/* Could not be read: nobody should begin to use it. */
bool weir_kv_is_unreadable(const weir_kv_store *store, const void *page);
void weir_kv_mark_unreadable(weir_kv_store *store, const void *page);
/* The block is in memory, whole, none of sinks, and no page of it is a cut table's (store.h 8): it
 * may be demoted. */
bool weir_kv_may_leave(const weir_kv_store *store, void *const *pages, int64_t stride);
/* Blocks past the sinks that may be handed out or brought back before another one must leave
 * memory. */
int64_t weir_kv_free_blocks(const weir_kv_store *store);

/* EFULL, EIO: the block, which weir_kv_may_leave when it is demoted, is where it was. Engine
 * thread, between steps; nobody reads its bytes but through weir_kv_page_copy. */
WEIR_MUST_CHECK weir_status
weir_kv_demote(weir_kv_store *store, void *const *pages, int64_t stride, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_kv_promote(weir_kv_store *store, void *const *pages, int64_t stride, weir_error *error);
/* The room of a page (weir_kv_page_stride) of layer and head number `head`, wherever it is, to
 * memory aligned to 4096 bytes, of the host or near. Any thread whose caller holds the page. EIO;
 * EDEVICE: the device failed, and with it what it held. */
WEIR_MUST_CHECK weir_status weir_kv_page_copy(
    weir_kv_store *store, void *bytes, const void *page, int64_t head, weir_error *error
);

/* For what reads blocks in bulk while nothing moves: the tier below, and the block in it of a page
 * that is cold. */
weir_lower_tier *weir_kv_store_lower_tier(const weir_kv_store *store);
int32_t weir_kv_place_of(const weir_kv_store *store, const void *page);

typedef struct weir_kv_residency {
    int64_t pages_in_memory, pages_cold; /* near the kernels; in the tier below */
    int64_t pages_on_host; /* of the cold ones; the others are on disk */
    /* Demoted, brought back, read where they are for attention or a file; since opening */
    int64_t bytes_out, bytes_back, bytes_read;
    int64_t write_errors, read_errors;
} weir_kv_residency;
weir_kv_residency weir_kv_residency_of(const weir_kv_store *store);
/* Check invariants 1 and 6 over all pages, 7 and 8 over those of a table; false with a text. For
 * tests. */
bool weir_kv_store_is_sound(const weir_kv_store *store, weir_error *error);
bool weir_kv_table_is_sound(
    const weir_kv_store *store, const weir_kv_table *table, weir_error *error
);

#ifdef __cplusplus
}
#endif
