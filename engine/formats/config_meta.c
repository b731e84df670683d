/* engine/formats/config_meta.c - flattens config.json to dotted keys, so that metadata of both
 * containers is looked up in one table. */
#include "engine/formats/config_meta.h"

#include <string.h>

#include "engine/formats/printable.h"

typedef struct flattener {
    weir_tensor_directory *directory;
    const char *path; /* of the file, for messages */
    char key[WEIR_NAME_BYTES + 1];
    weir_error *error;
} flattener;

static weir_status convert(flattener *f, const json_t *value, weir_meta *out);

/* Integers mixed with fractions make a list of fractions; otherwise the first element with a value
 * gives the type. */
static weir_meta_type element_type(const weir_meta *values, size_t n)
{
    bool any = false;
    weir_meta_type type = WEIR_META_INT;
    for (size_t i = 0; i < n; i++) {
        if (values[i].type == WEIR_META_ARRAY && values[i].elements == NULL) continue;
        if (!any)
            type = values[i].type;
        else if (type == WEIR_META_INT && values[i].type == WEIR_META_FLOAT)
            type = WEIR_META_FLOAT;
        any = true;
    }
    return type;
}

static weir_status convert_array(flattener *f, const json_t *array, weir_meta *out)
{
    const size_t n = json_array_size(array);
    weir_meta *const values = weir_arena_take(&f->directory->arena, n * sizeof *values);
    weir_elements *const elements = weir_arena_take(&f->directory->arena, sizeof *elements);
    if (values == NULL || elements == NULL) return weir_directory_no_memory(f->error, f->path);
    for (size_t i = 0; i < n; i++) WEIR_TRY(convert(f, json_array_get(array, i), &values[i]));
    const weir_meta_type type = element_type(values, n);
    for (size_t i = 0; i < n && type == WEIR_META_FLOAT; i++)
        if (values[i].type == WEIR_META_INT)
            values[i] = (weir_meta){ .type = WEIR_META_FLOAT, .number = (double)values[i].integer };
    *elements = (weir_elements){ .values = values };
    *out = (weir_meta
    ){ .type = WEIR_META_ARRAY, .length = n, .element_type = type, .elements = elements };
    return WEIR_OK;
}

static weir_status convert(flattener *f, const json_t *value, weir_meta *out)
{
    switch (json_typeof(value)) {
    case JSON_INTEGER:
        *out = (weir_meta){ .type = WEIR_META_INT, .integer = json_integer_value(value) };
        return WEIR_OK;
    case JSON_REAL:
        *out = (weir_meta){ .type = WEIR_META_FLOAT, .number = json_real_value(value) };
        return WEIR_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = (weir_meta){ .type = WEIR_META_BOOL, .boolean = json_is_true(value) };
        return WEIR_OK;
    case JSON_ARRAY: return convert_array(f, value, out);
    case JSON_STRING: {
        const size_t length = json_string_length(value);
        const char *const text =
            weir_arena_text(&f->directory->arena, json_string_value(value), length);
        if (text == NULL) return weir_directory_no_memory(f->error, f->path);
        *out = (weir_meta){ .type = WEIR_META_STRING, .string = text, .length = length };
        return WEIR_OK;
    }
    case JSON_NULL:
    case JSON_OBJECT: break;
    }
    *out = (weir_meta){ .type = WEIR_META_ARRAY };
    return WEIR_OK;
}

static weir_status add(flattener *f, const json_t *value, size_t key_length)
{
    weir_meta meta;
    if (f->directory->n_entries == WEIR_META_MAX)
        return weir_error_set(
            f->error, WEIR_EFORMAT, "%s: more than %d keys", f->path, WEIR_META_MAX
        );
    WEIR_TRY(convert(f, value, &meta));
    const char *const key = weir_arena_text(&f->directory->arena, f->key, key_length);
    if (key == NULL) return weir_directory_no_memory(f->error, f->path);
    return weir_directory_add_meta(f->directory, key, &meta, f->error);
}

/* Adds the members of `object`. The first prefix_length bytes of f->key are the path to it. The
 * parser limits the depth. */
static weir_status flatten(flattener *f, const json_t *object, size_t prefix_length)
{
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const size_t dot = prefix_length > 0, length = strlen(name);
        if (prefix_length + dot + length > WEIR_NAME_BYTES)
            return weir_error_set(
                f->error, WEIR_EFORMAT, "%s: a key with its parents is longer than %d bytes",
                f->path, WEIR_NAME_BYTES
            );
        if (dot) f->key[prefix_length] = '.';
        memcpy(f->key + prefix_length + dot, name, length);
        const size_t key_length = prefix_length + dot + length;
        if (json_is_object(value))
            WEIR_TRY(flatten(f, value, key_length));
        else if (!json_is_null(value))
            WEIR_TRY(add(f, value, key_length));
    }
    return WEIR_OK;
}

weir_status weir_config_meta_add(
    weir_tensor_directory *directory, const json_t *root, const char *name, weir_error *error
)
{
    if (!json_is_object(root))
        return weir_error_set(error, WEIR_EFORMAT, "%s: not a JSON object", name);
    flattener f = { .directory = directory, .path = name, .error = error };
    const json_t *const text_config = json_object_get(root, "text_config");
    if (json_is_object(text_config)) WEIR_TRY(flatten(&f, text_config, 0));
    return flatten(&f, root, 0);
}
