/* engine/kv/policy/sinks.c - the first rows and the latest ones (Xiao et al. 2023, StreamingLLM),
 * also for streaming heads only (Xiao et al. 2024, DuoAttention): score_j = 0 for S <= j < S + (n -
 * budget), else 1. State and cost: none (docs/policies.md). */
#include "engine/kv/policy/policy_ops.h"

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    if (options->positions == WEIR_POSITIONS_CACHE)
        out->first_keys = options->sinks > shape->n_pinned ? options->sinks : shape->n_pinned;
}

static weir_status check(
    const weir_policy_options *options, const weir_policy_shape *shape, weir_error *error
)
{
    (void)shape;
    if (options->positions != WEIR_POSITIONS_CACHE || !options->pin_prompt) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "sinks: positions=cache rotates every row that always stays after each eviction, and with "
        "pin_prompt that is the whole prompt; keep its beginning with sinks, or use "
        "positions=absolute"
    );
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const int64_t first = call->policy->options.sinks < at->n ? call->policy->options.sinks : at->n,
                  n_gone = at->n - at->budget;
    for (int64_t j = 0; j < at->n; j++) scores[j] = j >= first && j < first + n_gone ? 0.0f : 1.0f;
    return WEIR_OK;
}

static const policy_default defaults_of_sinks[] = {
    { "sinks", "4" }, { "every", "64" }, { "positions", "absolute" }, { NULL, NULL }
};
const weir_policy_ops policy_sinks = { .name = "sinks",
                                       .summary = "the first rows and the latest ones",
                                       .matrix_options = "",
                                       .defaults = defaults_of_sinks,
                                       .layout = layout,
                                       .check = check,
                                       .score = score };

static const policy_default defaults_of_duo[] = {
    { "sinks", "128" }, { "recent", "256" }, { "every", "64" }, { "split", "heads" }, { NULL, NULL }
};
const weir_policy_ops policy_duo = {
    .name = "duo",
    .summary = "listed heads keep every row, the others sinks and a window",
    .defaults = defaults_of_duo,
    .layout = layout,
    .score = score
};
