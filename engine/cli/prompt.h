/* engine/cli/prompt.h - makes token ids from prompts of all kinds. */
#pragma once
#include <jansson.h>

#include "engine/cli/options.h"
#include "engine/engine.h"

/* Parses "1,2,3"; ids are checked against `n_vocab`. */
WEIR_MUST_CHECK weir_status
weir_prompt_from_list(weir_ids *ids, const char *list, int64_t n_vocab, weir_error *error);
/* Tokenizes raw text; matches special tokens and adds BOS if the model uses it. */
WEIR_MUST_CHECK weir_status weir_prompt_from_text(
    weir_ids *ids, const weir_engine *engine, const char *text, weir_error *error
);
/* Returns EUNSUPPORTED, with the reason, if the model cannot chat. */
WEIR_MUST_CHECK weir_status weir_prompt_need_chat(const weir_engine *engine, weir_error *error);
/* Renders a chat: an array of messages, or an object with "messages", "tools" and further template
 * variables. ids and text may be NULL. */
WEIR_MUST_CHECK weir_status weir_prompt_render(
    weir_ids *ids, weir_buffer *text, const weir_tokenizer *tokenizer,
    const weir_chat_template *chat, const json_t *messages, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_prompt_from_messages(
    weir_ids *ids, weir_buffer *text, const weir_engine *engine, const json_t *chat,
    weir_error *error
);
/* Appends a user's turn and the beginning of its answer. */
WEIR_MUST_CHECK weir_status weir_prompt_add_question(
    weir_ids *ids, const weir_engine *engine, const char *question, weir_error *error
);
/* A chat without the beginning of an answer, so that a question may follow; `path` as below. */
WEIR_MUST_CHECK weir_status weir_prompt_conversation(
    weir_ids *ids, const weir_engine *engine, const char *path, weir_error *error
);
/* `path` may be a pipe, or "-" for standard input. */
WEIR_MUST_CHECK weir_status weir_prompt_from_file(
    weir_ids *ids, weir_buffer *text, const weir_engine *engine, const char *path, weir_error *error
);
/* Returns EINVAL unless one of the options prompt, file, tokens and messages is given, or none and
 * standard input is not a terminal. */
WEIR_MUST_CHECK weir_status weir_prompt_check(const weir_arguments *arguments, weir_error *error);
/* Reads the prompt from that option, or from standard input. */
WEIR_MUST_CHECK weir_status weir_prompt_from_arguments(
    weir_ids *ids, const weir_engine *engine, const weir_arguments *arguments, weir_error *error
);
