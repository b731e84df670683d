/* engine/model/blocks/experts_ahead.c - guesses which experts the next layer will choose: its
 * router reads the residual stream of this layer, to which one block and one mixer are still to be
 * added (Eliseev and Mazur 2023, section 3.2). What is guessed is only read ahead. */
#include <string.h>

#include "engine/model/blocks/experts_internal.h"
#include "engine/model/expert_cache.h"

/* A longer prompt chooses nearly all experts of a layer: these rows are as good a guess. */
enum { MOST_ROWS = 16 };

/* The memory of the guess, which the block does not use meanwhile. */
typedef struct guess {
    weir_step step; /* of the rows that are guessed for */
    float *in, *logits, *weights; /* [n, D] [n, E] [n, k] */
    int32_t *chosen; /* [n, k] */
} guess;

/* False: there is nothing to guess, or not enough memory for it. */
static bool begin(guess *g, const experts_call *c)
{
    const experts_memory *const m = c->m;
    const int64_t n_all = c->step->n_rows, n = n_all < MOST_ROWS ? n_all : MOST_ROWS,
                  n_chosen = n * c->shape->n_experts_used;
    if (c->step->next.layer == 0 || c->shape->d_expert < 2) return false;
    *g = (guess){ .step = *c->step,
                  .in = m->x,
                  .logits = m->logits,
                  .weights = m->gate,
                  .chosen = (int32_t *)(m->gate + n_chosen) };
    g->step.n_rows = n;
    return true;
}

static weir_status route(const guess *g, const experts_call *c)
{
    const weir_step_next *const next = &c->step->next;
    const experts_options *const o = next->options;
    const experts_weights *const w = next->weights;
    const weir_shape *const shape = c->shape;
    const float *const weight = o->router_norm ? w->router_norm : next->norm;
    const float eps = o->router_norm ? (float)shape->norm_eps : next->eps;
    const weir_linear_output output = { g->logits, w->router, w->router_bias };
    const float *in = g->step.in.stream;
    if (weight != NULL) {
        WEIR_TRY(experts_norm(&g->step, shape->d_model, g->in, g->step.in.stream, weight, eps));
        in = g->in;
    }
    WEIR_TRY(weir_linear_outputs(&g->step, 1, &output, in));
    return weir_expert_route(
        g->step.stream, &(weir_expert_route_args){ .logits = g->logits,
                                                   .bias = w->selection_bias,
                                                   .chosen = g->chosen,
                                                   .weights = g->weights,
                                                   .n_rows = g->step.n_rows,
                                                   .n_experts = shape->n_experts,
                                                   .n_chosen = shape->n_experts_used,
                                                   .n_groups = shape->n_expert_groups,
                                                   .n_groups_used = shape->n_expert_groups_used,
                                                   .scores = (weir_expert_scores)o->scores,
                                                   .scale = 1.0f }
    );
}

/* Asks for what was guessed: the first choice of all rows, then the second, ... */
static void ask(const guess *g, const experts_call *c)
{
    const experts_memory *const m = c->m;
    const int64_t k = c->shape->n_experts_used, n_experts = c->shape->n_experts;
    int32_t n = 0;
    memset(m->starts, 0, (size_t)n_experts * sizeof *m->starts);
    for (int64_t j = 0; j < k; j++)
        for (int64_t t = 0; t < g->step.n_rows; t++) {
            const int32_t e = g->chosen[t * k + j];
            if (m->starts[e] == 0) m->order[n++] = e;
            m->starts[e] = 1;
        }
    weir_expert_cache_prefetch(c->step->experts, c->step->next.layer, m->order, n);
}

weir_status experts_read_ahead(const experts_call *c)
{
    guess g;
    if (!begin(&g, c)) return WEIR_OK;
    WEIR_TRY(route(&g, c));
    if (!weir_stream_is_planning(c->step->stream)) ask(&g, c);
    return WEIR_OK;
}
