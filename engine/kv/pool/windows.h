/* engine/kv/pool/windows.h - KV rows of the layers with a sliding window, of which a sequence keeps
 * those that later rows can read (docs/decisions/0069-windows.md).
 *
 *   window block  the pages of 64 tokens in all of these layers and heads, one after the other. It
 *                 is held by tables, the prefix cache and table snapshots. Those of tables are near
 *                 the kernels, even if the other pages of their tokens are in a lower tier; the
 *                 prefix cache writes some of its own to disk (engine/kv/prefix/window_tier.c)
 *   window table  window blocks first .. end - 1 of one sequence, and where their pages are
 *
 * Row t is read by rows up to t + window - 1. So before row n is computed, a table needs the blocks
 * from weir_kv_windows_first(n) on and drops those before. The prefix cache may hold them longer:
 * it drops those that nothing else holds when a sequence needs one (weir_kv_windows_reclaim_with).
 * The pool is large enough for all sequences, so a sequence never waits for another. Engine
 * thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/kv/pool/geometry.h"
#include "kernels/abi/kv_format.h"
#include "offload/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_windows_spec {
    int64_t n_layers; /* 0: there are none */
    /* [n_layers], with first_head set among these layers; borrowed, must outlive the pool. */
    const weir_kv_geometry *geometry;
    const weir_kv_pair *formats; /* [n_layers], borrowed; none has unsealed rows */
    int64_t n_blocks; /* of the pool */
    int64_t step_rows; /* most rows that one step adds to a sequence */
    int64_t max_rows; /* of a sequence */
} weir_kv_windows_spec;

typedef struct weir_kv_windows weir_kv_windows;

typedef struct weir_kv_window_table {
    int32_t *blocks; /* [capacity] numbers of blocks first .. end - 1; owned, as is `pages` */
    void **pages; /* [n_heads, capacity] their pages */
    int64_t first, end;
    int64_t n_rows; /* computed rows of the sequence, dropped ones included */
} weir_kv_window_table;

/* ---- sizes ----------------------------------------------------------------------------------- */
/* The largest window of the layers. */
int64_t weir_kv_windows_length(const weir_kv_windows_spec *spec);
int64_t weir_kv_windows_heads(const weir_kv_windows_spec *spec); /* KV heads of these layers */
/* Bytes of a window block; each of its pages begins at a multiple of 64. */
size_t weir_kv_windows_block_bytes(const weir_kv_windows_spec *spec);
/* Bytes on the account kv for this many blocks, and on page_tables for the pool and for a table. */
size_t weir_kv_windows_bytes(const weir_kv_windows_spec *spec);
size_t weir_kv_windows_metadata_bytes(const weir_kv_windows_spec *spec);
size_t weir_kv_window_table_bytes(const weir_kv_windows_spec *spec);
/* The first block that a sequence needs to compute row `row`. */
int64_t weir_kv_windows_first(const weir_kv_windows_spec *spec, int64_t row);
/* The most blocks that a sequence holds between steps. */
int64_t weir_kv_windows_most(const weir_kv_windows_spec *spec);
/* Blocks with which no sequence ever lacks one, if n_sequences are in steps of step_rows rows in
 * total, of which n_steps may run at once, and n_others hold what a sequence does between steps. */
int64_t weir_kv_windows_needed(
    const weir_kv_windows_spec *spec, int64_t n_sequences, int64_t n_others, int64_t n_steps
);

/* ---- the pool -------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status weir_kv_windows_open(
    weir_kv_windows **out, const weir_kv_windows_spec *spec, weir_ledger *ledger, weir_error *error
);
void weir_kv_windows_close(weir_kv_windows *windows); /* after its tables; NULL-safe */
const weir_kv_windows_spec *weir_kv_windows_spec_of(const weir_kv_windows *windows);
int64_t weir_kv_windows_free_blocks(const weir_kv_windows *windows);
/* Sets what drops blocks that are not needed until n are free, as far as possible. NULL ends it. */
void weir_kv_windows_reclaim_with(
    weir_kv_windows *windows, void (*reclaim)(void *user, int64_t n), void *user
);
/* True if n blocks are free, those included that are dropped for it. */
bool weir_kv_windows_find_free(weir_kv_windows *windows, int64_t n);
/* Takes a free block, whose bytes are any; -1: there is none. */
int32_t weir_kv_window_take(weir_kv_windows *windows);
void weir_kv_window_hold(weir_kv_windows *windows, int32_t block);
void weir_kv_window_drop(weir_kv_windows *windows, int32_t block);
int32_t weir_kv_window_refs(const weir_kv_windows *windows, int32_t block);
/* The bytes of a block. Those of rows that were computed never change while it is held. */
void *weir_kv_window_memory(const weir_kv_windows *windows, int32_t block);

/* ---- tables ---------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status
weir_kv_window_table_open(weir_kv_window_table *table, weir_kv_windows *windows, weir_error *error);
void weir_kv_window_table_close(weir_kv_window_table *table, weir_kv_windows *windows);
/* Drops the blocks that no row from n_rows on reads. */
void weir_kv_window_trim(weir_kv_window_table *table, weir_kv_windows *windows);
void weir_kv_window_clear(weir_kv_window_table *table, weir_kv_windows *windows);
/* Makes n_new rows after n_rows writable, after trimming. EFULL: no row is changed. */
WEIR_MUST_CHECK weir_status
weir_kv_window_reserve(weir_kv_window_table *table, weir_kv_windows *windows, int64_t n_new);
/* Gives an empty table new blocks, zero, for the rows that row `row` and later ones read; they are
 * counted when they were filled in (n_rows). EFULL. */
WEIR_MUST_CHECK weir_status
weir_kv_window_reserve_before(weir_kv_window_table *table, weir_kv_windows *windows, int64_t row);
/* An empty table gets places for blocks first .. end - 1, all of which have to be shared then. */
void weir_kv_window_begin(
    weir_kv_window_table *table, const weir_kv_windows *windows, int64_t first, int64_t end
);
/* The table shares this block as number `at`, in place of the one that it may have there. */
void weir_kv_window_share(
    weir_kv_window_table *table, weir_kv_windows *windows, int64_t at, int32_t block
);
/* dst, empty, shares the computed rows of src. */
void weir_kv_window_fork(
    weir_kv_window_table *dst, const weir_kv_window_table *src, weir_kv_windows *windows
);
/* The block at index `at` of the sequence; -1: the table does not have it. */
static inline int32_t weir_kv_window_at(const weir_kv_window_table *table, int64_t at)
{
    return at >= table->first && at < table->end ? table->blocks[at - table->first] : -1;
}
/* Where page p of head h of these layers is, for p of first .. end - 1: [h * stride + p]. Other
 * entries must not be read. */
void *const *weir_kv_window_pages(const weir_kv_window_table *table);
int64_t weir_kv_window_stride(const weir_kv_windows *windows);

#ifdef __cplusplus
}
#endif
