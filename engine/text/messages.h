/* engine/text/messages.h - renders a chat in JSON with a model's template and tokenizer, for
 * programs and the library. The server has its own version (engine/serve/chat_prompt.c). */
#pragma once
#include "engine/text/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the rendered text is used: whether its tokens follow others, and whether an answer
 * follows. */
typedef struct weir_messages_place {
    bool follows, is_question;
} weir_messages_place;

/* Renders a chat: an array of messages, or an object with "messages", "tools", "documents" and
 * further template variables. Appends to ids and text, each of which may be NULL. Control tokens in
 * user text stay text. EINVAL: another form, or the template refuses it. */
WEIR_MUST_CHECK weir_status weir_messages_render(
    weir_ids *ids, weir_buffer *text, const weir_tokenizer *tokenizer,
    const weir_chat_template *chat_template, const json_t *chat, weir_messages_place place,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
