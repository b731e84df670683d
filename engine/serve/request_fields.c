#include "engine/serve/request_fields.h"

#include <stdio.h>
#include <string.h>

#include "engine/config/distance.h"
#include "engine/serve/json_in.h"

enum {
    CHAT = WEIR_BODY_CHAT,
    BOTH = WEIR_BODY_CHAT | WEIR_BODY_COMPLETION,
    COMPLETION = WEIR_BODY_COMPLETION,
    RESPONSES = WEIR_BODY_RESPONSES,
    MESSAGES = WEIR_BODY_MESSAGES,
    TALK = CHAT | RESPONSES,
    OPENAI = BOTH | RESPONSES,
    ALL = OPENAI | MESSAGES, /* bodies that ask for an answer */
    TOKENIZE = WEIR_BODY_TOKENIZE,
    SAVE = WEIR_BODY_SESSION_SAVE,
    RESTORE = WEIR_BODY_SESSION_RESTORE,
    STATE = WEIR_BODY_STATE,
    QUERY = WEIR_BODY_STATE_QUERY,
    MERGE = WEIR_BODY_STATE_MERGE,
    OLLAMA_TEXT = WEIR_BODY_OLLAMA_CHAT | WEIR_BODY_OLLAMA_GENERATE,
    OLLAMA = OLLAMA_TEXT | WEIR_BODY_OLLAMA_SHOW,
    OLLAMA_EMBED = WEIR_BODY_OLLAMA_EMBED,
    OLLAMA_EMBEDDINGS = WEIR_BODY_OLLAMA_EMBEDDINGS,
    EMBEDDINGS = WEIR_BODY_EMBEDDINGS,
    RERANK = WEIR_BODY_RERANK,
    LLAMA = WEIR_BODY_LLAMA | WEIR_BODY_INFILL,
    TEXTS = TOKENIZE | SAVE | STATE, /* bodies with a text in one of three forms */
    READ = WEIR_FIELD_READ,
    IGNORED = WEIR_FIELD_IGNORED,
    UNSUPPORTED = WEIR_FIELD_UNSUPPORTED,
    ANY = WEIR_FIELD_ANY,
    STRING = WEIR_FIELD_STRING,
    OBJECT = WEIR_FIELD_OBJECT,
    BOOL = WEIR_FIELD_BOOL,
};

static const weir_field_row rows[] = {
    /* The prompt. */
    { "model", ALL | TOKENIZE | WEIR_BODY_DETOKENIZE, READ, ANY },
    { "messages", CHAT | MESSAGES | TEXTS, READ, ANY },
    { "prompt", COMPLETION | TEXTS, READ, ANY },
    { "tools", CHAT | MESSAGES | TEXTS, READ, ANY },
    { "tool_choice", CHAT | MESSAGES, READ, ANY },
    { "parallel_tool_calls", TALK, READ, ANY },
    { "chat_template_kwargs", TALK, READ, ANY },
    { "chat_template", TALK, READ, ANY },
    { "reasoning_effort", CHAT, READ, ANY },
    { "thinking_token_budget", TALK, READ, ANY },
    { "max_thinking_tokens", TALK, READ, ANY },
    { "add_generation_prompt", CHAT | TEXTS, READ, ANY },
    { "continue_final_message", CHAT, READ, ANY },
    { "echo", COMPLETION, READ, ANY },
    /* The form of the answer. */
    { "response_format", BOTH, READ, ANY },
    { "structured_outputs", OPENAI, READ, ANY },
    { "guided_json", OPENAI, READ, ANY },
    { "guided_regex", OPENAI, READ, ANY },
    { "guided_choice", OPENAI, READ, ANY },
    { "guided_grammar", OPENAI, READ, ANY },
    { "grammar", OPENAI, READ, ANY },
    { "json_schema", OPENAI, READ, ANY },
    /* Length, stop, choices, form of the answer. */
    { "max_tokens", BOTH | MESSAGES, READ, ANY },
    { "max_completion_tokens", CHAT, READ, ANY },
    { "min_tokens", ALL, READ, ANY },
    { "stop", OPENAI, READ, ANY },
    { "ignore_eos", ALL, READ, ANY },
    { "n", BOTH, READ, ANY },
    { "best_of", COMPLETION, READ, ANY },
    { "stream", ALL, READ, ANY },
    { "stream_options", OPENAI, READ, ANY },
    { "sse_ping_interval", ALL, READ, ANY },
    { "logprobs", BOTH, READ, ANY },
    { "top_logprobs", CHAT, READ, ANY },
    /* Sampling. */
    { "temperature", ALL, READ, ANY },
    { "top_p", ALL, READ, ANY },
    { "top_k", ALL, READ, ANY },
    { "min_p", ALL, READ, ANY },
    { "repetition_penalty", ALL, READ, ANY },
    { "presence_penalty", ALL, READ, ANY },
    { "frequency_penalty", ALL, READ, ANY },
    { "logit_bias", ALL, READ, ANY },
    { "seed", ALL, READ, ANY },
    /* Of /v1/responses, in forms of their own. */
    { "input", RESPONSES, READ, ANY },
    { "instructions", RESPONSES, READ, ANY },
    { "tools", RESPONSES, READ, ANY },
    { "tool_choice", RESPONSES, READ, ANY },
    { "reasoning", RESPONSES, READ, ANY },
    { "text", RESPONSES, READ, ANY },
    { "max_output_tokens", RESPONSES, READ, ANY },
    { "max_tool_calls", RESPONSES, READ, ANY },
    { "truncation", RESPONSES, READ, ANY },
    { "include", RESPONSES, READ, ANY },
    { "top_logprobs", RESPONSES, READ, ANY },
    { "previous_response_id", RESPONSES, READ, ANY },
    /* Of /v1/messages. */
    { "system", MESSAGES, READ, ANY },
    { "thinking", MESSAGES, READ, ANY },
    { "output_config", MESSAGES, READ, ANY },
    { "output_format", MESSAGES, READ, ANY },
    { "context_management", MESSAGES, READ, ANY },
    { "stop_sequences", MESSAGES, READ, ANY },
    { "cache_control", MESSAGES, READ, ANY },
    /* KV cache. */
    { "cache_prompt", ALL, READ, ANY },
    { "cache_salt", ALL | SAVE, READ, ANY },
    { "kv_policy", ALL, READ, ANY },
    { "kv_policy_options", ALL, READ, ANY },
    { "kv_budget", ALL, READ, ANY },
    { "kv_protect", ALL, READ, ANY },
    { "on_overflow", BOTH | MESSAGES, READ, ANY },
    { "session", ALL, READ, ANY },
    { "state", OPENAI, READ, ANY },
    { "priority", ALL, READ, ANY },
    { "timeout", OPENAI, READ, ANY },
    /* Other bodies. */
    { "content", TOKENIZE, READ, ANY },
    { "add_special", TEXTS, READ, ANY },
    { "add_special_tokens", TEXTS, READ, ANY },
    { "parse_special", TEXTS, READ, ANY },
    { "with_pieces", TOKENIZE, READ, ANY },
    { "tokens", WEIR_BODY_DETOKENIZE | SAVE | STATE, READ, ANY },
    { "name", SAVE | RESTORE, READ, ANY },
    { "label", STATE | MERGE, READ, ANY },
    { "question", QUERY, READ, ANY },
    { "vector", QUERY, READ, ANY },
    { "top_k", QUERY, READ, ANY },
    { "earlier", MERGE, READ, ANY },
    { "later", MERGE, READ, ANY },
    { "metadata", STATE | MERGE, READ, ANY },
    /* Accepted and ignored: names, accounts and hints for other kinds of service. */
    { "user", OPENAI, IGNORED, STRING },
    { "metadata", ALL, IGNORED, OBJECT },
    { "store", OPENAI, IGNORED, BOOL },
    { "service_tier", ALL, IGNORED, STRING },
    { "safety_identifier", OPENAI, IGNORED, STRING },
    { "prompt_cache_key", OPENAI, IGNORED, STRING },
    { "prompt_cache_retention", OPENAI, IGNORED, STRING },
    { "verbosity", CHAT, IGNORED, STRING },
    { "modalities", CHAT, IGNORED, ANY },
    { "prediction", CHAT, IGNORED, OBJECT },
    { "client_metadata", RESPONSES, IGNORED, OBJECT },
    { "inference_geo", MESSAGES, IGNORED, STRING },
    { "speed", MESSAGES, IGNORED, STRING },
    { "user_profile_id", MESSAGES, IGNORED, STRING },
    { "diagnostics", MESSAGES, IGNORED, OBJECT },
    /* Not supported, and would change the answer. */
    { "container", MESSAGES, UNSUPPORTED, ANY },
    { "mcp_servers", MESSAGES, UNSUPPORTED, ANY },
    { "compaction", MESSAGES, UNSUPPORTED, ANY },
    { "thread", MESSAGES, UNSUPPORTED, ANY },
    { "state", MESSAGES, UNSUPPORTED, ANY },
    { "timeout", MESSAGES, UNSUPPORTED, ANY },
    { "suffix", BOTH, UNSUPPORTED, ANY },
    { "functions", BOTH, UNSUPPORTED, ANY },
    { "function_call", BOTH, UNSUPPORTED, ANY },
    { "audio", BOTH, UNSUPPORTED, ANY },
    { "web_search_options", BOTH, UNSUPPORTED, ANY },
    { "documents", CHAT, UNSUPPORTED, ANY },
    { "prompt_logprobs", BOTH, UNSUPPORTED, ANY },
    { "stop_token_ids", BOTH, UNSUPPORTED, ANY },
    { "bad_words", BOTH, UNSUPPORTED, ANY },
    { "allowed_token_ids", BOTH, UNSUPPORTED, ANY },
    { "logits_processors", BOTH, UNSUPPORTED, ANY },
    { "truncate_prompt_tokens", BOTH, UNSUPPORTED, ANY },
    { "prompt", RESPONSES, UNSUPPORTED, ANY },
    { "conversation", RESPONSES, UNSUPPORTED, ANY },
    { "context_management", RESPONSES, UNSUPPORTED, ANY },
    { "moderation", RESPONSES, UNSUPPORTED, ANY },
    { "background", RESPONSES, UNSUPPORTED, BOOL },
    { "use_beam_search", BOTH, UNSUPPORTED, BOOL },
    { "return_progress", BOTH, UNSUPPORTED, BOOL },
    /* Of embeddings and rerank. No text is cut, and nothing is sampled. */
    { "model", EMBEDDINGS | RERANK | OLLAMA_EMBED | OLLAMA_EMBEDDINGS, READ, ANY },
    { "input", EMBEDDINGS | OLLAMA_EMBED, READ, ANY },
    { "encoding_format", EMBEDDINGS, READ, ANY },
    { "dimensions", EMBEDDINGS | OLLAMA_EMBED, READ, ANY },
    { "user", EMBEDDINGS | RERANK, IGNORED, STRING },
    { "query", RERANK, READ, ANY },
    { "documents", RERANK, READ, ANY },
    { "top_n", RERANK, READ, ANY },
    { "return_documents", RERANK, READ, ANY },
    { "prompt", OLLAMA_EMBEDDINGS, READ, ANY },
    { "truncate", OLLAMA_EMBED, IGNORED, BOOL },
    { "options", OLLAMA_EMBED | OLLAMA_EMBEDDINGS, IGNORED, OBJECT },
    { "keep_alive", OLLAMA_EMBED | OLLAMA_EMBEDDINGS, IGNORED, ANY },
    /* Of llama-server. Some are accepted only with the value that turns them off. */
    { "prompt", LLAMA, READ, ANY },
    { "model", LLAMA, READ, ANY },
    { "stream", LLAMA, READ, ANY },
    { "n_predict", LLAMA, READ, ANY },
    { "max_tokens", LLAMA, READ, ANY },
    { "n_cmpl", LLAMA, READ, ANY },
    { "id_slot", LLAMA, READ, ANY },
    { "stop", LLAMA, READ, ANY },
    { "ignore_eos", LLAMA, READ, ANY },
    { "temperature", LLAMA, READ, ANY },
    { "top_k", LLAMA, READ, ANY },
    { "top_p", LLAMA, READ, ANY },
    { "min_p", LLAMA, READ, ANY },
    { "repeat_penalty", LLAMA, READ, ANY },
    { "presence_penalty", LLAMA, READ, ANY },
    { "frequency_penalty", LLAMA, READ, ANY },
    { "repeat_last_n", LLAMA, READ, ANY },
    { "seed", LLAMA, READ, ANY },
    { "logit_bias", LLAMA, READ, ANY },
    { "n_probs", LLAMA, READ, ANY },
    { "grammar", LLAMA, READ, ANY },
    { "json_schema", LLAMA, READ, ANY },
    { "cache_prompt", LLAMA, READ, ANY },
    { "cache_salt", LLAMA, READ, ANY },
    { "return_tokens", LLAMA, READ, ANY },
    { "timings_per_token", LLAMA, READ, ANY },
    { "sse_ping_interval", LLAMA, READ, ANY },
    { "input_prefix", WEIR_BODY_INFILL, READ, ANY },
    { "input_suffix", WEIR_BODY_INFILL, READ, ANY },
    { "input_extra", WEIR_BODY_INFILL, READ, ANY },
    { "filename", WEIR_BODY_SLOT, READ, ANY },
    { "n_keep", LLAMA, READ, ANY },
    { "n_discard", LLAMA, READ, ANY },
    { "n_indent", LLAMA, READ, ANY },
    { "n_cache_reuse", LLAMA, READ, ANY },
    { "t_max_predict_ms", LLAMA, READ, ANY },
    { "t_max_prompt_ms", LLAMA, READ, ANY },
    { "min_keep", LLAMA, READ, ANY },
    { "typical_p", LLAMA, READ, ANY },
    { "top_n_sigma", LLAMA, READ, ANY },
    { "dynatemp_range", LLAMA, READ, ANY },
    { "dynatemp_exponent", LLAMA, READ, ANY },
    { "xtc_probability", LLAMA, READ, ANY },
    { "xtc_threshold", LLAMA, READ, ANY },
    { "dry_multiplier", LLAMA, READ, ANY },
    { "dry_base", LLAMA, READ, ANY },
    { "dry_allowed_length", LLAMA, READ, ANY },
    { "dry_penalty_last_n", LLAMA, READ, ANY },
    { "dry_sequence_breakers", LLAMA, READ, ANY },
    { "mirostat", LLAMA, READ, ANY },
    { "mirostat_tau", LLAMA, READ, ANY },
    { "mirostat_eta", LLAMA, READ, ANY },
    { "lora", LLAMA, READ, ANY },
    { "image_data", LLAMA, READ, ANY },
    { "post_sampling_probs", LLAMA, UNSUPPORTED, BOOL },
    { "return_progress", LLAMA, UNSUPPORTED, BOOL },
    { "response_fields", LLAMA, UNSUPPORTED, ANY },
    { "samplers", LLAMA, UNSUPPORTED, ANY },
    /* Of Ollama. No prompt is cut or shifted; some are accepted only if empty. */
    { "model", OLLAMA, READ, ANY },
    { "name", WEIR_BODY_OLLAMA_SHOW, READ, ANY },
    { "verbose", WEIR_BODY_OLLAMA_SHOW, IGNORED, BOOL },
    { "stream", OLLAMA_TEXT, READ, ANY },
    { "options", OLLAMA_TEXT, READ, ANY },
    { "format", OLLAMA_TEXT, READ, ANY },
    { "think", OLLAMA_TEXT, READ, ANY },
    { "keep_alive", OLLAMA_TEXT, READ, ANY },
    { "logprobs", OLLAMA_TEXT, READ, ANY },
    { "top_logprobs", OLLAMA_TEXT, READ, ANY },
    { "messages", WEIR_BODY_OLLAMA_CHAT, READ, ANY },
    { "tools", WEIR_BODY_OLLAMA_CHAT, READ, ANY },
    { "prompt", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
    { "system", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
    { "raw", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
    { "truncate", OLLAMA_TEXT, IGNORED, BOOL },
    { "shift", OLLAMA_TEXT, IGNORED, BOOL },
    { "template", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
    { "context", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
    { "suffix", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
    { "images", WEIR_BODY_OLLAMA_GENERATE, READ, ANY },
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const weir_field_row *weir_field_rows(size_t *count)
{
    *count = N_ROWS;
    return rows;
}

bool weir_field_is_read(const char *key, unsigned bodies)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if ((rows[i].bodies & bodies) == bodies && rows[i].use == WEIR_FIELD_READ &&
            strcmp(rows[i].key, key) == 0)
            return true;
    return false;
}

/* ---- unknown fields -------------------------------------------------------------------------- */

void weir_unknown_add(weir_unknown_fields *unknown, const char *name, const char *nearest)
{
    if (unknown->count < WEIR_UNKNOWN_NAMED) {
        unknown->name[unknown->count] = weir_quote(name);
        unknown->nearest[unknown->count] = nearest;
    }
    unknown->count++;
}

/* The nearest field of the body that begins with `begin` and differs by at most `most` letters;
 * NULL: none. */
static const char *nearest_of(const char *key, weir_body body, const char *begin, size_t most)
{
    const char *nearest = NULL;
    size_t least = most + 1;
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!(rows[i].bodies & body) || strncmp(rows[i].key, begin, strlen(begin)) != 0) continue;
        const size_t distance = weir_edit_distance(key, rows[i].key);
        if (distance < least) {
            least = distance;
            nearest = rows[i].key;
        }
    }
    return nearest;
}

/* A misspelt kv_ field could keep or drop rows against the client's intent, so it is an error. */
static weir_status take_unknown(
    const char *key, weir_body body, weir_unknown_fields *unknown, weir_api_error *error
)
{
    static const char kv[] = "kv_";
    const size_t length = sizeof kv - 1;
    const bool begins = strncmp(key, kv, length) == 0;
    const char *const nearest = begins ? nearest_of(key, body, kv, WEIR_DISTANCE_BYTES)
                                       : nearest_of(key, body, "", strlen(key) / 3);
    if (!begins && (nearest == NULL || strncmp(nearest, kv, length) != 0)) {
        weir_unknown_add(unknown, key, nearest);
        return WEIR_OK;
    }
    const weir_quoted name = weir_quote(key);
    if (nearest == NULL) return weir_api_bad(error, name.text, "unknown field %s", name.text);
    return weir_api_bad(
        error, name.text, "unknown field %s; the nearest is %s", name.text, nearest
    );
}

/* ---- known fields ---------------------------------------------------------------------------- */

static weir_status check_type(const weir_field_row *row, const json_t *value, weir_api_error *error)
{
    switch (row->type) {
    case WEIR_FIELD_ANY: return WEIR_OK;
    case WEIR_FIELD_STRING:
        if (json_is_string(value)) return WEIR_OK;
        return weir_api_bad(error, row->key, "%s must be a string", row->key);
    case WEIR_FIELD_OBJECT:
        if (json_is_object(value)) return WEIR_OK;
        return weir_api_bad(error, row->key, "%s must be an object", row->key);
    case WEIR_FIELD_BOOL:
        if (json_is_boolean(value)) return WEIR_OK;
        return weir_api_bad(error, row->key, "%s must be true or false", row->key);
    }
    return WEIR_OK;
}

weir_status weir_api_unsupported(weir_api_error *error, const char *key)
{
    return weir_api_fail(
        error, 400, "unsupported_parameter", key, "%s is not supported by this server", key
    );
}

static weir_status check_row(const weir_field_row *row, const json_t *value, weir_api_error *error)
{
    if (json_is_null(value)) return WEIR_OK;
    WEIR_TRY(check_type(row, value, error));
    const bool off = row->type == WEIR_FIELD_BOOL && json_is_false(value);
    return row->use == WEIR_FIELD_UNSUPPORTED && !off ? weir_api_unsupported(error, row->key)
                                                      : WEIR_OK;
}

weir_status weir_fields_check(
    const json_t *root, weir_body body, weir_unknown_fields *unknown, weir_api_error *error
)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        const weir_field_row *row = rows;
        while (row < rows + N_ROWS && (!(row->bodies & body) || strcmp(row->key, key) != 0)) row++;
        if (row < rows + N_ROWS)
            WEIR_TRY(check_row(row, value, error));
        else
            WEIR_TRY(take_unknown(key, body, unknown, error));
    }
    return WEIR_OK;
}

/* ---- warnings -------------------------------------------------------------------------------- */

void weir_warning_add(char warning[WEIR_WARNING_BYTES], const char *text)
{
    static const char cut[] = "...";
    const size_t used = strlen(warning);
    const char *const between = used > 0 ? "; " : "";
    const int n = snprintf(warning + used, WEIR_WARNING_BYTES - used, "%s%s", between, text);
    if (n >= 0 && (size_t)n < WEIR_WARNING_BYTES - used) return;
    memcpy(warning + WEIR_WARNING_BYTES - sizeof cut, cut, sizeof cut);
}

void weir_warning_unknown(char warning[WEIR_WARNING_BYTES], const weir_unknown_fields *unknown)
{
    char text[2 * WEIR_WARNING_BYTES];
    size_t used = (size_t)snprintf(text, sizeof text, "unknown fields are ignored:");
    if (unknown->count == 0) return;
    for (size_t i = 0; i < unknown->count && i < WEIR_UNKNOWN_NAMED && used < WEIR_WARNING_BYTES;
         i++) {
        const char *const nearest = unknown->nearest[i], *const comma = i > 0 ? "," : "";
        const char *const name = unknown->name[i].text;
        used +=
            (size_t)(nearest != NULL
                         ? snprintf(
                               text + used, sizeof text - used, "%s %s (%s?)", comma, name, nearest
                           )
                         : snprintf(text + used, sizeof text - used, "%s %s", comma, name));
    }
    if (unknown->count > WEIR_UNKNOWN_NAMED && used < WEIR_WARNING_BYTES)
        (void)snprintf(
            text + used, sizeof text - used, ", and %zu more", unknown->count - WEIR_UNKNOWN_NAMED
        );
    weir_warning_add(warning, text);
}

void weir_unknown_write(weir_json_out *json, const weir_unknown_fields *unknown)
{
    weir_json_open(json, '[');
    for (size_t i = 0; i < unknown->count && i < WEIR_UNKNOWN_NAMED; i++)
        weir_json_string(json, unknown->name[i].text);
    weir_json_close(json, ']');
}
