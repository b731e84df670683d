/* engine/serve/ollama_request.c - Ollama's fields and options get OpenAI's names; those of a model
 * runner have no effect here, and num_ctx never cuts a prompt. */
#include "engine/serve/ollama_request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/serve/json_in.h"
#include "engine/serve/off_fields.h"

/* ---- the model, errors ----------------------------------------------------------------------- */

weir_status weir_ollama_model_read(
    char out[WEIR_OLLAMA_MODEL], const json_t *root, const char *key,
    const weir_request_limits *limits, weir_api_error *error
)
{
    static const char tag[] = ":latest";
    const char *name = NULL;
    WEIR_TRY(weir_field_text(root, key, &name, error));
    if (name == NULL || name[0] == '\0') return weir_api_bad(error, key, "model is required");
    const size_t n = strlen(name), n_tag = sizeof tag - 1;
    const bool has_tag = n > n_tag && strcmp(name + n - n_tag, tag) == 0;
    if (!weir_model_is_served(limits, name, n) &&
        !(has_tag && weir_model_is_served(limits, name, n - n_tag)))
        return weir_api_fail(
            error, 404, "model_not_found", key, "model '%s' not found", weir_quote(name).text
        );
    (void)snprintf(out, WEIR_OLLAMA_MODEL, "%s", name); /* a longer one is cut in replies */
    return WEIR_OK;
}

bool weir_ollama_has_path(const char *path)
{
    static const char api[] = "/api/";
    return strncmp(path, api, sizeof api - 1) == 0;
}

weir_status weir_ollama_error_write(weir_buffer *out, const weir_api_error *error)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "error", error->message);
    weir_json_close(&json, '}');
    return json.status;
}

/* ---- parts of the body ----------------------------------------------------------------------- */

static weir_status put(json_t *out, const char *key, json_t *value, weir_api_error *error)
{
    return json_object_set_new(out, key, value) == 0 ? WEIR_OK : weir_api_no_memory(error);
}

static weir_status copy(
    json_t *out, const char *to, const json_t *root, const char *from, weir_api_error *error
)
{
    json_t *const value = json_object_get(root, from);
    return value != NULL ? put(out, to, json_incref(value), error) : WEIR_OK;
}

static bool is_empty(const json_t *value)
{
    if (value == NULL) return true;
    return json_is_string(value) ? json_string_length(value) == 0
                                 : json_is_array(value) && json_array_size(value) == 0;
}

/* A field that is served only when it says nothing. */
static weir_status need_empty(const json_t *root, const char *key, weir_api_error *error)
{
    return is_empty(weir_field(root, key)) ? WEIR_OK : weir_api_unsupported(error, key);
}

/* ---- options --------------------------------------------------------------------------------- */

static const weir_off_field off_options[] = {
    { "mirostat", 0, 0 },
    { "mirostat_tau", -INFINITY, INFINITY },
    { "mirostat_eta", -INFINITY, INFINITY },
    { "typical_p", 1, INFINITY },
    { "tfs_z", 1, 1 },
};

/* Those of the runner and of the sampler, which are read elsewhere. */
static bool is_option(const char *name)
{
    static const char *const names[] = {
        "num_ctx",
        "num_keep",
        "num_batch",
        "num_gpu",
        "num_thread",
        "main_gpu",
        "use_mmap",
        "use_mlock",
        "low_vram",
        "f16_kv",
        "vocab_only",
        "logits_all",
        "numa",
        "num_predict",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "seed",
        "stop",
        "repeat_last_n",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
        "typical_p",
        "tfs_z",
        "penalize_newline",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void find_unknown(weir_unknown_fields *unknown, const json_t *options)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)options, name, value)
    {
        char path[64];
        if (json_is_null(value) || is_option(name)) continue;
        (void)snprintf(path, sizeof path, "options.%s", name);
        weir_unknown_add(unknown, path, NULL);
    }
}

/* Checked here under their own names. */
static weir_status copy_renamed(
    json_t *out, const json_t *options, int64_t *n_predict, weir_api_error *error
)
{
    double penalty = 1;
    int64_t seed = -1;
    WEIR_TRY(weir_field_number(options, "repeat_penalty", 0.01, 10, &penalty, error));
    WEIR_TRY(copy(out, "repetition_penalty", options, "repeat_penalty", error));
    WEIR_TRY(weir_field_integer(options, "num_predict", INT32_MIN, INT32_MAX, n_predict, error));
    WEIR_TRY(weir_field_integer(options, "seed", INT64_MIN, INT64_MAX, &seed, error));
    return seed != -1 ? put(out, "seed", json_integer(seed), error) : WEIR_OK;
}

static weir_status copy_options(
    json_t *out, const json_t *root, int64_t *n_predict, weir_unknown_fields *unknown,
    weir_api_error *error
)
{
    static const char *const same[] = {
        "temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "stop"
    };
    const json_t *const options = weir_field(root, "options");
    if (options == NULL) return WEIR_OK;
    if (!json_is_object(options))
        return weir_api_bad(error, "options", "options must be an object");
    find_unknown(unknown, options);
    WEIR_TRY(
        weir_off_fields_check(options, off_options, sizeof off_options / sizeof *off_options, error)
    );
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        WEIR_TRY(copy(out, same[i], options, same[i], error));
    return copy_renamed(out, options, n_predict, error);
}

/* ---- format, thinking, keep_alive ------------------------------------------------------------ */

static weir_status copy_format(json_t *out, const json_t *root, weir_api_error *error)
{
    static const char key[] = "format";
    const json_t *const format = weir_field(root, key);
    if (is_empty(format)) return WEIR_OK;
    if (json_is_object(format)) return copy(out, "json_schema", root, key, error);
    if (json_is_string(format) && strcmp(json_string_value(format), "json") == 0)
        return put(out, "response_format", json_pack("{s:s}", "type", "json_object"), error);
    return weir_api_bad(error, key, "format must be \"json\" or a JSON schema");
}

/* In chats only: true, false, or how much. */
static weir_status copy_thinking(json_t *out, const json_t *root, weir_api_error *error)
{
    static const char key[] = "think";
    const json_t *const think = weir_field(root, key);
    if (think == NULL) return WEIR_OK;
    if (json_is_boolean(think))
        return put(
            out, "chat_template_kwargs",
            json_pack("{s:b}", "enable_thinking", json_is_true(think) ? 1 : 0), error
        );
    const char *const word = json_string_value(think);
    if (word != NULL &&
        (strcmp(word, "low") == 0 || strcmp(word, "medium") == 0 || strcmp(word, "high") == 0))
        return copy(out, "reasoning_effort", root, key, error);
    return weir_api_bad(error, key, "think must be true, false, \"low\", \"medium\" or \"high\"");
}

/* The model stays loaded. */
static weir_status check_keep_alive(const json_t *root, bool *is_zero, weir_api_error *error)
{
    const json_t *const keep = weir_field(root, "keep_alive");
    const char *const text = json_string_value(keep);
    *is_zero = json_is_number(keep)
                   ? json_number_value(keep) == 0
                   : text != NULL && text[0] == '0' && strspn(text, "0smh") == strlen(text);
    if (keep == NULL || json_is_number(keep) || json_is_string(keep)) return WEIR_OK;
    return weir_api_bad(error, "keep_alive", "keep_alive must be a number or a duration");
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Tool answers name their tool; the call's id is optional. */
static weir_status copy_tool_id(json_t *out, const json_t *message, weir_api_error *error)
{
    const char *id = "call", *name = NULL;
    WEIR_TRY(weir_field_text(message, "tool_name", &name, error));
    if (name != NULL) {
        WEIR_TRY(put(out, "name", json_string(name), error));
        id = name;
    }
    WEIR_TRY(weir_field_text(message, "tool_call_id", &id, error));
    return put(out, "tool_call_id", json_string(id), error);
}

static weir_status copy_message(
    json_t *out, const json_t *message, size_t index, weir_api_error *error
)
{
    if (!json_is_object(message))
        return weir_api_bad(error, "messages", "messages[%zu] must be an object", index);
    const char *const role = json_string_value(weir_field(message, "role"));
    if (!is_empty(weir_field(message, "images")))
        return weir_api_fail(
            error, 400, "unsupported_content", "messages",
            "messages[%zu].images are not supported by this server", index
        );
    WEIR_TRY(copy(out, "role", message, "role", error));
    WEIR_TRY(copy(out, "content", message, "content", error));
    WEIR_TRY(copy(out, "reasoning_content", message, "thinking", error));
    WEIR_TRY(copy(out, "tool_calls", message, "tool_calls", error));
    if (role == NULL || strcmp(role, "tool") != 0) return WEIR_OK;
    return copy_tool_id(out, message, error);
}

static weir_status copy_messages(json_t *out, const json_t *root, weir_api_error *error)
{
    const json_t *const messages = weir_field(root, "messages");
    if (!json_is_array(messages))
        return weir_api_bad(error, "messages", "messages must be an array");
    json_t *const list = json_array();
    WEIR_TRY(put(out, "messages", list, error));
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *const message = json_object();
        if (json_array_append_new(list, message) != 0) return weir_api_no_memory(error);
        WEIR_TRY(copy_message(message, json_array_get(messages, i), i, error));
    }
    return copy(out, "tools", root, "tools", error);
}

static weir_status add_message(
    json_t *list, const char *role, const json_t *root, const char *key, weir_api_error *error
)
{
    json_t *const text = json_object_get(root, key);
    if (!json_is_string(text)) return weir_api_bad(error, key, "%s must be a string", key);
    json_t *const message = json_pack("{s:s, s:O}", "role", role, "content", text);
    return json_array_append_new(list, message) == 0 ? WEIR_OK : weir_api_no_memory(error);
}

/* /api/generate: a chat of one message, or with `raw` the prompt as it is. */
static weir_status copy_prompt(json_t *out, const json_t *root, bool raw, weir_api_error *error)
{
    if (raw && !json_is_string(weir_field(root, "prompt"))) /* a list would be several prompts */
        return weir_api_bad(error, "prompt", "prompt must be a string");
    if (raw) return copy(out, "prompt", root, "prompt", error);
    json_t *const list = json_array();
    WEIR_TRY(put(out, "messages", list, error));
    if (!is_empty(weir_field(root, "system")))
        WEIR_TRY(add_message(list, "system", root, "system", error));
    return add_message(list, "user", root, "prompt", error);
}

/* ---- whole requests -------------------------------------------------------------------------- */

/* What is the same in both bodies. */
static weir_status copy_common(
    json_t *out, const json_t *root, int64_t *n_predict, weir_unknown_fields *unknown,
    weir_api_error *error
)
{
    bool stream = true, is_zero;
    WEIR_TRY(weir_field_bool(root, "stream", &stream, error));
    WEIR_TRY(put(out, "stream", json_boolean(stream), error));
    WEIR_TRY(check_keep_alive(root, &is_zero, error));
    WEIR_TRY(copy_format(out, root, error));
    return copy_options(out, root, n_predict, unknown, error);
}

static weir_status translate_chat(json_t *out, const json_t *root, weir_api_error *error)
{
    WEIR_TRY(copy(out, "logprobs", root, "logprobs", error));
    WEIR_TRY(copy(out, "top_logprobs", root, "top_logprobs", error));
    return copy_thinking(out, root, error);
}

static weir_status translate_generate(
    json_t *out, const json_t *root, bool *raw, weir_api_error *error
)
{
    static const char *const empty[] = { "template", "context", "suffix", "images" };
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        WEIR_TRY(need_empty(root, empty[i], error));
    WEIR_TRY(weir_field_bool(root, "raw", raw, error));
    if (*raw && !is_empty(weir_field(root, "system")))
        return weir_api_bad(error, "system", "system needs a chat template, which raw leaves out");
    const json_t *const think = weir_field(root, "think");
    if (*raw && think != NULL && !json_is_false(think))
        return weir_api_bad(error, "think", "think needs a chat template, which raw leaves out");
    if (!*raw) WEIR_TRY(translate_chat(out, root, error));
    return copy_prompt(out, root, *raw, error);
}

/* Completions have a limit and log-probabilities of their own. */
static weir_status adjust(
    weir_openai_request *r, const json_t *root, const weir_request_limits *limits,
    int64_t n_predict, weir_api_error *error
)
{
    int64_t top = 0;
    const bool has_default = n_predict == 0 && limits->max_tokens > 0;
    r->max_tokens = has_default ? limits->max_tokens : n_predict > 0 ? n_predict : -1;
    if (r->structured.field != NULL) r->structured.field = "format";
    const json_t *const options = weir_field(root, "options");
    WEIR_TRY(weir_last_n_check(options, &r->sampling, error));
    if (r->chat) return WEIR_OK;
    WEIR_TRY(weir_field_bool(root, "logprobs", &r->logprobs, error));
    WEIR_TRY(weir_field_integer(root, "top_logprobs", 0, 20, &top, error));
    r->n_top_logprobs = r->logprobs ? (int32_t)top : 0;
    return WEIR_OK;
}

static weir_status translate(
    json_t *out, const json_t *root, weir_body body, bool *raw, int64_t *n_predict,
    weir_unknown_fields *unknown, weir_api_error *error
)
{
    WEIR_TRY(copy_common(out, root, n_predict, unknown, error));
    if (body == WEIR_BODY_OLLAMA_GENERATE) return translate_generate(out, root, raw, error);
    WEIR_TRY(translate_chat(out, root, error));
    return copy_messages(out, root, error);
}

void weir_ollama_name_error(weir_api_error *error)
{
    static const weir_api_name names[] = {
        { "response_format", "format" }, { "json_schema", "format" },
        { "reasoning_effort", "think" }, { "chat_template_kwargs", "think" },
        { "max_tokens", "num_predict" }, { "repetition_penalty", "repeat_penalty" },
    };
    weir_api_rename(error, names, sizeof names / sizeof names[0]);
}

weir_status weir_ollama_request_read(
    weir_ollama_request *out, const json_t *root, weir_body body, bool has_template,
    const weir_request_limits *limits, weir_api_error *error
)
{
    weir_ollama_request ollama = { .model = "" };
    weir_unknown_fields unknown = { 0 };
    bool raw = body == WEIR_BODY_OLLAMA_GENERATE && !has_template;
    int64_t n_predict = 0;
    WEIR_TRY(weir_ollama_model_read(ollama.model, root, "model", limits, error));
    WEIR_TRY(weir_fields_check(root, body, &unknown, error));
    json_t *const translated = json_object();
    weir_status status = translated != NULL ? WEIR_OK : weir_api_no_memory(error);
    if (status == WEIR_OK)
        status = translate(translated, root, body, &raw, &n_predict, &unknown, error);
    if (status != WEIR_OK) {
        json_decref(translated);
        return status;
    }
    status = weir_openai_request_take(&ollama.request, !raw, translated, limits, error);
    if (status != WEIR_OK) {
        weir_ollama_name_error(error);
        return status;
    }
    status = adjust(&ollama.request, root, limits, n_predict, error);
    if (status != WEIR_OK) {
        weir_openai_request_free(&ollama.request);
        return status;
    }
    ollama.request.unknown = unknown;
    *out = ollama;
    return WEIR_OK;
}

weir_status weir_ollama_load_read(
    weir_ollama_load *out, const json_t *root, weir_body body, const weir_request_limits *limits,
    weir_api_error *error
)
{
    const char *const key = body == WEIR_BODY_OLLAMA_CHAT ? "messages" : "prompt";
    weir_unknown_fields unknown = { 0 };
    *out = (weir_ollama_load){ .is_load = is_empty(weir_field(root, key)), .stream = true };
    if (!out->is_load) return WEIR_OK;
    WEIR_TRY(weir_ollama_model_read(out->model, root, "model", limits, error));
    WEIR_TRY(weir_fields_check(root, body, &unknown, error));
    WEIR_TRY(weir_field_bool(root, "stream", &out->stream, error));
    return check_keep_alive(root, &out->unloads, error);
}
