/* engine/cli/explain.h - --explain: the kernels of a configuration, and what its KV policy
 * costs. */
#pragma once
#include "engine/cli/command.h"
#include "engine/engine.h"

/* Appends what the configured policy needs to observe and what that costs, with `all` for each
 * policy with its options; and which layers keep a fixed number of rows. */
WEIR_MUST_CHECK weir_status
weir_policies_explain(weir_buffer *out, const weir_engine *engine, bool all, weir_error *error);
/* Prints the kernels and the policies of an engine without a service. Returns the exit code. */
int weir_print_explanation(const weir_engine *engine, bool all_policies);
/* The same for a configuration, with only its own policy. */
int weir_run_explain(const weir_config *config);
