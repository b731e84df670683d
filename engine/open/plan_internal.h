/* engine/open/plan_internal.h - the steps of a plan (plan.c). */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/evict.h"
#include "engine/open/plan.h"
#include "engine/schedule/runner.h"
#include "engine/session/session_store.h"
#include "kernels/abi/minmax.h"

/* plan_limits.c: sequences beside those of the batch, for sessions, states and texts that are saved
 * under pressure. */
int32_t plan_session_sequences(const weir_plan_parts *parts);
bool plan_reuses(const weir_plan_parts *parts); /* prefixes are cached */

/* plan_window.c: what depends on the window beside the KV pages: the kernels' scratch, ids, tables.
 * All of it grows with the window. */
WEIR_MUST_CHECK weir_status
plan_window(weir_plan *plan, const weir_plan_parts *parts, bool with_scratch, weir_error *error);

/* plan_pages.c: gives what the other parts leave to KV pages and the metadata of the pool; false
 * when that is no window worth the name. */
bool plan_rows(weir_plan *plan, const weir_plan_parts *parts, int64_t wanted);
/* Runs of kept texts for so many pages; bytes of the tree for so many runs, past what it takes
 * without any. */
int64_t plan_runs_for(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_pages, int64_t window
);
size_t plan_run_bytes(const weir_plan_parts *parts, int64_t n_runs);
/* Bytes of the pool's metadata, with at most n_cold cold pages and n_sinks sink pages, and of
 * the prefix tree over it. */
size_t plan_metadata_bytes(
    const weir_plan_parts *parts, int64_t n_pages, int64_t n_cold, int64_t n_sinks
);
