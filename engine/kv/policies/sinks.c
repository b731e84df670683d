/* engine/kv/policies/sinks.c - the first rows and the latest ones (Xiao et al. 2023, StreamingLLM), and the same for those heads only that
 * need no more (Xiao et al. 2024, DuoAttention).
 *
 *   score_j = 0 for S <= j < S + (n - budget), else 1
 * so S sinks and the last budget - S rows stay. State: none. Cost: none. The middle is lost by design. Positions are the rows' own; with
 * engine/kv/turn.h the sinks can be turned towards the window instead (in-cache positions), which stays within the trained distance.
 * A prompt longer than the budget is attended whole and trimmed at its end, or with in_prompt chunk by chunk, which gives other rows. Every 64 rows: moving the window at every row costs as much as reading it. */
#include "engine/kv/policies/policy_ops.h"

static void layout(policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape)
{
    (void)out, (void)options, (void)shape;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const int64_t first = call->policy->options.sinks < at->n ? call->policy->options.sinks : at->n, n_gone = at->n - at->budget;
    for (int64_t j = 0; j < at->n; j++) scores[j] = j >= first && j < first + n_gone ? 0.0f : 1.0f;
    return WEIR_OK;
}

static const policy_default defaults_of_sinks[] = { { "sinks", "4" }, { "every", "64" }, { NULL, NULL } };
const weir_policy_ops       policy_sinks = {
          .name = "sinks", .summary = "the first rows and the latest ones", .defaults = defaults_of_sinks, .layout = layout, .score = score
};

static const policy_default defaults_of_duo[] = {
    { "sinks", "128" }, { "recent", "256" }, { "every", "64" }, { "split", "heads" }, { NULL, NULL }
};
const weir_policy_ops policy_duo = { .name = "duo",
                                     .summary = "listed heads keep every row, the others sinks and a window",
                                     .defaults = defaults_of_duo,
                                     .layout = layout,
                                     .score = score };
