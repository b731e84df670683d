/* engine/kv/tiers/page_counts.h - how many pages each head of a table holds, and where they are. */
#pragma once
#include "engine/kv/pool/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets counts [table->n_heads]. Looks at one page of a block whose pages are shared as one, else at
 * all of them. Returns how many that is; if more than `most`, counts are as they were. */
int64_t weir_kv_count_pages(
    weir_kv_page_counts *counts, const weir_kv_table *table, const weir_kv_store *store,
    int64_t most
);

#ifdef __cplusplus
}
#endif
