/* engine/serve/openai_request.h - a generation request of OpenAI's API, checked field by field.
 *
 * The result is fully checked: numbers are in range, lists are bounded, text is valid UTF-8. A
 * known key with a wrong value is an error that names it; an unknown key is recorded
 * (request_fields.h). The prompt is not tokenised here. */
#pragma once
#include <jansson.h>

#include "engine/kv/policy/policy_options.h"
#include "engine/sample/sampler.h"
#include "engine/serve/errors.h"
#include "engine/serve/request_fields.h"
#include "engine/serve/stop.h"
#include "engine/serve/structured_request.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_BIAS_ENTRIES = 4096,
    WEIR_PROMPTS = 256,
    WEIR_EMBEDDED_PROMPTS = 2048,
    WEIR_SALT_BYTES = 200,
    WEIR_MOST_SECONDS = 86400 /* of `timeout`, `sse_ping_interval` */
};

/* Limits and defaults for checking a request. */
typedef struct weir_request_limits {
    const char *model_name;
    const char *aliases; /* comma-separated further names; "*": any; NULL: none */
    int32_t n_vocab; /* token ids are below this */
    int32_t n_slots, window;
    bool has_keys; /* requests have API keys, whose priority they may only lower */
    weir_sampling sampling; /* the server's defaults */
    bool has_seed; /* `sampling` has a default seed */
    int64_t max_tokens; /* default for chats; 0: to the end of the window */
    bool truncate_middle;
} weir_request_limits;

enum { WEIR_SESSION_CLIENT_NAME = 64 };

typedef struct weir_openai_request {
    bool chat, stream, include_usage, echo, logprobs, ignore_eos, cache_prompt;
    /* Removes the middle of a prompt that is too long, instead of refusing it. */
    bool truncate_middle;
    int32_t n, n_top_logprobs, min_tokens;
    int64_t max_tokens; /* -1: to the end of the window */
    int32_t priority; /* lower goes first; on top of its key's */
    int64_t timeout_ns; /* 0: none */
    int64_t ping_ns; /* silence before a ping; 0: the server's; INT64_MAX: no pings */
    weir_sampling sampling; /* always with a seed; its bias points into `bias` */
    weir_logit_bias *bias;
    weir_stop_list stop;
    char *cache_salt; /* NULL: none */
    weir_policy_options *policy; /* selects the KV rows to keep; NULL: the server's policy */
    int64_t kv_budget; /* rows per KV head; 0: the server's default */
    bool kv_protect; /* keeps the rows of the system message and tools; chat only */
    char *session; /* NULL: none; a valid name of at most WEIR_SESSION_CLIENT_NAME bytes */
    char *state; /* the state that the prompt continues; NULL: none */
    weir_structured structured; /* the form of the answers */
    /* chat: new values; tools is NULL if the model must not see them. */
    json_t *messages, *tools, *variables;
    bool add_generation_prompt, continue_final_message;
    json_t *callable; /* chat: those of the tools that may be called; NULL: all */
    bool must_call; /* an answer is a call */
    bool holds_calls; /* calls are held to what tool_choice and the tools' schemas say */
    bool one_call; /* parallel_tool_calls is false: an answer has one call */
    bool wants_thought; /* reasoning_effort requests reasoning */
    bool keep_ids; /* the reply needs the ids of prompt and answer */
    bool no_thought; /* enable_thinking is false */
    int64_t thought_tokens; /* most tokens of reasoning; -1: no limit */
    bool embeds; /* the reply is about embeddings of the prompts */
    bool ranks; /* the reply is about weir_prompt.score */
    weir_unknown_fields unknown;
    const json_t *prompt; /* completions: only its form is checked, see weir_openai_prompt_count */
    json_t *root; /* owner of the prompt */
} weir_openai_request;

/* Reads the body text [n], text[n] == 0. *out is set only on success; release it with
 * weir_openai_request_free. */
WEIR_MUST_CHECK weir_status weir_openai_request_read(
    weir_openai_request *out, bool chat, const char *text, size_t n,
    const weir_request_limits *limits, weir_api_error *error
);
/* The same of a body that is parsed, of which it becomes the owner also on failure. */
WEIR_MUST_CHECK weir_status weir_openai_request_take(
    weir_openai_request *out, bool chat, json_t *root, const weir_request_limits *limits,
    weir_api_error *error
);
/* Called after the prompt was read: frees messages, variables and the body, but not the tools. */
void weir_openai_request_forget_prompt(weir_openai_request *request);
void weir_openai_request_free(weir_openai_request *request);

/* True if requests may use the name [n] for the served model. */
bool weir_model_is_served(const weir_request_limits *limits, const char *name, size_t n);
/* Finds the next of comma-separated names, without the spaces around it, and moves *list behind it.
 * Returns NULL at the end. */
const char *weir_model_next_alias(const char **list, size_t *n);
/* 404 unless `model` is absent or names the served model. */
WEIR_MUST_CHECK weir_status weir_openai_check_model(
    const json_t *root, const weir_request_limits *limits, weir_api_error *error
);

/* Reads the session name in the field `key`; *out is unchanged if it is absent. Borrowed. */
WEIR_MUST_CHECK weir_status weir_openai_session_name(
    const json_t *root, const char *key, const char **out, weir_api_error *error
);

/* ---- prompts of completions (completion_request.c) ------------------------------------------- */

/* Checks a value of the field `key`: a string, a list of ids, or a list of at most `most` of
 * these, none empty. */
WEIR_MUST_CHECK weir_status weir_openai_check_prompts(
    const json_t *prompts, const char *key, size_t most, int32_t n_vocab, weir_api_error *error
);
/* Number of prompts in such a value. */
size_t weir_openai_prompt_count(const json_t *prompt);
/* Returns a string or an array of integers. */
const json_t *weir_openai_prompt_at(const json_t *prompt, size_t index);
/* Checks a list of token ids, each below n_vocab. */
WEIR_MUST_CHECK weir_status
weir_openai_check_ids(const json_t *ids, int32_t n_vocab, const char *param, weir_api_error *error);

#ifdef __cplusplus
}
#endif
