/* engine/text/chat.h - chat templates: messages (JSON) to prompt text, by an interpreter of the
 * Jinja subset that templates use.
 *
 * Bounded in steps, depth and output; no I/O, no attribute access outside values. Text that came
 * from messages or tools is tracked through the interpreter, so that control tokens in it stay text
 * when the prompt is tokenised. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_chat_template weir_chat_template;

/* Parses once; EFORMAT with line and reason. Immutable afterwards, any thread may render. */
WEIR_MUST_CHECK weir_status weir_chat_template_open(
    weir_chat_template **out, const char *text, size_t length, weir_error *error
);
void weir_chat_template_close(weir_chat_template *chat);

typedef struct weir_chat_input {
    const json_t *messages; /* array */
    const json_t *tools; /* array or NULL (none) */
    const json_t *documents; /* array or NULL (none) */
    const json_t
        *variables; /* object of further variables (enable_thinking ...) or NULL; trusted text */
    const char *bos_token, *eos_token;
    bool add_generation_prompt;
    bool continue_final_message; /* the text is cut right after the last message's content */
    int64_t now_unix_seconds; /* for strftime_now, local time zone UTC */
} weir_chat_input;

typedef struct weir_chat_output {
    weir_buffer text;
    /* Byte ranges of text that came from messages, tools or documents: ascending, disjoint */
    weir_span *user;
    size_t n_user;
} weir_chat_output;
void weir_chat_output_free(weir_chat_output *output);

/* EINVAL: the template refused (raise_exception; the text is the template's) or the input has a
 * shape the template cannot take. EFULL: a bound on steps, depth or output was reached. */
WEIR_MUST_CHECK weir_status weir_chat_render(
    const weir_chat_template *chat, weir_chat_output *out, const weir_chat_input *input,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
