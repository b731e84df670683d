/* engine/kv/pool/table_snapshot.h - a table laid down as plain bytes: its rows stay held, and any
 * number of tables can go on from them.
 *
 * Who holds parcels gives them up when pages are needed, so their holds are counted apart
 * (weir_kv_page_users). The pages of a cut table stay in memory as long as a parcel holds them
 * (store.h 8). Engine thread only; allocates nothing. */
#pragma once
#include "engine/kv/pool/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 8-byte aligned memory that the table takes; its rows are committed. */
size_t weir_table_snapshot_bytes(const weir_kv_table *table, const weir_kv_store *store);
/* ... with so many rows in each head */
size_t weir_table_snapshot_max_bytes(const weir_kv_spec *spec, int64_t n_rows);
void weir_table_snapshot_take(void *snapshot, const weir_kv_table *table, weir_kv_store *store);
/* The empty table shares the rows; unsealed rows are copied. */
void weir_table_snapshot_restore(const void *snapshot, weir_kv_table *table, weir_kv_store *store);
void weir_table_snapshot_release(void *snapshot, weir_kv_store *store);

/* Adds the pages that nobody but parcels holds and that were not counted since all parcels were
 * forgotten. */
void weir_table_snapshot_count_pages(
    const void *snapshot, weir_kv_store *store, weir_kv_pages *pages
);
void weir_table_snapshot_reset_count(const void *snapshot, weir_kv_store *store);

#ifdef __cplusplus
}
#endif
