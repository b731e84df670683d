/* engine/open/plan_internal.h - the steps of a plan (plan.c). */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/evict.h"
#include "engine/open/plan.h"
#include "engine/schedule/runner.h"
#include "engine/session/session_store.h"
#include "kernels/abi/minmax.h"

/* plan_limits.c: returns the number of sequences in addition to those of the batch: for sessions,
 * states, and sequences that are saved under memory pressure. */
int32_t plan_session_sequences(const weir_plan_parts *parts);
bool plan_reuses(const weir_plan_parts *parts); /* true if prefixes are cached */

/* plan_window.c: computes the parts other than KV pages and tables of sequences that grow with the
 * window: the kernels' scratch and ids. */
WEIR_MUST_CHECK weir_status
plan_window(weir_plan *plan, const weir_plan_parts *parts, bool with_scratch, weir_error *error);

/* plan_tables.c: returns the bytes of the tables of sequences, for the planned pages and window. */
size_t plan_table_bytes(const weir_plan *plan, const weir_plan_parts *parts);
/* The same before the pages are known: those of whole windows, which are the most; and what
 * sequences take whatever the pages, with what each page and each block near the kernels adds. */
typedef struct plan_tables {
    size_t all, fixed, per_page, per_block;
} plan_tables;
plan_tables plan_tables_of(const weir_plan *plan, const weir_plan_parts *parts);

/* plan_pages.c: plans KV pages, the pool's metadata and the tables of sequences in the memory that
 * the other parts leave. Returns false if the window would be too small. */
bool plan_rows(weir_plan *plan, const weir_plan_parts *parts, int64_t wanted);
/* Returns the number of runs of 64 tokens in the prefix tree for n_pages pages. */
int64_t plan_runs_for(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_pages, int64_t window
);
/* Returns the bytes of the prefix tree for n_runs runs, in addition to those of an empty one. */
size_t plan_run_bytes(const weir_plan_parts *parts, int64_t n_runs);
/* Returns the bytes of page_tables for the planned window blocks and their tables. */
size_t plan_window_metadata_bytes(const weir_plan *plan, const weir_plan_parts *parts);
/* Returns the bytes of page_tables for states on disk. */
size_t plan_cold_state_bytes(const weir_plan *plan, const weir_plan_parts *parts);
/* Returns the bytes of the pool's metadata, with at most n_cold cold pages and n_sinks sink pages,
 * and of the prefix tree over it. */
size_t plan_metadata_bytes(
    const weir_plan_parts *parts, int64_t n_pages, int64_t n_cold, int64_t n_sinks
);
