/* engine/serve/openai_request.h - a generation request as OpenAI's API writes it, checked field by
 * field (spec/serving.md 2.2, 2.9, 5.4).
 *
 * Nothing unchecked leaves this file: numbers are in range, lists are bounded, text is valid UTF-8.
 * A known key with a wrong value is refused with its name, an unknown one is noted, see
 * request_fields.h. The prompt is not tokenised here. */
#pragma once
#include <jansson.h>

#include "engine/kv/policy/policy_options.h"
#include "engine/sample/sampler.h"
#include "engine/serve/errors.h"
#include "engine/serve/request_fields.h"
#include "engine/serve/stop.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_BIAS_ENTRIES = 4096, WEIR_PROMPTS = 256, WEIR_SALT_BYTES = 200 };

/* What a request is checked against. */
typedef struct weir_request_limits {
    const char *model_name;
    int32_t n_vocab; /* ids a request may name */
    int32_t n_slots, window;
    weir_sampling sampling; /* defaults of this server */
    bool has_seed; /* that of `sampling` is one of them */
    int64_t max_tokens; /* default of chats; 0: to the end of the window */
    bool truncate_middle;
} weir_request_limits;

enum { WEIR_SESSION_CLIENT_NAME = 64 };

typedef struct weir_openai_request {
    bool chat, stream, include_usage, echo, logprobs, ignore_eos, cache_prompt;
    bool truncate_middle; /* of a prompt that is too long, instead of refusing it */
    int32_t n, n_top_logprobs, min_tokens;
    int64_t max_tokens; /* -1: up to the end of the window */
    weir_sampling sampling; /* seed is set in any case; bias points into `bias` */
    weir_logit_bias *bias;
    weir_stop_list stop;
    char *cache_salt; /* NULL: none */
    weir_policy_options *policy; /* which KV rows stay; NULL: the server's policy */
    int64_t kv_budget; /* rows of each KV head; 0: the server's */
    bool kv_protect; /* those of the system message and the tools stay; chat only */
    char *session; /* NULL: none; a good name of at most WEIR_SESSION_CLIENT_NAME bytes */
    char *state; /* the prompt goes on from it; NULL: from nothing */
    json_t *messages, *tools,
        *variables; /* chat: new values; tools NULL unless the model is to see them */
    bool add_generation_prompt, continue_final_message;
    bool one_call; /* parallel_tool_calls false: an answer ends with its first call */
    bool wants_thought; /* reasoning_effort asks for thoughts */
    weir_unknown_fields unknown;
    const json_t *prompt; /* completions: checked for its shape, see weir_openai_prompt_count */
    json_t *root; /* owner of the prompt */
} weir_openai_request;

/* text [n] is the body, text[n] == 0. *out is set only on success; end it with
 * weir_openai_request_free. */
WEIR_MUST_CHECK weir_status weir_openai_request_read(
    weir_openai_request *out, bool chat, const char *text, size_t n,
    const weir_request_limits *limits, weir_api_error *error
);
/* The prompt was read: gives back messages, variables and everything of the body; tools stay. */
void weir_openai_request_forget_prompt(weir_openai_request *request);
void weir_openai_request_free(weir_openai_request *request);

/* `model` is absent or names the served one, else 404. */
WEIR_MUST_CHECK weir_status
weir_openai_check_model(const json_t *root, const char *model_name, weir_api_error *error);

/* The text field `key` as a session's name; *out stays as it is when the field is absent.
 * Borrowed. */
WEIR_MUST_CHECK weir_status weir_openai_session_name(
    const json_t *root, const char *key, const char **out, weir_api_error *error
);

/* A completion's prompt: a string, a list of ids, or a list of at most WEIR_PROMPTS of these. */
size_t weir_openai_prompt_count(const json_t *prompt);
/* a string or an array of integers */
const json_t *weir_openai_prompt_at(const json_t *prompt, size_t index);
/* A list of token ids, each below n_vocab. */
WEIR_MUST_CHECK weir_status
weir_openai_check_ids(const json_t *ids, int32_t n_vocab, const char *param, weir_api_error *error);

#ifdef __cplusplus
}
#endif
