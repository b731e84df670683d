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

/* plan_window.c: computes the parts other than KV pages that grow with the window: the kernels'
 * scratch, ids and tables. */
WEIR_MUST_CHECK weir_status
plan_window(weir_plan *plan, const weir_plan_parts *parts, bool with_scratch, weir_error *error);

/* plan_pages.c: plans KV pages and the pool's metadata in the memory that the other parts leave.
 * Returns false if the window would be too small. */
bool plan_rows(weir_plan *plan, const weir_plan_parts *parts, int64_t wanted);
/* Returns the number of runs of 64 tokens in the prefix tree for n_pages pages. */
int64_t plan_runs_for(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_pages, int64_t window
);
/* Returns the bytes of the prefix tree for n_runs runs, in addition to those of an empty one. */
size_t plan_run_bytes(const weir_plan_parts *parts, int64_t n_runs);
/* Returns the bytes of page_tables for states on disk. */
size_t plan_cold_state_bytes(const weir_plan *plan, const weir_plan_parts *parts);
/* Returns the bytes of the pool's metadata, with at most n_cold cold pages and n_sinks sink pages,
 * and of the prefix tree over it. */
size_t plan_metadata_bytes(
    const weir_plan_parts *parts, int64_t n_pages, int64_t n_cold, int64_t n_sinks
);
