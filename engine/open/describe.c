/* engine/open/describe.c - describes a model from its headers, with its plan: for reports on models
 * that need not fit this machine, or whose tokenizer cannot be read. */
#include <stdio.h>
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

static size_t both(const weir_plan *plan) { return plan->activations + plan->near_activations; }

/* Activations of the plan, and what one more row of a step adds: the mean from its chunk to the
 * largest, or from the smallest. */
static weir_status count_activations(
    weir_model_facts *out, weir_engine *engine, const weir_engine_options *options,
    const weir_kv_spec *spec, weir_error *error
)
{
    enum { SMALLEST = 64, LARGEST = 8192 };
    const int64_t chunk = engine->config.batch.chunk;
    const int64_t other = chunk < LARGEST ? LARGEST : SMALLEST;
    weir_plan plan = engine->plan;
    const weir_plan_parts parts = weir_engine_plan_parts(engine, options, spec);
    WEIR_TRY(weir_plan_activations(&plan, &parts, other, true, error));
    const int64_t here = (int64_t)both(&engine->plan), there = (int64_t)both(&plan);
    out->activation_bytes = here;
    out->activation_row_bytes = (there - here) / (other - chunk);
    return WEIR_OK;
}

/* Of the first layer with KV; the shape's where there is none. */
static weir_kv_geometry first_geometry(const weir_model *model)
{
    const weir_shape *const shape = weir_model_shape(model);
    return weir_model_kv_layers(model) > 0 ? weir_model_kv_geometry(model)[0]
                                           : (weir_kv_geometry){ .n_heads = shape->n_kv_heads,
                                                                 .key_dim = shape->head_dim,
                                                                 .value_dim = shape->head_dim };
}

static weir_status describe(
    weir_model_facts *out, weir_engine *engine, const weir_engine_options *options,
    weir_error *error
)
{
    weir_kv_spec spec;
    weir_error ignored; /* a report does not need the tokenizer */
    WEIR_TRY(weir_engine_open_model(engine, options, error));
    (void)!weir_engine_open_text(engine, &ignored);
    WEIR_TRY(weir_engine_lay_out(engine, options, &spec, error));
    WEIR_TRY(plan_anyway(engine, options, &spec, error));
    weir_engine_name_model(engine);
    const weir_model *const model = engine->model;
    const weir_shape *const shape = weir_model_shape(model);
    const weir_kv_geometry first = first_geometry(model);
    *out = (weir_model_facts
    ){ .parameters = weir_model_parameters(model),
       .trained_context = shape->context,
       .n_layers = shape->n_layers,
       .n_kv_layers = weir_model_kv_layers(model),
       .n_heads = shape->n_heads,
       .n_kv_heads = first.n_heads,
       .key_dim = first.key_dim,
       .value_dim = first.value_dim,
       .d_model = shape->d_model,
       .d_ffn = shape->d_ffn,
       .n_vocab = shape->n_vocab,
       .recurrent_bytes = (int64_t)weir_model_recurrent_bytes(model),
       .weight_bytes = (int64_t)weir_model_weight_bytes(model),
       .kv_bytes_per_token = (int64_t)weir_kv_block_stride(&spec) / WEIR_PAGE_TOKENS,
       .kv_bytes_per_sink = (int64_t)weir_kv_sink_block_stride(&spec) / WEIR_PAGE_TOKENS,
       .sink_tokens = (int64_t)spec.sinks.n_pages * WEIR_PAGE_TOKENS,
       .tied = weir_model_tied(model) };
    weir_kv_choice_print(out->kv_format, &engine->kv_choice);
    (void)snprintf(out->model, sizeof out->model, "%s", engine->plan.model);
    (void)snprintf(out->arch, sizeof out->arch, "%s", weir_model_arch(model));
    return count_activations(out, engine, options, &spec, error);
}

weir_status weir_engine_describe(
    weir_model_facts *out, const weir_engine_options *options, weir_error *error
)
{
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    const weir_status status = describe(out, engine, options, error);
    weir_engine_close(engine);
    return status;
}
