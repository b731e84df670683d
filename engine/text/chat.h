/* engine/text/chat.h - chat templates: messages (JSON) to prompt text, with an interpreter of the
 * Jinja subset that templates use.
 *
 * Steps, depth and output are bounded; no I/O, and no access to anything but values. Text from
 * messages and tools is tracked through the interpreter, so control tokens in it are tokenised as
 * plain text. */
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

/* Parses the template. EFORMAT with line and reason. The result is immutable; any thread may
 * render. */
WEIR_MUST_CHECK weir_status weir_chat_template_open(
    weir_chat_template **out, const char *text, size_t length, weir_error *error
);
void weir_chat_template_close(weir_chat_template *chat);

typedef struct weir_chat_input {
    const json_t *messages; /* array */
    const json_t *tools; /* array or NULL (none) */
    const json_t *documents; /* array or NULL (none) */
    const json_t *variables; /* object of further trusted variables (enable_thinking ...) or NULL */
    const char *bos_token, *eos_token;
    bool add_generation_prompt;
    bool continue_final_message; /* end the text right after the last message's content */
    int64_t now_unix_seconds; /* for strftime_now, in UTC */
} weir_chat_input;

typedef struct weir_chat_output {
    weir_buffer text;
    /* Byte ranges of text from messages, tools or documents: ascending, disjoint. */
    weir_span *user;
    size_t n_user;
} weir_chat_output;
void weir_chat_output_free(weir_chat_output *output);

/* Renders the prompt. EINVAL: the template refused (raise_exception, with its message) or cannot
 * process the input. EFULL: a limit of steps, depth or output was reached. */
WEIR_MUST_CHECK weir_status weir_chat_render(
    const weir_chat_template *chat, weir_chat_output *out, const weir_chat_input *input,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
