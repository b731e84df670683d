/* engine/model/arch_check_gguf.c - checks [gguf] of arch files: what files of the architecture say
 * in addition to what the other tables name, for the program that writes them. */
#include <stdio.h>
#include <string.h>

#include "engine/model/arch_check.h"

enum { ARRAY_MOST = 64 };

static const char *shape_at(const void *names, size_t index)
{
    return (void)names, weir_shape_name(index);
}

static weir_status check_shape(const checker *c, const weir_toml_node *node, const char *name)
{
    if (!arch_is_listed(name, shape_at, NULL))
        return arch_unknown(c, node, "gguf", "shape", name, shape_at, NULL);
    if (arch_get(c, "shape", name) != NULL) return WEIR_OK;
    char at[2 * TEXT_LENGTH];
    return weir_error_set(
        c->error, WEIR_ECONFIG, "%s needs %s in [shape]", arch_place(at, node, "gguf"), name
    );
}

/* "SHAPE" or "SHAPE + SHAPE". */
static weir_status check_sum(const checker *c, const weir_toml_node *node, const char *text)
{
    char first[TEXT_LENGTH];
    const char *const plus = strstr(text, " + ");
    (void
    )snprintf(first, sizeof first, "%.*s", (int)(plus != NULL ? plus - text : TEXT_LENGTH), text);
    WEIR_TRY(check_shape(c, node, first));
    return plus != NULL ? check_shape(c, node, plus + 3) : WEIR_OK;
}

static bool is_integer(const weir_toml_node *node)
{
    int64_t value;
    return weir_toml_int(node, &value) && value >= INT32_MIN && value <= INT32_MAX;
}

/* A list of integers of config.json, filled up with zeros. */
static weir_status check_list(const checker *c, const weir_toml_node *node)
{
    static const member keys[] = { { "hf", FORM_NAMES, NEEDED },
                                   { "length", FORM_NUMBER, NEEDED },
                                   { "default", FORM_SCALARS, ONCE },
                                   { 0 } };
    const weir_toml_node *const otherwise = weir_toml_get(node, "default");
    char at[2 * TEXT_LENGTH];
    int64_t length = 0;
    WEIR_TRY(arch_check_members(c, node, "gguf", keys));
    const bool is_length = weir_toml_int(weir_toml_get(node, "length"), &length);
    if (!is_length || length < 1 || length > ARRAY_MOST ||
        (otherwise != NULL && (weir_toml_type_of(otherwise) != WEIR_TOML_ARRAY ||
                               !arch_all_children(otherwise, (size_t)length, is_integer))))
        return weir_error_set(
            c->error, WEIR_ECONFIG,
            "%s: length must be 1 to %d, and default a list of at most as many integers",
            arch_place(at, node, "gguf"), ARRAY_MOST
        );
    return WEIR_OK;
}

weir_status arch_check_gguf(const checker *c)
{
    const weir_toml_node *const table = weir_toml_get(c->arch->root, "gguf");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *key, *text;
        const weir_toml_node *const node = weir_toml_at(table, i, &key);
        char at[2 * TEXT_LENGTH], shown[80];
        bool flag;
        double number;
        if ((text = weir_toml_string(node, NULL)) != NULL)
            WEIR_TRY(check_sum(c, node, text));
        else if (weir_toml_type_of(node) == WEIR_TOML_TABLE)
            WEIR_TRY(check_list(c, node));
        else if (!weir_toml_bool(node, &flag) && !weir_toml_float(node, &number))
            return weir_error_set(
                c->error, WEIR_ECONFIG,
                "%s \"%s\" must be a number, a boolean, a shape, or a list of config.json",
                arch_place(at, node, "gguf"), arch_shown(shown, key)
            );
    }
    return WEIR_OK;
}
