/* engine/kv/policy/random.c - random rows: the baseline for other methods. The choice depends on
 * seed, layer, head, position of the sequence and slot. State and cost: none. */
#include "engine/kv/policy/policy_ops.h"

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    (void)out, (void)options, (void)shape;
}

/* The finaliser of splitmix64 (Steele et al. 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    uint64_t seed = mix((uint64_t)call->policy->options.seed);
    seed = mix(seed ^ (uint64_t)at->layer);
    seed = mix(seed ^ (uint64_t)at->head);
    seed = mix(seed ^ (uint64_t)call->rows->next_position);
    for (int64_t j = 0; j < at->n; j++) scores[j] = (float)(mix(seed ^ (uint64_t)j) >> 40);
    return WEIR_OK;
}

static const policy_default defaults[] = { { "seed", "0" }, { NULL, NULL } };
const weir_policy_ops policy_random = { .name = "random",
                                        .summary = "any rows, as a control",
                                        .matrix_options = "",
                                        .defaults = defaults,
                                        .layout = layout,
                                        .score = score };
