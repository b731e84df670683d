#include "engine/model/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/model/arch.h"

typedef struct field {
    const char *name;
    size_t offset;
    bool is_integer;
    double least, most;
} field;

static const field fields[] = {
#define X(name, least, most)                                                                       \
    { #name, offsetof(weir_shape, name), true, (double)(least), (double)(most) },
    WEIR_SHAPE_INTEGERS(X)
#undef X
#define X(name, least, most)                                                                       \
    { #name, offsetof(weir_shape, name), false, (double)(least), (double)(most) },
        WEIR_SHAPE_NUMBERS(X)
#undef X
};

static const field *find_field(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strlen(fields[i].name) == length && memcmp(fields[i].name, name, length) == 0)
            return &fields[i];
    }
    return NULL;
}

const char *weir_shape_name(size_t index)
{
    return index < sizeof fields / sizeof *fields ? fields[index].name : NULL;
}

static double field_value(const weir_shape *shape, const field *f)
{
    const char *const at = (const char *)shape + f->offset;
    return f->is_integer ? (double)*(const int64_t *)at : *(const double *)at;
}

bool weir_shape_number(const weir_shape *shape, const char *name, double *out, bool *is_integer)
{
    const field *const f = find_field(name, strlen(name));
    if (f == NULL) return false;
    *out = field_value(shape, f);
    *is_integer = f->is_integer;
    return true;
}

int64_t weir_shape_integer(const weir_shape *shape, const char *name)
{
    const field *const f = find_field(name, strlen(name));
    return f != NULL && f->is_integer ? (int64_t)field_value(shape, f) : 0;
}

static bool meta_number(const weir_meta *meta, double *out)
{
    switch (meta->type) {
    case WEIR_META_INT: *out = (double)meta->integer; return true;
    case WEIR_META_FLOAT: *out = meta->number; return true;
    case WEIR_META_ARRAY: {
        if (meta->length == 0) return false;
        double largest = -INFINITY;
        for (size_t i = 0; i < meta->length; i++) {
            weir_meta element;
            double value;
            if (!weir_meta_at(meta, i, &element) || element.type == WEIR_META_ARRAY ||
                !meta_number(&element, &value))
                return false;
            largest = fmax(largest, value);
        }
        *out = largest;
        return true;
    }
    case WEIR_META_BOOL:
    case WEIR_META_STRING: break;
    }
    return false;
}

/* Where entries are looked up, and the messages of all of them. */
typedef struct reader {
    weir_shape *shape;
    const weir_arch *arch;
    const weir_tensor_directory *directory;
    const char *prefix; /* of GGUF keys; NULL for safetensors */
    weir_buffer *problems;
    const char **layers; /* [n_layers] the names of their blocks; NULL: not needed so far */
    /* Of the entry that is read: blocks whose layers it is about, NULL: none are named; and what is
     * wrong with its list, NULL: nothing. */
    const weir_toml_node *blocks;
    const char *wrong;
} reader;

/* ---- lists with a value for each layer ------------------------------------------------------- */
static bool is_one_of(const weir_toml_node *names, const char *name)
{
    const char *const one = weir_toml_string(names, NULL);
    bool is_listed = one != NULL && strcmp(one, name) == 0;
    for (size_t i = 0; !is_listed && i < weir_toml_size(names); i++)
        is_listed = is_one_of(weir_toml_at(names, i, NULL), name);
    return is_listed;
}

/* The value for the layers of r->blocks. Returns false if there are none, or something is wrong. */
static bool value_of_layers(reader *r, const weir_meta *list, double *out)
{
    bool found = false;
    if (list->length < (size_t)r->shape->n_layers) {
        r->wrong = "has fewer entries than the model has layers";
        return false;
    }
    for (int64_t i = 0; i < r->shape->n_layers; i++) {
        weir_meta element;
        double value;
        if (r->layers[i] == NULL || !is_one_of(r->blocks, r->layers[i])) continue;
        if (!weir_meta_at(list, (size_t)i, &element) || element.type == WEIR_META_ARRAY ||
            !meta_number(&element, &value))
            r->wrong = "has an entry that is not a number";
        else if (found && (value < *out || value > *out))
            r->wrong = "differs in layers that have the same block";
        if (r->wrong != NULL) return false;
        *out = value;
        found = true;
    }
    return found;
}

/* Lists the blocks of the layers, which an entry with `layers` needs. */
static weir_status name_layers(reader *r, weir_error *error)
{
    const int64_t n = r->shape->n_layers;
    if (r->layers != NULL || n < 1) return WEIR_OK; /* n_layers is bad, which is reported */
    r->layers = calloc((size_t)n, sizeof *r->layers);
    if (r->layers == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %" PRId64 " layers", n);
    return weir_arch_layers(r->arch, r->directory, n, r->layers, error);
}

static bool number_of(reader *r, const weir_meta *meta, double *out)
{
    return meta->type == WEIR_META_ARRAY && r->blocks != NULL ? value_of_layers(r, meta, out)
                                                              : meta_number(meta, out);
}

/* ---- sources --------------------------------------------------------------------------------- */
static bool read_key(reader *r, const char *key, double *out)
{
    char full[512];
    if (r->prefix != NULL)
        (void)snprintf(full, sizeof full, "%s.%s", r->prefix, key);
    else
        (void)snprintf(full, sizeof full, "%s", key);
    weir_meta meta;
    return weir_tensor_directory_element(r->directory, full, &meta) && number_of(r, &meta, out);
}

/* KEY or [KEYS]: the first that exists. */
static bool read_keys(reader *r, const weir_toml_node *node, double *out)
{
    if (node == NULL) return false;
    const char *key = weir_toml_string(node, NULL);
    if (key != NULL) return read_key(r, key, out);
    for (size_t i = 0; i < weir_toml_size(node); i++) {
        key = weir_toml_string(weir_toml_at(node, i, NULL), NULL);
        if (key != NULL && read_key(r, key, out)) return true;
    }
    return false;
}

/* NUMBER, "SHAPE" or "SHAPE / SHAPE". */
static bool read_default(const reader *r, const weir_toml_node *node, double *out)
{
    if (node == NULL) return false;
    if (weir_toml_float(node, out)) return true;
    const char *const text = weir_toml_string(node, NULL);
    if (text == NULL) return false;
    const char *const slash = strstr(text, " / ");
    const field *const first =
        find_field(text, slash != NULL ? (size_t)(slash - text) : strlen(text));
    if (first == NULL) return false;
    *out = field_value(r->shape, first);
    if (slash == NULL) return true;
    const field *const second = find_field(slash + 3, strlen(slash + 3));
    if (second == NULL || field_value(r->shape, second) == 0.0) return false;
    *out = floor(*out / field_value(r->shape, second));
    return true;
}

/* Multiplies by the shape that `key` names, if any. */
static bool read_factor(const reader *r, const weir_toml_node *source, const char *key, double *out)
{
    const char *const times = weir_toml_string(weir_toml_get(source, key), NULL);
    if (times == NULL) return true;
    const field *const factor = find_field(times, strlen(times));
    if (factor == NULL) return false;
    *out = floor(*out * field_value(r->shape, factor));
    return true;
}

/* Rows of the tensor with this full name. */
static bool read_rows(const reader *r, const weir_toml_node *node, double *out)
{
    const char *const name = weir_toml_string(node, NULL);
    const weir_tensor *const tensor =
        name != NULL ? weir_tensor_directory_find(r->directory, name) : NULL;
    if (tensor == NULL || tensor->n_dims < 1) return false;
    *out = (double)tensor->shape[0];
    return true;
}

/* Entries of the list at this path. */
static bool read_length(const reader *r, const weir_toml_node *node, double *out)
{
    const char *const path = node != NULL ? weir_toml_string(node, NULL) : NULL;
    weir_meta meta;
    if (path == NULL || !weir_tensor_directory_meta(r->directory, path, &meta) ||
        meta.type != WEIR_META_ARRAY)
        return false;
    *out = (double)meta.length;
    return true;
}

/* True if the setting of config.json is. */
static bool is_set(const reader *r, const weir_toml_node *node)
{
    const char *const path = node != NULL ? weir_toml_string(node, NULL) : NULL;
    weir_meta meta;
    return path != NULL && weir_tensor_directory_meta(r->directory, path, &meta) &&
           meta.type == WEIR_META_BOOL && meta.boolean;
}

static bool read_source(reader *r, const weir_toml_node *source, double *out)
{
    double other;
    if (r->prefix != NULL) {
        if (!read_keys(r, weir_toml_get(source, "gguf"), out))
            return read_default(r, weir_toml_get(source, "default"), out);
        if (read_keys(r, weir_toml_get(source, "gguf_minus"), &other)) *out -= other;
        const weir_toml_node *const over = weir_toml_get(source, "gguf_over");
        if (over != NULL) {
            if (!read_keys(r, over, &other) || other == 0.0) return false;
            *out /= other;
        }
        return read_factor(r, source, "gguf_times", out);
    }
    if (read_rows(r, weir_toml_get(source, "hf_rows"), out)) return true;
    if (!read_keys(r, weir_toml_get(source, "hf"), out))
        return read_length(r, weir_toml_get(source, "hf_length"), out) ||
               read_default(r, weir_toml_get(source, "default"), out);
    if (is_set(r, weir_toml_get(source, "hf_double"))) *out *= 2.0;
    return read_factor(r, source, "hf_times", out);
}

static void describe_keys(weir_buffer *out, const weir_toml_node *node)
{
    const char *const key = weir_toml_string(node, NULL);
    if (key != NULL) {
        (void)!weir_buffer_text(out, key);
        return;
    }
    for (size_t i = 0; i < weir_toml_size(node); i++) {
        const char *const name = weir_toml_string(weir_toml_at(node, i, NULL), NULL);
        (void)!weir_buffer_format(out, "%s%s", i > 0 ? " or " : "", name != NULL ? name : "?");
    }
}

/* True if no layer has one of the blocks that the entry is about. */
static bool is_of_none(const reader *r)
{
    bool is = r->blocks != NULL && r->layers != NULL;
    for (int64_t i = 0; is && i < r->shape->n_layers; i++)
        is = r->layers[i] == NULL || !is_one_of(r->blocks, r->layers[i]);
    return is;
}

static void read_entry(reader *r, const char *name, const weir_toml_node *source)
{
    const field *const f = find_field(name, strlen(name));
    if (f == NULL) {
        (void)!weir_buffer_format(r->problems, "; the arch file sets an unknown shape '%s'", name);
        return;
    }
    double value = 0.0;
    r->blocks = weir_toml_get(source, "layers");
    r->wrong = NULL;
    const weir_toml_node *const otherwise = weir_toml_get(source, "default");
    const bool found = otherwise != NULL && is_of_none(r) ? read_default(r, otherwise, &value)
                                                          : read_source(r, source, &value);
    if (!found || r->wrong != NULL) {
        const weir_toml_node *const keys = weir_toml_get(source, r->prefix != NULL ? "gguf" : "hf");
        (void)!weir_buffer_format(
            r->problems, "; %s %s (", name,
            r->wrong != NULL ? r->wrong : "is missing or not a number"
        );
        if (keys != NULL) describe_keys(r->problems, keys);
        (void)!weir_buffer_text(r->problems, ")");
        return;
    }
    double power;
    if (weir_toml_float(weir_toml_get(source, "power"), &power)) value = pow(value, power);
    if (!(value >= f->least && value <= f->most) || (f->is_integer && value != floor(value))) {
        (void)!weir_buffer_format(
            r->problems, "; %s is %g, allowed is %g to %g", name, value, f->least, f->most
        );
        return;
    }
    char *const at = (char *)r->shape + f->offset;
    if (f->is_integer)
        *(int64_t *)at = (int64_t)value;
    else
        *(double *)at = value;
}

static weir_status read_entries(reader *r, weir_error *error)
{
    const weir_toml_node *const table = weir_toml_get(r->arch->root, "shape");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *name;
        const weir_toml_node *const source = weir_toml_at(table, i, &name);
        if (weir_toml_get(source, "layers") != NULL) WEIR_TRY(name_layers(r, error));
        read_entry(r, name, source);
    }
    return WEIR_OK;
}

/* What does not fit together. */
static void check_together(const weir_shape *shape, weir_buffer *problems)
{
    const int64_t rotary[] = { shape->rotary_dim, shape->rotary_dim_local };
    if (problems->size == 0 && shape->n_kv_heads > 0 && shape->n_heads % shape->n_kv_heads != 0)
        (void)!weir_buffer_format(
            problems, "; %" PRId64 " query heads do not divide into %" PRId64 " KV heads",
            shape->n_heads, shape->n_kv_heads
        );
    if (problems->size == 0 && shape->head_dim > 0 && shape->rotary_dim > shape->head_dim)
        (void)!weir_buffer_format(
            problems, "; RoPE rotates %" PRId64 " of %" PRId64 " dimensions", shape->rotary_dim,
            shape->head_dim
        );
    for (size_t i = 0; i < 2; i++)
        if (problems->size == 0 && rotary[i] % 2 != 0)
            (void)!weir_buffer_format(
                problems, "; RoPE's %" PRId64 " dimensions are not even", rotary[i]
            );
}

weir_status weir_shape_resolve(
    weir_shape *shape, const weir_arch *arch, const weir_tensor_directory *directory,
    weir_error *error
)
{
    *shape = (weir_shape){ .rope_score_scale = 1.0 };
    weir_buffer problems = { 0 };
    reader r = { .shape = shape,
                 .arch = arch,
                 .directory = directory,
                 .prefix = weir_arch_gguf_prefix(directory),
                 .problems = &problems };
    weir_status status = read_entries(&r, error);
    check_together(shape, &problems);
    if (status == WEIR_OK && problems.size > 0)
        status = weir_error_set(
            error, WEIR_EFORMAT, "%s: bad shape: %s", weir_tensor_directory_path(directory),
            problems.data + 2
        );
    weir_buffer_free(&problems);
    free(r.layers);
    return status;
}
