/* engine/model/blocks/experts_groups.c - the products of a mixture of experts: pairs of a row and
 * one of its experts, sorted by expert, are groups of a product (docs/decisions/0055). */
#include <string.h>

#include "engine/model/blocks/experts_internal.h"
#include "engine/model/expert_cache.h"

/* Sorts pairs by expert, within an expert by row (a counting sort). With a cache experts that are
 * in memory come first; it is begun. Returns the number of groups. */
static int32_t group_pairs(const experts_call *c)
{
    const experts_memory *const m = c->m;
    const weir_step *const step = c->step;
    const int64_t k = c->shape->n_experts_used, n_experts = c->shape->n_experts;
    int32_t *const starts = m->starts, n_groups = 0, first = 0;
    memset(starts, 0, (size_t)n_experts * sizeof *starts);
    for (int64_t i = 0; i < m->n_pairs; i++) starts[m->chosen[i]]++;
    for (int32_t e = 0; e < n_experts; e++)
        if (starts[e] > 0) m->order[n_groups++] = e;
    if (step->expert_watch != NULL)
        step->expert_watch->see(step->expert_watch->user, step->layer, m->order, n_groups);
    if (step->experts != NULL)
        weir_expert_cache_begin(step->experts, step->layer, m->order, n_groups);
    for (int32_t g = 0; g < n_groups; g++) {
        const int32_t e = m->order[g], n_rows = starts[e];
        m->groups[g] = (weir_matmul_group){ .first = first, .n_rows = n_rows, .matrix = e };
        starts[e] = first;
        first += n_rows;
    }
    for (int64_t t = 0; t < step->n_rows; t++) {
        int32_t *const terms = m->terms + t * m->n_terms;
        for (int64_t j = 0; j < k; j++) {
            terms[j] = starts[m->chosen[t * k + j]]++;
            m->rows[terms[j]] = (int32_t)t;
        }
        if (m->n_terms > k) terms[k] = (int32_t)(m->n_pairs + t);
    }
    return n_groups;
}

static weir_status gather_rows(const experts_call *c)
{
    return weir_embed(
        c->step->stream, &(weir_embed_args){ .dst = c->m->x,
                                             .table = c->in,
                                             .ids = c->m->rows,
                                             .n_rows = c->m->n_pairs,
                                             .dim = c->shape->d_model,
                                             .n_vocab = c->step->n_rows,
                                             .dtype = WEIR_F32 }
    );
}

/* Multiplies the rows of n_groups groups, which begin at pair `first` and are counted from it. */
static weir_status run_groups(
    const experts_call *c, int64_t first, weir_matmul_group *groups, int32_t n_groups
)
{
    const experts_memory *const m = c->m;
    const experts_weights *const w = c->w;
    const bool has_gate = experts_have_gate(c->o);
    const int64_t d = c->shape->d_model, inner_width = c->shape->d_expert,
                  n_rows = groups[n_groups - 1].first + groups[n_groups - 1].n_rows;
    weir_matmul_args args = { .x = m->x + first * d,
                              .n_rows = n_rows,
                              .n_in = d,
                              .x_stride = d,
                              .n_groups = n_groups,
                              .groups = groups };
    if (has_gate)
        args.outputs[args.n_outputs++] = (weir_matmul_output
        ){ .weight = w->gate, .dst = m->gate, .bias = w->gate_bias, .dst_stride = inner_width };
    args.outputs[args.n_outputs++] = (weir_matmul_output){ .weight = w->up,
                                                           .dst = has_gate ? m->up : m->gate,
                                                           .bias = w->up_bias,
                                                           .dst_stride = inner_width };
    WEIR_TRY(weir_matmul(c->step->stream, &args));
    WEIR_TRY(experts_gate(c, n_rows, inner_width));
    args.x = m->gate;
    args.n_in = args.x_stride = inner_width;
    args.n_outputs = 1;
    args.outputs[0] = (weir_matmul_output
    ){ .weight = w->down, .dst = m->y + first * d, .bias = w->down_bias, .dst_stride = d };
    return weir_matmul(c->step->stream, &args);
}

/* Goes on without the expert of a group, which could not be read: its rows are lost. */
static void lose_group(const experts_call *c, const weir_matmul_group *group)
{
    const int64_t d = c->shape->d_model;
    /* Told now: another step may run before this one ends, and would take it. */
    weir_error problem;
    if (weir_expert_cache_problem(c->step->experts, &problem) && c->step->problem->code == WEIR_OK)
        *c->step->problem = problem;
    for (int64_t i = group->first; i < group->first + group->n_rows; i++)
        c->step->lost_rows[c->m->rows[i]] = true;
    memset(c->m->y + group->first * d, 0, (size_t)(group->n_rows * d) * sizeof(float));
    weir_expert_cache_skip(c->step->experts);
}

/* The next groups, whose experts are in memory. */
static weir_status run_cached(const experts_call *c, int32_t n_groups)
{
    struct weir_expert_cache *const cache = c->step->experts;
    weir_status status = WEIR_OK;
    for (int32_t g = 0, n = 0; status == WEIR_OK && g < n_groups; g += n) {
        weir_matmul_group *const groups = c->m->groups + g;
        const int64_t first = groups->first;
        status = weir_expert_cache_take(cache, &n);
        if (status != WEIR_OK && c->step->lost_rows != NULL) {
            lose_group(c, groups);
            status = WEIR_OK;
            n = 1;
            continue;
        }
        if (status != WEIR_OK) break;
        for (int32_t i = 0; i < n; i++) groups[i].first -= first;
        status = run_groups(c, first, groups, n);
        weir_expert_cache_give(cache);
    }
    weir_expert_cache_end(cache);
    return status;
}

static weir_status run(const experts_call *c)
{
    const int32_t n_groups = group_pairs(c);
    weir_status status = experts_read_ahead(c);
    if (status == WEIR_OK) status = gather_rows(c);
    if (c->step->experts == NULL)
        return status == WEIR_OK ? run_groups(c, 0, c->m->groups, n_groups) : status;
    if (status == WEIR_OK) return run_cached(c, n_groups);
    weir_expert_cache_end(c->step->experts);
    return status;
}

/* While planning nothing is chosen. Kernels for groups of many rows and of few are asked; their
 * scratch does not depend on the groups. */
static weir_status plan(const experts_call *c)
{
    const experts_memory *const m = c->m;
    const int64_t most = c->shape->n_experts < m->n_pairs ? c->shape->n_experts : m->n_pairs;
    WEIR_TRY(experts_read_ahead(c));
    WEIR_TRY(gather_rows(c));
    m->groups[0] = (weir_matmul_group){ .n_rows = m->n_pairs };
    WEIR_TRY(run_groups(c, 0, m->groups, 1));
    for (int64_t g = 0; g < most; g++)
        m->groups[g] = (weir_matmul_group
        ){ .first = g, .n_rows = g + 1 < most ? 1 : m->n_pairs - g, .matrix = (int32_t)g };
    return run_groups(c, 0, m->groups, (int32_t)most);
}

weir_status experts_run(const experts_call *c)
{
    return weir_stream_is_planning(c->step->stream) ? plan(c) : run(c);
}
