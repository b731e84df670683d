/* engine/model/arch_layers.c - the [layers] table of an arch file: which block each layer is, and
 * which feed-forward block it has. */
#include <stdio.h>
#include <string.h>

#include "engine/formats/printable.h"
#include "engine/model/arch_internal.h"

/* A value about layers in the checkpoint, where it was found, and what says what it means. */
typedef struct layer_list {
    const char *path;
    const weir_toml_node *rule; /* a table of [layers] */
    char key[512];
    weir_meta meta;
    bool is_gguf;
} layer_list;

static const weir_toml_node *layers_rule(const weir_arch *arch, const char *table)
{
    return weir_toml_get(weir_toml_get(arch->root, "layers"), table);
}

/* Looks the rule's {gguf,hf} up in the metadata, of several keys the first that is there. Returns
 * false if there is none. */
static bool find_layers(
    layer_list *out, const weir_toml_node *rule, const weir_tensor_directory *directory
)
{
    const char *const prefix = weir_arch_gguf_prefix(directory);
    const weir_toml_node *const keys = weir_toml_get(rule, prefix != NULL ? "gguf" : "hf");
    const bool is_list = keys != NULL && weir_toml_type_of(keys) == WEIR_TOML_ARRAY;
    *out = (layer_list
    ){ .path = weir_tensor_directory_path(directory), .rule = rule, .is_gguf = prefix != NULL };
    for (size_t i = 0; i < (is_list ? weir_toml_size(keys) : (size_t)(keys != NULL)); i++) {
        const char *const key =
            weir_toml_string(is_list ? weir_toml_at(keys, i, NULL) : keys, NULL);
        if (key == NULL) continue;
        (void)snprintf(
            out->key, sizeof out->key, "%s%s%s", prefix != NULL ? prefix : "",
            prefix != NULL ? "." : "", key
        );
        if (weir_tensor_directory_meta(directory, out->key, &out->meta)) return true;
    }
    return false;
}

static const char *rule_word(const weir_toml_node *rule, const char *key)
{
    return weir_toml_string(weir_toml_get(rule, key), NULL);
}

/* GGUF lists may continue with draft layers, which are not counted. */
static weir_status check_length(const layer_list *list, int64_t n_layers, weir_error *error)
{
    const size_t n = list->meta.length;
    if (n >= (size_t)n_layers && (list->is_gguf || n == (size_t)n_layers)) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: %s has %zu entries for %lld layers", list->path, list->key, n,
        (long long)n_layers
    );
}

static weir_status bad_type(
    const weir_arch *arch, const layer_list *list, int64_t layer, const weir_meta *type,
    weir_error *error
)
{
    char text[80];
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "%s: %s gives layer %lld the type '%s', which architecture %s does not cover (%s)",
        list->path, list->key, (long long)layer,
        type->type == WEIR_META_STRING
            ? weir_printable(text, sizeof text, type->string, type->length)
            : "?",
        arch->name, arch->file
    );
}

static weir_status missing_list(
    const weir_arch *arch, const weir_tensor_directory *directory, const layer_list *list,
    weir_error *error
)
{
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: %s is missing, which architecture %s needs (%s)",
        weir_tensor_directory_path(directory), list->key, arch->name, arch->file
    );
}

/* ---- types ----------------------------------------------------------------------------------- */
static weir_status layers_from_types(
    const weir_arch *arch, const layer_list *list, int64_t n_layers, const char **names,
    weir_error *error
)
{
    const weir_meta *const meta = &list->meta;
    const weir_toml_node *const words = weir_toml_get(list->rule, "names");
    const bool is_text = meta->type == WEIR_META_STRING; /* a character for each layer */
    if (!is_text && meta->type != WEIR_META_ARRAY)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %s is not a list or a text", list->path, list->key
        );
    WEIR_TRY(check_length(list, n_layers, error));
    for (int64_t i = 0; i < n_layers; i++) {
        char letter[2] = "";
        weir_meta element = { 0 };
        if (is_text) {
            letter[0] = meta->string[i];
            element = (weir_meta){ .type = WEIR_META_STRING, .string = letter, .length = 1 };
        } else {
            (void)weir_meta_at(meta, (size_t)i, &element);
        }
        names[i] = element.type == WEIR_META_STRING ? rule_word(words, element.string) : NULL;
        if (names[i] == NULL) return bad_type(arch, list, i, &element, error);
    }
    return WEIR_OK;
}

/* ---- masks ----------------------------------------------------------------------------------- */
/* True or not zero: the block `set`. Otherwise `unset`, if the rule has it. Layers with a name keep
 * it. */
static weir_status apply_mask(
    const weir_arch *arch, const layer_list *list, int64_t n_layers, const char **names,
    weir_error *error
)
{
    if (list->meta.type != WEIR_META_ARRAY)
        return weir_error_set(error, WEIR_EFORMAT, "%s: %s is not a list", list->path, list->key);
    WEIR_TRY(check_length(list, n_layers, error));
    for (int64_t i = 0; i < n_layers; i++) {
        weir_meta element = { 0 };
        (void)weir_meta_at(&list->meta, (size_t)i, &element);
        const bool is_flag = element.type == WEIR_META_BOOL,
                   is_set = is_flag ? element.boolean : element.integer != 0;
        if (!is_flag && element.type != WEIR_META_INT)
            return bad_type(arch, list, i, &element, error);
        if (names[i] == NULL) names[i] = rule_word(list->rule, is_set ? "set" : "unset");
    }
    return WEIR_OK;
}

/* A mask, or a list of them: the first that is set for a layer gives its name, and the last names
 * the others. *found: the checkpoint has the first one; then it must have all. */
static weir_status layers_from_masks(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, bool *found, weir_error *error
)
{
    const weir_toml_node *const rule = layers_rule(arch, "mask");
    const bool is_list = rule != NULL && weir_toml_type_of(rule) == WEIR_TOML_ARRAY;
    const size_t n = is_list ? weir_toml_size(rule) : rule != NULL;
    *found = false;
    for (int64_t i = 0; i < n_layers; i++) names[i] = NULL;
    for (size_t i = 0; i < n; i++) {
        layer_list list = { 0 };
        if (find_layers(&list, is_list ? weir_toml_at(rule, i, NULL) : rule, directory))
            WEIR_TRY(apply_mask(arch, &list, n_layers, names, error));
        else if (i == 0)
            return WEIR_OK;
        else
            return missing_list(arch, directory, &list, error);
        *found = true;
    }
    return WEIR_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */
/* The layers whose numbers are in the list are of the block `set`. Numbers are from 1, or 0 with
 * `from_zero`. */
static weir_status apply_list(
    const layer_list *list, int64_t n_layers, const char **names, weir_error *error
)
{
    if (list->meta.type != WEIR_META_ARRAY)
        return weir_error_set(error, WEIR_EFORMAT, "%s: %s is not a list", list->path, list->key);
    bool from_zero = false;
    (void)weir_toml_bool(weir_toml_get(list->rule, "from_zero"), &from_zero);
    const int64_t first = from_zero ? 0 : 1, last = n_layers - 1 + first;
    for (size_t i = 0; i < list->meta.length; i++) {
        weir_meta element = { 0 };
        (void)weir_meta_at(&list->meta, i, &element);
        if (element.type != WEIR_META_INT || element.integer < first || element.integer > last)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: %s: entry %zu is no number of a layer, %lld to %lld",
                list->path, list->key, i, (long long)first, (long long)last
            );
        if (names[element.integer - first] != NULL)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: %s: layer %lld has been listed before", list->path,
                list->key, (long long)element.integer
            );
        names[element.integer - first] = rule_word(list->rule, "set");
    }
    return WEIR_OK;
}

/* *found: the checkpoint has the first list; then it must have all, and each layer must be in one
 * of them unless the last one names the others. */
static weir_status layers_from_lists(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, bool *found, weir_error *error
)
{
    const weir_toml_node *const rules = layers_rule(arch, "lists");
    const size_t n = rules != NULL ? weir_toml_size(rules) : 0;
    layer_list list = { 0 };
    *found = false;
    for (int64_t i = 0; i < n_layers; i++) names[i] = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!find_layers(&list, weir_toml_at(rules, i, NULL), directory)) {
            if (i == 0) return WEIR_OK;
            return missing_list(arch, directory, &list, error);
        }
        WEIR_TRY(apply_list(&list, n_layers, names, error));
        *found = true;
    }
    const char *const others = *found ? rule_word(list.rule, "others") : NULL;
    for (int64_t i = 0; *found && i < n_layers; i++) {
        if (names[i] == NULL) names[i] = others;
        if (names[i] == NULL)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: layer %lld is in no list of layers, %s is the last",
                list.path, (long long)(i + 1), list.key
            );
    }
    return WEIR_OK;
}

/* ---- all rules ------------------------------------------------------------------------------- */
static weir_status layers_from_interval(
    const layer_list *list, int64_t n_layers, const char **names, weir_error *error
)
{
    if (list->meta.type != WEIR_META_INT || list->meta.integer < 1)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %s is not a positive integer", list->path, list->key
        );
    for (int64_t i = 0; i < n_layers; i++)
        names[i] = rule_word(list->rule, (i + 1) % list->meta.integer == 0 ? "last" : "others");
    return WEIR_OK;
}

static weir_status layers_from_pattern(
    const weir_arch *arch, int64_t n_layers, const char **names, weir_error *error
)
{
    const weir_toml_node *const pattern = layers_rule(arch, "pattern");
    const size_t n = pattern != NULL ? weir_toml_size(pattern) : 0;
    if (n == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: [layers] pattern is missing or empty", arch->file
        );
    for (int64_t i = 0; i < n_layers; i++)
        names[i] = weir_toml_string(weir_toml_at(pattern, (size_t)i % n, NULL), NULL);
    return WEIR_OK;
}

/* ---- the last layers ------------------------------------------------------------------------- */
static weir_status replace_last(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
)
{
    layer_list count;
    if (!find_layers(&count, layers_rule(arch, "last"), directory)) return WEIR_OK;
    if (count.meta.type != WEIR_META_INT || count.meta.integer < 0 || count.meta.integer > n_layers)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %s is not a number of the %lld layers", count.path, count.key,
            (long long)n_layers
        );
    const weir_toml_node *const words = weir_toml_get(count.rule, "names");
    for (int64_t i = n_layers - count.meta.integer; i < n_layers; i++) {
        const char *const word = rule_word(words, names[i]);
        if (word != NULL) names[i] = word;
    }
    return WEIR_OK;
}

weir_status weir_arch_layer_kinds(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
)
{
    layer_list list;
    bool found;
    WEIR_TRY(layers_from_masks(arch, directory, n_layers, names, &found, error));
    if (found) return WEIR_OK;
    WEIR_TRY(layers_from_lists(arch, directory, n_layers, names, &found, error));
    if (found) return WEIR_OK;
    if (find_layers(&list, layers_rule(arch, "types"), directory))
        return layers_from_types(arch, &list, n_layers, names, error);
    if (find_layers(&list, layers_rule(arch, "interval"), directory))
        return layers_from_interval(&list, n_layers, names, error);
    return layers_from_pattern(arch, n_layers, names, error);
}

weir_status weir_arch_layers(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
)
{
    WEIR_TRY(weir_arch_layer_kinds(arch, directory, n_layers, names, error));
    return replace_last(arch, directory, n_layers, names, error);
}

weir_status weir_arch_ffns(
    const weir_arch *arch, const weir_tensor_directory *directory, int64_t n_layers,
    const char **names, weir_error *error
)
{
    layer_list count;
    const weir_toml_node *const rule = layers_rule(arch, "ffn");
    int64_t n_first = 0;
    if (find_layers(&count, rule, directory)) {
        if (count.meta.type != WEIR_META_INT || count.meta.integer < 0)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: %s is not a number of layers", count.path, count.key
            );
        n_first = count.meta.integer;
    }
    for (int64_t i = 0; i < n_layers; i++)
        names[i] = rule_word(rule, i < n_first ? "first" : "others");
    return WEIR_OK;
}

weir_layer_norms weir_arch_norms(const weir_arch *arch)
{
    const char *const word = weir_toml_string(layers_rule(arch, "norms"), NULL);
    const bool is_after = word != NULL && strcmp(word, "after") == 0,
               is_both = word != NULL && strcmp(word, "both") == 0;
    return (weir_layer_norms){ .before = !is_after, .after = is_after || is_both };
}
