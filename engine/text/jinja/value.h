/* engine/text/jinja/value.h - values of templates: what Python's objects are to Jinja2, without
 * attributes of the host.
 *
 * All memory is an arena's. Strings are immutable views and carry where each byte came from, so
 * that text of a user is known in the output; slices share bytes and spans. Containers are mutable
 * only through the interpreter. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/text/jinja/arena.h"

typedef enum weir_jinja_kind {
    WEIR_JINJA_UNDEFINED,
    WEIR_JINJA_NONE,
    WEIR_JINJA_BOOL,
    WEIR_JINJA_INT,
    WEIR_JINJA_FLOAT,
    WEIR_JINJA_STRING,
    WEIR_JINJA_LIST,
    WEIR_JINJA_TUPLE,
    WEIR_JINJA_GENERATOR, /* a list that can be read once: always true, no length */
    WEIR_JINJA_DICT,
    WEIR_JINJA_NAMESPACE,
    WEIR_JINJA_MACRO,
    WEIR_JINJA_FUNCTION,
    WEIR_JINJA_METHOD,
    WEIR_JINJA_LOOP,
} weir_jinja_kind;

/* Where a byte of text came from. */
typedef enum weir_jinja_origin {
    WEIR_JINJA_TEMPLATE, /* the template, or a trusted variable */
    WEIR_JINJA_USER, /* messages, tools, documents */
    WEIR_JINJA_MARK, /* put in by the host to find a place again in the output */
} weir_jinja_origin;

typedef struct weir_jinja_span {
    size_t end; /* of the bytes of this origin, from the end of the span before */
    weir_jinja_origin origin;
} weir_jinja_span;

typedef struct weir_jinja_string {
    const char *bytes;
    size_t size;
    size_t count; /* code points; SIZE_MAX until somebody asks */
    /* NULL: all bytes are of `origin`; else ascending, the last one ends at or behind base +
     * size */
    const weir_jinja_span *spans;
    size_t n_spans, base; /* byte i of the string is byte base + i of the spans */
    weir_jinja_origin origin;
    /* Went through `safe` or `escape`: joining by + escapes the other side, as markupsafe does */
    bool markup;
} weir_jinja_string;

typedef struct weir_jinja_list weir_jinja_list;
typedef struct weir_jinja_dict weir_jinja_dict;
typedef struct weir_jinja_macro weir_jinja_macro;
typedef struct weir_jinja_bound weir_jinja_bound;
typedef struct weir_jinja_loop weir_jinja_loop;

typedef struct weir_jinja_value {
    weir_jinja_kind kind;
    union {
        const char *name; /* of what is undefined; may be NULL */
        bool boolean;
        int64_t integer;
        double real;
        weir_jinja_string *string;
        weir_jinja_list *list; /* list, tuple, generator */
        weir_jinja_dict *dict; /* dict, namespace */
        weir_jinja_macro *macro;
        int function;
        weir_jinja_bound *bound;
        weir_jinja_loop *loop;
    } as;
} weir_jinja_value;

struct weir_jinja_list {
    weir_jinja_value *items;
    size_t count, capacity;
    /* Came from messages, tools or documents: its brackets and commas count as text of a user */
    bool user;
};

typedef struct weir_jinja_entry {
    weir_jinja_value key, value;
    uint64_t hash;
    bool live; /* false: removed */
} weir_jinja_entry;

/* In order of insertion. */
struct weir_jinja_dict {
    weir_jinja_entry *entries;
    size_t count, capacity, live; /* count: with the removed ones */
    uint32_t *slots; /* open addressing, entry + 1; power of two; NULL while there are few */
    size_t n_slots;
    bool user;
};

/* A method taken from a value: "text".strip. */
struct weir_jinja_bound {
    weir_jinja_value receiver;
    int method;
};

static inline weir_jinja_value weir_jinja_none(void)
{
    return (weir_jinja_value){ .kind = WEIR_JINJA_NONE };
}
static inline weir_jinja_value weir_jinja_undefined(const char *name)
{
    return (weir_jinja_value){ .kind = WEIR_JINJA_UNDEFINED, .as.name = name };
}
static inline weir_jinja_value weir_jinja_bool(bool value)
{
    return (weir_jinja_value){ .kind = WEIR_JINJA_BOOL, .as.boolean = value };
}
static inline weir_jinja_value weir_jinja_int(int64_t value)
{
    return (weir_jinja_value){ .kind = WEIR_JINJA_INT, .as.integer = value };
}
static inline weir_jinja_value weir_jinja_float(double value)
{
    return (weir_jinja_value){ .kind = WEIR_JINJA_FLOAT, .as.real = value };
}
static inline weir_jinja_value weir_jinja_from_string(weir_jinja_string *string)
{
    return (weir_jinja_value){ .kind = WEIR_JINJA_STRING, .as.string = string };
}
static inline bool weir_jinja_is_list(weir_jinja_value v)
{
    return v.kind == WEIR_JINJA_LIST || v.kind == WEIR_JINJA_TUPLE ||
           v.kind == WEIR_JINJA_GENERATOR;
}
static inline bool weir_jinja_is_integer(weir_jinja_value v)
{
    return v.kind == WEIR_JINJA_INT || v.kind == WEIR_JINJA_BOOL;
}
static inline bool weir_jinja_is_number(weir_jinja_value v)
{
    return weir_jinja_is_integer(v) || v.kind == WEIR_JINJA_FLOAT;
}
static inline int64_t weir_jinja_as_int(weir_jinja_value v)
{
    return v.kind == WEIR_JINJA_BOOL ? (int64_t)v.as.boolean : v.as.integer;
}
static inline double weir_jinja_as_float(weir_jinja_value v)
{
    return v.kind == WEIR_JINJA_FLOAT ? v.as.real : (double)weir_jinja_as_int(v);
}

/* Python's name of the type, for messages. */
const char *weir_jinja_type_name(weir_jinja_value v);
bool weir_jinja_truth(weir_jinja_value v);
/* ==; containers by content. *budget pays for the work, one for each value and each KiB of text:
 * below zero the answer means nothing and the caller ends in EFULL. Values nested deeper than a
 * limit count as different. */
bool weir_jinja_equal(weir_jinja_value a, weir_jinja_value b, int64_t *budget);
/* *order < 0, 0, > 0; false when the two have no order. */
bool weir_jinja_compare(int *order, weir_jinja_value a, weir_jinja_value b, int64_t *budget);
/* Whether it can be a key: scalars, and short tuples of them. */
bool weir_jinja_hashable(weir_jinja_value v);

WEIR_MUST_CHECK weir_status
weir_jinja_list_new(weir_jinja_arena *arena, weir_jinja_list **out, size_t capacity);
WEIR_MUST_CHECK weir_status
weir_jinja_list_add(weir_jinja_arena *arena, weir_jinja_list *list, weir_jinja_value item);
WEIR_MUST_CHECK weir_status weir_jinja_pair(
    weir_jinja_arena *arena, weir_jinja_value *out, weir_jinja_value a, weir_jinja_value b
);

WEIR_MUST_CHECK weir_status weir_jinja_dict_new(weir_jinja_arena *arena, weir_jinja_dict **out);
/* The key must be hashable. A key that is there keeps its place. */
WEIR_MUST_CHECK weir_status weir_jinja_dict_set(
    weir_jinja_arena *arena, weir_jinja_dict *dict, weir_jinja_value key, weir_jinja_value value
);
/* NULL: none */
weir_jinja_entry *weir_jinja_dict_find(const weir_jinja_dict *dict, weir_jinja_value key);
weir_jinja_entry *weir_jinja_dict_find_text(
    const weir_jinja_dict *dict, const char *bytes, size_t size
);
void weir_jinja_dict_remove(weir_jinja_dict *dict, weir_jinja_entry *entry);

/* JSON as values whose text is of `origin`. Strings are borrowed from `json` unless `copy`. EINVAL
 * when nested deeper than a limit. */
WEIR_MUST_CHECK weir_status weir_jinja_from_json(
    weir_jinja_arena *arena, weir_jinja_value *out, const json_t *json, weir_jinja_origin origin,
    bool copy
);
