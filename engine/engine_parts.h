/* engine/engine_parts.h - the parts of an engine, for programs that measure and compute sequences
 * themselves (engine/schedule/evaluate.h). Only without the service: its thread owns them. */
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
/* What policies have to know of the model; NULL: no layer keeps rows of the whole text. */
const weir_service_policy *weir_engine_policy(const weir_engine *engine);
/* A policy, NULL: that of [kv.policy], for n_texts sequences of so many rows, n_prompt of them
 * their prompt, in steps of at most n_new; *out NULL: every row stays. */
WEIR_MUST_CHECK weir_status weir_engine_policy_run_open(
    const weir_engine *engine, struct weir_policy_run **out, const weir_service_policy *policy,
    int32_t n_texts, int32_t rows, int32_t n_prompt, int32_t n_new, weir_error *error
);

#ifdef __cplusplus
}
#endif
