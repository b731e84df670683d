#include "tools/report/shapes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/toml.h"

/* Absent ones are 0, or are derived (see complete). */
static const struct {
    const char *key;
    size_t offset;
    bool required;
} integers[] = {
#define FIELD(name, required) { #name, offsetof(weir_report_shape, name), required }
    FIELD(parameters, true),
    FIELD(context, true),
    FIELD(n_layers, true),
    FIELD(n_kv_layers, false),
    FIELD(n_heads, true),
    FIELD(n_kv_heads, true),
    FIELD(key_dim, false),
    FIELD(value_dim, false),
    FIELD(latent_dim, false),
    FIELD(rope_dim, false),
    FIELD(d_model, true),
    FIELD(d_ffn, true),
    FIELD(n_vocab, true),
    FIELD(n_dense_layers, false),
    FIELD(n_experts, false),
    FIELD(n_experts_used, false),
    FIELD(d_expert, false),
    FIELD(recurrent_bytes, false),
    FIELD(activation_row_bytes, false),
#undef FIELD
};
enum { N_INTEGERS = sizeof integers / sizeof integers[0] };

static weir_status wrong(
    const char *file, const weir_toml_node *node, const char *key, const char *what,
    weir_error *error
)
{
    uint32_t line, column;
    weir_toml_position(node, &line, &column);
    return weir_error_set(
        error, WEIR_ECONFIG, "%s:%" PRIu32 ":%" PRIu32 ": %.60s: %s", file, line, column, key, what
    );
}

static weir_status read_key(
    weir_report_shape *shape, int64_t *head_dim, const char *file, const char *key,
    const weir_toml_node *node, weir_error *error
)
{
    if (strcmp(key, "title") == 0) {
        const char *const title = weir_toml_string(node, NULL);
        if (title == NULL) return wrong(file, node, key, "must be a text", error);
        (void)snprintf(shape->title, sizeof shape->title, "%s", title);
        return WEIR_OK;
    }
    if (strcmp(key, "tied") == 0)
        return weir_toml_bool(node, &shape->tied)
                   ? WEIR_OK
                   : wrong(file, node, key, "must be true or false", error);
    int64_t *place = strcmp(key, "head_dim") == 0 ? head_dim : NULL;
    for (size_t i = 0; i < N_INTEGERS; i++)
        if (strcmp(key, integers[i].key) == 0)
            place = (int64_t *)(void *)((char *)shape + integers[i].offset);
    if (place == NULL) return wrong(file, node, key, "no such number of a shape", error);
    return weir_toml_int(node, place) ? WEIR_OK
                                      : wrong(file, node, key, "must be an integer", error);
}

static weir_status complete(
    weir_report_shape *shape, int64_t head_dim, const weir_toml_node *root, const char *file,
    weir_error *error
)
{
    for (size_t i = 0; i < N_INTEGERS; i++)
        if (integers[i].required && weir_toml_get(root, integers[i].key) == NULL)
            return weir_error_set(error, WEIR_ECONFIG, "%s: %s is missing", file, integers[i].key);
    if (weir_toml_get(root, "n_kv_layers") == NULL) shape->n_kv_layers = shape->n_layers;
    if (shape->key_dim == 0) shape->key_dim = head_dim;
    if (shape->value_dim == 0) shape->value_dim = head_dim;
    if (shape->key_dim == 0 || shape->value_dim == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: head_dim, or key_dim and value_dim, is missing", file
        );
    if (shape->title[0] == '\0')
        (void)snprintf(shape->title, sizeof shape->title, "%s", shape->name);
    const weir_status status = weir_report_check(shape, 1, 1, error);
    return status == WEIR_OK ? WEIR_OK : weir_error_prefix(error, WEIR_ECONFIG, "%s", file);
}

/* The name is the file name without ".toml". */
static void name_after(weir_report_shape *shape, const char *file)
{
    (void)snprintf(shape->name, sizeof shape->name, "%.63s", file);
    char *const dot = strrchr(shape->name, '.');
    if (dot != NULL && strcmp(dot, ".toml") == 0) *dot = '\0';
}

weir_status weir_report_shape_read(
    weir_report_shape *out, const char *file, const char *text, weir_error *error
)
{
    weir_toml *document = NULL;
    weir_report_shape shape = { 0 };
    int64_t head_dim = 0;
    WEIR_TRY(weir_toml_parse(&document, text, strlen(text), file, error));
    const weir_toml_node *const root = weir_toml_root(document);
    weir_status status = WEIR_OK;
    name_after(&shape, file);
    const char *key;
    const weir_toml_node *node;
    for (size_t i = 0; status == WEIR_OK && (node = weir_toml_at(root, i, &key)) != NULL; i++)
        status = read_key(&shape, &head_dim, file, key, node, error);
    if (status == WEIR_OK) status = complete(&shape, head_dim, root, file, error);
    if (status == WEIR_OK) *out = shape;
    weir_toml_close(document);
    return status;
}

weir_status weir_report_shape_find(weir_report_shape *out, const char *name, weir_error *error)
{
    char names[600] = "";
    size_t at = 0;
    for (const weir_report_file *file = weir_report_files; file->name != NULL; file++) {
        const size_t length = strlen(file->name) - strlen(".toml");
        if (strlen(name) == length && strncmp(name, file->name, length) == 0)
            return weir_report_shape_read(out, file->name, file->text, error);
        const int n = snprintf(
            names + at, sizeof names - at, "%s%.*s", at > 0 ? ", " : "", (int)length, file->name
        );
        if (n > 0 && (size_t)n < sizeof names - at) at += (size_t)n;
    }
    return weir_error_set(
        error, WEIR_ECONFIG, "no shape is called \"%.60s\"; there are %s", name, names
    );
}
