/* engine/open/plan_tables.c - plans the memory for the page tables of sequences: the least of whole
 * windows of all sequences, and of what the pool can use plus a 256th of its bytes for shared
 * pages. One whole window always fits (docs/decisions/0044). */
#include "engine/open/plan_internal.h"

enum { SHARE = 256 };

plan_tables plan_tables_of(const weir_plan *plan, const weir_plan_parts *parts)
{
    weir_kv_spec spec = *parts->spec;
    spec.max_rows = plan->facts.window;
    const size_t n = (size_t)(plan->facts.n_slots + plan_session_sequences(parts)),
                 window = weir_kv_table_bytes(&spec, spec.max_rows);
    return (plan_tables){ .all = n * window,
                          .fixed = window + n * weir_kv_table_bytes(&spec, 1),
                          .per_page = sizeof(void *),
                          .per_block = weir_kv_block_stride(&spec) / SHARE };
}

/* A sequence with pages of its own has an entry for each; only shared pages take more. Where the
 * added 256th is short, requests wait or are preempted (engine/schedule/reclaim.h). */
size_t plan_table_bytes(const weir_plan *plan, const weir_plan_parts *parts)
{
    const plan_tables tables = plan_tables_of(plan, parts);
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1);
    if (per_block == 0) return 0;
    const int64_t near = plan->facts.kv_pages.n - plan->facts.kv_pages.n_disk -
                         plan->facts.kv_pages.n_host - plan->facts.kv_pages.n_sinks;
    const size_t pool = tables.fixed + (size_t)plan->facts.kv_pages.n * tables.per_page +
                        (size_t)(near / per_block) * tables.per_block;
    return tables.all < pool ? tables.all : pool;
}
