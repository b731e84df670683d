/* engine/engine_parts.h - the parts of an engine, for programs that measure and compute sequences
 * themselves (engine/schedule/evaluate.h). With a service its thread owns them, so they may only be
 * used without one. */
#pragma once
#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_policy_run;
struct weir_model *weir_engine_model(const weir_engine *engine);
struct weir_runner *weir_engine_runner(const weir_engine *engine);
struct weir_kv_store *weir_engine_store(const weir_engine *engine);
struct weir_stream *weir_engine_stream(const weir_engine *engine);
/* What policies need to know of the model; NULL if no layer keeps rows of the whole sequence. */
const weir_service_policy *weir_engine_policy(const weir_engine *engine);
/* Opens a policy run for n_sequences sequences of `rows` rows, of which n_prompt are the prompt, in
 * steps of at most n_new rows. policy NULL: that of [kv.policy]. Sets *out to NULL if the policy
 * evicts nothing. */
WEIR_MUST_CHECK weir_status weir_engine_policy_run_open(
    const weir_engine *engine, struct weir_policy_run **out, const weir_service_policy *policy,
    int32_t n_sequences, int32_t rows, int32_t n_prompt, int32_t n_new, weir_error *error
);

/* For tests. NULL: nothing is cached. */
struct weir_prefix *weir_engine_prefix(const weir_engine *engine);

#ifdef __cplusplus
}
#endif
