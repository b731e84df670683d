/* engine/model/bind_names.c - finds tensors by the names of [tensor], and collects the problems of
 * a file. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/bind_internal.h"

enum { NAME_LENGTH = 512 };

void weir_bind_problem(binder *b, const char *format, ...)
{
    if (b->n_problems++ >= WEIR_BIND_PROBLEMS) return;
    char text[NAME_LENGTH + 128];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    (void)!weir_buffer_format(&b->problems, "\n  %s", text);
}

/* Replaces {i} by the layer and {e} by the expert. */
static void expand(char *out, size_t size, const char *pattern, int64_t layer, int64_t expert)
{
    size_t n = 0;
    while (*pattern != '\0' && n + 1 < size) {
        const bool is_layer = strncmp(pattern, "{i}", 3) == 0,
                   is_expert = strncmp(pattern, "{e}", 3) == 0;
        if (is_layer || is_expert) {
            n += (size_t)snprintf(out + n, size - n, "%" PRId64, is_layer ? layer : expert);
            pattern += 3;
        } else {
            out[n++] = *pattern++;
        }
    }
    out[n < size ? n : size - 1] = '\0';
}

static void expand_name(
    const binder *b, char out[NAME_LENGTH], const char *pattern, int64_t layer, int64_t expert
)
{
    size_t n = 0;
    if (b->prefix != NULL) {
        (void)snprintf(out, NAME_LENGTH, "%s", b->prefix);
        n = strlen(out);
        layer = b->prefix_layer;
    }
    expand(out + n, NAME_LENGTH - n, pattern, layer, expert);
}

/* A place in a model: the layer and the expert, for names. */
typedef struct place {
    int64_t layer, expert;
} place;

static const weir_tensor *find_name(
    const binder *b, const weir_tensor_directory *directory, const char *pattern, place at
)
{
    char name[NAME_LENGTH], full[2 * NAME_LENGTH];
    expand_name(b, name, pattern, at.layer, at.expert);
    const weir_tensor *tensor = weir_tensor_directory_find(directory, name);
    if (tensor != NULL || b->container == WEIR_CONTAINER_GGUF || b->prefix != NULL) return tensor;
    const weir_toml_node *const prefixes =
        weir_toml_get(weir_toml_get(b->model->arch->root, "arch"), "prefixes");
    for (size_t i = 0; tensor == NULL && prefixes != NULL && i < weir_toml_size(prefixes); i++) {
        const char *const prefix = weir_toml_string(weir_toml_at(prefixes, i, NULL), NULL);
        (void)snprintf(full, sizeof full, "%s%s", prefix != NULL ? prefix : "", name);
        tensor = weir_tensor_directory_find(directory, full);
    }
    return tensor;
}

/* NAME or [NAMES]: the first that exists. */
static found find_names(
    const binder *b, const weir_tensor_directory *directory, const weir_toml_node *names, place at
)
{
    found out = { 0 };
    if (names == NULL) return out;
    const bool is_list = weir_toml_type_of(names) == WEIR_TOML_ARRAY;
    for (size_t i = 0; i < (is_list ? weir_toml_size(names) : 1); i++) {
        const char *const name =
            weir_toml_string(is_list ? weir_toml_at(names, i, NULL) : names, NULL);
        if (name == NULL) continue;
        const weir_tensor *const tensor = find_name(b, directory, name, at);
        if (out.name == NULL || tensor != NULL) out = (found){ tensor, name };
        if (tensor != NULL) break;
    }
    return out;
}

void weir_bind_mark_used(binder *b, const weir_tensor *tensor)
{
    b->model->used[weir_model_tensor_index(b->model, tensor)] = true;
}

/* Searches the names of this container, the adapter's before the checkpoint's; the adapter may also
 * have other names. */
static found find_tensor(binder *b, const weir_toml_node *entry, place at)
{
    const weir_toml_node *const names = weir_arch_choice(entry, b->container);
    const found base = find_names(b, b->model->directory, names, at);
    if (b->model->adapter == NULL) return base;
    found own = find_names(b, b->model->adapter, weir_toml_get(entry, "adapter"), at);
    if (own.tensor == NULL) own = find_names(b, b->model->adapter, names, at);
    if (own.tensor == NULL) return base;
    if (base.tensor != NULL) weir_bind_mark_used(b, base.tensor); /* replaced */
    return own;
}

/* The output matrix is the embedding, even if the checkpoint has one besides. */
static bool is_tied(const binder *b)
{
    weir_meta meta;
    return b->container == WEIR_CONTAINER_SAFETENSORS &&
           weir_tensor_directory_meta(b->model->directory, "tie_word_embeddings", &meta) &&
           meta.type == WEIR_META_BOOL && meta.boolean;
}

found weir_bind_find(binder *b, const wanted *w, int64_t expert)
{
    const place at = { .layer = w->layer, .expert = expert };
    const found own = find_tensor(b, w->entry, at);
    const char *const instead = weir_toml_string(weir_toml_get(w->entry, "or"), NULL);
    if (instead == NULL) return own;
    const bool is_unused = own.tensor != NULL && strcmp(instead, "embed") == 0 && is_tied(b) &&
                           weir_model_directory_of(b->model, own.tensor) == b->model->directory;
    if (own.tensor != NULL && !is_unused) return own;
    const found other = find_tensor(b, weir_toml_get(b->table, instead), at);
    if (other.tensor == NULL) return own;
    if (is_unused) weir_bind_mark_used(b, own.tensor);
    return other;
}

bool weir_bind_find_scales(binder *b, const wanted *w, int64_t expert, const weir_tensor **out)
{
    const place at = { .layer = w->layer, .expert = expert };
    const char *const name = b->container == WEIR_CONTAINER_SAFETENSORS
                                 ? weir_toml_string(weir_toml_get(w->entry, "hf_scales"), NULL)
                                 : NULL;
    *out = name != NULL ? find_name(b, b->model->directory, name, at) : NULL;
    if (*out != NULL) weir_bind_mark_used(b, *out);
    if (name != NULL && *out == NULL) weir_bind_report_missing(b, w, name, expert);
    return name == NULL || *out != NULL;
}

/* The scale of activations in FP8, PREFIX.activation_scale next to PREFIX.weight, is not needed. */
static void skip_activation_scale(binder *b, const weir_tensor *codes)
{
    const weir_tensor_directory *const directory = weir_model_directory_of(b->model, codes);
    const char *const dot = strrchr(codes->name, '.');
    char name[2 * NAME_LENGTH];
    if (dot == NULL) return;
    (void
    )snprintf(name, sizeof name, "%.*s.activation_scale", (int)(dot - codes->name), codes->name);
    const weir_tensor *const scale = weir_tensor_directory_find(directory, name);
    if (scale != NULL) weir_bind_mark_used(b, scale);
}

bool weir_bind_find_fp8_scales(binder *b, const weir_tensor *codes, const weir_tensor **out)
{
    const weir_tensor_directory *const directory = weir_model_directory_of(b->model, codes);
    char name[2 * NAME_LENGTH];
    skip_activation_scale(b, codes);
    (void)snprintf(name, sizeof name, "%s_scale_inv", codes->name);
    *out = weir_tensor_directory_find(directory, name);
    if (*out != NULL) weir_bind_mark_used(b, *out);
    (void)snprintf(name, sizeof name, "%s_scale", codes->name);
    if (*out != NULL || weir_tensor_directory_find(directory, name) == NULL) return true;
    weir_bind_problem(
        b,
        "tensor %s is FP8 with scales %s; only %s_scale_inv is supported, of blocks or of all of "
        "it",
        codes->name, name, codes->name
    );
    return false;
}

bool weir_bind_is_per_expert(const found *f)
{
    return f->name != NULL && strstr(f->name, "{e}") != NULL;
}

void weir_bind_report_missing(binder *b, const wanted *w, const char *name, int64_t expert)
{
    const char *const file = b->model->arch->file;
    char full[NAME_LENGTH];
    if (name == NULL) {
        weir_bind_problem(
            b, "%s: [tensor] has no %s name for \"%s\", which every checkpoint must have: add it",
            file, b->container == WEIR_CONTAINER_GGUF ? "gguf" : "hf", w->parameter
        );
        return;
    }
    expand_name(b, full, name, w->layer, expert);
    weir_bind_problem(b, "tensor %s is missing (parameter \"%s\" of %s)", full, w->parameter, file);
}

/* ---- tensors that nothing reads -------------------------------------------------------------- */
static bool is_listed(const weir_toml_node *patterns, const char *name, int64_t n_layers)
{
    for (size_t i = 0; patterns != NULL && i < weir_toml_size(patterns); i++) {
        const char *const pattern = weir_toml_string(weir_toml_at(patterns, i, NULL), NULL);
        if (pattern != NULL && weir_arch_pattern_matches(pattern, name, n_layers)) return true;
    }
    return false;
}

bool weir_bind_is_of_images(const weir_model *model, const char *name)
{
    return weir_tensor_directory_container(model->directory) == WEIR_CONTAINER_SAFETENSORS &&
           is_listed(
               weir_toml_get(weir_toml_get(model->arch->root, "arch"), "images"), name,
               model->shape.n_layers
           );
}

bool weir_bind_skips(const weir_model *model, const char *name)
{
    const weir_toml_node *const skip =
        weir_toml_get(weir_toml_get(model->arch->root, "arch"), "skip");
    const weir_toml_node *const list =
        skip != NULL ? weir_arch_choice(skip, weir_tensor_directory_container(model->directory))
                     : NULL;
    return is_listed(list, name, model->shape.n_layers) || weir_bind_is_of_images(model, name);
}
