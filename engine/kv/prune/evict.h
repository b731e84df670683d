/* engine/kv/prune/evict.h - carries out what a policy decided: of each (layer, KV head) some rows
 * stay and move together, the others are gone.
 *
 * Rows stay in their order: row keep[i] becomes row i. Pages that rows move into are the table's
 * alone (copied first where they were shared); pages whose rows all stay in place remain as they
 * are, shared or not; pages behind the rows that stay go back. Policies and models know nothing of
 * it.
 *   bytes    rows of formats that code each row by itself move as the codes that they are
 *   turned   the first rows may get other keys, which are coded into pages of the table's own
 *   coded    int8 and KIVI code a page as a whole: from the page of the first row that moves, or
 *            that the last one that stays is in, rows are read and coded again; the rows of the
 *            page that is not full become unsealed rows, which are f16. So are rows that move from
 *            the other pages into wide sinks, and those only. Re-encoding adds one more
 *            quantisation error; same rows, same keep lists, same bytes.
 *   disk     a block of which something stays is read: into a page of the table's own in memory, or
 *            back if all of it stays in place; rows that go where a block on disk was, of which
 *            nothing stays, go to a page of the table's own too. Nothing is changed before all is
 *            read. A table that is cut has nothing on disk (store.h 8).
 * Engine thread, between steps. Allocates nothing after opening. */
#pragma once
#include "engine/kv/policy/policy.h"
#include "engine/kv/pool/store.h"
#include "offload/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_evictor weir_kv_evictor;

/* What the account activations holds. */
size_t weir_kv_evictor_bytes(const weir_kv_spec *spec);
size_t weir_kv_evictor_near_bytes(const weir_kv_spec *spec); /* near the kernels, beside these */
/* What its calls ask of the stream, which is 0 without a device; an evictor takes what the stream
 * does not hold yet. ENOMEM, EINVAL. */
WEIR_MUST_CHECK weir_status weir_kv_evictor_scratch_size(
    weir_stream_memory *out, const weir_kv_spec *spec, weir_stream *stream, weir_error *error
);
/* `store` and `stream` are borrowed. EINVAL for a store whose spec says that nothing is evicted. */
WEIR_MUST_CHECK weir_status weir_kv_evictor_open(
    weir_kv_evictor **out, weir_kv_store *store, weir_stream *stream, weir_ledger *ledger,
    weir_error *error
);
void weir_kv_evictor_close(weir_kv_evictor *evictor); /* NULL-safe; before the store */

/* Slots that stay, as weir_policy_plan has them. Heads of layers that are not listed keep all their
 * rows. */
typedef struct weir_kv_keep {
    const int32_t *layers; /* [n] of the store, ascending */
    int64_t n;
    const int32_t *keep; /* [n, KV heads, stride] ascending */
    int64_t stride;
    const int64_t *n_keep; /* [n, KV heads] */
    /* Of each head that drops rows the first n_turned stay in their places and get keys from
     * `turn`, which fills tile->keys of a head that keeps n_keep rows; tile->layer is one of the
     * store. 0: rows stay as they are. */
    int64_t n_turned;
    void (*turn)(void *user, const weir_policy_tile *tile, int64_t n_keep);
    void *user;
} weir_kv_keep;

/* Pages of memory that it takes before others come free. Where layers have pages of different sizes
 * there may be too few of one size all the same. */
weir_kv_pages weir_kv_evict_pages(
    weir_kv_evictor *evictor, const weir_kv_table *table, const weir_kv_keep *keep
);
/* Without rows to drop nothing happens; otherwise the table is cut. On failure all rows and
 * their number are as they were:
 *   EINVAL  lists that are not ascending slots of the head, or move a row that is to be turned
 *   EFULL   too few free pages, or too little memory beside the disk
 *   EIO     a block cannot be read from the disk; blocks that were read before may have come
 *           back */
WEIR_MUST_CHECK weir_status weir_kv_evict(
    weir_kv_evictor *evictor, weir_kv_table *table, const weir_kv_keep *keep, weir_error *error
);

/* Rows [tile->first, + tile->n) of one head as attention reads them later, wherever their pages
 * are: what a policy looks at (weir_policy_rows.read). tile->layer is one of the store, n <=
 * WEIR_POLICY_TILE. EIO as above. */
WEIR_MUST_CHECK weir_status weir_kv_read_rows(
    weir_kv_evictor *evictor, const weir_kv_table *table, const weir_policy_tile *tile,
    weir_error *error
);

/* Which dims of a key are turned together: (f, f + n), or (2f, 2f + 1). */
typedef struct weir_rope_pairs {
    int64_t n;
    bool is_interleaved;
} weir_rope_pairs;
/* Products with the keys of rows [products->first, + n) of one head (weir_policy_rows.multiply).
 * EUNSUPPORTED where the format of the keys does not let that be done: what was written until then
 * is void. */
WEIR_MUST_CHECK weir_status weir_kv_multiply_rows(
    weir_kv_evictor *evictor, const weir_kv_table *table, const weir_policy_products *products,
    weir_rope_pairs pairs, weir_error *error
);

#ifdef __cplusplus
}
#endif
