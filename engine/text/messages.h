/* engine/text/messages.h - a chat as JSON, by a model's template and tokenizer: what the programs
 * and the library make of messages. The server has its own (engine/serve/chat_prompt.c). */
#pragma once
#include "engine/text/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the rendered text stands among others: its tokens follow some that are there, and it ends
 * where an answer begins. */
typedef struct weir_messages_place {
    bool follows, is_question;
} weir_messages_place;

/* chat: an array of messages, or an object with "messages", "tools", "documents" and further
 * template variables. Appends to ids and text, each of which may be NULL. Control tokens in what
 * users wrote stay text. EINVAL: another shape, or the template refuses it. */
WEIR_MUST_CHECK weir_status weir_messages_render(
    weir_ids *ids, weir_buffer *text, const weir_tokenizer *tokenizer,
    const weir_chat_template *chat_template, const json_t *chat, weir_messages_place place,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
