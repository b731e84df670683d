/* engine/model/arch_check_values.c - keys and types of the values of arch files, and messages about
 * them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/distance.h"
#include "engine/formats/printable.h"
#include "engine/model/arch_check.h"

static const char *form_text(form f)
{
    switch (f) {
    case FORM_TEXT: return "a text";
    case FORM_FLAG: return "true or false";
    case FORM_NAMES: return "a text or a list of at most 64 texts";
    case FORM_LIST: return "a list of at most 64 texts";
    case FORM_WORDS: return "a table of texts";
    case FORM_DEFAULT: return "a number or a text";
    case FORM_NUMBER: return "a number";
    case FORM_TABLE: return "a table";
    case FORM_SCALARS: return "a text, a number, true, false, or a list of these";
    }
    return "";
}

bool arch_is_text(const weir_toml_node *node)
{
    size_t length;
    const char *const text = weir_toml_string(node, &length);
    return text != NULL && length > 0 && length < TEXT_LENGTH && strlen(text) == length;
}

static bool is_scalar(const weir_toml_node *node)
{
    bool flag;
    double number;
    return arch_is_text(node) || weir_toml_bool(node, &flag) ||
           (weir_toml_float(node, &number) && isfinite(number));
}

bool arch_all_children(
    const weir_toml_node *node, size_t most, bool (*fits)(const weir_toml_node *)
)
{
    const size_t n = weir_toml_size(node);
    for (size_t i = 0; i < n; i++) {
        if (!fits(weir_toml_at(node, i, NULL))) return false;
    }
    return n <= most;
}

bool arch_fits(const weir_toml_node *node, form f)
{
    const weir_toml_type type = weir_toml_type_of(node);
    bool flag;
    double number;
    switch (f) {
    case FORM_TEXT: return arch_is_text(node);
    case FORM_FLAG: return weir_toml_bool(node, &flag);
    case FORM_LIST:
        return type == WEIR_TOML_ARRAY && arch_all_children(node, MAX_NAMES, arch_is_text);
    case FORM_NAMES:
        return arch_is_text(node) ||
               (type == WEIR_TOML_ARRAY && arch_all_children(node, MAX_NAMES, arch_is_text));
    case FORM_WORDS:
        return type == WEIR_TOML_TABLE && arch_all_children(node, MAX_NAMES, arch_is_text);
    case FORM_NUMBER: return weir_toml_float(node, &number) && isfinite(number);
    case FORM_TABLE: return type == WEIR_TOML_TABLE;
    case FORM_DEFAULT:
        return arch_is_text(node) || (weir_toml_float(node, &number) && isfinite(number));
    case FORM_SCALARS:
        return is_scalar(node) || (type == WEIR_TOML_ARRAY && weir_toml_size(node) > 0 &&
                                   arch_all_children(node, MAX_NAMES, is_scalar));
    }
    return false;
}

const char *arch_place(char out[2 * TEXT_LENGTH], const weir_toml_node *node, const char *where)
{
    uint32_t line = 0, column = 0;
    weir_toml_position(node, &line, &column);
    (void)snprintf(out, (size_t)2 * TEXT_LENGTH, "%s:%u: [%s]", weir_toml_name(node), line, where);
    return out;
}

const char *arch_shown(char out[80], const char *text)
{
    return weir_printable(out, 80, text, strlen(text));
}

const char *arch_nearest(const char *name, name_list at, const void *names)
{
    const char *found = "none", *candidate;
    size_t best = SIZE_MAX;
    for (size_t i = 0; (candidate = at(names, i)) != NULL; i++) {
        const size_t distance = weir_edit_distance(name, candidate);
        if (distance >= best) continue;
        best = distance;
        found = candidate;
    }
    return found;
}

bool arch_is_listed(const char *name, name_list at, const void *names)
{
    const char *candidate;
    for (size_t i = 0; (candidate = at(names, i)) != NULL; i++) {
        if (strcmp(candidate, name) == 0) return true;
    }
    return false;
}

weir_status arch_unknown(
    const checker *c, const weir_toml_node *node, const char *where, const char *what,
    const char *name, name_list list, const void *names
)
{
    char at[2 * TEXT_LENGTH], text[80];
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s unknown %s '%s'; the nearest is '%s'",
        arch_place(at, node, where), what, arch_shown(text, name), arch_nearest(name, list, names)
    );
}

const char *arch_member_at(const void *names, size_t index)
{
    return ((const member *)names)[index].name;
}

weir_status arch_check_value(
    const checker *c, const weir_toml_node *value, const char *where, const member *m
)
{
    char at[2 * TEXT_LENGTH];
    const bool differs = (m->how & DIFFERS) != 0 && weir_toml_type_of(value) == WEIR_TOML_TABLE;
    for (size_t i = 0; differs && i < weir_toml_size(value); i++) {
        const char *key;
        const weir_toml_node *const part = weir_toml_at(value, i, &key);
        if (strcmp(key, "gguf") != 0 && strcmp(key, "hf") != 0)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s %s: a value by container is { gguf = .., hf = .. }",
                arch_place(at, part, where), m->name
            );
        if (!arch_fits(part, m->form))
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s %s: %s must be %s", arch_place(at, part, where),
                m->name, key, form_text(m->form)
            );
    }
    if (differs || arch_fits(value, m->form)) return WEIR_OK;
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s %s: must be %s%s", arch_place(at, value, where), m->name,
        form_text(m->form), (m->how & DIFFERS) != 0 ? ", or { gguf = .., hf = .. } of these" : ""
    );
}

weir_status arch_check_members(
    const checker *c, const weir_toml_node *table, const char *where, const member *known
)
{
    char at[2 * TEXT_LENGTH];
    if (table == NULL) return WEIR_OK;
    if (weir_toml_type_of(table) != WEIR_TOML_TABLE)
        return weir_error_set(
            c->error, WEIR_ECONFIG, "%s must be a table, not %s", arch_place(at, table, where),
            weir_toml_type_name(weir_toml_type_of(table))
        );
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *key;
        const weir_toml_node *const value = weir_toml_at(table, i, &key);
        const member *m = known;
        while (m->name != NULL && strcmp(m->name, key) != 0) m++;
        if (m->name == NULL)
            return arch_unknown(c, value, where, "key", key, arch_member_at, known);
        WEIR_TRY(arch_check_value(c, value, where, m));
    }
    for (const member *m = known; m->name != NULL; m++) {
        if ((m->how & NEEDED) != 0 && weir_toml_get(table, m->name) == NULL)
            return weir_error_set(
                c->error, WEIR_ECONFIG, "%s %s is missing", arch_place(at, table, where), m->name
            );
    }
    return WEIR_OK;
}
