/* engine/model/layers.c - the layers of a model: blocks with their options, and the offset of each
 * layer in the memory of a sequence. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/model/model_internal.h"

/* A shape that the arch file does not set would be zero. */
weir_status weir_require_shapes(
    const weir_model *model, const char *const *names, const char *who, weir_error *error
)
{
    const weir_toml_node *const table = weir_toml_get(model->arch->root, "shape");
    for (; *names != NULL; names++) {
        if (weir_toml_get(table, *names) == NULL)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: [shape] has no %s, which %s needs", model->arch->file,
                *names, who
            );
    }
    return WEIR_OK;
}

/* Checks that the options of a block fit the shape; where: its table. */
static weir_status check_shape(
    const weir_model *model, const weir_block_use *use, const char *where, weir_error *error
)
{
    const weir_block *const block = use->block;
    const char *const why =
        block->reject != NULL ? block->reject(&model->shape, use->options) : NULL;
    if (why == NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "%s: [%s] %s of %s: %s", weir_tensor_directory_path(model->directory),
        where, block->name, model->arch->file, why
    );
}

/* Checks the options of a mixer, and its prompt blocks: all layers with blocks must agree on their
 * size. */
static weir_status check_mixer(
    weir_model *model, const weir_block_use *mixer, const char *name, weir_error *error
)
{
    const weir_block *const block = mixer->block;
    char where[120];
    (void)snprintf(where, sizeof where, "block.%.100s", name);
    WEIR_TRY(check_shape(model, mixer, where, error));
    const int32_t rows = block->block_rows != NULL ? (int32_t)block->block_rows(mixer->options) : 1;
    const int32_t more = rows > model->block_rows ? rows : model->block_rows,
                  less = rows + model->block_rows - more;
    if (more % less != 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "%s: [block.%s] block_rows = %d: another block has %d; one must be a "
            "multiple of the other",
            model->arch->file, name, (int)rows, (int)model->block_rows
        );
    model->block_rows = more;
    return WEIR_OK;
}

/* Allocates n elements of a sequence's recurrent state, after those already placed. */
static int64_t place_state(weir_model *model, int64_t n)
{
    const int64_t at = model->recurrent_elements;
    model->recurrent_elements = (at + n + 15) / 16 * 16;
    return at;
}

static bool are_rows_alike(const weir_block_kv *first, const weir_block_kv *second)
{
    const weir_kv_geometry *const a = &first->geometry, *const b = &second->geometry;
    return a->n_heads == b->n_heads && a->key_dim == b->key_dim && a->value_dim == b->value_dim &&
           a->value_aliases_key == b->value_aliases_key && a->window == b->window &&
           first->rope == second->rope && first->no_rope == second->no_rope &&
           first->rope_last == second->rope_last && first->rope_local == second->rope_local;
}

/* Finds the layer whose rows a layer with shared rows reads. Returns ECONFIG if there is none. */
static weir_status share_rows(weir_model *model, layer *l, weir_error *error)
{
    const weir_kv_geometry *const g = &l->kv.geometry;
    const layer *owner = l;
    while (owner > model->layers && l->kv_index < 0) {
        owner--;
        if (owner->kv_index >= 0 && !owner->kv.is_shared && are_rows_alike(&owner->kv, &l->kv))
            l->kv_index = owner->kv_index;
    }
    l->kv.watched = false;
    if (l->kv_index >= 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "%s: layer %lld reads the KV rows of an earlier layer, and none before it keeps rows of "
        "%lld heads, keys of %lld and values of %lld with its window and RoPE",
        model->arch->file, (long long)(l - model->layers), (long long)g->n_heads,
        (long long)g->key_dim, (long long)g->value_dim
    );
}

static weir_status place_rows(weir_model *model, layer *l, weir_error *error)
{
    const weir_block *const block = l->mixer.block;
    l->kv_index = -1;
    if (block->kv == NULL) return WEIR_OK;
    l->kv = block->kv(&model->shape, l->mixer.options);
    model->n_readers++;
    if (l->kv.is_shared) return share_rows(model, l, error);
    l->kv_index = model->kv_layers++;
    return WEIR_OK;
}

static void place_memory(weir_model *model, layer *l)
{
    const weir_state_ops *const state = l->mixer.block->state;
    if (state != NULL && state->history_elements != NULL)
        l->history_elements = state->history_elements(&model->shape, l->mixer.options);
    if (state != NULL && state->elements != NULL)
        l->state_elements = state->elements(&model->shape, l->mixer.options);
    l->history_offset = place_state(model, l->history_elements);
    l->state_offset = place_state(model, l->state_elements);
}

static weir_status use_block(
    weir_model *model, const weir_block_use *use, void **weights, weir_error *error
)
{
    WEIR_TRY(weir_require_shapes(model, use->block->shapes, use->block->name, error));
    if (use->block->more_shapes != NULL)
        WEIR_TRY(weir_require_shapes(
            model, use->block->more_shapes(use->options), "an option of the block", error
        ));
    if (use->block->complete != NULL) use->block->complete(use->options, model->state_format);
    *weights = calloc(1, use->block->weights_bytes + 1);
    return *weights != NULL
               ? WEIR_OK
               : weir_error_set(
                     error, WEIR_ENOMEM, "no memory for the tensors of %s", use->block->name
                 );
}

static size_t count_experts(
    const weir_model *model, const weir_parameter *parameter, const void *options
)
{
    const int64_t n = parameter->dims[0](&model->shape, options);
    return n > 0 ? (size_t)n : 0;
}

/* Parameters that the options do not want are counted too. */
static void count_parameters(weir_model *model, const weir_block_use *use)
{
    for (const weir_parameter *parameter = use->block->parameters; parameter->name != NULL;
         parameter++) {
        switch (parameter->kind) {
        case WEIR_PARAMETER_MATRIX: model->max_matrices++; break;
        case WEIR_PARAMETER_VECTOR: model->max_vectors++; break;
        case WEIR_PARAMETER_EXPERTS:
        case WEIR_PARAMETER_HEADS:
            model->max_matrices += count_experts(model, parameter, use->options);
            model->max_expert_arrays++;
            break;
        }
    }
}

/* Per-layer embeddings are those of all layers. */
static weir_status plan_input(weir_model *model, layer *l, weir_error *error)
{
    if (model->shape.d_layer_input == 0) return WEIR_OK;
    if (model->residual_scale < 1.0f || model->residual_scale > 1.0f)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: per-layer embeddings with a residual_scale are not supported",
            model->arch->file
        );
    l->input.block = weir_block_of_kind(model->arch->blocks, WEIR_BLOCK_LAYER_INPUT);
    WEIR_TRY(use_block(model, &l->input, &l->input_weights, error));
    count_parameters(model, &l->input);
    return WEIR_OK;
}

static weir_status plan_layer(
    weir_model *model, layer *l, const char *name, const char *ffn_name, weir_error *error
)
{
    const weir_container container = weir_tensor_directory_container(model->directory);
    WEIR_TRY(weir_arch_block(model->arch, name, ffn_name, container, &l->mixer, &l->ffn, error));
    WEIR_TRY(use_block(model, &l->mixer, &l->mixer_weights, error));
    WEIR_TRY(use_block(model, &l->ffn, &l->ffn_weights, error));
    WEIR_TRY(check_mixer(model, &l->mixer, name, error));
    WEIR_TRY(check_shape(model, &l->ffn, "ffn", error));
    WEIR_TRY(place_rows(model, l, error));
    place_memory(model, l);
    count_parameters(model, &l->mixer);
    count_parameters(model, &l->ffn);
    model->max_vectors += 6; /* its norms and scale */
    return plan_input(model, l, error);
}

/* Why a layer cannot be a draft head, static text; NULL: it can. */
static const char *reject_mtp(const weir_model *model, const weir_block_use *mixer)
{
    const weir_shape *const s = &model->shape;
    const bool is_scaled = model->stream_scale != 1.0f || model->residual_scale != 1.0f ||
                           (s->logit_scale != 0.0 && s->logit_scale != 1.0);
    if (mixer->block->state != NULL || mixer->block->kv == NULL) return "it is no attention";
    const weir_block_kv kv = mixer->block->kv(s, mixer->options);
    if (kv.is_shared || kv.geometry.window > 0) return "its attention has a window";
    return is_scaled || s->d_layer_input > 0 ? "the model scales its rows" : NULL;
}

/* The layer of the draft head: it keeps rows apart from those of the model, and no policy sees
 * it. */
static weir_status plan_mtp(weir_model *model, weir_error *error)
{
    const weir_toml_node *const table = weir_toml_get(model->arch->root, "mtp");
    layer *const l = &model->layers[model->shape.n_layers];
    const char *const name = weir_toml_string(weir_toml_get(table, "block"), NULL),
                      *const ffn = weir_toml_string(weir_toml_get(table, "ffn"), NULL);
    if (!model->wants_mtp || name == NULL) return WEIR_OK;
    const weir_container container = weir_tensor_directory_container(model->directory);
    WEIR_TRY(weir_arch_block(model->arch, name, ffn, container, &l->mixer, &l->ffn, error));
    const char *const why = reject_mtp(model, &l->mixer);
    if (why != NULL) {
        (void)snprintf(model->mtp.problem, sizeof model->mtp.problem, "[mtp] block: %s", why);
        return WEIR_OK;
    }
    WEIR_TRY(use_block(model, &l->mixer, &l->mixer_weights, error));
    WEIR_TRY(use_block(model, &l->ffn, &l->ffn_weights, error));
    WEIR_TRY(check_mixer(model, &l->mixer, name, error));
    WEIR_TRY(check_shape(model, &l->ffn, "ffn", error));
    l->kv = l->mixer.block->kv(&model->shape, l->mixer.options);
    l->kv.watched = false;
    l->kv.geometry.first_head = 0;
    l->kv_index = 0;
    model->mtp.is_planned = true;
    count_parameters(model, &l->mixer);
    count_parameters(model, &l->ffn);
    model->max_matrices++;
    model->max_vectors += 9; /* its own norms, those of the layer, a scale */
    return WEIR_OK;
}

/* Numbers the layers with KV rows, of which there are n: those that drop rows come last. */
static void number_layers(weir_model *model, int64_t n)
{
    int64_t n_main = 0, n_windows = 0;
    for (int64_t i = 0; i < n; i++)
        n_windows += model->drops_windows && model->geometry[i].window > 0;
    model->kv_layers = n - n_windows;
    model->window_layers = n_windows;
    n_windows = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool drops = model->drops_windows && model->geometry[i].window > 0;
        model->kv_numbers[i] = (int32_t)(drops ? model->kv_layers + n_windows++ : n_main++);
    }
}

static void place_geometry(weir_model *model)
{
    int64_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        layer *const l = &model->layers[i];
        if (l->kv_index < 0) continue;
        l->kv_index = model->kv_numbers[l->kv_index];
        l->drops_rows = l->kv_index >= model->kv_layers;
        model->geometry[l->kv_index] = l->kv.geometry;
    }
    weir_kv_number_heads(model->geometry, model->kv_layers);
    weir_kv_number_heads(model->geometry + model->kv_layers, model->window_layers);
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        layer *const l = &model->layers[i];
        if (l->kv_index < 0) continue;
        l->kv.geometry = model->geometry[l->kv_index];
        if (!l->drops_rows)
            model->readers[n++] =
                (weir_kv_reader){ .layer = (int32_t)l->kv_index, .is_watched = l->kv.watched };
    }
    model->n_readers = n;
}

/* Lists the geometry of the layers with KV rows, with first_head set, and the layers that read
 * them. */
static weir_status list_geometry(weir_model *model, weir_error *error)
{
    const int64_t n = model->kv_layers;
    model->geometry = calloc((size_t)n + 1, sizeof *model->geometry);
    model->kv_numbers = calloc((size_t)n + 1, sizeof *model->kv_numbers);
    model->readers = calloc((size_t)model->n_readers + 1, sizeof *model->readers);
    if (model->geometry == NULL || model->kv_numbers == NULL || model->readers == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %lld layers", (long long)n);
    for (int64_t i = 0; i < model->shape.n_layers; i++)
        if (model->layers[i].kv_index >= 0)
            model->geometry[model->layers[i].kv_index] = model->layers[i].kv.geometry;
    number_layers(model, n);
    place_geometry(model);
    return WEIR_OK;
}

/* Builds the list of layers with blocks, options and offsets in the sequence's memory. */
weir_status weir_plan_layers(weir_model *model, weir_error *error)
{
    const int64_t n = model->shape.n_layers;
    const char **names = calloc(2 * (size_t)n, sizeof *names);
    if (names == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %lld layers", (long long)n);
    const char **const ffns = names + n;
    weir_status status = weir_arch_layers(model->arch, model->directory, n, names, error);
    if (status == WEIR_OK) status = weir_arch_ffns(model->arch, model->directory, n, ffns, error);
    for (int64_t i = 0; status == WEIR_OK && i < n; i++)
        status = plan_layer(model, &model->layers[i], names[i], ffns[i], error);
    if (status == WEIR_OK) status = plan_mtp(model, error);
    free(names);
    return status == WEIR_OK ? list_geometry(model, error) : status;
}

/* The output matrix; its norm, RoPE's factors and longrope's lists; the projection of per-layer
 * embeddings and its norm. */
weir_status weir_open_parameters(weir_model *model, weir_error *error)
{
    model->max_matrices += 2;
    model->max_vectors += 5;
    model->weights = calloc(model->max_matrices, sizeof *model->weights);
    model->matrices = calloc(model->max_matrices, sizeof *model->matrices);
    model->vectors = calloc(model->max_vectors, sizeof *model->vectors);
    model->expert_arrays = calloc(model->max_expert_arrays + 1, sizeof *model->expert_arrays);
    if (model->expert_arrays != NULL && model->weights != NULL && model->matrices != NULL &&
        model->vectors != NULL)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_ENOMEM, "no memory to bind %zu tensors",
        model->max_matrices + model->max_vectors
    );
}
