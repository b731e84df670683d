/* tools/load/prompt.h - the texts and bodies of requests.
 *
 * A client has no tokenizer of the server's model: a prompt of N tokens is N / tokens_per_word
 * words, and usage says how many tokens it was. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "tools/load/target.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_load_form {
    bool is_chat; /* /v1/chat/completions, else /v1/completions */
    bool ignore_eos; /* answers have exactly the length that is asked for */
    bool has_temperature;
    double temperature;
    const char *model; /* borrowed */
    uint64_t seed;
    /* Of the server's tokenizer and template, found by weir_load_form_probe. */
    double tokens_per_word;
    int32_t extra_tokens; /* of a request, in addition to its words */
    bool is_measured; /* false: the server reports no usage; a word counts as a token */
} weir_load_form;

const char *weir_load_form_path(const weir_load_form *form); /* "/v1/completions" */

/* What a conversation has said so far: for chats the members of "messages", else the prompt. */

/* The prefix of a group, nothing for 0 tokens. */
WEIR_MUST_CHECK weir_status
weir_load_prefix(weir_buffer *history, const weir_load_form *form, int32_t group, int32_t n_tokens);
/* The prompt of request number `number`. `is_first`: the template's tokens count too. */
WEIR_MUST_CHECK weir_status weir_load_prompt(
    weir_buffer *history, const weir_load_form *form, int32_t number, int32_t n_tokens,
    bool is_first
);
WEIR_MUST_CHECK weir_status
weir_load_answer(weir_buffer *history, const weir_load_form *form, const weir_buffer *answer);
WEIR_MUST_CHECK weir_status weir_load_body(
    weir_buffer *out, const weir_load_form *form, const weir_buffer *history, int32_t max_tokens,
    bool stream
);

/* Asks two short questions and sets tokens_per_word and extra_tokens from the usage of their
 * answers. Returns EIO if the server refuses them. */
WEIR_MUST_CHECK weir_status weir_load_form_probe(
    weir_load_form *form, const weir_load_target *target, int64_t timeout_ms, weir_error *error
);
/* Writes the id of the server's first model. Returns EIO, EFORMAT. */
WEIR_MUST_CHECK weir_status weir_load_first_model(
    weir_buffer *out, const weir_load_target *target, int64_t timeout_ms, weir_error *error
);

#ifdef __cplusplus
}
#endif
