/* engine/kv/prune/evict.h - applies a policy's decision: of each (layer, KV head) some rows stay
 * and are compacted, the others are dropped.
 *
 * The order of rows is kept: row keep[i] becomes row i. Pages that rows move into are not shared
 * (copied first if they were); pages whose rows all stay in place are unchanged, shared or not;
 * pages after the last row are freed. Policies and models do not know about it.
 *   bytes    rows of formats that code each row by itself are moved as codes
 *   rotated  the first rows may get other keys, which are coded into unshared pages
 *   recoded  int8 and KIVI code a page as a whole: from the page of the first row that moves, or of
 *            the last one that stays, rows are read and coded again; the rows of a page that is not
 *            full become unsealed rows, which are f16. So are rows that move from other pages into
 *            sinks of a wider format, and only those. Re-encoding adds one more quantisation error;
 *            same rows and same keep lists give the same bytes.
 *   disk     a block with rows that stay is read: into a new page in memory, or back to its place
 *            if all of it stays there; rows that move to where a block on disk was, none of which
 *            stays, go to a new page too. Nothing is changed before everything is read. A table
 *            with evicted rows has nothing on disk (store.h 8).
 * Engine thread, between steps. Allocates nothing after opening. */
#pragma once
#include "engine/kv/policy/policy.h"
#include "engine/kv/pool/store.h"
#include "offload/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_evictor weir_kv_evictor;

/* Bytes on the account activations. */
size_t weir_kv_evictor_bytes(const weir_kv_spec *spec);
/* Additional bytes near the kernels. */
size_t weir_kv_evictor_near_bytes(const weir_kv_spec *spec);
/* Scratch that its calls need from the stream, 0 without a device; an evictor allocates what the
 * stream does not hold yet. Returns ENOMEM, EINVAL. */
WEIR_MUST_CHECK weir_status weir_kv_evictor_scratch_size(
    weir_stream_memory *out, const weir_kv_spec *spec, weir_stream *stream, weir_error *error
);
/* `store` and `stream` are borrowed. Returns EINVAL for a store whose spec excludes eviction. */
WEIR_MUST_CHECK weir_status weir_kv_evictor_open(
    weir_kv_evictor **out, weir_kv_store *store, weir_stream *stream, weir_ledger *ledger,
    weir_error *error
);
void weir_kv_evictor_close(weir_kv_evictor *evictor); /* NULL-safe; before the store */

/* Slots that stay, as in weir_policy_plan. Heads of layers that are not listed keep all their
 * rows. */
typedef struct weir_kv_keep {
    const int32_t *layers; /* [n] indices in the store, ascending */
    int64_t n;
    const int32_t *keep; /* [KV heads of these layers, stride] slots, ascending */
    int64_t stride;
    const int64_t *n_keep; /* [KV heads of these layers] slots in `keep` */
    /* In each head that drops rows, the first n_rotated stay in place and get keys from `rotate`,
     * which fills in tile->keys of a head that keeps n_keep rows; tile->layer is that of the
     * store. 0: keys are unchanged. */
    int64_t n_rotated;
    void (*rotate)(void *user, const weir_policy_tile *tile, int64_t n_keep);
    void *user;
} weir_kv_keep;

/* Pages of memory that it needs before others are freed. If layers have pages of different sizes,
 * there may still be too few of one size. */
weir_kv_pages weir_kv_evict_pages(
    weir_kv_evictor *evictor, const weir_kv_table *table, const weir_kv_keep *keep
);
/* Without rows to drop nothing happens; otherwise the table has evicted rows. On failure all rows
 * and their number are unchanged:
 *   EINVAL  lists that are not ascending slots of the head, or move a row that is to be rotated
 *   EFULL   too few free pages, or too little memory with a lower tier
 *   EIO     a block cannot be read from disk; blocks that were read before may have been
 * promoted */
WEIR_MUST_CHECK weir_status weir_kv_evict(
    weir_kv_evictor *evictor, weir_kv_table *table, const weir_kv_keep *keep, weir_error *error
);

/* Reads rows [tile->first, + tile->n) of one head as attention will, wherever their pages are; for
 * weir_policy_rows.read. tile->layer is that of the store, n <= WEIR_POLICY_TILE. Returns EIO as
 * above. */
WEIR_MUST_CHECK weir_status weir_kv_read_rows(
    weir_kv_evictor *evictor, const weir_kv_table *table, const weir_policy_tile *tile,
    weir_error *error
);

/* Pairs of dims of a key that are rotated together: (f, f + n), or (2f, 2f + 1). */
typedef struct weir_rope_pairs {
    int64_t n;
    bool is_interleaved;
} weir_rope_pairs;
/* Products with the keys of rows [products->first, + n) of one head, for weir_policy_rows.multiply.
 * Returns EUNSUPPORTED if the format of the keys does not support it; then the output is
 * undefined. */
WEIR_MUST_CHECK weir_status weir_kv_multiply_rows(
    weir_kv_evictor *evictor, const weir_kv_table *table, const weir_policy_products *products,
    weir_rope_pairs pairs, weir_error *error
);

#ifdef __cplusplus
}
#endif
