/* engine/kv/policy/trigger.c - when a policy is due, and how many rows a head may have until then.
 * Depends on counts only. */
#include "engine/kv/policy/plan.h"

/* True if some head (or the heads of some layer together) exceeds its rows by at least `margin`. */
static bool is_over(
    const weir_policy *policy, const weir_policy_rows *rows, const weir_policy_budget *budget,
    int64_t margin
)
{
    const int64_t n_heads = policy->shape.n_kv_heads;
    for (int64_t layer = 0; layer < policy->shape.n_layers; layer++) {
        int64_t excess = 0;
        for (int64_t head = 0; head < n_heads; head++) {
            const int64_t i = layer * n_heads + head, n = rows->n_rows[i];
            bool ignored;
            const int64_t more = n - policy_row_limit(policy, rows, budget->rows[i], &ignored);
            /* Keeps all rows; others may use what it does not. */
            const bool is_short = n < policy->layout.least_rows;
            if (!budget->is_shared && !is_short && more >= margin) return true;
            excess += is_short && more > 0 ? 0 : more;
        }
        if (budget->is_shared && excess >= margin * n_heads) return true;
    }
    return false;
}

/* True if the step's tokens reached a multiple of `every`, or are up to `after` tokens past
 * one. */
static bool has_passed(const weir_policy_rows *rows, int64_t every, int64_t after)
{
    const int64_t end = rows->next_position - after,
                  first = end - (rows->n_new > 0 ? rows->n_new : 1);
    return end > 0 && end / every != (first < 0 ? -1 : first / every);
}

bool weir_policy_is_due(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_rows *rows,
    const weir_policy_budget *budget, weir_policy_phase phase
)
{
    const weir_policy_options *const options = &policy->options;
    const int64_t every = options->every;
    if (options->ops->score == NULL && options->ops->plan == NULL) return false;
    if (phase == WEIR_POLICY_IN_PROMPT && !options->in_prompt) return false;
    if (options->trigger == WEIR_TRIGGER_FORWARDS && every > 0)
        return state->n_forwards % every == 0 && is_over(policy, rows, budget, 1);
    if (phase != WEIR_POLICY_DECODE) return is_over(policy, rows, budget, 1);
    if (every == 0) return false;
    switch ((weir_policy_trigger)options->trigger) {
    case WEIR_TRIGGER_STRICT: return has_passed(rows, every, 0) && is_over(policy, rows, budget, 1);
    case WEIR_TRIGGER_DELAYED:
        return has_passed(rows, every, every > 1) && is_over(policy, rows, budget, 1);
    case WEIR_TRIGGER_SLACK:
    case WEIR_TRIGGER_FORWARDS: break;
    }
    return is_over(policy, rows, budget, every);
}

/* The most rows of one head right after a plan: shared rows may all go to one head, and the lowest
 * layer of a pyramid has up to twice the mean. */
static int64_t most_after_plan(const weir_policy *policy, int64_t budget)
{
    switch ((weir_policy_split)policy->options.split) {
    case WEIR_SPLIT_UNIFORM: break;
    case WEIR_SPLIT_PYRAMID: return 2 * budget;
    case WEIR_SPLIT_ADAPTIVE: return policy->shape.n_kv_heads * budget;
    case WEIR_SPLIT_HEADS: return policy->shape.max_rows;
    }
    return budget;
}

/* Pinned rows that fill the budget get some more after them (policy_row_limit). */
static int64_t with_first(const weir_policy *policy, int64_t budget, int64_t n_first)
{
    const int64_t first = n_first > policy->options.sinks ? n_first : policy->options.sinks,
                  last = policy_n_last(policy);
    const int64_t least = last > 1 ? last : 1,
                  after = policy->options.every > least ? policy->options.every : least;
    const bool leaves_room = policy->options.split != WEIR_SPLIT_PYRAMID && first + least <= budget;
    return leaves_room || first + after < budget ? budget : first + after;
}

int64_t weir_policy_peak_rows(
    const weir_policy *policy, int64_t budget, int64_t n_first, int64_t n_new
)
{
    const int64_t every = policy->options.every, least = policy->layout.least_rows,
                  most = policy->shape.max_rows;
    if (policy->options.ops->score == NULL && policy->options.ops->plan == NULL) return most;
    if (every == 0) return most; /* rows after a prompt are never evicted */
    const int64_t kept = most_after_plan(policy, with_first(policy, budget, n_first));
    const int64_t heads =
        policy->options.split == WEIR_SPLIT_ADAPTIVE ? policy->shape.n_kv_heads : 1;
    int64_t after =
        kept + (every - 1) * (policy->options.trigger == WEIR_TRIGGER_FORWARDS ? n_new : heads);
    if (after < least - 1) after = least - 1;
    return after > most - n_new ? most : after + n_new;
}
