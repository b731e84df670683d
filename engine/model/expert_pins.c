/* engine/model/expert_pins.c - pins the experts that are used in most passes through the model.
 *
 * LRU forgets an expert that many steps use when a prompt passes through, whose rows choose nearly
 * all experts, and finds nothing if a token uses more experts than there are entries. Uses are
 * counted per pass, and halved when pins are chosen: what was used long ago counts less. */
#include "engine/model/expert_cache_internal.h"

/* A count is at most PASSES plus half of what it was, which stays below 2 * PASSES. */
enum { PASSES = 128, MOST_USES = 2 * PASSES - 1, LEAST_USES = 4 };

/* The least uses of which at most n_pins experts have as many. */
static int32_t threshold(const weir_expert_cache *c)
{
    int32_t number[MOST_USES + 1] = { 0 }, n = 0, uses = MOST_USES;
    for (int64_t i = 0; i < c->plan.n_experts; i++) number[c->uses[i]]++;
    for (; uses >= LEAST_USES && n + number[uses] <= c->plan.n_pins; uses--) n += number[uses];
    return uses + 1;
}

static void choose(weir_expert_cache *c)
{
    const int32_t least = threshold(c);
    for (int64_t i = 0; i < c->plan.n_experts; i++) {
        c->is_pinned[i] = c->uses[i] >= least;
        c->uses[i] /= 2;
    }
    for (int64_t l = 0; l < c->model->shape.n_layers; l++) {
        c->counts[l].pinned = 0;
        for (int64_t e = 0; c->first_unit[l] >= 0 && e < c->model->shape.n_experts; e++)
            c->counts[l].pinned += c->is_pinned[c->first_unit[l] + e];
    }
}

void weir_expert_count_pass(weir_expert_cache *c)
{
    if (++c->n_passes < PASSES) return;
    c->n_passes = 0;
    choose(c);
    for (int32_t i = 0; i < c->plan.n_entries; i++) {
        const expert_entry *const s = &c->entries[i];
        if (s->unit < 0) continue;
        if (c->is_pinned[s->unit])
            weir_expert_unlink(c, i);
        else if (!s->is_listed)
            weir_expert_link(c, i);
    }
}
