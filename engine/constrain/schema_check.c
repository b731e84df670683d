/* engine/constrain/schema_check.c - keywords: which are known, and what their values must be. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/decimal.h"
#include "engine/constrain/schema.h"

void weir_schema_refuse(
    weir_schema *s, weir_status status, const weir_tree *node, const char *keyword,
    const char *format, ...
)
{
    if (s->status != WEIR_OK) return;
    char text[400], path[sizeof s->compiler->fault->path];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    weir_tree_path(node, path, sizeof path);
    s->status = weir_compile_refuse(s->compiler, status, keyword, path, "%s", text);
}

void weir_schema_no_memory(weir_schema *s)
{
    if (s->status != WEIR_OK) return;
    s->status = weir_error_set(s->compiler->error, WEIR_ENOMEM, "no memory to compile the schema");
}

bool weir_schema_spend(weir_schema *s, uint64_t steps)
{
    static const uint64_t most = 1 << 28;
    s->work += steps;
    if (s->work > most)
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, s->root, "schema",
            "it takes too many steps to compile; make it "
            "smaller"
        );
    return s->status == WEIR_OK;
}

typedef enum check {
    REFUSED,
    IGNORED,
    COUNT,
    NUMBER,
    POSITIVE,
    STRING,
    SCHEMA,
    SCHEMAS, /* a list of at least one */
    SCHEMA_MAP,
    STRINGS,
    LIST,
    TYPE,
    UNIQUE,
} check;

static const struct keyword {
    const char *name;
    check check;
} keywords[] = {
    { "$ref", STRING },
    { "$dynamicRef", REFUSED },
    { "$recursiveRef", REFUSED },
    { "$dynamicAnchor", REFUSED },
    { "not", REFUSED },
    { "if", REFUSED },
    { "then", REFUSED },
    { "else", REFUSED },
    { "contains", REFUSED },
    { "minContains", REFUSED },
    { "maxContains", REFUSED },
    { "propertyNames", REFUSED },
    { "dependentRequired", REFUSED },
    { "dependentSchemas", REFUSED },
    { "dependencies", REFUSED },
    { "unevaluatedItems", REFUSED },
    { "unevaluatedProperties", REFUSED },
    { "uniqueItems", UNIQUE },
    { "type", TYPE },
    { "enum", LIST },
    { "const", IGNORED },
    { "anyOf", SCHEMAS },
    { "allOf", SCHEMAS },
    { "oneOf", SCHEMAS },
    { "minLength", COUNT },
    { "maxLength", COUNT },
    { "pattern", STRING },
    { "format", STRING },
    { "minimum", NUMBER },
    { "maximum", NUMBER },
    { "exclusiveMinimum", NUMBER },
    { "exclusiveMaximum", NUMBER },
    { "multipleOf", POSITIVE },
    { "items", SCHEMA },
    { "prefixItems", SCHEMAS },
    { "minItems", COUNT },
    { "maxItems", COUNT },
    { "properties", SCHEMA_MAP },
    { "patternProperties", SCHEMA_MAP },
    { "additionalProperties", SCHEMA },
    { "required", STRINGS },
    { "minProperties", COUNT },
    { "maxProperties", COUNT },
    { "$defs", SCHEMA_MAP },
    { "definitions", SCHEMA_MAP },
};

static bool is_schema(const weir_tree *node)
{
    return node->kind == WEIR_TREE_OBJECT || node->kind == WEIR_TREE_TRUE ||
           node->kind == WEIR_TREE_FALSE;
}

static bool all_are(const weir_tree *list, bool (*is)(const weir_tree *))
{
    for (size_t i = 0; i < list->n; i++) {
        if (!is(&list->items[i])) return false;
    }
    return true;
}

static bool is_string(const weir_tree *node) { return node->kind == WEIR_TREE_STRING; }

static bool is_type(const weir_tree *node)
{
    static const char *const types[] = { "null",   "boolean", "integer", "number",
                                         "string", "array",   "object" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (weir_tree_is(node, types[i])) return true;
    }
    return false;
}

/* What the value of a keyword must be; NULL: it is. */
static const char *fault_of(weir_schema *s, const weir_tree *value, check what)
{
    weir_decimal number;
    uint64_t count;
    const bool list = value->kind == WEIR_TREE_ARRAY;
    const bool is_number = value->kind == WEIR_TREE_NUMBER;
    switch (what) {
    case REFUSED:
    case IGNORED: return NULL;
    case COUNT:
    case NUMBER:
    case POSITIVE:
        if (!is_number) return "must be a number";
        if (!weir_decimal_read(&number, &s->scratch, value->text, value->length)) {
            return "has too many digits";
        }
        if (what == COUNT && !weir_decimal_count(&number, UINT32_MAX, &count)) {
            return "must be a whole number from 0 up";
        }
        if (what != POSITIVE) return NULL;
        count = 1;
        return number.negative || (weir_decimal_count(&number, 2, &count) && count == 0)
                   ? "must be above 0"
                   : NULL;
    case STRING: return is_string(value) ? NULL : "must be a string";
    case SCHEMA: return is_schema(value) ? NULL : "must be a schema: an object or a boolean";
    case SCHEMAS:
        if (!list || value->n == 0) return "must be a list of at least one schema";
        return all_are(value, is_schema) ? NULL : "must be a list of schemas";
    case SCHEMA_MAP:
        if (value->kind != WEIR_TREE_OBJECT) return "must be an object";
        return all_are(value, is_schema) ? NULL : "must be an object of schemas";
    case STRINGS: return list && all_are(value, is_string) ? NULL : "must be a list of strings";
    case LIST: return list ? NULL : "must be a list";
    case TYPE:
        if (is_type(value)) return NULL;
        return list && value->n > 0 && all_are(value, is_type) ? NULL
                                                               : "must be a type or a list of them";
    case UNIQUE: return value->kind == WEIR_TREE_FALSE ? NULL : "is not supported";
    }
    return NULL;
}

static void check_keywords(weir_schema *s, const weir_tree *node)
{
    for (size_t i = 0; i < node->n && s->status == WEIR_OK; i++) {
        const weir_tree *const value = &node->items[i];
        const struct keyword *known = NULL;
        for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++) {
            const size_t n = strlen(keywords[k].name);
            if (n == value->key_length && memcmp(keywords[k].name, value->key, n) == 0) {
                known = &keywords[k];
                break;
            }
        }
        if (known == NULL) continue;
        if (known->check == REFUSED) {
            weir_schema_refuse(
                s, WEIR_EUNSUPPORTED, node, known->name, "the keyword \"%s\" is not supported",
                known->name
            );
            return;
        }
        const char *const fault = fault_of(s, value, known->check);
        if (fault == NULL) continue;
        weir_schema_refuse(
            s, known->check == UNIQUE ? WEIR_EUNSUPPORTED : WEIR_EFORMAT, node, known->name,
            "\"%s\" %s", known->name, fault
        );
    }
}

/* The `index`th schema that a schema stands for or lists: a value of it is a value of that one. */
static const weir_tree *in_place(weir_schema *s, const weir_tree *node, size_t index)
{
    static const char *const lists[] = { "allOf", "anyOf", "oneOf" };
    if (node->kind != WEIR_TREE_OBJECT) return NULL;
    const weir_tree *const ref = weir_tree_get(node, "$ref");
    if (ref != NULL && ref->kind == WEIR_TREE_STRING && index-- == 0) {
        return weir_schema_target(s, node);
    }
    for (int i = 0; i < 3; i++) {
        const weir_tree *const list = weir_tree_get(node, lists[i]);
        if (list == NULL || list->kind != WEIR_TREE_ARRAY) continue;
        if (index < list->n) return &list->items[index];
        index -= list->n;
    }
    return NULL;
}

enum { CHECKED = 1, OPEN = 2, CLOSED = 4 }; /* in seen: keywords; on the path; without a cycle */

typedef struct step {
    const weir_tree *node;
    size_t index;
} step;

/* Refuses a schema that stands for itself, which would allow everything or nothing. */
static void check_cycles(weir_schema *s, const weir_tree *node)
{
    size_t n = 0, capacity = 64;
    if ((s->seen[node->id] & CLOSED) != 0) return;
    step *path = weir_memory_take(capacity * sizeof *path);
    if (path == NULL) {
        weir_schema_no_memory(s);
        return;
    }
    path[n++] = (step){ .node = node };
    s->seen[node->id] |= OPEN;
    while (n > 0 && s->status == WEIR_OK) {
        step *const at = &path[n - 1];
        const weir_tree *const next = in_place(s, at->node, at->index++);
        if (next == NULL) {
            s->seen[at->node->id] |= CLOSED;
            s->seen[at->node->id] &= (uint8_t)~OPEN;
            n--;
            continue;
        }
        if ((s->seen[next->id] & CLOSED) != 0) continue;
        if ((s->seen[next->id] & OPEN) != 0) {
            weir_schema_refuse(
                s, WEIR_EUNSUPPORTED, next, "$ref", "\"$ref\" leads back to the same schema"
            );
            break;
        }
        if (n == capacity) {
            step *const larger = weir_memory_resize(path, 2 * capacity * sizeof *path);
            if (larger == NULL) {
                weir_schema_no_memory(s);
                break;
            }
            path = larger;
            capacity *= 2;
        }
        path[n++] = (step){ .node = next };
        s->seen[next->id] |= OPEN;
    }
    weir_memory_give(path);
}

void weir_schema_check(weir_schema *s, const weir_tree *node)
{
    if (s->status != WEIR_OK || (s->seen[node->id] & CHECKED) != 0) return;
    s->seen[node->id] |= CHECKED;
    if (!is_schema(node)) {
        weir_schema_refuse(s, WEIR_EFORMAT, node, "schema", "a schema is an object or a boolean");
        return;
    }
    check_keywords(s, node);
    if (s->status == WEIR_OK) check_cycles(s, node);
}
