#include "engine/model/model.h"

#include <stdlib.h>

#include "engine/base/checked.h"
#include "engine/model/expert_cache_internal.h"
#include "engine/model/model_internal.h"
#include "engine/model/rope.h"

static weir_status sum_sizes(weir_model *model, weir_error *error)
{
    size_t total = 0, elements = 0;
    for (size_t i = 0; i < model->n_matrices; i++) {
        const weir_weight *const weight = &model->weights[i];
        const bool is_main = i < model->mtp.first_matrix;
        const int64_t count = is_main ? weight->n_out * weight->n_in : 0;
        size_t bytes;
        if (!weir_align_size(&bytes, weight->bytes, WEIR_WEIGHT_ALIGNMENT) ||
            !weir_add_size(&total, total, weir_model_is_cached(model, i) ? 0 : bytes) ||
            !weir_add_i64(&model->n_parameters, model->n_parameters, count))
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: the weights do not fit in memory",
                weir_tensor_directory_path(model->directory)
            );
        /* A parameter's matrices have the same size, so it does not matter which of them are
         * used. */
        if (!model->matrices[i].is_expert || !is_main) continue;
        *(model->matrices[i].expert < model->shape.n_experts_used ? &model->used_expert_bytes
                                                                  : &model->idle_bytes) += bytes;
    }
    for (size_t i = 0; i < model->n_vectors; i++) {
        elements += weir_vector_stride(model, i);
        if (model->vectors[i].tensor != NULL && i < model->mtp.first_vector)
            model->n_parameters += weir_vector_elements(&model->vectors[i]);
    }
    model->n_parameters += model->shape.n_vocab * weir_model_layer_input_row(model);
    if (!weir_model_tied(model)) model->n_parameters += model->shape.n_vocab * model->shape.d_model;
    model->weight_bytes = total;
    model->vector_bytes = elements * sizeof(float);
    return WEIR_OK;
}

weir_status weir_model_resolve_rope(weir_model *model, weir_error *error)
{
    const weir_shape *const shape = &model->shape;
    if (model->frequencies == NULL)
        model->frequencies = calloc(2 * weir_model_frequencies(model), sizeof(float));
    if (model->frequencies == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for RoPE frequencies");
    model->rope.frequencies = model->frequencies;
    model->has_long_rope =
        weir_rope_is_long(shape, model->arch, model->directory, &model->rope_context);
    for (int i = 0; i < 2; i++)
        WEIR_TRY(weir_rope_check_factors(
            model->rope_lists[i], shape->rotary_dim / 2,
            weir_tensor_directory_path(model->directory), error
        ));
    model->rope_context.factors = model->rope_context.has_lists
                                      ? model->rope_lists[model->has_long_rope]
                                      : model->rope_factors;
    WEIR_TRY(weir_rope_resolve(
        model->frequencies, &model->rope.magnitude, shape, model->arch, model->directory,
        &model->rope_context, error
    ));
    model->reach = weir_rope_reach(shape, model->arch, model->directory);
    float *const local = model->frequencies + weir_model_frequencies(model);
    if (shape->rope_theta_local > 0.0)
        weir_rope_frequencies(local, shape->rope_theta_local, weir_shape_local_rotary(shape));
    model->near_rope = model->rope;
    model->near_local_rope = (weir_rope_table){ .frequencies = local, .magnitude = 1.0f };
    return WEIR_OK;
}

static void set_scales(weir_model *model)
{
    const weir_shape *const shape = &model->shape;
    const double residual = shape->residual_scale > 0.0 ? shape->residual_scale : 1.0,
                 embedding = shape->embedding_scale > 0.0 ? shape->embedding_scale : 1.0;
    model->residual_scale = (float)residual;
    model->stream_scale = (float)(embedding / residual);
    model->stream_eps = (float)(shape->norm_eps / (residual * residual));
}

/* A window of the whole context or more is none: no query leaves a row out. */
static void drop_idle_window(weir_model *model)
{
    weir_shape *const shape = &model->shape;
    const int64_t tokens = model->rope_context.tokens;
    if (shape->window >= (tokens > shape->context ? tokens : shape->context)) shape->window = 0;
}

weir_status weir_model_bind(
    weir_model **out, const weir_tensor_directory *directory, const weir_arch *arch,
    weir_stream *stream, const weir_model_settings *settings, weir_error *error
)
{
    const weir_kv_pair pair = settings->kv_format;
    weir_model *const model = calloc(1, sizeof *model);
    if (model == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the model");
    *model = (weir_model){ .directory = directory,
                           .adapter = settings->adapter,
                           .arch = arch,
                           .stream = stream,
                           .activations = settings->activations,
                           .rope_context = { .tokens = settings->context },
                           .state_format = pair.k == pair.v ? pair.k : WEIR_KV_FORMAT_COUNT,
                           .drops_windows = settings->drops_windows,
                           .wants_mtp = settings->with_mtp,
                           .block_rows = 1 };
    static const char *const common[] = { "d_model", "n_layers", "context", "norm_eps", NULL };
    weir_status status = weir_require_shapes(model, common, "every model", error);
    if (status == WEIR_OK) status = weir_shape_resolve(&model->shape, arch, directory, error);
    if (status == WEIR_OK) status = weir_rope_scale_scores(&model->shape, arch, directory, error);
    if (status != WEIR_OK) goto done;
    set_scales(model);
    drop_idle_window(model);
    const size_t n_layers = (size_t)model->shape.n_layers,
                 n_tensors = weir_tensor_directory_count(directory),
                 n_more =
                     settings->adapter != NULL ? weir_tensor_directory_count(settings->adapter) : 0;
    model->layers = calloc(n_layers + 1, sizeof *model->layers);
    model->used = calloc(n_tensors + n_more + 1, sizeof *model->used);
    if (model->layers == NULL || model->used == NULL) {
        status = weir_error_set(error, WEIR_ENOMEM, "no memory to bind %zu layers", n_layers);
        goto done;
    }
    status = weir_plan_layers(model, error);
    if (status == WEIR_OK) status = weir_open_parameters(model, error);
    if (status == WEIR_OK) status = weir_bind_tensors(model, error);
    if (status == WEIR_OK) status = weir_model_bind_rope(model, error);
    if (status == WEIR_OK)
        status = weir_expert_cache_plan(&model->expert_plan, model, &settings->experts, error);
    if (status == WEIR_OK) status = sum_sizes(model, error);
done:
    if (status != WEIR_OK)
        weir_model_close(model);
    else
        *out = model;
    return status;
}

const weir_tensor_directory *weir_model_directory_of(
    const weir_model *model, const weir_tensor *tensor
)
{
    const size_t n = model->adapter != NULL ? weir_tensor_directory_count(model->adapter) : 0;
    const uintptr_t at = (uintptr_t)tensor,
                    first = n > 0 ? (uintptr_t)weir_tensor_directory_at(model->adapter, 0) : 0;
    return n > 0 && at >= first && at - first < n * sizeof *tensor ? model->adapter
                                                                   : model->directory;
}

size_t weir_model_tensor_index(const weir_model *model, const weir_tensor *tensor)
{
    const weir_tensor_directory *const directory = weir_model_directory_of(model, tensor);
    const size_t before =
        directory == model->directory ? 0 : weir_tensor_directory_count(model->directory);
    return before + (size_t)(tensor - weir_tensor_directory_at(directory, 0));
}

size_t weir_model_near_frequency_bytes(const weir_model *model)
{
    return weir_stream_device(model->stream) != NULL
               ? 2 * weir_model_frequencies(model) * sizeof(float)
               : 0;
}

void weir_model_close(weir_model *model)
{
    if (model == NULL) return;
    weir_expert_cache_close(model->experts);
    for (size_t i = 0; i < model->n_matrices; i++) weir_weight_release(&model->weights[i]);
    if (model->ledger != NULL) {
        weir_ledger_free_device(
            model->ledger, model->weight_memory, WEIR_ACCOUNT_WEIGHTS, model->weight_bytes
        );
        weir_ledger_free_device(
            model->ledger, model->vector_memory, WEIR_ACCOUNT_WEIGHTS, model->vector_bytes
        );
        weir_ledger_free_device(
            model->ledger, model->near_frequencies, WEIR_ACCOUNT_WEIGHTS,
            weir_model_near_frequency_bytes(model)
        );
    }
    for (int64_t i = 0; model->layers != NULL && i <= model->shape.n_layers; i++) {
        free(model->layers[i].mixer_weights);
        free(model->layers[i].ffn_weights);
        free(model->layers[i].input_weights);
        weir_block_use_close(&model->layers[i].mixer);
        weir_block_use_close(&model->layers[i].ffn);
        weir_block_use_close(&model->layers[i].input);
    }
    free(model->layers);
    free(model->geometry);
    free(model->kv_numbers);
    free(model->readers);
    free(model->weights);
    free(model->matrices);
    free(model->vectors);
    free(model->expert_arrays);
    free(model->used);
    free(model->frequencies);
    free(model);
}

const weir_shape *weir_model_shape(const weir_model *model) { return &model->shape; }
const char *weir_model_arch(const weir_model *model) { return model->arch->name; }
size_t weir_model_weight_bytes(const weir_model *model)
{
    return model->weight_bytes + model->expert_plan.bytes + model->vector_bytes +
           weir_model_near_frequency_bytes(model);
}
size_t weir_model_mtp_bytes(const weir_model *model) { return model->mtp.bytes; }
const char *weir_model_mtp_problem(const weir_model *model)
{
    return model->mtp.problem[0] != '\0' ? model->mtp.problem : NULL;
}
const weir_kv_geometry *weir_model_mtp_geometry(const weir_model *model)
{
    return &model->layers[model->shape.n_layers].kv.geometry;
}
size_t weir_model_draft_bytes(const weir_model *model)
{
    return model->mtp.is_there ? model->mtp.read_bytes + model->output->bytes : 0;
}
int64_t weir_model_parameters(const weir_model *model) { return model->n_parameters; }
size_t weir_model_layer_embedding_bytes(const weir_model *model)
{
    return model->layer_embedding != NULL ? model->layer_embedding->bytes : 0;
}
bool weir_model_tied(const weir_model *model)
{
    return model->embedding == model->matrices[0].tensor;
}
int64_t weir_model_kv_layers(const weir_model *model) { return model->kv_layers; }
int64_t weir_model_window_layers(const weir_model *model) { return model->window_layers; }
const int32_t *weir_model_kv_numbers(const weir_model *model) { return model->kv_numbers; }
const weir_kv_geometry *weir_model_kv_geometry(const weir_model *model) { return model->geometry; }
const weir_kv_reader *weir_model_kv_readers(const weir_model *model, int64_t *n)
{
    *n = model->n_readers;
    return model->readers;
}

int64_t weir_model_query_elements(const weir_model *model)
{
    int64_t most = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const weir_block_kv *const kv = &model->layers[i].kv;
        const int64_t n = kv->watched ? kv->n_queries * kv->geometry.key_dim : 0;
        if (n > most) most = n;
    }
    return most;
}

size_t weir_model_recurrent_bytes(const weir_model *model)
{
    return (size_t)model->recurrent_elements * sizeof(float);
}

weir_layer_memory weir_model_layer_memory(const weir_model *model, int64_t index)
{
    const layer *const l = &model->layers[index];
    const weir_state_ops *const state = l->mixer.block->state;
    return (weir_layer_memory){
        .history_offset = l->history_offset,
        .state_offset = l->state_offset,
        .kv_index = l->kv_index,
        .has_history = state != NULL && state->history_elements != NULL,
        .has_state = state != NULL && state->elements != NULL,
    };
}

const weir_rope_table *weir_model_rope(const weir_model *model) { return &model->rope; }
bool weir_model_has_long_rope(const weir_model *model) { return model->has_long_rope; }
int64_t weir_model_reach(const weir_model *model) { return model->reach; }

bool weir_model_keeps_logits(const weir_model *model)
{
    return weir_stream_device(model->stream) == NULL;
}

bool weir_model_shows_mass(
    const weir_model *model, const weir_kv_pair *formats, weir_kv_sinks sinks
)
{
    const weir_shape *const shape = &model->shape;
    bool is_shown = true;
    for (int64_t i = 0; i < shape->n_layers && is_shown; i++) {
        const weir_block_kv *const kv = weir_model_layer_kv(model, i);
        if (kv == NULL || !kv->watched) continue;
        const weir_attention_mass_args args = { .n_heads = kv->n_queries,
                                                .n_kv_heads = kv->geometry.n_heads,
                                                .key_dim = kv->geometry.key_dim,
                                                .k_format = formats[model->layers[i].kv_index].k,
                                                .sinks = sinks };
        is_shown =
            weir_kernel_pick(model->stream, WEIR_OP_ATTENTION_MASS, &args, NULL, NULL) != NULL;
    }
    return is_shown;
}

const weir_block_kv *weir_model_layer_kv(const weir_model *model, int64_t index)
{
    return model->layers[index].kv_index >= 0 ? &model->layers[index].kv : NULL;
}

const weir_block *weir_model_layer_mixer(const weir_model *model, int64_t index)
{
    return model->layers[index].mixer.block;
}

const void *weir_model_layer_options(const weir_model *model, int64_t index)
{
    return model->layers[index].mixer.options;
}

bool weir_model_shares_rows(const weir_model *model)
{
    bool shares = false;
    for (int64_t i = 0; i < model->shape.n_layers; i++)
        shares = shares || (model->layers[i].kv_index >= 0 && model->layers[i].kv.is_shared);
    return shares;
}

const char *weir_model_host_only(const weir_model *model)
{
    const char *why = NULL;
    for (int64_t i = 0; why == NULL && i < model->shape.n_layers; i++) {
        const weir_block *const blocks[] = { model->layers[i].mixer.block,
                                             model->layers[i].ffn.block,
                                             model->layers[i].input.block };
        for (size_t b = 0; why == NULL && b < sizeof blocks / sizeof blocks[0]; b++)
            if (blocks[b] != NULL) why = blocks[b]->host_only;
    }
    return why;
}

int32_t weir_model_block_rows(const weir_model *model) { return model->block_rows; }

bool weir_model_is_state(const weir_model *model, const float *recurrent, int64_t n_tokens)
{
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        const weir_state_ops *const state = l->mixer.block->state;
        if (state != NULL && state->check != NULL &&
            !state->check(&model->shape, l->mixer.options, recurrent + l->state_offset, n_tokens))
            return false;
    }
    return true;
}

weir_bank_stats weir_model_bank_stats(const weir_model *model, const float *recurrent)
{
    weir_bank_stats sum = { 0 };
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        const weir_state_ops *const state = l->mixer.block->state;
        if (state == NULL || state->count == NULL) continue;
        sum.n_layers++;
        state->count(
            &model->shape, l->mixer.options, recurrent != NULL ? recurrent + l->state_offset : NULL,
            &sum
        );
    }
    return sum;
}

size_t weir_model_decode_bytes(const weir_model *model)
{
    const size_t all = weir_model_weight_bytes(model) + weir_model_recurrent_bytes(model) -
                       model->mtp.bytes,
                 cache = model->expert_plan.bytes;
    return cache > 0 ? all - cache + model->used_expert_bytes : all - model->idle_bytes;
}

void weir_model_watch_experts(weir_model *model, const weir_expert_watch *watch)
{
    model->expert_watch = *watch;
}

weir_expert_sizes weir_model_expert_sizes(const weir_model *model)
{
    return (weir_expert_sizes){ .n_experts = model->expert_plan.n_experts,
                                .entry_bytes = model->expert_plan.entry_bytes };
}

void weir_model_expert_stats(const weir_model *model, weir_expert_stats *out)
{
    const weir_expert_plan *const plan = &model->expert_plan;
    *out = (weir_expert_stats){ 0 };
    if (plan->bytes > 0)
        *out = (weir_expert_stats){ .n_experts = plan->n_experts,
                                    .n_entries = plan->n_entries,
                                    .entry_bytes = (int64_t)plan->entry_bytes };
    if (model->experts != NULL) weir_expert_cache_stats(model->experts, out);
}

bool weir_model_expert_counts(const weir_model *model, int64_t layer, weir_expert_counts *out)
{
    return model->experts != NULL && weir_expert_cache_counts(model->experts, layer, out);
}

bool weir_model_skips_images(const weir_model *model)
{
    const size_t n = weir_tensor_directory_count(model->directory);
    for (size_t i = 0; i < n; i++)
        if (weir_bind_is_of_images(model, weir_tensor_directory_at(model->directory, i)->name))
            return true;
    return false;
}

size_t weir_model_unused(const weir_model *model, const char **names, size_t most)
{
    const size_t n = weir_tensor_directory_count(model->directory),
                 n_more = model->adapter != NULL ? weir_tensor_directory_count(model->adapter) : 0;
    size_t count = 0;
    for (size_t i = 0; i < n + n_more; i++) {
        const char *const name = (i < n ? weir_tensor_directory_at(model->directory, i)
                                        : weir_tensor_directory_at(model->adapter, i - n))
                                     ->name;
        if (model->used[i] || weir_bind_skips(model, name)) continue;
        if (count < most) names[count] = name;
        count++;
    }
    return count;
}
