/* engine/kv/policy/plan.c - from scores to keep lists, the same for all methods: protected rows,
 * budgets of heads, budgets that the heads of a layer share. */
#include <inttypes.h>
#include <math.h>

#include "engine/base/checked.h"
#include "engine/kv/policy/plan.h"

enum { ALIGNMENT = 64 };

/* ---- scratch --------------------------------------------------------------------------------- */

size_t policy_scratch_size(size_t count, size_t size)
{
    size_t bytes;
    if (!weir_mul_size(&bytes, count, size) || !weir_align_size(&bytes, bytes, ALIGNMENT))
        return SIZE_MAX;
    return bytes;
}

void *policy_scratch(policy_call *call, size_t bytes)
{
    const size_t padded = policy_scratch_size(bytes, 1);
    WEIR_ASSERT(padded <= call->scratch_bytes - call->scratch_used);
    char *const memory = call->scratch + call->scratch_used;
    call->scratch_used += padded;
    return memory;
}

static size_t head_bytes(const weir_policy_shape *shape
) /* of keys or scores: one value for each row of a layer */
{
    return policy_scratch_size((size_t)(shape->n_kv_heads * shape->max_rows), sizeof(float));
}

bool policy_plan_scratch(size_t *bytes, const weir_policy_shape *shape, const policy_layout *layout)
{
    size_t sum;
    return weir_add_size(&sum, head_bytes(shape), head_bytes(shape)) &&
           weir_add_size(bytes, sum, layout->scratch) && head_bytes(shape) != SIZE_MAX &&
           layout->scratch != SIZE_MAX;
}

void policy_call_open(policy_call *call, void *scratch)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    call->keys = scratch;
    call->scores = (float *)((char *)scratch + head_bytes(shape));
    call->scratch = (char *)scratch + 2 * head_bytes(shape);
    call->scratch_bytes = call->policy->layout.scratch;
    call->scratch_used = 0;
}

/* ---- heads ----------------------------------------------------------------------------------- */

int64_t policy_n_first(const weir_policy *policy, const weir_policy_rows *rows)
{
    int64_t first = policy->options.sinks > rows->n_pinned ? policy->options.sinks : rows->n_pinned;
    if (policy->options.pin_prompt && rows->n_prompt > first) first = rows->n_prompt;
    return first;
}

int64_t policy_n_last(const weir_policy *policy)
{
    return policy->options.recent > policy->layout.n_last ? policy->options.recent
                                                          : policy->layout.n_last;
}

/* If pinned prompt rows fill the budget, every later row would be dropped: then some more rows are
 * allowed. */
int64_t policy_row_limit(
    const weir_policy *policy, const weir_policy_rows *rows, int64_t budget, bool *is_over
)
{
    const int64_t first = policy_n_first(policy, rows), last = policy_n_last(policy),
                  least = last > 1 ? last : 1;
    const int64_t after = policy->options.every > least ? policy->options.every : least;
    *is_over = first + least > budget;
    return *is_over ? first + after : budget;
}

policy_head policy_head_at(const policy_call *call, int64_t layer, int64_t head)
{
    const int64_t i = layer * call->policy->shape.n_kv_heads + head, n = call->rows->n_rows[i];
    const int64_t first = policy_n_first(call->policy, call->rows),
                  last = policy_n_last(call->policy);
    WEIR_ASSERT(n >= 0 && n <= call->policy->shape.max_rows);
    bool is_over;
    policy_head at = { .layer = layer, .head = head, .n = n, .n_first = first < n ? first : n };
    at.n_last = last < n - at.n_first ? last : n - at.n_first;
    at.row_limit = policy_row_limit(call->policy, call->rows, call->budget->rows[i], &is_over);
    call->plan->n_over += is_over && n > at.row_limit;
    if (at.row_limit < n && n < call->policy->layout.least_rows) at.row_limit = n;
    at.budget = at.row_limit < n ? at.row_limit : n;
    return at;
}

weir_status policy_read(
    const policy_call *call, const policy_head *at, int64_t first, int64_t n, float *keys,
    float *values
)
{
    WEIR_DASSERT(n > 0 && n <= WEIR_POLICY_TILE && first >= 0 && first + n <= at->n);
    const weir_policy_tile tile = {
        .layer = at->layer, .head = at->head, .first = first, .n = n, .keys = keys, .values = values
    };
    const weir_status status = call->rows->read(call->rows->context, &tile);
    return status == WEIR_OK ? WEIR_OK : policy_read_failed(call, at, status);
}

weir_status policy_read_failed(const policy_call *call, const policy_head *at, weir_status status)
{
    return weir_error_set(
        call->error, status,
        "KV rows of layer %" PRId64 ", head %" PRId64 " cannot be read for eviction: %s", at->layer,
        at->head, weir_status_text(status)
    );
}

weir_status policy_score(policy_call *call, const policy_head *at, float *scores)
{
    call->scratch_used = 0;
    return call->policy->options.ops->score(call, at, scores);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int32_t *list_at(const policy_call *call, int32_t *lists, const policy_head *at)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    return lists + (at->layer * shape->n_kv_heads + at->head) * shape->max_rows;
}

static void take(policy_call *call, const policy_head *at, uint32_t *keys, policy_cut *cut)
{
    int32_t *const keep = list_at(call, call->plan->keep, at);
    const int64_t n = policy_take(keep, keys, at->n, cut);
    call->plan->n_keep[at->layer * call->policy->shape.n_kv_heads + at->head] = n;
}

void policy_keep_all(policy_call *call, const policy_head *at)
{
    int32_t *const keep = list_at(call, call->plan->keep, at);
    for (int64_t row = 0; row < at->n; row++) keep[row] = (int32_t)row;
    const int64_t i = at->layer * call->policy->shape.n_kv_heads + at->head;
    call->plan->n_keep[i] = at->n;
}

void policy_keep(policy_call *call, const policy_head *at, const float *scores)
{
    policy_sort_keys(call->keys, scores, at, &call->plan->n_nan);
    policy_cut cut = policy_cut_keys(call->keys, at->n, at->budget);
    take(call, at, call->keys, &cut);
}

/* ---- budgets that heads share (AdaKV, Feng et al. 2024): each head's best are safe, then the
 * greatest scores of all heads  */

/* Replaces the `n_safe` largest keys by the maximum, so that they always stay. */
static void make_safe(uint32_t *keys, int64_t n, int64_t n_safe)
{
    policy_cut cut = policy_cut_keys(keys, n, n_safe);
    for (int64_t i = 0; i < n; i++) {
        const bool is_equal = keys[i] == cut.key && cut.n_equal > 0;
        if (keys[i] > cut.key || is_equal) keys[i] = UINT32_MAX;
        cut.n_equal -= is_equal;
    }
}

static weir_status plan_shared(policy_call *call, int64_t layer)
{
    const int64_t n_heads = call->policy->shape.n_kv_heads;
    int64_t n = 0, n_keep = 0;
    for (int64_t head = 0; head < n_heads; head++) {
        policy_head at = policy_head_at(call, layer, head);
        const int64_t n_safe = (int64_t)((double)at.row_limit * call->budget->floor);
        if (at.n < call->policy->layout.least_rows)
            at.n_first = at.n; /* keeps all its rows */
        else
            WEIR_TRY(policy_score(call, &at, call->scores));
        policy_sort_keys(call->keys + n, call->scores, &at, &call->plan->n_nan);
        if (call->budget->floor > 0) make_safe(call->keys + n, at.n, n_safe > 1 ? n_safe : 1);
        n += at.n;
        n_keep += at.row_limit;
    }
    policy_cut cut = policy_cut_keys(call->keys, n, n_keep);
    const int64_t n_over = call->plan->n_over; /* counted above */
    n = 0;
    for (int64_t head = 0; head < n_heads; head++) {
        const policy_head at = policy_head_at(call, layer, head);
        take(call, &at, call->keys + n, &cut);
        n += at.n;
    }
    call->plan->n_over = n_over;
    return WEIR_OK;
}

static bool is_within_budget(policy_call *call, int64_t layer)
{
    const int64_t n_over = call->plan->n_over;
    int64_t excess = 0;
    for (int64_t head = 0; head < call->policy->shape.n_kv_heads; head++) {
        const policy_head at = policy_head_at(call, layer, head);
        excess += at.n - at.row_limit;
    }
    call->plan->n_over = n_over;
    return excess <= 0;
}

weir_status policy_plan_layer(policy_call *call, int64_t layer)
{
    const bool has_room = call->budget->is_shared && is_within_budget(call, layer);
    if (call->budget->is_shared && !has_room) return plan_shared(call, layer);
    for (int64_t head = 0; head < call->policy->shape.n_kv_heads; head++) {
        const policy_head at = policy_head_at(call, layer, head);
        if (has_room || at.n <= at.budget || call->policy->options.ops->score == NULL) {
            policy_keep_all(call, &at);
            continue;
        }
        WEIR_TRY(policy_score(call, &at, call->scores));
        policy_keep(call, &at, call->scores);
    }
    return WEIR_OK;
}

weir_status weir_policy_plan_rows(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_rows *rows,
    const weir_policy_budget *budget, void *scratch, weir_policy_plan *plan, weir_error *error
)
{
    policy_call call = { .policy = policy,
                         .state = state,
                         .rows = rows,
                         .budget = budget,
                         .plan = plan,
                         .error = error };
    policy_call_open(&call, scratch);
    plan->n_nan = plan->n_over = 0;
    if (policy->options.ops->plan != NULL) return policy->options.ops->plan(&call);
    for (int64_t layer = 0; layer < policy->shape.n_layers; layer++)
        WEIR_TRY(policy_plan_layer(&call, layer));
    return WEIR_OK;
}
