/* engine/kv/pool/table_snapshot.h - a table as plain bytes: its pages stay held, and any number of
 * tables can continue from it.
 *
 * Snapshots are released when pages are needed, so their holds are counted separately
 * (weir_kv_page_users). The pages of a pruned table stay in memory as long as a snapshot holds them
 * (store.h 8). Engine thread only; allocates nothing. */
#pragma once
#include "engine/kv/pool/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes for the table, in 8-byte aligned memory; its rows must be committed. */
size_t weir_table_snapshot_bytes(const weir_kv_table *table, const weir_kv_store *store);
/* The same for at most this many rows in each head. */
size_t weir_table_snapshot_max_bytes(const weir_kv_spec *spec, int64_t n_rows);
void weir_table_snapshot_take(void *snapshot, const weir_kv_table *table, weir_kv_store *store);
/* The empty table shares the rows; unsealed rows are copied. EFULL: there is no memory for the
 * table, which stays empty. */
WEIR_MUST_CHECK weir_status
weir_table_snapshot_restore(const void *snapshot, weir_kv_table *table, weir_kv_store *store);
void weir_table_snapshot_release(void *snapshot, weir_kv_store *store);

#ifdef __cplusplus
}
#endif
