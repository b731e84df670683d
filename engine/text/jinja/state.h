/* engine/text/jinja/state.h - the state of one rendering, and the interfaces between the parts of
 * the interpreter.
 *
 * Every evaluation and statement counts as a step, work on text and items counts as steps in
 * proportion to its time (weir_jinja_work). Steps, recursion and memory are limited. */
#pragma once
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/string.h"

typedef struct weir_jinja_scope {
    struct weir_jinja_scope *parent;
    weir_jinja_dict names;
} weir_jinja_scope;

typedef struct weir_jinja_state {
    weir_jinja_arena *arena;
    weir_error *error;
    weir_jinja_scope *scope;
    weir_jinja_builder *out;
    int64_t steps_left;
    int depth, line;
    int64_t now; /* seconds since 1970, for strftime_now */
} weir_jinja_state;

struct weir_jinja_macro {
    const weir_jinja_node *node;
    weir_jinja_scope *scope; /* where it was defined; free names are looked up there at run time */
};

/* A loop in progress. An item is tested against the loop's condition only when it is needed. */
struct weir_jinja_loop {
    const weir_jinja_node *node;
    weir_jinja_scope *outer, *turn; /* turn: scope of the last iteration, to be reused */
    weir_jinja_list *source, *passed;
    size_t cursor, index; /* next of `source`; index0 */
    int depth; /* 0: not inside the same recursive loop */
    weir_jinja_value changed; /* arguments of the last loop.changed(); undefined: not called yet */
};

typedef struct weir_jinja_arguments {
    weir_jinja_value *items;
    size_t count;
    weir_jinja_string **names; /* of `named` */
    weir_jinja_value *named;
    size_t n_named;
} weir_jinja_arguments;

/* Fails with EINVAL and the current line of the template. */
WEIR_MUST_CHECK weir_status weir_jinja_fail(weir_jinja_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fails with "'x' is undefined". */
WEIR_MUST_CHECK weir_status weir_jinja_fail_undefined(weir_jinja_state *state, weir_jinja_value v);
/* Counts a step over `bytes` of text. EFULL past the limit. */
WEIR_MUST_CHECK weir_status weir_jinja_step(weir_jinja_state *state, size_t bytes);
/* Counts steps for `n` bytes, code points or items. Loops over text or items count their steps
 * before they start, or one for each iteration. */
typedef enum weir_jinja_rate {
    WEIR_JINJA_MOVED = 1, /* copied, compared, hashed: 1024 for each step */
    WEIR_JINJA_SEARCHED = 16, /* by memmem */
    WEIR_JINJA_READ = 64, /* read one by one */
    WEIR_JINJA_MADE = 256, /* changed, written or iterated one by one */
} weir_jinja_rate;
static inline weir_status weir_jinja_work(weir_jinja_state *state, size_t n, weir_jinja_rate rate)
{
    return weir_jinja_step(state, n < SIZE_MAX / 256 ? n * (size_t)rate : SIZE_MAX);
}
/* Called before a lookup: counts steps for hashing and comparing the key. */
WEIR_MUST_CHECK weir_status weir_jinja_look(weir_jinja_state *state, weir_jinja_value key);
/* Called around every recursion. EFULL past the depth limit. */
WEIR_MUST_CHECK weir_status weir_jinja_enter(weir_jinja_state *state);
static inline void weir_jinja_leave(weir_jinja_state *state) { state->depth--; }

/* ---- eval.c, run.c --------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status
weir_jinja_eval(weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_node *node);
WEIR_MUST_CHECK weir_status weir_jinja_eval_arguments(
    weir_jinja_state *state, weir_jinja_arguments *out, const weir_jinja_node *call
);
WEIR_MUST_CHECK weir_status weir_jinja_run(weir_jinja_state *state, const weir_jinja_nodes *body);
WEIR_MUST_CHECK weir_status
weir_jinja_scope_new(weir_jinja_state *state, weir_jinja_scope **out, weir_jinja_scope *parent);
WEIR_MUST_CHECK weir_status weir_jinja_scope_set(
    weir_jinja_state *state, weir_jinja_scope *scope, const char *name, weir_jinja_value value
);
/* Evaluates items until at least `count` passed the loop's test or none are left. */
WEIR_MUST_CHECK weir_status
weir_jinja_loop_fill(weir_jinja_state *state, weir_jinja_loop *loop, size_t count);
WEIR_MUST_CHECK weir_status weir_jinja_loop_run(
    weir_jinja_state *state, const weir_jinja_node *node, weir_jinja_value items,
    weir_jinja_scope *outer, int depth
);
WEIR_MUST_CHECK weir_status weir_jinja_call_macro(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_macro *macro,
    const weir_jinja_arguments *arguments
);

/* ---- operators.c ----------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status weir_jinja_binary(
    weir_jinja_state *state, weir_jinja_value *out, int operation, weir_jinja_value a,
    weir_jinja_value b
);
WEIR_MUST_CHECK weir_status
weir_jinja_unary(weir_jinja_state *state, weir_jinja_value *out, int operation, weir_jinja_value v);
/* Operation: == != < <= > >= as WEIR_JINJA_OP, 'i' for in, 'n' for not in. */
WEIR_MUST_CHECK weir_status weir_jinja_relation(
    weir_jinja_state *state, bool *out, int operation, weir_jinja_value a, weir_jinja_value b
);
/* Replaces & < > ' " by entities. Text that is markup is unchanged. The result is markup. */
WEIR_MUST_CHECK weir_status
weir_jinja_escape(weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v);

/* ---- access.c: a.b, a[b], a[b:c] and iteration ----------------------------------------------- */
WEIR_MUST_CHECK weir_status weir_jinja_attribute(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v, weir_jinja_string *name
);
WEIR_MUST_CHECK weir_status weir_jinja_item(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v, weir_jinja_value key
);
WEIR_MUST_CHECK weir_status weir_jinja_slice(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v,
    const weir_jinja_value bounds[3]
);
/* Returns the items as a list, which may be the value itself: do not change it. Exhausts a
 * generator. */
WEIR_MUST_CHECK weir_status
weir_jinja_items(weir_jinja_state *state, weir_jinja_list **out, weir_jinja_value v);
bool weir_jinja_iterable(weir_jinja_value v);
WEIR_MUST_CHECK weir_status
weir_jinja_length(weir_jinja_state *state, size_t *out, weir_jinja_value v);

/* ---- call.c ---------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status weir_jinja_call(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value callee,
    const weir_jinja_arguments *arguments
);
WEIR_MUST_CHECK weir_status
weir_jinja_define_functions(weir_jinja_state *state, weir_jinja_scope *scope);
/* Binds arguments by position or name: `names` is "a b c". values[i] is unchanged if not given;
 * *given has a bit for each one that was. */
WEIR_MUST_CHECK weir_status weir_jinja_bind(
    weir_jinja_state *state, const char *what, const char *names, weir_jinja_value *values,
    unsigned *given, const weir_jinja_arguments *arguments
);

/* ---- methods.c, text_methods.c --------------------------------------------------------------- */
/* Returns -1 if the type has no such method. */
int weir_jinja_method_find(weir_jinja_value receiver, const weir_jinja_string *name);
WEIR_MUST_CHECK weir_status weir_jinja_call_method(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_bound *bound,
    const weir_jinja_arguments *arguments
);

/* Byte offset of the last `needle` that ends at or before byte `end`; SIZE_MAX: none. */
WEIR_MUST_CHECK weir_status weir_jinja_find_last(
    weir_jinja_state *state, size_t *out, const weir_jinja_string *string, size_t end,
    const weir_jinja_string *needle
);
/* Strips code points in `set` (NULL: white space) from the ends. */
WEIR_MUST_CHECK weir_status weir_jinja_strip(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string,
    const weir_jinja_string *set, bool left, bool right
);
/* Python's str.replace; limit < 0: all. */
WEIR_MUST_CHECK weir_status weir_jinja_replace(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string,
    const weir_jinja_string *old, const weir_jinja_string *new_text, int64_t limit
);
/* Returns a list; what: 'k' keys, 'v' values, 'i' items. */
WEIR_MUST_CHECK weir_status weir_jinja_dict_list(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_dict *dict, char what
);

/* ---- filters.c, sequences.c, tests.c --------------------------------------------------------- */
typedef weir_status (*weir_jinja_filter)(
    weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v,
    const weir_jinja_arguments *arguments
);
typedef struct weir_jinja_filter_entry {
    const char *name;
    weir_jinja_filter filter;
} weir_jinja_filter_entry;
extern const weir_jinja_filter_entry weir_jinja_text_filters[],
    weir_jinja_sequence_filters[]; /* terminated by a NULL name */
WEIR_MUST_CHECK weir_status weir_jinja_apply_filter(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *name,
    weir_jinja_value v, const weir_jinja_arguments *arguments
);
WEIR_MUST_CHECK weir_status weir_jinja_apply_test(
    weir_jinja_state *state, bool *out, const weir_jinja_string *name, weir_jinja_value v,
    const weir_jinja_arguments *arguments
);

/* ---- print.c: str() and repr() of Python, and JSON ------------------------------------------- */
typedef struct weir_jinja_json_style {
    bool ascii, sorted;
    const char *indent; /* NULL: one line; else the indentation of one level */
    const char *item, *key; /* separators */
} weir_jinja_json_style;
WEIR_MUST_CHECK weir_status
weir_jinja_print(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v);
WEIR_MUST_CHECK weir_status
weir_jinja_repr(weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v);
WEIR_MUST_CHECK weir_status weir_jinja_json(
    weir_jinja_state *state, weir_jinja_builder *out, weir_jinja_value v,
    const weir_jinja_json_style *style
);
/* str(v); a string is returned as it is. */
WEIR_MUST_CHECK weir_status
weir_jinja_to_string(weir_jinja_state *state, weir_jinja_value *out, weir_jinja_value v);

/* format.c: "..." % v. */
WEIR_MUST_CHECK weir_status weir_jinja_format(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *format,
    weir_jinja_value v
);
/* repr() of a float; at most 32 bytes. */
void weir_jinja_float_text(char out[32], double value);

/* letters.c: case conversion. TITLE is Python's str.title, WORDS the filter title: a word begins
 * after white space or one of -({[<. */
typedef enum weir_jinja_case {
    WEIR_JINJA_LOWER,
    WEIR_JINJA_UPPER,
    WEIR_JINJA_TITLE,
    WEIR_JINJA_CAPITALIZE,
    WEIR_JINJA_WORDS
} weir_jinja_case;
WEIR_MUST_CHECK weir_status weir_jinja_change_case(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string,
    weir_jinja_case letters
);
bool weir_jinja_printable(uint32_t code); /* str.isprintable */
bool weir_jinja_is_letter(uint32_t code);
bool weir_jinja_is_digit(uint32_t code);
