/* engine/cli/explain.h - what runs with a configuration, and what its KV policy costs:
 * --explain. */
#pragma once
#include "engine/cli/command.h"
#include "engine/engine.h"

/* What the configured policy, and with `all` each one with its own options, has to see, and what
 * showing it costs, as text; and which layers keep a fixed number of rows. */
WEIR_MUST_CHECK weir_status
weir_policies_explain(weir_buffer *out, const weir_engine *engine, bool all, weir_error *error);
/* Prints the kernels and the policies of an engine that has no service: the exit code. */
int weir_print_explanation(const weir_engine *engine, bool all_policies);
/* The same for a configuration, with its own policy only. */
int weir_run_explain(const weir_config *config);
