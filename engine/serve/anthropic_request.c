/* engine/serve/anthropic_request.c - the fields of a request but for messages and tools. Fields of
 * the same meaning are passed on as they are, so that they are checked in one place. */
#include "engine/serve/anthropic_request.h"

#include <stdio.h>
#include <string.h>

#include "engine/serve/anthropic_convert.h"
#include "engine/serve/json_in.h"

/* What the parts of a request are translated into. */
typedef struct translation {
    const json_t *root;
    json_t *chat; /* the body of the chat request */
    weir_unknown_fields unknown;
    bool thinks, omits_thinking;
    const char *format; /* the field with the form of the answer; NULL: none */
    int64_t n_thinking_turns; /* answers whose thinking is kept; -1: all */
    char *warning; /* [WEIR_WARNING_BYTES] */
} translation;

/* Takes over `value`. */
static weir_status put(translation *t, const char *key, json_t *value, weir_api_error *error)
{
    return json_object_set_new(t->chat, key, value) == 0 ? WEIR_OK : weir_api_no_memory(error);
}

static bool is_one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

/* ---- fields that a chat has, too ------------------------------------------------------------- */

static weir_status pass_on(translation *t, weir_api_error *error)
{
    static const char *const keys[] = {
        "model",
        "max_tokens",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
        "min_tokens",
        "ignore_eos",
        "sse_ping_interval",
        "cache_prompt",
        "cache_salt",
        "kv_policy",
        "kv_policy_options",
        "kv_budget",
        "kv_protect",
        "on_overflow",
        "session",
        "priority",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *const value = weir_field(t->root, keys[i]);
        if (value != NULL) WEIR_TRY(put(t, keys[i], json_incref((json_t *)value), error));
    }
    return WEIR_OK;
}

static weir_status read_stop(translation *t, weir_api_error *error)
{
    static const char key[] = "stop_sequences";
    const json_t *const list = weir_field(t->root, key);
    if (list == NULL) return WEIR_OK;
    if (!json_is_array(list) || json_array_size(list) > WEIR_STOP_STRINGS)
        return weir_api_bad(
            error, key, "stop_sequences must be an array of at most %d strings", WEIR_STOP_STRINGS
        );
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const text = json_array_get(list, i);
        const size_t n = json_string_length(text);
        if (n == 0 || n > WEIR_STOP_BYTES)
            return weir_api_bad(
                error, key, "stop_sequences[%zu] must be a string of 1 to %d bytes", i,
                WEIR_STOP_BYTES
            );
    }
    return put(t, "stop", json_incref((json_t *)list), error);
}

/* ---- thinking -------------------------------------------------------------------------------- */

static weir_status read_budget(translation *t, const json_t *thinking, weir_api_error *error)
{
    static const char key[] = "thinking", budget[] = "budget_tokens";
    const json_t *const most = weir_field(t->root, "max_tokens");
    int64_t tokens = 0;
    if (weir_field(thinking, budget) == NULL)
        return weir_api_bad(error, key, "thinking.budget_tokens is missing");
    if (weir_field_integer(thinking, budget, 1024, INT64_MAX, &tokens, error) != WEIR_OK)
        return weir_api_bad(
            error, key, "thinking.budget_tokens must be an integer of 1024 or more"
        );
    if (json_is_integer(most) && tokens >= json_integer_value(most))
        return weir_api_bad(error, key, "thinking.budget_tokens must be below max_tokens");
    const int64_t budget_tokens = tokens < INT32_MAX ? tokens : INT32_MAX;
    return put(t, "thinking_token_budget", json_integer(budget_tokens), error);
}

static weir_status read_display(translation *t, const json_t *thinking, weir_api_error *error)
{
    static const char *const words[] = { "summarized", "omitted" };
    const json_t *const display = weir_field(thinking, "display");
    const char *const word = json_string_value(display);
    if (display == NULL) return WEIR_OK;
    if (word == NULL || !is_one_of(word, words, 2))
        return weir_api_bad(error, "thinking", "thinking.display must be summarized or omitted");
    t->omits_thinking = strcmp(word, "omitted") == 0;
    return WEIR_OK;
}

/* Absent: disabled, as in Anthropic's API. */
static weir_status read_thinking(translation *t, weir_api_error *error)
{
    static const char *const types[] = { "disabled", "enabled", "adaptive", "between_tools" };
    const json_t *const thinking = weir_field(t->root, "thinking");
    const char *const type = json_string_value(json_object_get(thinking, "type"));
    if (thinking == NULL) return WEIR_OK;
    if (type == NULL || !is_one_of(type, types, sizeof types / sizeof types[0]))
        return weir_api_bad(
            error, "thinking",
            "thinking must be an object with the type enabled, adaptive, between_tools or disabled"
        );
    t->thinks = strcmp(type, "disabled") != 0;
    if (strcmp(type, "enabled") == 0) WEIR_TRY(read_budget(t, thinking, error));
    return read_display(t, thinking, error);
}

/* Without thinking there is nothing that effort could change. */
static weir_status read_effort(translation *t, const json_t *config, weir_api_error *error)
{
    static const char *const words[] = { "low", "medium", "high", "xhigh", "max" };
    const json_t *const effort = weir_field(config, "effort");
    const char *const word = json_string_value(effort);
    if (effort != NULL && (word == NULL || !is_one_of(word, words, sizeof words / sizeof words[0])))
        return weir_api_bad(
            error, "output_config", "output_config.effort must be low, medium, high, xhigh or max"
        );
    if (t->thinks && word != NULL)
        return put(
            t, "reasoning_effort", json_string(strcmp(word, "max") == 0 ? "xhigh" : word), error
        );
    if (word != NULL)
        weir_warning_add(t->warning, "output_config.effort has no effect without thinking");
    return put(
        t, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", (int)t->thinks), error
    );
}

/* ---- the form of the answer ------------------------------------------------------------------ */

static weir_status read_format(
    translation *t, const json_t *format, const char *param, weir_api_error *error
)
{
    const char *const type = json_string_value(json_object_get(format, "type"));
    const json_t *const schema = weir_field(format, "schema");
    if (format == NULL) return WEIR_OK;
    if (type == NULL || strcmp(type, "json_schema") != 0 || !json_is_object(schema))
        return weir_api_bad(
            error, param, "%s must be {\"type\":\"json_schema\",\"schema\":{...}}", param
        );
    if (t->format != NULL)
        return weir_api_bad(error, param, "output_config.format and output_format are the same");
    t->format = param;
    return put(
        t, "response_format",
        json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema), error
    );
}

static weir_status read_output(translation *t, weir_api_error *error)
{
    const json_t *const config = weir_field(t->root, "output_config");
    char path[96];
    const char *key;
    json_t *value;
    if (config != NULL && !json_is_object(config))
        return weir_api_bad(error, "output_config", "output_config must be an object");
    json_object_foreach((json_t *)config, key, value)
    {
        if (json_is_null(value) || strcmp(key, "effort") == 0 || strcmp(key, "format") == 0)
            continue;
        (void)snprintf(path, sizeof path, "output_config.%.40s", key);
        weir_unknown_add(&t->unknown, path, NULL);
    }
    WEIR_TRY(read_effort(t, config, error));
    WEIR_TRY(read_format(t, weir_field(config, "format"), "output_config.format", error));
    return read_format(t, weir_field(t->root, "output_format"), "output_format", error);
}

/* ---- edits of the conversation --------------------------------------------------------------- */

/* "all", or {"type": "all"}, or {"type": "thinking_turns", "value": N}; absent: one turn. */
static weir_status read_keep(translation *t, const json_t *keep, weir_api_error *error)
{
    static const char key[] = "context_management";
    const char *const word = json_string_value(keep);
    const char *const type = word != NULL ? word : json_string_value(json_object_get(keep, "type"));
    t->n_thinking_turns = 1;
    if (keep == NULL) return WEIR_OK;
    if (type != NULL && strcmp(type, "all") == 0) {
        t->n_thinking_turns = -1;
        return WEIR_OK;
    }
    if (word == NULL && type != NULL && strcmp(type, "thinking_turns") == 0 &&
        weir_field(keep, "value") != NULL &&
        weir_field_integer(keep, "value", 1, INT64_MAX, &t->n_thinking_turns, error) == WEIR_OK)
        return WEIR_OK;
    return weir_api_bad(
        error, key, "context_management: keep must be \"all\" or a number of thinking_turns"
    );
}

static weir_status read_edits(translation *t, weir_api_error *error)
{
    static const char key[] = "context_management";
    const json_t *const management = weir_field(t->root, key);
    const json_t *const edits = weir_field(management, "edits");
    if (management == NULL) return WEIR_OK;
    if (!json_is_object(management) || (edits != NULL && !json_is_array(edits)))
        return weir_api_bad(
            error, key, "context_management must be an object with the array edits"
        );
    for (size_t i = 0; i < json_array_size(edits); i++) {
        const json_t *const edit = json_array_get(edits, i);
        const char *const type = json_string_value(json_object_get(edit, "type"));
        if (type == NULL)
            return weir_api_bad(error, key, "context_management.edits[%zu] has no type", i);
        if (strcmp(type, "clear_thinking_20251015") != 0)
            return weir_api_fail(
                error, 400, "unsupported_parameter", key,
                "context_management: edits of type %s are not supported by this server",
                weir_quote(type).text
            );
        WEIR_TRY(read_keep(t, weir_field(edit, "keep"), error));
    }
    return WEIR_OK;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* The answer continues a last message of the assistant. */
static weir_status read_prefill(translation *t, const json_t *messages, weir_api_error *error)
{
    const json_t *const last = json_array_get(messages, json_array_size(messages) - 1);
    const char *const role = json_string_value(json_object_get(last, "role"));
    if (role == NULL || strcmp(role, "assistant") != 0) return WEIR_OK;
    if (json_object_get(last, "tool_calls") != NULL)
        return weir_api_bad(
            error, "messages", "the last message calls tools; their tool_result blocks must follow"
        );
    return put(t, "continue_final_message", json_true(), error);
}

static weir_status read_prompt(translation *t, weir_api_error *error)
{
    json_t *messages = NULL;
    bool is_redacted = false;
    WEIR_TRY(weir_anthropic_messages(&messages, &is_redacted, t->root, error));
    WEIR_TRY(put(t, "messages", messages, error));
    if (t->n_thinking_turns >= 0) weir_anthropic_keep_thinking(messages, t->n_thinking_turns);
    if (is_redacted)
        weir_warning_add(t->warning, "redacted_thinking was left out: only Anthropic can read it");
    WEIR_TRY(read_prefill(t, messages, error));
    return weir_anthropic_tools(t->chat, t->root, &t->unknown, error);
}

static weir_status translate(
    translation *t, weir_anthropic_use use, const weir_request_limits *limits, weir_api_error *error
)
{
    WEIR_TRY(weir_openai_check_model(t->root, limits, error));
    WEIR_TRY(weir_fields_check(t->root, WEIR_BODY_MESSAGES, &t->unknown, error));
    if (use == WEIR_ANTHROPIC_MESSAGE && weir_field(t->root, "max_tokens") == NULL)
        return weir_api_bad(error, "max_tokens", "max_tokens is missing");
    WEIR_TRY(weir_anthropic_cache_control(t->root, "cache_control", error));
    WEIR_TRY(pass_on(t, error));
    WEIR_TRY(read_stop(t, error));
    WEIR_TRY(read_thinking(t, error));
    WEIR_TRY(read_output(t, error));
    WEIR_TRY(read_edits(t, error));
    return read_prompt(t, error);
}

void weir_anthropic_name_error(weir_api_error *error)
{
    static const weir_api_name names[] = {
        { "response_format", "output_config" },
        { "reasoning_effort", "output_config" },
        { "chat_template_kwargs", "thinking" },
        { "thinking_token_budget", "thinking" },
        { "parallel_tool_calls", "tool_choice" },
        { "continue_final_message", "messages" },
        { "stop", "stop_sequences" },
    };
    weir_api_rename(error, names, sizeof names / sizeof names[0]);
}

weir_status weir_anthropic_request_read(
    weir_openai_request *out, weir_anthropic_use use, const char *text, size_t n,
    const weir_request_limits *limits, bool *omits_thinking, char warning[WEIR_WARNING_BYTES],
    weir_api_error *error
)
{
    json_t *root = NULL;
    WEIR_TRY(weir_json_read(&root, text, n, error));
    translation t = {
        .root = root, .chat = json_object(), .n_thinking_turns = -1, .warning = warning
    };
    weir_openai_request request = { 0 };
    weir_status status =
        t.chat != NULL ? translate(&t, use, limits, error) : weir_api_no_memory(error);
    json_decref(root);
    if (status == WEIR_OK)
        status = weir_openai_request_take(&request, true, t.chat, limits, error);
    else
        json_decref(t.chat);
    if (status != WEIR_OK) {
        weir_anthropic_name_error(error);
        return status;
    }
    request.unknown = t.unknown;
    *omits_thinking = t.omits_thinking;
    request.wants_thought = t.thinks;
    if (t.format != NULL) request.structured.field = t.format;
    *out = request;
    return WEIR_OK;
}
