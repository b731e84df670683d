/* engine/text/jinja/value.h - values of templates: the counterpart of Python's objects in Jinja2,
 * without attributes of the host.
 *
 * All memory comes from an arena. Strings are immutable views that record the origin of each byte,
 * so that user text is known in the output; slices share bytes and spans. Only the interpreter
 * changes containers. */
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
    WEIR_JINJA_GENERATOR, /* a list that can be read once; always true, no length */
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
    WEIR_JINJA_MARK, /* a mark set by the host, to find a place in the output */
} weir_jinja_origin;

typedef struct weir_jinja_span {
    size_t end; /* end of the bytes of this origin, which start at the end of the previous span */
    weir_jinja_origin origin;
} weir_jinja_span;

typedef struct weir_jinja_string {
    const char *bytes;
    size_t size;
    size_t count; /* in code points; SIZE_MAX: not counted yet */
    /* NULL: all bytes have `origin`; else ascending, the last one ends at or after base + size. */
    const weir_jinja_span *spans;
    size_t n_spans, base; /* byte i of the string is byte base + i of the spans */
    weir_jinja_origin origin;
    /* Result of `safe` or `escape`: + escapes the other operand, as markupsafe does. */
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
        const char *name; /* of an undefined value; may be NULL */
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
    /* From messages, tools or documents: its brackets and commas count as user text. */
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
    size_t count, capacity, live; /* count: includes removed ones */
    uint32_t *buckets; /* open addressing, entry + 1; power of two; NULL while there are few */
    size_t n_buckets;
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
/* Python's ==; containers by content. *budget pays for the work, one for each value and each KiB of
 * text: if it ends below zero, the result is meaningless and the caller returns EFULL. Values
 * nested deeper than a limit are unequal. */
bool weir_jinja_equal(weir_jinja_value a, weir_jinja_value b, int64_t *budget);
/* Sets *order to < 0, 0 or > 0. Returns false if the two have no order. */
bool weir_jinja_compare(int *order, weir_jinja_value a, weir_jinja_value b, int64_t *budget);
/* True if it can be a key: scalars, and short tuples of them. */
bool weir_jinja_hashable(weir_jinja_value v);

WEIR_MUST_CHECK weir_status
weir_jinja_list_new(weir_jinja_arena *arena, weir_jinja_list **out, size_t capacity);
WEIR_MUST_CHECK weir_status
weir_jinja_list_add(weir_jinja_arena *arena, weir_jinja_list *list, weir_jinja_value item);
WEIR_MUST_CHECK weir_status weir_jinja_pair(
    weir_jinja_arena *arena, weir_jinja_value *out, weir_jinja_value a, weir_jinja_value b
);

WEIR_MUST_CHECK weir_status weir_jinja_dict_new(weir_jinja_arena *arena, weir_jinja_dict **out);
/* Sets an entry. The key must be hashable; an existing key keeps its place. */
WEIR_MUST_CHECK weir_status weir_jinja_dict_set(
    weir_jinja_arena *arena, weir_jinja_dict *dict, weir_jinja_value key, weir_jinja_value value
);
/* Returns NULL if there is no such key. */
weir_jinja_entry *weir_jinja_dict_find(const weir_jinja_dict *dict, weir_jinja_value key);
weir_jinja_entry *weir_jinja_dict_find_text(
    const weir_jinja_dict *dict, const char *bytes, size_t size
);
void weir_jinja_dict_remove(weir_jinja_dict *dict, weir_jinja_entry *entry);

/* Converts JSON to values whose strings have `origin`. Strings are borrowed from `json` unless
 * `copy`. EINVAL if it is nested deeper than a limit. */
WEIR_MUST_CHECK weir_status weir_jinja_from_json(
    weir_jinja_arena *arena, weir_jinja_value *out, const json_t *json, weir_jinja_origin origin,
    bool copy
);
