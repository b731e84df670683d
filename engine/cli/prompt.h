/* engine/cli/prompt.h - from what a user gave to token ids. */
#pragma once
#include <jansson.h>

#include "engine/cli/options.h"
#include "engine/engine.h"

/* "1,2,3": checked against the vocabulary of `n_vocab`. */
WEIR_MUST_CHECK weir_status
weir_prompt_from_list(weir_ids *ids, const char *list, int64_t n_vocab, weir_error *error);
/* Raw text; special tokens in it are matched, BOS is added where the model wants one. */
WEIR_MUST_CHECK weir_status weir_prompt_from_text(
    weir_ids *ids, const weir_engine *engine, const char *text, weir_error *error
);
/* EUNSUPPORTED, with the reason, when the model cannot chat. */
WEIR_MUST_CHECK weir_status weir_prompt_need_chat(const weir_engine *engine, weir_error *error);
/* A chat: an array of messages, or an object with "messages", "tools" and further template
 * variables. ids and text may be NULL. */
WEIR_MUST_CHECK weir_status weir_prompt_render(
    weir_ids *ids, weir_buffer *text, const weir_tokenizer *tokenizer,
    const weir_chat_template *chat, const json_t *messages, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_prompt_from_messages(
    weir_ids *ids, weir_buffer *text, const weir_engine *engine, const json_t *chat,
    weir_error *error
);
/* A user's turn behind the ids that are there, and the beginning of its answer. */
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
/* EINVAL unless one of the options prompt, file, tokens and messages is given, or none and standard
 * input is no terminal. */
WEIR_MUST_CHECK weir_status weir_prompt_check(const weir_arguments *arguments, weir_error *error);
/* From that option, or from standard input. */
WEIR_MUST_CHECK weir_status weir_prompt_from_arguments(
    weir_ids *ids, const weir_engine *engine, const weir_arguments *arguments, weir_error *error
);
