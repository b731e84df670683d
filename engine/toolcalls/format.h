/* engine/toolcalls/format.h - how families of models write tool calls: the texts that open a block
 * of calls, and the steps that read it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/toolcalls/value.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_format_step_kind {
    WEIR_FORMAT_TEXT, /* `text` */
    WEIR_FORMAT_SPACE, /* white space, if any */
    WEIR_FORMAT_IF, /* `text`, or else the step `skip` further on */
    WEIR_FORMAT_PEEK, /* like IF, but `text` remains */
    WEIR_FORMAT_JUMP, /* the step `skip` further on */
    WEIR_FORMAT_NAME, /* the name, then `text` if not NULL */
    WEIR_FORMAT_ID, /* the id, then `text` */
    WEIR_FORMAT_ID_NAME, /* an id "functions.NAME:0", then `text` */
    WEIR_FORMAT_KEY, /* the name of a parameter, then `text` */
    WEIR_FORMAT_VALUE, /* of the parameter: all up to `text`; `value` says of which type */
    WEIR_FORMAT_ARGUMENTS, /* an object in the dialect `value` */
    WEIR_FORMAT_MEMBER_KEY, /* a key of a call that is a JSON object */
    WEIR_FORMAT_MEMBER, /* its value */
    WEIR_FORMAT_COMMIT, /* the call is complete */
    WEIR_FORMAT_END, /* the block is complete */
} weir_format_step_kind;

/* Types of a parameter's value. */
typedef enum weir_value_type {
    WEIR_TYPE_DECLARED, /* as the tool declares it */
    WEIR_TYPE_DECLARED_LINES, /* likewise; one line end on each side is markup */
    WEIR_TYPE_STRING,
    WEIR_TYPE_JSON,
} weir_value_type;

typedef struct weir_format_step {
    weir_format_step_kind kind;
    const char *text;
    int skip, value;
} weir_format_step;

typedef struct weir_format_opener {
    const char *text; /* NULL: none */
    int step; /* where reading begins */
    /* `text` is part of the call: it opens a block only at the start of a line, and only calls of
     * declared tools count. */
    bool is_bare;
} weir_format_opener;

enum { WEIR_FORMAT_OPENERS = 3 };

/* Parameters between tags: `key` NAME `string` TEXT `end`, or `key` NAME `json` JSON `end`. */
typedef struct weir_call_tags {
    const char *key, *string, *json, *end;
    const char *never; /* what ends a value when it is read */
} weir_call_tags;

/* What a template prints around calls, so that a model can be held to it. */
typedef struct weir_call_form {
    const char *open, *separator, *close; /* around the calls of an answer, and between two */
    /* Of a call: before its name, before its arguments, after them. `begin` NULL: the form is not
     * known, and calls cannot be forced. */
    const char *begin, *middle, *end;
    const weir_call_tags *tags; /* NULL: arguments are a JSON object, or Python */
    bool is_python; /* arguments are a=1, b="x" */
    bool is_single; /* one call in an answer */
} weir_call_form;

/* Within texts of a form: digits that the model chooses. */
#define WEIR_FORM_NUMBER "\xF4\x8F\xBF\xBE"

typedef struct weir_chat_format {
    const char *name;
    weir_format_opener opener[WEIR_FORMAT_OPENERS];
    const weir_format_step *steps;
    size_t n_steps;
    /* How a call is recognised in what a template prints: a text that other formats with this
     * opener do not have. */
    const char *sign;
    bool has_ids; /* the model writes the ids of calls */
    bool is_harmony; /* channels instead of blocks (harmony.c) */
    weir_call_form form;
} weir_chat_format;

/* All formats, in the order in which templates are tried. */
const weir_chat_format *weir_chat_formats(size_t *n);
/* The format of this name; NULL: none. */
const weir_chat_format *weir_chat_format_find(const char *name);
/* True if text [n], that of a control token, is part of the format's markup. */
bool weir_chat_format_has(const weir_chat_format *format, const char *text, size_t n);

#ifdef __cplusplus
}
#endif
