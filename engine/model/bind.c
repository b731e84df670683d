/* engine/model/bind.c - binds tensors of a file to the slots of an architecture's blocks: checks
 * names, shapes and types, and reports all problems of a file in one message. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/base/checked.h"
#include "engine/model/model_internal.h"

enum { REPORTED_PROBLEMS = 8, NAME_LENGTH = 512 };

typedef struct binder {
    weir_model *model;
    const weir_toml_node *table; /* [tensor] */
    weir_container container;
    weir_buffer problems;
    size_t n_problems;
} binder;

__attribute__((format(printf, 2, 3))) static void problem(binder *b, const char *format, ...)
{
    if (b->n_problems++ >= REPORTED_PROBLEMS) return;
    char text[NAME_LENGTH + 128];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    (void)!weir_buffer_format(&b->problems, "\n  %s", text);
}

/* Replaces {i} by the layer. */
static void expand(char *out, size_t size, const char *pattern, int64_t layer)
{
    const char *const at = strstr(pattern, "{i}");
    if (at == NULL)
        (void)snprintf(out, size, "%s", pattern);
    else
        (void)snprintf(out, size, "%.*s%" PRId64 "%s", (int)(at - pattern), pattern, layer, at + 3);
}

static const weir_tensor *find_name(
    const binder *b, const weir_tensor_directory *directory, const char *pattern, int64_t layer
)
{
    char name[NAME_LENGTH], full[2 * NAME_LENGTH];
    expand(name, sizeof name, pattern, layer);
    const weir_tensor *tensor = weir_tensor_directory_find(directory, name);
    if (tensor != NULL || b->container == WEIR_CONTAINER_GGUF) return tensor;
    const weir_toml_node *const prefixes =
        weir_toml_get(weir_toml_get(b->model->arch->root, "arch"), "prefixes");
    for (size_t i = 0; tensor == NULL && prefixes != NULL && i < weir_toml_size(prefixes); i++) {
        const char *const prefix = weir_toml_string(weir_toml_at(prefixes, i, NULL), NULL);
        (void)snprintf(full, sizeof full, "%s%s", prefix != NULL ? prefix : "", name);
        tensor = weir_tensor_directory_find(directory, full);
    }
    return tensor;
}

/* NAME or [NAMES]; *wanted (may be NULL) is the first name, for messages. */
static const weir_tensor *find_names(
    const binder *b, const weir_tensor_directory *directory, const weir_toml_node *names,
    int64_t layer, const char **wanted
)
{
    if (names == NULL) return NULL;
    const bool is_list = weir_toml_type_of(names) == WEIR_TOML_ARRAY;
    const weir_tensor *tensor = NULL;
    for (size_t i = 0; tensor == NULL && i < (is_list ? weir_toml_size(names) : 1); i++) {
        const char *const name =
            weir_toml_string(is_list ? weir_toml_at(names, i, NULL) : names, NULL);
        if (name == NULL) continue;
        if (wanted != NULL && i == 0) *wanted = name;
        tensor = find_name(b, directory, name, layer);
    }
    return tensor;
}

static void mark_used(binder *b, const weir_tensor *tensor)
{
    const weir_model *const model = b->model;
    const bool is_own = weir_model_directory_of(model, tensor) == model->directory;
    const size_t before = is_own ? 0 : weir_tensor_directory_count(model->directory);
    model->used
        [before +
         (size_t)(tensor - weir_tensor_directory_at(is_own ? model->directory : model->adapter, 0)
         )] = true;
}

/* Searches the names of this container, the adapter's before the checkpoint's; the adapter may also
 * have other names. */
static const weir_tensor *find_tensor(
    binder *b, const weir_toml_node *entry, int64_t layer, const char **wanted
)
{
    const weir_toml_node *const names = weir_arch_choice(entry, b->container);
    const weir_tensor *const base = find_names(b, b->model->directory, names, layer, wanted);
    const weir_tensor *tensor = NULL;
    if (b->model->adapter == NULL) return base;
    tensor = find_names(b, b->model->adapter, weir_toml_get(entry, "adapter"), layer, NULL);
    if (tensor == NULL) tensor = find_names(b, b->model->adapter, names, layer, NULL);
    if (tensor != NULL && base != NULL) mark_used(b, base); /* replaced */
    return tensor != NULL ? tensor : base;
}

static transform transform_of(binder *b, const weir_toml_node *entry, const char *slot)
{
    const char *const text = weir_toml_string(
        weir_toml_get(
            entry, b->container == WEIR_CONTAINER_GGUF ? "gguf_transform" : "hf_transform"
        ),
        NULL
    );
    if (text == NULL) return TRANSFORM_NONE;
    if (strcmp(text, "one_plus") == 0) return TRANSFORM_ONE_PLUS;
    if (strcmp(text, "neg_exp") == 0) return TRANSFORM_NEG_EXP;
    problem(
        b, "%s: [tensor] \"%s\" has an unknown transform '%s'", b->model->arch->file, slot, text
    );
    return TRANSFORM_NONE;
}

typedef struct wanted {
    const char *slot;
    int64_t layer;
    int64_t dims[WEIR_TENSOR_DIMS];
    int32_t n_dims;
    bool optional, has_initial;
    float initial;
} wanted;

/* Elements of a slot's shape; 0: larger than any tensor. */
static int64_t elements(const int64_t *dims, int32_t n_dims)
{
    size_t n = 1;
    for (int32_t i = 0; i < n_dims; i++)
        if (dims[i] < 1 || !weir_mul_size(&n, n, (size_t)dims[i]) || n > INT64_MAX) return 0;
    return (int64_t)n;
}

/* Compares without dimensions of 1: [C, 1, K] is [C, K], {H} is {H, 1}. */
static bool has_shape(const weir_tensor *tensor, const wanted *w)
{
    int64_t want[WEIR_TENSOR_DIMS], got[WEIR_TENSOR_DIMS];
    int n_want = 0, n_got = 0;
    for (int32_t i = 0; i < w->n_dims; i++) {
        if (w->dims[i] != 1) want[n_want++] = w->dims[i];
    }
    for (int i = 0; i < tensor->n_dims; i++) {
        if (tensor->shape[i] != 1) got[n_got++] = tensor->shape[i];
    }
    return n_want == n_got && memcmp(want, got, (size_t)n_want * sizeof *want) == 0;
}

static void describe_shape(char *out, size_t size, const int64_t *dims, int32_t n_dims)
{
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < n_dims && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i > 0 ? ", " : "", dims[i]);
}

static void add_matrix(
    binder *b, const weir_tensor *tensor, const wanted *w, const weir_weight **slot
)
{
    weir_model *const model = b->model;
    const int64_t n_in = w->dims[w->n_dims - 1];
    const weir_matrix_source source = { .data = tensor->data,
                                        .n_out = elements(w->dims, w->n_dims) / n_in,
                                        .n_in = n_in,
                                        .dtype = tensor->dtype };
    weir_error reason = { 0 };
    WEIR_ASSERT(model->n_matrices < model->max_matrices);
    bound_matrix *const matrix = &model->matrices[model->n_matrices];
    if (weir_weight_plan(&matrix->weight, model->stream, &source, model->activations, &reason) !=
        WEIR_OK) {
        problem(b, "tensor %s: %s", tensor->name, reason.text);
        return;
    }
    matrix->tensor = tensor;
    *slot = &matrix->weight;
    model->n_matrices++;
}

static void add_vector(binder *b, const bound_vector *vector)
{
    weir_model *const model = b->model;
    WEIR_ASSERT(model->n_vectors < model->max_vectors);
    model->vectors[model->n_vectors++] = *vector;
}

/* The tensor of a slot, or of the slot that its entry refers to with `or`. */
static const weir_tensor *find_slot(
    binder *b, const wanted *w, const weir_toml_node *entry, const char **name
)
{
    const weir_tensor *const tensor = find_tensor(b, entry, w->layer, name);
    const char *const instead = weir_toml_string(weir_toml_get(entry, "or"), NULL);
    if (tensor != NULL || instead == NULL) return tensor;
    return find_tensor(b, weir_toml_get(b->table, instead), w->layer, NULL);
}

static void report_missing(binder *b, const wanted *w, const char *name)
{
    const char *const file = b->model->arch->file;
    char full[NAME_LENGTH];
    if (name == NULL) {
        problem(
            b, "%s: [tensor] has no %s name for \"%s\", which every checkpoint must have: add it",
            file, b->container == WEIR_CONTAINER_GGUF ? "gguf" : "hf", w->slot
        );
        return;
    }
    expand(full, sizeof full, name, w->layer);
    problem(b, "tensor %s is missing (slot \"%s\" of %s)", full, w->slot, file);
}

/* Finds and checks one tensor. Returns NULL if it is missing or wrong (both reported), or absent
 * and optional. A slot that the block requires cannot be made optional by the arch file. */
static const weir_tensor *take(binder *b, const wanted *w, transform *change)
{
    const weir_toml_node *const entry = weir_toml_get(b->table, w->slot);
    const char *name = NULL;
    bool marked = false;
    if (entry == NULL && w->optional) return NULL;
    if (entry == NULL) {
        problem(b, "%s: [tensor] has no entry \"%s\"", b->model->arch->file, w->slot);
        return NULL;
    }
    (void)weir_toml_bool(weir_toml_get(entry, "optional"), &marked);
    const weir_tensor *const tensor = find_slot(b, w, entry, &name);
    if (tensor == NULL) {
        if (!w->optional || (!marked && name != NULL)) report_missing(b, w, name);
        return NULL;
    }
    mark_used(b, tensor);
    if (!has_shape(tensor, w)) {
        char shape[160], want[160];
        describe_shape(shape, sizeof shape, tensor->shape, tensor->n_dims);
        describe_shape(want, sizeof want, w->dims, w->n_dims);
        problem(b, "tensor %s is [%s], want [%s]", tensor->name, shape, want);
        return NULL;
    }
    *change = transform_of(b, entry, w->slot);
    return tensor;
}

static void bind_vector(binder *b, const wanted *w, const float **slot)
{
    transform change = TRANSFORM_NONE;
    const weir_tensor *const tensor = take(b, w, &change);
    if (tensor != NULL || w->has_initial)
        add_vector(
            b, &(bound_vector){ .slot = slot,
                                .tensor = tensor,
                                .count = elements(w->dims, w->n_dims),
                                .transform = change,
                                .initial = w->initial }
        );
}

static void bind_matrix(binder *b, const wanted *w, const weir_weight **slot)
{
    transform change = TRANSFORM_NONE;
    const weir_tensor *const tensor = take(b, w, &change);
    if (tensor != NULL && change != TRANSFORM_NONE)
        problem(b, "tensor %s: a matrix cannot be transformed", tensor->name);
    if (tensor != NULL) add_matrix(b, tensor, w, slot);
}

/* Binds one slot of a block in a layer. */
static void bind_slot(
    binder *b, const weir_slot *slot, const weir_block_use *use, int64_t layer, void *at
)
{
    wanted w = { .slot = slot->name,
                 .layer = layer,
                 .optional = slot->optional,
                 .has_initial = slot->initial != NULL,
                 .initial = slot->initial != NULL ? (float)slot->initial(use->options) : 0.0f };
    while (w.n_dims < WEIR_TENSOR_DIMS && slot->dims[w.n_dims] != NULL) {
        w.dims[w.n_dims] = slot->dims[w.n_dims](&b->model->shape, use->options);
        w.n_dims++;
    }
    if (elements(w.dims, w.n_dims) == 0) {
        problem(b, "slot \"%s\" of %s has a shape that no tensor has", w.slot, use->block->name);
        return;
    }
    switch (slot->kind) {
    case WEIR_SLOT_MATRIX: bind_matrix(b, &w, at); break;
    case WEIR_SLOT_VECTOR: bind_vector(b, &w, at); break;
    }
}

static void bind_block(binder *b, const weir_block_use *use, int64_t layer, void *weights)
{
    for (const weir_slot *slot = use->block->slots; slot->name != NULL; slot++) {
        if (slot->wanted != NULL && !slot->wanted(use->options)) continue;
        bind_slot(b, slot, use, layer, (char *)weights + slot->offset);
    }
}

static void bind_layer(binder *b, int64_t index)
{
    layer *const l = &b->model->layers[index];
    const int64_t d = b->model->shape.d_model;
    bind_vector(
        b, &(wanted){ .slot = "layer.mixer_norm", .layer = index, .dims = { d }, .n_dims = 1 },
        &l->mixer_norm
    );
    bind_block(b, &l->mixer, index, l->mixer_weights);
    bind_vector(
        b, &(wanted){ .slot = "layer.ffn_norm", .layer = index, .dims = { d }, .n_dims = 1 },
        &l->ffn_norm
    );
    bind_block(b, &l->ffn, index, l->ffn_weights);
}

/* The embedding determines the vocabulary: its rows are read from the file; a tied output matrix is
 * also packed. */
static void bind_embedding(binder *b)
{
    const weir_toml_node *const entry = weir_toml_get(b->table, "embed");
    const char *name = NULL;
    const weir_tensor *const tensor = find_tensor(b, entry, 0, &name);
    if (tensor == NULL) {
        report_missing(b, &(wanted){ .slot = "embed" }, name);
        return;
    }
    mark_used(b, tensor);
    if (tensor->n_dims != 2 || tensor->shape[1] != b->model->shape.d_model ||
        tensor->shape[0] > INT32_MAX) {
        char shape[128];
        describe_shape(shape, sizeof shape, tensor->shape, tensor->n_dims);
        problem(
            b, "tensor %s is [%s], want [vocabulary, %" PRId64 "]", tensor->name, shape,
            b->model->shape.d_model
        );
        return;
    }
    weir_meta size;
    if (b->container == WEIR_CONTAINER_SAFETENSORS &&
        weir_tensor_directory_meta(b->model->directory, "vocab_size", &size) &&
        !(size.type == WEIR_META_INT && size.integer == tensor->shape[0]))
        problem(
            b, "tensor %s has %" PRId64 " rows, but config.json has another vocab_size",
            tensor->name, tensor->shape[0]
        );
    b->model->embedding = tensor;
    b->model->shape.n_vocab = tensor->shape[0];
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
    problem(
        b, "adapter %s: the architecture uses none of its %zu tensors, the first is %s",
        weir_tensor_directory_path(model->adapter), n,
        n > 0 ? weir_tensor_directory_at(model->adapter, 0)->name : "missing"
    );
}

weir_status weir_bind_tensors(weir_model *model, weir_error *error)
{
    binder b = { .model = model,
                 .table = weir_toml_get(model->arch->root, "tensor"),
                 .container = weir_tensor_directory_container(model->directory) };
    bind_embedding(&b);
    if (b.n_problems == 0) {
        const weir_shape *const shape = &model->shape;
        bind_vector(
            &b, &(wanted){ .slot = "norm", .dims = { shape->d_model }, .n_dims = 1 },
            &model->output_norm
        );
        bind_matrix(
            &b,
            &(wanted){ .slot = "output", .dims = { shape->n_vocab, shape->d_model }, .n_dims = 2 },
            &model->output
        );
        bind_vector(
            &b,
            &(wanted){ .slot = "rope.factors",
                       .dims = { shape->rotary_dim / 2 },
                       .n_dims = 1,
                       .optional = true },
            &model->rope_factors
        );
        for (int64_t i = 0; i < shape->n_layers; i++) bind_layer(&b, i);
    }
    if (b.n_problems == 0 && model->adapter != NULL) check_adapter(&b);
    weir_status status = WEIR_OK;
    if (b.n_problems > 0) {
        if (b.n_problems > REPORTED_PROBLEMS)
            (void
            )!weir_buffer_format(&b.problems, "\n  and %zu more", b.n_problems - REPORTED_PROBLEMS);
        status = weir_error_set(
            error, WEIR_EMISMATCH, "%s: does not fit architecture %s:%s",
            weir_tensor_directory_path(model->directory), model->arch->name,
            b.problems.data != NULL ? b.problems.data : ""
        );
    }
    weir_buffer_free(&b.problems);
    return status;
}

/* Patterns are prefixes; {i} matches any number, {beyond} a layer past the last. */
static bool pattern_matches(const char *pattern, const char *name, int64_t n_layers)
{
    while (*pattern != '\0') {
        const bool any = strncmp(pattern, "{i}", 3) == 0,
                   beyond = strncmp(pattern, "{beyond}", 8) == 0;
        if (any || beyond) {
            if (!isdigit((unsigned char)*name)) return false;
            char *end;
            if (strtoll(name, &end, 10) < n_layers && beyond) return false;
            name = end;
            pattern += any ? 3 : 8;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return true;
}

bool weir_bind_skips(const weir_model *model, const char *name)
{
    const weir_toml_node *const skip =
        weir_toml_get(weir_toml_get(model->arch->root, "arch"), "skip");
    const weir_toml_node *const list =
        skip != NULL ? weir_arch_choice(skip, weir_tensor_directory_container(model->directory))
                     : NULL;
    for (size_t i = 0; list != NULL && i < weir_toml_size(list); i++) {
        const char *const pattern = weir_toml_string(weir_toml_at(list, i, NULL), NULL);
        if (pattern != NULL && pattern_matches(pattern, name, model->shape.n_layers)) return true;
    }
    return false;
}
