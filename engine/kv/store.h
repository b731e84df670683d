/* engine/kv/store.h - paged KV memory: a fixed number of pages, tables per (sequence, layer, KV head), reference counts, copy on write.
 *
 *   page   64 tokens of one KV head of one layer, K and V together (kernels/abi/kv_page.h)
 *   table  pages [layers, KV heads, capacity] of one sequence
 * Invariants
 *   1 A page is free, or held by refs >= 1 tables; the pool never grows: the byte budget is the number of pages.
 *   2 Rows [0, n_rows) of a table are visible and never rewritten while shared; rows past n_rows are scratch of the running step.
 *   3 A table that will write into a page holds it alone: weir_kv_reserve copies a shared last page first.
 *   4 A page handed out is zero, or a copy: kernels may multiply unwritten rows by a zero probability.
 * Engine thread only. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/abi/kv_page.h"
#include "offload/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_spec {
    int64_t    n_layers, n_kv_heads, key_dim, value_dim; /* n_layers: those that keep KV rows */
    weir_dtype dtype;                                    /* f16 or f32 */
    int64_t    n_pages;                                  /* of the pool */
    int64_t    max_rows;                                 /* window: rows of one sequence */
} weir_kv_spec;

typedef struct weir_kv_store weir_kv_store;

typedef struct weir_kv_table {
    void  **pages; /* [n_layers, n_kv_heads, capacity]; owned */
    int64_t capacity; /* pages per head */
    int64_t n_pages;  /* per head, held now */
    int64_t n_rows;   /* visible */
} weir_kv_table;

size_t weir_kv_page_bytes(const weir_kv_spec *spec);
/* Pages that `rows` rows of one sequence take, over all layers and heads. */
int64_t weir_kv_pages_for(const weir_kv_spec *spec, int64_t rows);

WEIR_MUST_CHECK weir_status weir_kv_store_open(weir_kv_store **out, const weir_kv_spec *spec, weir_ledger *ledger, weir_error *error);
void                        weir_kv_store_close(weir_kv_store *store); /* after its tables */
const weir_kv_spec         *weir_kv_store_spec(const weir_kv_store *store);
int64_t                     weir_kv_store_free_pages(const weir_kv_store *store);

WEIR_MUST_CHECK weir_status weir_kv_table_open(weir_kv_table *table, weir_kv_store *store, weir_error *error);
void                        weir_kv_table_close(weir_kv_table *table, weir_kv_store *store);

/* Makes rows [n_rows, rows) writable. EFULL (nothing changed) when the pool has too few pages. */
WEIR_MUST_CHECK weir_status weir_kv_reserve(weir_kv_table *table, weir_kv_store *store, int64_t rows);
/* The written rows become visible. */
void weir_kv_commit(weir_kv_table *table, int64_t rows);
/* Keeps the first `rows` rows; pages past them go back. */
void weir_kv_truncate(weir_kv_table *table, weir_kv_store *store, int64_t rows);
/* dst (empty) shares all visible rows of src. */
void weir_kv_share(weir_kv_table *dst, const weir_kv_table *src, weir_kv_store *store);

#ifdef __cplusplus
}
#endif
