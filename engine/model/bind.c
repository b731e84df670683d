/* engine/model/bind.c - binds tensors of a file to the parameters of an architecture's blocks:
 * checks names, shapes and types, and reports all problems of a file in one message. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/formats/printable.h"
#include "engine/model/bind_internal.h"

/* A parameter of the model itself. */
static wanted model_parameter(const binder *b, const char *parameter, int64_t layer, int64_t n_out)
{
    return (wanted){ .parameter = parameter,
                     .entry = weir_toml_get(b->table, parameter),
                     .layer = layer,
                     .dims = { n_out },
                     .n_dims = 1,
                     .n_rows = n_out,
                     .n_in = 1 };
}

/* ---- matrices and vectors -------------------------------------------------------------------- */
/* NVFP4 may have a factor of the whole tensor in a tensor of its own, X.scale or X.weight.scale
 * next to X.weight, which nothing here applies. Returns it, unless it is 1; else NULL. */
static const weir_tensor *factor_of(const binder *b, const weir_tensor *tensor)
{
    static const char weight[] = ".weight", *const ends[] = { ".scale", ".weight.scale" };
    const size_t length = strlen(tensor->name), n = sizeof weight - 1;
    if (tensor->dtype != WEIR_NVFP4 || length <= n || length > INT32_MAX ||
        strcmp(tensor->name + length - n, weight) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char name[WEIR_NAME_BYTES + sizeof ".scale"];
        if (snprintf(name, sizeof name, "%.*s%s", (int)(length - n), tensor->name, ends[i]) >=
            (int)sizeof name)
            continue;
        const weir_tensor *const found = weir_tensor_directory_find(b->model->directory, name);
        float factor = 0;
        if (found != NULL && found->dtype == WEIR_F32 && found->bytes == sizeof factor)
            memcpy(&factor, found->data, sizeof factor);
        if (found != NULL && !(factor >= 1.0f && factor <= 1.0f)) return found;
    }
    return NULL;
}

/* Plans the next matrix of the model. Returns NULL if it cannot be packed (reported). */
static const weir_weight *add_matrix(binder *b, const wanted *w, const part *from, int64_t expert)
{
    weir_model *const model = b->model;
    const weir_matrix_source source = { .data = from->data,
                                        .n_out = w->n_rows,
                                        .n_in = w->n_in,
                                        .dtype = from->dtype,
                                        .is_grouped = w->n_experts > 0 };
    weir_error reason = { 0 };
    WEIR_ASSERT(model->n_matrices < model->max_matrices);
    weir_weight *const weight = &model->weights[model->n_matrices];
    if (from->change != TRANSFORM_NONE) {
        weir_bind_problem(b, "tensor %s: a matrix cannot be transformed", from->tensor->name);
        return NULL;
    }
    const weir_tensor *const factor = factor_of(b, from->tensor);
    if (factor != NULL) {
        weir_bind_problem(
            b, "tensor %s: %s multiplies it, which is not supported: use a file of another type",
            from->tensor->name, factor->name
        );
        return NULL;
    }
    const weir_activations activations = w->is_exact ? WEIR_ACTIVATIONS_F32 : model->activations;
    if (weir_weight_plan(weight, model->stream, &source, activations, &reason) != WEIR_OK) {
        weir_bind_problem(b, "tensor %s: %s", from->tensor->name, reason.text);
        return NULL;
    }
    model->matrices[model->n_matrices++] = (bound_matrix){ .tensor = from->tensor,
                                                           .data = from->data,
                                                           .scales = from->scales,
                                                           .scale_data = from->scale_data,
                                                           .runs = from->runs,
                                                           .dtype = from->dtype,
                                                           .stored = from->stored,
                                                           .first_row = from->first_row,
                                                           .has_one_scale = from->has_one_scale,
                                                           .is_transposed = from->is_transposed,
                                                           .row_width = from->row_width,
                                                           .factor = from->factor,
                                                           .expert = w->is_per_row ? expert : 0,
                                                           .is_expert = w->is_per_row };
    return weight;
}

static void add_vector(binder *b, const bound_vector *vector)
{
    weir_model *const model = b->model;
    WEIR_ASSERT(model->n_vectors < model->max_vectors);
    model->vectors[model->n_vectors++] = *vector;
}

/* Reports that a parameter has no tensor, unless that is allowed: a parameter that the block
 * requires cannot be made optional by the arch file. `name`: one that it may have; NULL: none. */
static void check_absent(binder *b, const wanted *w, const char *name)
{
    bool marked = false;
    (void)weir_toml_bool(weir_toml_get(w->entry, "optional"), &marked);
    if (w->entry == NULL && !w->optional)
        weir_bind_problem(
            b, "%s: [tensor] has no entry \"%s\"", b->model->arch->file, w->parameter
        );
    if (w->entry != NULL && (!w->optional || (!marked && name != NULL)))
        weir_bind_report_missing(b, w, name, 0);
}

/* Finds and checks the tensor of a parameter. Returns false if it is missing or wrong (both
 * reported), or absent and optional. */
static bool take(binder *b, const wanted *w, part *out)
{
    const found f = weir_bind_find(b, w, 0);
    if (f.tensor == NULL) {
        check_absent(b, w, f.name);
        return false;
    }
    return weir_bind_part(b, w, &f, 0, out);
}

/* Both factors of a vector; 0: none. */
static float scale_of(const wanted *w, float factor)
{
    return factor == 0.0f ? w->scale : w->scale == 0.0f ? factor : w->scale * factor;
}

static void bind_vector(binder *b, const wanted *w, const float **parameter)
{
    part from = { 0 };
    if (take(b, w, &from) || w->has_initial)
        add_vector(
            b, &(bound_vector){ .parameter = parameter,
                                .tensor = from.tensor,
                                .data = from.data,
                                .count = w->n_rows,
                                .runs = from.runs,
                                .transform = from.change,
                                .scale = scale_of(w, from.factor),
                                .initial = w->initial,
                                .is_joined = w->is_joined }
        );
}

static void bind_matrix(binder *b, const wanted *w, const weir_weight **parameter)
{
    part from = { 0 };
    if (take(b, w, &from)) *parameter = add_matrix(b, w, &from, 0);
}

/* One expert's matrix; `first`: that of another expert, NULL if there is none yet. Returns false if
 * it is missing or wrong (both reported). */
static bool bind_expert(
    binder *b, const wanted *w, const char *name, int64_t expert, const weir_tensor *first
)
{
    const found f = weir_bind_find(b, w, expert);
    part from;
    if (f.tensor == NULL) {
        weir_bind_report_missing(b, w, name, expert);
        return false;
    }
    if (!weir_bind_part(b, w, &f, expert, &from)) return false;
    if (first != NULL && first->dtype != f.tensor->dtype) {
        weir_bind_problem(
            b, "tensor %s is %s, but %s is %s: all experts of a parameter must have the same type",
            f.tensor->name, weir_dtype_of(f.tensor->dtype).name, first->name,
            weir_dtype_of(first->dtype).name
        );
        return false;
    }
    return add_matrix(b, w, &from, expert) != NULL;
}

/* A cache reads, gathers and packs all experts of a parameter in the memory of the first. */
static bool are_stored_alike(const bound_matrix *a, const bound_matrix *b)
{
    return a->dtype == b->dtype && (a->scales == NULL) == (b->scales == NULL) &&
           (a->scales == NULL || a->scales->bytes == b->scales->bytes) &&
           a->is_transposed == b->is_transposed && a->row_width == b->row_width &&
           a->runs.length == b->runs.length;
}

static bool check_experts(binder *b, const bound_matrix *first, int64_t n)
{
    for (int64_t e = 1; e < n; e++) {
        if (are_stored_alike(&first[e], first)) continue;
        weir_bind_problem(
            b,
            "tensor %s is not stored as %s is: all experts of a parameter must have the same kind "
            "of scales and order of elements",
            first[e].tensor->name, first->tensor->name
        );
        return false;
    }
    return true;
}

/* The matrices of all experts or heads, adjacent. Some of them in the file are enough to know their
 * names; every other one that is missing is then reported. */
static void bind_experts(binder *b, const wanted *w, const weir_weight **parameter)
{
    weir_model *const model = b->model;
    const size_t before = model->n_matrices;
    size_t n_wrong = 0;
    const found first = weir_bind_find(b, w, 0),
                last = first.tensor != NULL ? first : weir_bind_find(b, w, w->n_experts - 1);
    if (last.tensor == NULL) {
        check_absent(b, w, first.name);
        return;
    }
    const size_t most = weir_bind_is_per_expert(&last) ? WEIR_BIND_PROBLEMS : 1;
    for (int64_t e = 0; e < w->n_experts && n_wrong < most; e++)
        n_wrong += !bind_expert(b, w, last.name, e, first.tensor);
    if (n_wrong > 0 || !check_experts(b, &model->matrices[before], w->n_experts)) return;
    *parameter = &model->weights[before];
    if (!w->is_per_row) return;
    WEIR_ASSERT(model->n_expert_arrays < model->max_expert_arrays);
    model->expert_arrays[model->n_expert_arrays++] =
        (weir_expert_array){ .layer = w->layer, .n = w->n_experts, .first = before };
}

/* Binds one parameter of a block in a layer. */
static void bind_parameter(
    binder *b, const weir_parameter *parameter, const weir_block_use *use, int64_t layer, void *at
)
{
    wanted w = { .parameter = parameter->name,
                 .entry = weir_toml_get(b->table, parameter->name),
                 .layer = layer,
                 .optional = parameter->optional,
                 .is_exact = parameter->is_exact,
                 .is_joined = parameter->is_joined,
                 .is_per_row = parameter->kind == WEIR_PARAMETER_EXPERTS,
                 .scale =
                     parameter->scale != NULL ? (float)parameter->scale(&b->model->shape) : 0.0f,
                 .has_initial = parameter->initial != NULL,
                 .initial =
                     parameter->initial != NULL ? (float)parameter->initial(use->options) : 0.0f };
    if (!weir_bind_size(b, &w, parameter, use)) return;
    switch (parameter->kind) {
    case WEIR_PARAMETER_MATRIX: bind_matrix(b, &w, at); break;
    case WEIR_PARAMETER_VECTOR: bind_vector(b, &w, at); break;
    case WEIR_PARAMETER_EXPERTS:
    case WEIR_PARAMETER_HEADS: bind_experts(b, &w, at); break;
    }
}

static void bind_block(binder *b, const weir_block_use *use, int64_t layer, void *weights)
{
    for (const weir_parameter *parameter = use->block->parameters; parameter->name != NULL;
         parameter++) {
        if (parameter->wanted != NULL && !parameter->wanted(use->options)) continue;
        if (weir_bind_is_empty(b, parameter, use)) continue;
        bind_parameter(b, parameter, use, layer, (char *)weights + parameter->offset);
    }
}

void weir_bind_vector(
    binder *b, const char *parameter, int64_t layer, int64_t n_out, const float **at
)
{
    const wanted w = model_parameter(b, parameter, layer, n_out);
    bind_vector(b, &w, at);
}

void weir_bind_matrix(
    binder *b, const char *parameter, int64_t layer, int64_t n_out, int64_t n_in,
    const weir_weight **at
)
{
    wanted w = model_parameter(b, parameter, layer, n_out);
    w.dims[w.n_dims++] = w.n_in = n_in;
    bind_matrix(b, &w, at);
}

static void bind_norm(binder *b, const char *parameter, int64_t layer, const float **norm)
{
    weir_bind_vector(b, parameter, layer, b->model->shape.d_model, norm);
}

/* A number of the layer, as a vector that multiplies rows; only where the arch file names it. */
static void bind_scale(binder *b, int64_t layer, const float **scale)
{
    const wanted w = model_parameter(b, "layer.scale", layer, 1);
    part from = { 0 };
    if (w.entry == NULL || !take(b, &w, &from)) return;
    add_vector(
        b, &(bound_vector){ .parameter = scale,
                            .tensor = from.tensor,
                            .data = from.data,
                            .count = b->model->shape.d_model,
                            .runs = { .length = 1, .stride = 0 },
                            .transform = from.change }
    );
}

void weir_bind_layer(binder *b, int64_t index)
{
    layer *const l = &b->model->layers[index];
    const weir_layer_norms norms = weir_arch_norms(b->model->arch);
    const bool has_mixer = l->mixer.block->forward != NULL, has_ffn = l->ffn.block->forward != NULL;
    if (norms.before && has_mixer) bind_norm(b, "layer.mixer_norm", index, &l->mixer_norm);
    bind_block(b, &l->mixer, index, l->mixer_weights);
    if (norms.after && has_mixer)
        bind_norm(b, "layer.mixer_norm_after", index, &l->mixer_norm_after);
    if (norms.before && has_ffn) bind_norm(b, "layer.ffn_norm", index, &l->ffn_norm);
    bind_block(b, &l->ffn, index, l->ffn_weights);
    if (norms.after && has_ffn) bind_norm(b, "layer.ffn_norm_after", index, &l->ffn_norm_after);
    bind_scale(b, index, &l->scale);
    if (l->input.block == NULL) return;
    bind_block(b, &l->input, index, l->input_weights);
    bind_norm(b, "layer.input_norm_after", index, &l->input_norm_after);
}

/* A table whose rows of `width` elements are read from the file. n_rows 0: any number of them.
 * Returns NULL if it is missing or has another shape (reported). */
static const weir_tensor *find_table(
    binder *b, const char *parameter, int64_t n_rows, int64_t width
)
{
    const wanted w = model_parameter(b, parameter, 0, 0);
    const found f = weir_bind_find(b, &w, 0);
    const weir_tensor *const tensor = f.tensor;
    if (tensor == NULL) {
        weir_bind_report_missing(b, &w, f.name, 0);
        return NULL;
    }
    weir_bind_mark_used(b, tensor);
    if (tensor->n_dims == 2 && tensor->shape[1] == width && tensor->shape[0] <= INT32_MAX &&
        (n_rows == 0 || tensor->shape[0] == n_rows))
        return tensor;
    char shape[128], rows[32] = "vocabulary";
    weir_bind_describe(shape, sizeof shape, tensor->shape, tensor->n_dims);
    if (n_rows > 0) (void)snprintf(rows, sizeof rows, "%" PRId64, n_rows);
    weir_bind_problem(
        b, "tensor %s is [%s], want [%s, %" PRId64 "]", tensor->name, shape, rows, width
    );
    return NULL;
}

/* The embedding determines the vocabulary: its rows are read from the file; a tied output matrix is
 * also packed. */
static void bind_embedding(binder *b)
{
    const weir_tensor *const tensor = find_table(b, "embed", 0, b->model->shape.d_model);
    if (tensor == NULL) return;
    weir_meta size;
    if (b->container == WEIR_CONTAINER_SAFETENSORS &&
        weir_tensor_directory_meta(b->model->directory, "vocab_size", &size) &&
        !(size.type == WEIR_META_INT && size.integer == tensor->shape[0]))
        weir_bind_problem(
            b, "tensor %s has %" PRId64 " rows, but config.json has another vocab_size",
            tensor->name, tensor->shape[0]
        );
    b->model->embedding = tensor;
    b->model->shape.n_vocab = tensor->shape[0];
    float factor;
    if (!weir_bind_factor(b, "embed", weir_toml_get(b->table, "embed"), &factor)) return;
    b->model->embedding_factor = factor != 0.0f ? factor : 1.0f;
    b->model->stream_scale *= b->model->embedding_factor;
}

/* Longrope's two lists of factors, of GGUF files that have them. */
static void bind_rope_lists(binder *b)
{
    weir_model *const model = b->model;
    static const char *const names[] = { "rope.short", "rope.long" };
    const size_t before = model->n_vectors;
    for (size_t i = 0; i < 2; i++) {
        wanted list = model_parameter(b, names[i], 0, model->shape.rotary_dim / 2);
        list.optional = true;
        if (list.entry != NULL) bind_vector(b, &list, &model->rope_lists[i]);
    }
    if (model->n_vectors == before + 1)
        weir_bind_problem(
            b, "one of longrope's two lists of factors is missing, of %s and %s", names[0], names[1]
        );
    model->rope_context.has_lists = model->n_vectors == before + 2;
}

/* True if rows of the table can be read as weights; FP8 would need scales. */
static bool are_weights(const weir_tensor *table)
{
    static const unsigned char zeros[512];
    float block[256];
    const weir_dtype_info info = weir_dtype_of(table->dtype);
    WEIR_ASSERT(info.block_elements <= 256 && info.block_bytes <= (int32_t)sizeof zeros);
    return table->dtype != WEIR_F8_E4M3 && table->dtype != WEIR_F8_E5M2 &&
           table->shape[1] % info.block_elements == 0 &&
           weir_dequantise(block, zeros, table->dtype, info.block_elements) == WEIR_OK;
}

/* The table of per-layer embeddings, and the projection of embedded rows that is added to them. */
static void bind_layer_inputs(binder *b)
{
    weir_model *const model = b->model;
    const weir_shape *const shape = &model->shape;
    const int64_t row = weir_model_layer_input_row(model);
    if (row == 0) return;
    wanted projection = model_parameter(b, "embed.layers_proj", 0, row),
           norm = model_parameter(b, "embed.layers_norm", 0, shape->d_layer_input);
    projection.dims[projection.n_dims++] = projection.n_in = shape->d_model;
    norm.scale = (float)sqrt(0.5); /* of the sum with the table's row (layer_inputs.c) */
    bind_matrix(b, &projection, &model->layer_projection);
    bind_vector(b, &norm, &model->layer_projection_norm);
    model->layer_embedding = find_table(b, "embed.layers", shape->n_vocab, row);
    if (model->layer_embedding != NULL && !are_weights(model->layer_embedding))
        weir_bind_problem(
            b, "tensor %s of %s: its rows cannot be read as weights", model->layer_embedding->name,
            weir_dtype_of(model->layer_embedding->dtype).name
        );
}

/* The parameters of the model that belong to no layer. */
static void bind_ends(binder *b)
{
    weir_model *const model = b->model;
    const weir_shape *const shape = &model->shape;
    wanted norm = model_parameter(b, "norm", 0, shape->d_model);
    wanted output = model_parameter(b, "output", 0, shape->n_vocab),
           factors = model_parameter(b, "rope.factors", 0, shape->rotary_dim / 2);
    output.dims[output.n_dims++] = output.n_in = shape->d_model;
    factors.optional = true;
    norm.scale = (float)shape->logit_scale; /* logits are linear in what the last norm gives */
    bind_vector(b, &norm, &model->output_norm);
    bind_matrix(b, &output, &model->output);
    bind_vector(b, &factors, &model->rope_factors);
    bind_rope_lists(b);
    bind_layer_inputs(b);
}

/* An adapter of which nothing is used is the wrong file, or has unknown names. */
static void check_adapter(binder *b)
{
    const weir_model *const model = b->model;
    const size_t n = weir_tensor_directory_count(model->adapter),
                 before = weir_tensor_directory_count(model->directory);
    for (size_t i = 0; i < n; i++) {
        if (model->used[before + i]) return;
    }
    weir_bind_problem(
        b, "adapter %s: the architecture uses none of its %zu tensors, the first is %s",
        weir_tensor_directory_path(model->adapter), n,
        n > 0 ? weir_tensor_directory_at(model->adapter, 0)->name : "missing"
    );
}

/* Marks the last matrix of each tensor. */
static weir_status mark_last(weir_model *model, weir_error *error)
{
    const size_t n_more = model->adapter != NULL ? weir_tensor_directory_count(model->adapter) : 0;
    bool *const seen =
        calloc(weir_tensor_directory_count(model->directory) + n_more + 1, sizeof *seen);
    if (seen == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory to bind tensors");
    for (size_t i = model->n_matrices; i-- > 0;) {
        bool *const is_seen = &seen[weir_model_tensor_index(model, model->matrices[i].tensor)];
        model->matrices[i].is_last = !*is_seen;
        *is_seen = true;
    }
    free(seen);
    return WEIR_OK;
}

weir_status weir_bind_tensors(weir_model *model, weir_error *error)
{
    binder b = { .model = model,
                 .table = weir_toml_get(model->arch->root, "tensor"),
                 .container = weir_tensor_directory_container(model->directory) };
    bind_embedding(&b);
    if (b.n_problems == 0) {
        bind_ends(&b);
        for (int64_t i = 0; i < model->shape.n_layers; i++) weir_bind_layer(&b, i);
    }
    if (b.n_problems == 0) weir_bind_check_alike(&b);
    if (b.n_problems == 0 && model->adapter != NULL) check_adapter(&b);
    weir_status status = WEIR_OK;
    if (b.n_problems > 0) {
        if (b.n_problems > WEIR_BIND_PROBLEMS)
            (void)!weir_buffer_format(
                &b.problems, "\n  and %zu more", b.n_problems - WEIR_BIND_PROBLEMS
            );
        status = weir_error_set(
            error, WEIR_EMISMATCH, "%s: does not fit architecture %s:%s",
            weir_tensor_directory_path(model->directory), model->arch->name,
            b.problems.data != NULL ? b.problems.data : ""
        );
    }
    weir_buffer_free(&b.problems);
    if (status == WEIR_OK) weir_bind_mtp(model);
    return status == WEIR_OK ? mark_last(model, error) : status;
}
