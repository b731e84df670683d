/* engine/open/facts.c - the facts about a model that are known before memory is planned: name,
 * shape, sizes, KV formats and their bytes. */
#include <libgen.h>
#include <stdio.h>
#include <string.h>

#include "engine/open/plan.h"
#include "engine/schedule/mtp.h"
#include "kernels/abi/minmax.h"

/* model.name, else the file name without extension, else the folder name. */
static void name_model(char out[256], const weir_plan_parts *parts)
{
    char path[WEIR_CONFIG_TEXT];
    if (parts->config->model.name[0] != '\0') {
        (void)snprintf(out, 256, "%.255s", parts->config->model.name);
        return;
    }
    (void)snprintf(path, sizeof path, "%s", parts->path);
    char *const base = basename(path), *const dot = strrchr(base, '.');
    if (dot != NULL && dot != base &&
        (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".safetensors") == 0))
        *dot = '\0';
    (void)snprintf(out, 256, "%.255s", base);
}

weir_kv_geometry weir_plan_first_geometry(const weir_model *model)
{
    const weir_shape *const shape = weir_model_shape(model);
    return weir_model_kv_layers(model) + weir_model_window_layers(model) > 0
               ? weir_model_kv_geometry(model)[0]
               : (weir_kv_geometry){ .n_heads = shape->n_kv_heads,
                                     .key_dim = shape->head_dim,
                                     .value_dim = shape->head_dim };
}

/* Layers that keep all rows, of another size than the first of them. */
static void describe_local(weir_engine_facts *facts, const weir_model *model)
{
    const weir_kv_geometry *const g = weir_model_kv_geometry(model);
    for (int64_t i = 1; i < weir_model_kv_layers(model); i++) {
        if (g[i].n_heads == g[0].n_heads && g[i].key_dim == g[0].key_dim &&
            g[i].value_dim == g[0].value_dim)
            continue;
        facts->n_local_layers++;
        facts->n_local_kv_heads = (int32_t)g[i].n_heads;
        facts->local_key_dim = (int32_t)g[i].key_dim;
        facts->local_value_dim = (int32_t)g[i].value_dim;
    }
}

static void describe_model(weir_engine_facts *facts, const weir_plan_parts *parts)
{
    const weir_model *const model = parts->model;
    const weir_shape *const shape = weir_model_shape(model);
    const weir_kv_geometry first = weir_plan_first_geometry(model);
    name_model(facts->model, parts);
    (void)snprintf(facts->arch, sizeof facts->arch, "%s", weir_model_arch(model));
    facts->n_parameters = weir_model_parameters(model);
    facts->weight_bytes = (int64_t)weir_model_weight_bytes(model);
    facts->mtp_bytes = (int64_t)weir_model_mtp_bytes(model);
    facts->mtp_row_bytes =
        (int64_t)weir_mtp_bytes(model, (int32_t)parts->config->batch.max_sequences, 0);
    facts->layer_embedding_bytes = (int64_t)weir_model_layer_embedding_bytes(model);
    facts->n_layer_embedding = shape->n_vocab * shape->n_layers * shape->d_layer_input;
    weir_expert_stats experts;
    weir_model_expert_stats(model, &experts);
    facts->n_experts = weir_model_expert_sizes(model).n_experts;
    facts->n_experts_here = experts.n_entries;
    facts->n_layer_experts = shape->n_experts;
    facts->expert_bytes = (int64_t)weir_model_expert_sizes(model).entry_bytes;
    facts->recurrent_bytes = (int64_t)weir_model_recurrent_bytes(model);
    facts->trained_context = (int32_t)shape->context;
    facts->n_layers = (int32_t)shape->n_layers;
    facts->n_window_layers = (int32_t)weir_model_window_layers(model);
    facts->n_kv_layers = (int32_t)weir_model_kv_layers(model) + facts->n_window_layers;
    facts->n_heads = (int32_t)shape->n_heads;
    facts->n_kv_heads = (int32_t)first.n_heads;
    facts->key_dim = (int32_t)first.key_dim;
    facts->value_dim = (int32_t)first.value_dim;
    facts->values_alias_keys = first.value_aliases_key;
    describe_local(facts, model);
    facts->head_key_dim = (int32_t)(shape->nope_dim + shape->rotary_dim);
    facts->head_value_dim = (int32_t)shape->value_dim;
    facts->d_model = (int32_t)shape->d_model;
    facts->d_ffn = (int32_t)shape->d_ffn;
    facts->n_vocab = (int32_t)shape->n_vocab;
    facts->n_valid_vocab = parts->n_valid_vocab > 0 ? parts->n_valid_vocab : facts->n_vocab;
    facts->is_tied = weir_model_tied(model);
    facts->has_long_rope = weir_model_has_long_rope(model);
    facts->pooling = parts->pooling;
    facts->ranking = parts->ranking;
    facts->banks = weir_model_bank_stats(model, NULL);
}

static void describe_kv(weir_engine_facts *facts, const weir_plan_parts *parts)
{
    const weir_kv_choice *const choice = parts->formats;
    const weir_kv_spec *const spec = parts->spec;
    const char *const k = weir_kv_format_name(choice->rest.k), *const v = weir_kv_format_name(
                                                                   choice->rest.v
                                                               );
    weir_kv_choice_print(facts->kv_format, choice);
    weir_kv_pair_print(facts->wide_format, choice->wide);
    (void)snprintf(facts->k_format, sizeof facts->k_format, "%s", k);
    (void)snprintf(facts->v_format, sizeof facts->v_format, "%s", v);
    facts->wide_layers = (int32_t)choice->n_wide;
    facts->sink_tokens = spec->sinks.n_pages * WEIR_PAGE_TOKENS;
    facts->kv_window = weir_kv_windows_length(&spec->windows);
    facts->kv_is_lossy = weir_kv_any_lossy(spec->formats, facts->n_kv_layers) ||
                         weir_kv_any_lossy(&spec->sinks.pair, spec->sinks.n_pages > 0);
    facts->kv_bytes_per_token = (int64_t)weir_kv_block_stride(spec) / WEIR_PAGE_TOKENS;
    facts->kv_bytes_per_sink = (int64_t)weir_kv_sink_block_stride(spec) / WEIR_PAGE_TOKENS;
    facts->kv_unsealed_bytes = (int64_t)weir_kv_unsealed_rows_bytes(spec);
    facts->kv_page_bytes = (int64_t)weir_kv_sink_page_stride(spec);
    for (int64_t i = 0; i < spec->n_layers; i++) {
        const int64_t bytes = (int64_t)weir_kv_page_stride(spec, i);
        if (bytes > facts->kv_page_bytes) facts->kv_page_bytes = bytes;
    }
}

void weir_plan_describe(weir_engine_facts *facts, const weir_plan_parts *parts)
{
    const weir_config *const config = parts->config;
    const int32_t n_slots = (int32_t)config->batch.max_sequences;
    describe_model(facts, parts);
    describe_kv(facts, parts);
    facts->n_slots = n_slots;
    facts->n_samplers = weir_min_i32(weir_stream_threads(parts->stream), n_slots);
    facts->queue_limit = config->batch.queue > 0 ? (int32_t)config->batch.queue : 4 * n_slots;
    if (!parts->with_server) return;
    facts->kv_per_request = config->server.kv_per_request;
    facts->kv_per_key = config->server.kv_per_key;
}
