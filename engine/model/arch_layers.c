/* engine/model/arch_layers.c - the [layers] table of an arch file: which block each layer is, and
 * which feed-forward block it has. */
#include <stdio.h>
#include <string.h>

#include "engine/model/arch_internal.h"

/* A value about layers in the checkpoint, and where it was found. */
typedef struct layer_list {
    const char *path, *table; /* table: in [layers] */
    char key[512];
    weir_meta meta;
    bool is_gguf;
} layer_list;

/* Looks `table`.{gguf,hf} up in the metadata. Returns false if there is none. */
static bool find_layers(
    layer_list *out, const weir_arch *arch, const weir_tensor_directory *directory,
    const char *table
)
{
    const char *const prefix = weir_arch_gguf_prefix(directory);
    const char *const key = weir_toml_string(
        weir_toml_get(
            weir_toml_get(weir_toml_get(arch->root, "layers"), table),
            prefix != NULL ? "gguf" : "hf"
        ),
        NULL
    );
    if (key == NULL) return false;
    *out = (layer_list
    ){ .path = weir_tensor_directory_path(directory), .table = table, .is_gguf = prefix != NULL };
    (void)snprintf(
        out->key, sizeof out->key, "%s%s%s", prefix != NULL ? prefix : "",
        prefix != NULL ? "." : "", key
    );
    return weir_tensor_directory_meta(directory, out->key, &out->meta);
}

static const char *layer_word(const weir_arch *arch, const char *table, const char *key)
{
    return weir_toml_string(
        weir_toml_get(weir_toml_get(weir_toml_get(arch->root, "layers"), table), key), NULL
    );
}

/* GGUF lists may continue with draft layers, which are not counted. */
static weir_status layers_from_list(
    const weir_arch *arch, const layer_list *list, int64_t n_layers, const char **names,
    weir_error *error
)
{
    const weir_meta *const meta = &list->meta;
    if (meta->type != WEIR_META_ARRAY)
        return weir_error_set(error, WEIR_EFORMAT, "%s: %s is not a list", list->path, list->key);
    if (meta->length < (size_t)n_layers || (!list->is_gguf && meta->length > (size_t)n_layers))
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %s has %zu entries for %lld layers", list->path, list->key,
            meta->length, (long long)n_layers
        );
    const weir_toml_node *const words =
        weir_toml_get(weir_toml_get(weir_toml_get(arch->root, "layers"), list->table), "names");
    for (int64_t i = 0; i < n_layers; i++) {
        weir_meta element = { 0 };
        (void)weir_meta_at(meta, (size_t)i, &element);
        if (words != NULL)
            names[i] = element.type == WEIR_META_STRING
                           ? weir_toml_string(weir_toml_get(words, element.string), NULL)
                           : NULL;
        else if (element.type == WEIR_META_BOOL)
            names[i] = layer_word(arch, list->table, element.boolean ? "set" : "unset");
        else
            names[i] = element.type == WEIR_META_INT
                           ? layer_word(arch, list->table, element.integer != 0 ? "set" : "unset")
                           : NULL;
        if (names[i] == NULL)
            return weir_error_set(
                error, WEIR_EUNSUPPORTED,
                "%s: %s gives layer %lld the type '%s', which architecture %s does not cover (%s)",
                list->path, list->key, (long long)i,
                element.type == WEIR_META_STRING ? element.string : "?", arch->name, arch->file
            );
    }
    return WEIR_OK;
}

weir_status weir_arch_layers(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
)
{
    layer_list list;
    if (find_layers(&list, arch, directory, "mask") || find_layers(&list, arch, directory, "types"))
        return layers_from_list(arch, &list, n_layers, names, error);
    if (find_layers(&list, arch, directory, "interval")) {
        if (list.meta.type != WEIR_META_INT || list.meta.integer < 1)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: %s is not a positive integer", list.path, list.key
            );
        for (int64_t i = 0; i < n_layers; i++) {
            names[i] =
                layer_word(arch, "interval", (i + 1) % list.meta.integer == 0 ? "last" : "others");
            if (names[i] == NULL)
                return weir_error_set(
                    error, WEIR_ECONFIG, "%s: [layers] interval needs last and others", arch->file
                );
        }
        return WEIR_OK;
    }
    const weir_toml_node *const pattern =
        weir_toml_get(weir_toml_get(arch->root, "layers"), "pattern");
    const size_t n = pattern != NULL ? weir_toml_size(pattern) : 0;
    if (n == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: [layers] pattern is missing or empty", arch->file
        );
    for (int64_t i = 0; i < n_layers; i++) {
        names[i] = weir_toml_string(weir_toml_at(pattern, (size_t)i % n, NULL), NULL);
        if (names[i] == NULL)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: [layers] pattern has an element that is not a string",
                arch->file
            );
    }
    return WEIR_OK;
}

weir_status weir_arch_ffns(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
)
{
    layer_list count;
    const bool has_rule = weir_toml_get(weir_toml_get(arch->root, "layers"), "ffn") != NULL;
    int64_t n_first = 0;
    if (has_rule && find_layers(&count, arch, directory, "ffn")) {
        if (count.meta.type != WEIR_META_INT || count.meta.integer < 0)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: %s is not a number of layers", count.path, count.key
            );
        n_first = count.meta.integer;
    }
    for (int64_t i = 0; i < n_layers; i++)
        names[i] = has_rule ? layer_word(arch, "ffn", i < n_first ? "first" : "others") : NULL;
    return WEIR_OK;
}

weir_layer_norms weir_arch_norms(const weir_arch *arch)
{
    const char *const word =
        weir_toml_string(weir_toml_get(weir_toml_get(arch->root, "layers"), "norms"), NULL);
    const bool is_after = word != NULL && strcmp(word, "after") == 0,
               is_both = word != NULL && strcmp(word, "both") == 0;
    return (weir_layer_norms){ .before = !is_after, .after = is_after || is_both };
}
