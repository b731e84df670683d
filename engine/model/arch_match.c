/* engine/model/arch_match.c - finds the architecture of a checkpoint. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/arch_internal.h"

const char *weir_arch_gguf_prefix(const weir_tensor_directory *directory)
{
    weir_meta meta;
    if (weir_tensor_directory_container(directory) != WEIR_CONTAINER_GGUF) return NULL;
    return weir_tensor_directory_meta(directory, "general.architecture", &meta) &&
                   meta.type == WEIR_META_STRING
               ? meta.string
               : "";
}

static bool has_name(const weir_arch *arch, weir_container container, const char *name)
{
    const weir_toml_node *const match =
        arch->has_match ? weir_toml_get(weir_toml_get(arch->root, "arch"), "match") : NULL;
    const weir_toml_node *const names = match != NULL ? weir_arch_choice(match, container) : NULL;
    for (size_t i = 0; names != NULL && i < weir_toml_size(names); i++) {
        const char *const text = weir_toml_string(weir_toml_at(names, i, NULL), NULL);
        if (text != NULL && strcmp(text, name) == 0) return true;
    }
    return false;
}

bool weir_arch_pattern_matches(const char *pattern, const char *name, int64_t n_layers)
{
    while (*pattern != '\0') {
        const bool any = strncmp(pattern, "{i}", 3) == 0 || strncmp(pattern, "{e}", 3) == 0,
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

/* `[arch] when` for a container: the setting must be above the number or be the text, or the file
 * must have a tensor of this name. */
typedef struct condition {
    const char *key, *tensor; /* both NULL: no condition */
    const char *is; /* NULL: a number above the next */
    double above;
} condition;

static condition condition_of(const weir_arch *arch, weir_container container)
{
    const weir_toml_node *const when =
        arch->has_when ? weir_toml_get(weir_toml_get(arch->root, "arch"), "when") : NULL;
    const bool is_gguf = container == WEIR_CONTAINER_GGUF;
    condition out = { 0 };
    if (when == NULL) return out;
    out.key = weir_toml_string(weir_toml_get(when, is_gguf ? "gguf" : "hf"), NULL);
    if (is_gguf) out.tensor = weir_toml_string(weir_toml_get(when, "gguf_tensor"), NULL);
    out.is = weir_toml_string(weir_toml_get(when, "is"), NULL);
    (void)weir_toml_float(weir_toml_get(when, "above"), &out.above);
    return out;
}

static bool has_tensor(const weir_tensor_directory *directory, const char *pattern)
{
    const size_t n = weir_tensor_directory_count(directory);
    for (size_t i = 0; i < n; i++)
        if (weir_arch_pattern_matches(pattern, weir_tensor_directory_at(directory, i)->name, 0))
            return true;
    return false;
}

/* A missing setting is not above any number, and no text. */
static bool is_true(const condition *c, const weir_tensor_directory *directory)
{
    const char *const prefix = weir_arch_gguf_prefix(directory);
    char full[512];
    weir_meta meta;
    if (c->tensor != NULL) return has_tensor(directory, c->tensor);
    (void)snprintf(
        full, sizeof full, "%s%s%s", prefix != NULL ? prefix : "", prefix != NULL ? "." : "", c->key
    );
    if (!weir_tensor_directory_meta(directory, full, &meta)) return false;
    if (c->is != NULL)
        return meta.type == WEIR_META_STRING && strlen(c->is) == meta.length &&
               memcmp(c->is, meta.string, meta.length) == 0;
    switch (meta.type) {
    case WEIR_META_INT: return (double)meta.integer > c->above;
    case WEIR_META_FLOAT: return meta.number > c->above;
    case WEIR_META_BOOL:
    case WEIR_META_STRING:
    case WEIR_META_ARRAY: break;
    }
    return false;
}

/* `untrue`: an architecture of this name whose condition is not true; NULL: none. */
static weir_status no_arch(
    const weir_arch_set *set, const weir_tensor_directory *directory, const char *name,
    const weir_arch *untrue, weir_error *error
)
{
    const char *const path = weir_tensor_directory_path(directory);
    if (untrue != NULL) {
        const condition c = condition_of(untrue, weir_tensor_directory_container(directory));
        char what[300];
        if (c.tensor != NULL)
            (void)snprintf(what, sizeof what, "a tensor %s", c.tensor);
        else if (c.is != NULL)
            (void)snprintf(what, sizeof what, "%s = %s", c.key, c.is);
        else
            (void)snprintf(what, sizeof what, "%s above %g", c.key, c.above);
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: architecture '%s' is known only with %s (%s; --arch-dir adds more)", path, name,
            what, untrue->file
        );
    }
    weir_buffer known = weir_arch_list_known(set);
    const weir_status status = weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "%s: architecture '%s' is not known; known are %s (--arch-dir adds more)", path, name,
        known.data != NULL ? known.data : "none"
    );
    weir_buffer_free(&known);
    return status;
}

/* Completes the chosen one of the set. */
static weir_status choose(
    const weir_arch **out, weir_arch_set *set, weir_arch *arch,
    const weir_tensor_directory *directory, weir_error *error
)
{
    WEIR_TRY(weir_arch_complete(set, arch, error));
    *out = arch;
    return weir_arch_check_refusals(arch, directory, error);
}

weir_status weir_arch_match(
    const weir_arch **out, weir_arch_set *set, const weir_tensor_directory *directory,
    weir_error *error
)
{
    const weir_container container = weir_tensor_directory_container(directory);
    const char *const key =
        container == WEIR_CONTAINER_GGUF ? "general.architecture" : "model_type";
    weir_arch *special = NULL, *general = NULL, *untrue = NULL;
    weir_meta meta;
    if (!weir_tensor_directory_meta(directory, key, &meta) || meta.type != WEIR_META_STRING)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: %s is missing: the architecture is unknown",
            weir_tensor_directory_path(directory),
            container == WEIR_CONTAINER_GGUF ? key : "config.json with model_type"
        );
    for (size_t i = 0; special == NULL && i < set->count; i++) {
        weir_arch *const arch = &set->archs[i];
        if (!has_name(arch, container, meta.string)) continue;
        const condition c = condition_of(arch, container);
        if (c.key == NULL && c.tensor == NULL)
            general = general != NULL ? general : arch;
        else if (is_true(&c, directory))
            special = arch;
        else
            untrue = arch;
    }
    weir_arch *const chosen = special != NULL ? special : general;
    if (chosen == NULL) return no_arch(set, directory, meta.string, untrue, error);
    return choose(out, set, chosen, directory, error);
}

weir_status weir_arch_written_as(
    const weir_arch **out, const char **name, weir_arch_set *set, const weir_arch *arch,
    weir_error *error
)
{
    const weir_toml_node *const head = weir_toml_get(arch->root, "arch");
    const char *const other =
        arch->has_written_as ? weir_toml_string(weir_toml_get(head, "written_as"), NULL) : NULL;
    const size_t at = other != NULL ? weir_arch_index(set, other) : set->count;
    if (at < set->count) WEIR_TRY(weir_arch_complete(set, &set->archs[at], error));
    const weir_arch *const own = other == NULL ? arch : at < set->count ? &set->archs[at] : NULL;
    const weir_toml_node *const match =
        own != NULL && own->has_match ? weir_toml_get(weir_toml_get(own->root, "arch"), "match")
                                      : NULL;
    const weir_toml_node *const names =
        match != NULL ? weir_arch_choice(match, WEIR_CONTAINER_GGUF) : NULL;
    *out = own;
    *name = names != NULL ? weir_toml_string(weir_toml_at(names, 0, NULL), NULL) : NULL;
    if (*name != NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "architecture %s has no form in GGUF (%s: [arch] match)",
        arch->name, arch->file
    );
}

weir_status weir_arch_find(
    const weir_arch **out, weir_arch_set *set, const char *name,
    const weir_tensor_directory *directory, weir_error *error
)
{
    const size_t at = weir_arch_index(set, name);
    if (at < set->count) return choose(out, set, &set->archs[at], directory, error);
    weir_buffer known = weir_arch_list_known(set);
    const weir_status status = weir_error_set(
        error, WEIR_ECONFIG,
        "model.arch = \"%.80s\": not known; known are %s (--arch-dir adds more)", name,
        known.data != NULL ? known.data : "none"
    );
    weir_buffer_free(&known);
    return status;
}
