/* engine/text/jinja/methods.h - shared by the methods of text (text_methods.c) and of lists and
 * dictionaries (methods.c). */
#pragma once
#include "engine/text/jinja/state.h"

typedef struct weir_jinja_method_call {
    weir_jinja_state *state;
    weir_jinja_value *out;
    weir_jinja_value self;
    weir_jinja_value given[3]; /* undefined if not given */
    unsigned mask; /* a bit for each one given */
    int variant;
} weir_jinja_method_call;

typedef struct weir_jinja_method {
    weir_jinja_kind kind;
    const char *name, *parameters;
    /* NULL: a method of Python that is not supported. */
    weir_status (*run)(weir_jinja_method_call *c);
    int variant, required;
} weir_jinja_method;

extern const weir_jinja_method weir_jinja_text_methods[];
extern const int weir_jinja_text_methods_count;

/* True if argument i was given and is not None. */
static inline bool weir_jinja_has(const weir_jinja_method_call *c, size_t i)
{
    return (c->mask >> i & 1) && c->given[i].kind != WEIR_JINJA_NONE;
}
WEIR_MUST_CHECK weir_status
weir_jinja_method_int(weir_jinja_method_call *c, size_t i, int64_t absent, int64_t *out);

enum { WEIR_JINJA_FIND_LAST = 1, WEIR_JINJA_FIND_OR_FAIL = 2, WEIR_JINJA_FIND_COUNT = 4 };
