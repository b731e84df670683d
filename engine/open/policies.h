/* engine/open/policies.h - the policy of [kv.policy] for a bound model (policy.c). */
#pragma once
#include "engine/kv/policy/calibration.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/open/identity.h"
#include "engine/schedule/service.h"

typedef struct weir_policies {
    weir_service_policy service;
    weir_calibration *calibration; /* owned; may be NULL */
    int32_t *layers; /* owned; NULL: no layer keeps rows of the whole sequence */
    double *frequencies; /* owned */
} weir_policies;
/* Returns ECONFIG for an unknown policy, a missing budget, or missing requirements. */
WEIR_MUST_CHECK weir_status
weir_policies_open(weir_policies *policies, const weir_identity_parts *parts, weir_error *error);
/* Sets the identity of the model, which new query statistics get. It is not needed for a plan: a
 * sample of every tensor is read. */
WEIR_MUST_CHECK weir_status weir_policies_identify(
    weir_policies *policies, const weir_identity_parts *parts, weir_error *error
);
void weir_policies_close(weir_policies *policies);
/* Sets the model's RoPE, once it is known. */
void weir_policies_set_rope(weir_policies *policies, const weir_model *model);
bool weir_policies_are_there(const weir_policies *policies);
/* Returns the options of a policy run for one sequence of `rows` rows. */
weir_policy_run_options weir_policies_run_options(
    const weir_service_policy *policy, int64_t rows, int32_t n_prompt, int32_t n_new
);
