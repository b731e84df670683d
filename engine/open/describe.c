/* engine/open/describe.c - describes a model from its headers, with its plan: for reports on
 * models that need not fit this machine, or whose tokenizer cannot be read. */
#include <stdlib.h>

#include "engine/open/engine_internal.h"

static const size_t most = (size_t)1 << 50;

/* The plan of the configuration; if it does not fit, the plan for a machine without limits. */
static weir_status plan_anyway(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec,
    weir_error *error
)
{
    weir_plan_parts parts = weir_engine_plan_parts(engine, options, spec);
    const weir_status status = weir_plan_make(&engine->plan, &parts, error);
    if (status != WEIR_EFULL) return status;
    engine->config.memory.host = (int64_t)most;
    parts.cap = most;
    parts.device_cap = most;
    return weir_plan_make(&engine->plan, &parts, error);
}

static int64_t activations(const weir_plan *plan)
{
    return (int64_t)(plan->activations + plan->near_activations);
}

/* Computes the activation bytes that one more row of a step adds: the mean between the configured
 * chunk and the largest one, or the smallest if the configured one is not smaller. */
static weir_status measure_row(
    int64_t *bytes, const weir_engine *engine, const weir_plan_parts *parts, weir_error *error
)
{
    enum { SMALLEST = 64, LARGEST = 8192 };
    const int64_t chunk = engine->config.batch.chunk;
    const int64_t other = chunk < LARGEST ? LARGEST : SMALLEST;
    weir_plan plan = engine->plan;
    WEIR_TRY(weir_plan_activations(&plan, parts, other, true, error));
    *bytes = (activations(&plan) - activations(&engine->plan)) / (other - chunk);
    return WEIR_OK;
}

static weir_status describe(
    weir_engine *engine, int64_t *activation_row_bytes, const weir_engine_options *options,
    weir_error *error
)
{
    weir_kv_spec spec;
    weir_error ignored; /* a report does not need the tokenizer */
    WEIR_TRY(weir_engine_open_model(engine, options, error));
    (void)!weir_engine_open_text(engine, &ignored);
    WEIR_TRY(weir_engine_lay_out(engine, options, &spec, error));
    WEIR_TRY(plan_anyway(engine, options, &spec, error));
    const weir_plan_parts parts = weir_engine_plan_parts(engine, options, &spec);
    return measure_row(activation_row_bytes, engine, &parts, error);
}

weir_status weir_engine_describe(
    weir_plan *out, int64_t *activation_row_bytes, const weir_engine_options *options,
    weir_error *error
)
{
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    const weir_status status = describe(engine, activation_row_bytes, options, error);
    if (status == WEIR_OK) *out = engine->plan;
    weir_engine_close(engine);
    return status;
}
