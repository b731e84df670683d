/* engine/kv/policy/plan.h - shared by planning, opening and triggers. */
#pragma once
#include "engine/kv/policy/policy_ops.h"

/* Number of rows at the beginning and at the end that stay whatever the budget. */
int64_t policy_n_first(const weir_policy *policy, const weir_policy_rows *rows);
int64_t policy_n_last(const weir_policy *policy);
/* The rows that a head keeps of a budget: more than that if pinned rows leave no space in it. */
int64_t policy_row_limit(
    const weir_policy *policy, const weir_policy_rows *rows, int64_t budget, bool *is_over
);
/* Bytes of a plan's scratch. Returns false if they overflow. */
bool policy_plan_scratch(
    size_t *bytes, const weir_policy_shape *shape, const policy_layout *layout
);
/* Bytes of a state. Returns false if they overflow. */
bool policy_state_size(size_t *bytes, const weir_policy_shape *shape, const policy_layout *layout);
/* [layers, sets] number of rows with values in the state. */
int64_t *policy_lengths(const weir_policy *policy, const weir_policy_state *state);
