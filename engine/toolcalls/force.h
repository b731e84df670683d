/* engine/toolcalls/force.h - the grammar of an answer that is held to calls of tools, in the form
 * that the model's template prints; or to another grammar, after the model's reasoning. */
#pragma once
#include <jansson.h>

#include "engine/toolcalls/format.h"
#include "engine/toolcalls/reasoning.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_token_kind {
    WEIR_TOKEN_NONE,
    WEIR_TOKEN_PLAIN,
    WEIR_TOKEN_CONTROL
} weir_token_kind;

typedef struct weir_call_force {
    const weir_chat_format *format; /* of which weir_call_force_problem is NULL */
    const json_t *tools; /* that may be called, at least one; checked by weir_tools_read. Or NULL */
    bool is_required; /* the answer is calls; false: text, with calls where the model wants them */
    bool one_call;
    weir_reasoning_start start; /* what the prompt left open */
    /* Whether a text is one token of the vocabulary. */
    weir_token_kind (*token)(const void *vocabulary, const char *text, size_t n);
    const void *vocabulary;
} weir_call_force;

/* Why calls of this format cannot be forced; NULL: they can. */
const char *weir_call_force_problem(const weir_chat_format *format);
/* Appends the grammar, a JSON text for WEIR_GRAMMAR_CALLS (engine/constrain/calls.h).
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_call_force_write(weir_buffer *out, const weir_call_force *force);
/* The same of an answer that is a text [n] of another kind of grammar (weir_grammar_kind_name). Of
 * `force`, format, start and vocabulary count; its tools are NULL.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_reasoned_write(
    weir_buffer *out, const weir_call_force *force, const char *kind, const char *text, size_t n
);

#ifdef __cplusplus
}
#endif
