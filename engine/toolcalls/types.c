/* engine/toolcalls/types.c - the types that a tool's schema allows for a parameter. */
#include <string.h>

#include "engine/toolcalls/call.h"

enum { DEPTH = 8 }; /* of schemas within anyOf and $ref */

static const json_t *find_tool(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *const f = json_object_get(json_array_get(tools, i), "function");
        const json_t *const own = json_object_get(f, "name");
        if (json_string_length(own) == n && n > 0 && memcmp(json_string_value(own), name, n) == 0)
            return f;
    }
    return NULL;
}

bool weir_tools_have(const json_t *tools, const char *name, size_t n)
{
    return find_tool(tools, name, n) != NULL;
}

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {
        { "string", WEIR_TYPES_STRING }, { "integer", WEIR_TYPES_NUMBER },
        { "number", WEIR_TYPES_NUMBER }, { "boolean", WEIR_TYPES_BOOLEAN },
        { "null", WEIR_TYPES_NULL },     { "array", WEIR_TYPES_ARRAY },
        { "object", WEIR_TYPES_OBJECT },
    };
    for (size_t i = 0; name != NULL && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].type;
    return 0;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return WEIR_TYPES_OBJECT;
    case JSON_ARRAY: return WEIR_TYPES_ARRAY;
    case JSON_STRING: return WEIR_TYPES_STRING;
    case JSON_INTEGER:
    case JSON_REAL: return WEIR_TYPES_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return WEIR_TYPES_BOOLEAN;
    case JSON_NULL: return WEIR_TYPES_NULL;
    }
    return 0;
}

/* "#/$defs/NAME" or "#/definitions/NAME" in the schema `root`. */
static const json_t *resolve(const json_t *root, const char *reference)
{
    static const char *const places[] = { "$defs", "definitions" };
    for (size_t i = 0; reference != NULL && i < 2; i++) {
        const size_t n = strlen(places[i]);
        if (strncmp(reference, "#/", 2) == 0 && strncmp(reference + 2, places[i], n) == 0 &&
            reference[2 + n] == '/')
            return json_object_get(json_object_get(root, places[i]), reference + n + 3);
    }
    return NULL;
}

static unsigned types_of(const json_t *root, const json_t *schema, int depth);

static unsigned types_of_any(const json_t *root, const json_t *list, int depth)
{
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const unsigned more = types_of(root, json_array_get(list, i), depth - 1);
        if (more == 0) return 0; /* anything */
        types |= more;
    }
    return types;
}

static unsigned types_of(const json_t *root, const json_t *schema, int depth)
{
    if (schema == NULL || depth == 0) return 0;
    const json_t *const type = json_object_get(schema, "type");
    if (json_is_string(type)) return type_named(json_string_value(type));
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(json_string_value(json_array_get(type, i)));
    const json_t *const values = json_object_get(schema, "enum");
    unsigned listed = 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        listed |= type_of_value(json_array_get(values, i));
    if (types == 0) types = listed;
    const json_t *const only = json_object_get(schema, "const");
    if (types == 0 && only != NULL) types = type_of_value(only);
    if (types == 0) types = types_of_any(root, json_object_get(schema, "anyOf"), depth);
    if (types == 0) types = types_of_any(root, json_object_get(schema, "oneOf"), depth);
    const char *const reference = json_string_value(json_object_get(schema, "$ref"));
    return types != 0 ? types : types_of(root, resolve(root, reference), depth - 1);
}

unsigned weir_types_of(
    const json_t *tools, const char *name, size_t n, const char *key, size_t key_length
)
{
    const json_t *const root = json_object_get(find_tool(tools, name, n), "parameters");
    const json_t *const properties = json_object_get(root, "properties");
    return types_of(root, json_object_getn(properties, key, key_length), DEPTH);
}
