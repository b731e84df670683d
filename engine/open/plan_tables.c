/* engine/open/plan_tables.c - plans the memory for the page tables of sequences.
 *
 * Whole windows of all sequences are the most that tables can take, and too much where few of many
 * sequences are long. What they use is limited by the pool: a sequence with pages of its own has an
 * entry for each. Only sequences that share pages have more, so a 256th of the pages' bytes is
 * added: with it a page of 32 KiB can be in 16 more tables, one of 8 KiB in 4. Where even that is
 * short, requests wait or are preempted (engine/schedule/reclaim.h). One whole window fits in any
 * case. */
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

size_t plan_table_bytes(const weir_plan *plan, const weir_plan_parts *parts)
{
    const plan_tables tables = plan_tables_of(plan, parts);
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1);
    if (per_block == 0) return 0;
    const int64_t near = plan->facts.kv_pages - plan->facts.kv_disk_pages -
                         plan->facts.kv_host_pages - plan->facts.kv_sink_pages;
    const size_t pool = tables.fixed + (size_t)plan->facts.kv_pages * tables.per_page +
                        (size_t)(near / per_block) * tables.per_block;
    return tables.all < pool ? tables.all : pool;
}
