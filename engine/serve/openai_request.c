/* engine/serve/openai_request.c - the fields of a generation request, group by group. */
#include "engine/serve/openai_request.h"

#include "engine/serve/access.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/chat_request.h"
#include "engine/serve/completion_request.h"
#include "engine/serve/json_in.h"
#include "engine/serve/sampling_request.h"
#include "engine/session/sessions.h"

/* ---- turn in the queue, and the stream ------------------------------------------------------- */

/* With keys, a client may not go before others of its priority. */
static weir_status read_schedule(
    weir_openai_request *request, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    int64_t priority = 0;
    double seconds = 0;
    const int64_t least = limits->has_keys ? 0 : -WEIR_PRIORITY;
    WEIR_TRY(weir_field_integer(root, "priority", least, WEIR_PRIORITY, &priority, error));
    request->priority = (int32_t)priority;
    if (weir_field(root, "timeout") == NULL) return WEIR_OK;
    WEIR_TRY(weir_field_number(root, "timeout", 0.001, WEIR_MOST_SECONDS, &seconds, error));
    request->timeout_ns = (int64_t)(seconds * 1e9);
    return WEIR_OK;
}

/* Seconds between the pings of a stream, as llama.cpp's server takes them; -1: none. */
static weir_status read_ping(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    static const char key[] = "sse_ping_interval";
    const json_t *const field = weir_field(root, key);
    double seconds = 0;
    if (field == NULL) return WEIR_OK;
    if (json_is_number(field) && json_number_value(field) == -1) {
        request->ping_ns = INT64_MAX;
        return WEIR_OK;
    }
    WEIR_TRY(weir_field_number(root, key, 0.1, WEIR_MOST_SECONDS, &seconds, error));
    request->ping_ns = (int64_t)(seconds * 1e9);
    return WEIR_OK;
}

const char *weir_model_next_alias(const char **list, size_t *n)
{
    const char *const begin = *list + strspn(*list, ", ");
    const size_t whole = strcspn(begin, ",");
    *list = begin + whole;
    for (*n = whole; *n > 0 && begin[*n - 1] == ' ';) (*n)--;
    return *n > 0 ? begin : NULL;
}

bool weir_model_is_served(const weir_request_limits *limits, const char *name, size_t n)
{
    const char *list = limits->aliases != NULL ? limits->aliases : "";
    size_t length = strlen(limits->model_name);
    for (const char *one = limits->model_name; one != NULL;
         one = weir_model_next_alias(&list, &length))
        if ((length == n && memcmp(one, name, n) == 0) || (length == 1 && one[0] == '*'))
            return true;
    return false;
}

weir_status weir_openai_check_model(
    const json_t *root, const weir_request_limits *limits, weir_api_error *error
)
{
    const json_t *const model = weir_field(root, "model");
    if (model == NULL) return WEIR_OK;
    if (!json_is_string(model)) return weir_api_bad(error, "model", "model must be a string");
    const char *const name = json_string_value(model);
    if (weir_model_is_served(limits, name, json_string_length(model))) return WEIR_OK;
    return weir_api_fail(
        error, 404, "model_not_found", "model", "the model %s is not served here; see /v1/models",
        weir_quote(name).text
    );
}

/* ---- length, stop, choices ------------------------------------------------------------------- */

static weir_status add_stop(weir_stop_list *list, const json_t *text, weir_api_error *error)
{
    if (!json_is_string(text))
        return weir_api_bad(error, "stop", "stop must be a string or an array of strings");
    const size_t length = json_string_length(text);
    if (length == 0 || length > WEIR_STOP_BYTES)
        return weir_api_bad(
            error, "stop", "a stop string must have 1 to %d bytes", WEIR_STOP_BYTES
        );
    char *const copy = weir_memory_take(length);
    if (copy == NULL) return weir_api_no_memory(error);
    memcpy(copy, json_string_value(text), length);
    list->text[list->count] = copy;
    list->length[list->count++] = length;
    return WEIR_OK;
}

static weir_status read_stop(weir_stop_list *list, const json_t *root, weir_api_error *error)
{
    const json_t *const stop = weir_field(root, "stop");
    if (stop == NULL) return WEIR_OK;
    if (!json_is_array(stop)) return add_stop(list, stop, error);
    if (json_array_size(stop) > WEIR_STOP_STRINGS)
        return weir_api_bad(error, "stop", "stop holds more than %d strings", WEIR_STOP_STRINGS);
    for (size_t i = 0; i < json_array_size(stop); i++)
        WEIR_TRY(add_stop(list, json_array_get(stop, i), error));
    return WEIR_OK;
}

static weir_status read_length(
    weir_openai_request *request, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    const bool scoring = !request->chat && request->echo;
    const int64_t longest = limits->max_tokens > 0 ? limits->max_tokens : -1;
    request->max_tokens = request->chat ? longest : 16;
    WEIR_TRY(weir_field_integer(
        root, "max_tokens", scoring ? 0 : 1, INT64_MAX, &request->max_tokens, error
    ));
    if (request->chat)
        WEIR_TRY(weir_field_integer(
            root, "max_completion_tokens", 1, INT64_MAX, &request->max_tokens, error
        ));
    int64_t least = 0;
    WEIR_TRY(weir_field_integer(root, "min_tokens", 0, INT32_MAX, &least, error));
    if (request->max_tokens >= 0 && least > request->max_tokens)
        return weir_api_bad(error, "min_tokens", "min_tokens is above max_tokens");
    request->min_tokens = (int32_t)least;
    return WEIR_OK;
}

static weir_status check_choices(
    const char *key, int64_t n, int64_t least, int32_t most, weir_api_error *error
)
{
    if (n >= least && n <= most) return WEIR_OK;
    return weir_api_bad(
        error, key, "%s is %lld; it must be %lld to %d (batch.max_sequences of the server)", key,
        (long long)n, (long long)least, (int)most
    );
}

static weir_status read_choices(
    weir_openai_request *request, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    int64_t n = 1, best_of = 0;
    WEIR_TRY(weir_field_integer(root, "n", INT64_MIN, INT64_MAX, &n, error));
    WEIR_TRY(check_choices("n", n, 1, limits->n_slots, error));
    request->n = (int32_t)n;
    if (request->chat || weir_field(root, "best_of") == NULL) return WEIR_OK;
    WEIR_TRY(weir_field_integer(root, "best_of", INT64_MIN, INT64_MAX, &best_of, error));
    WEIR_TRY(check_choices("best_of", best_of, n, limits->n_slots, error));
    return best_of > n ? weir_api_unsupported(error, "best_of") : WEIR_OK;
}

/* Unknown members are reported like unknown fields. */
static weir_status read_stream_options(
    weir_openai_request *request, const json_t *options, weir_api_error *error
)
{
    static const char *const known[] = { "include_usage", "include_obfuscation" };
    bool obfuscation;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)options, name, value)
    {
        if (json_is_null(value) || strcmp(name, known[0]) == 0 || strcmp(name, known[1]) == 0)
            continue;
        char path[64];
        (void)snprintf(path, sizeof path, "stream_options.%s", name);
        weir_unknown_add(&request->unknown, path, NULL);
    }
    WEIR_TRY(weir_field_bool(options, known[0], &request->include_usage, error));
    return weir_field_bool(options, known[1], &obfuscation, error); /* padding is not implemented */
}

static weir_status read_stream(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    static const char key[] = "stream_options";
    WEIR_TRY(weir_field_bool(root, "stream", &request->stream, error));
    const json_t *const options = weir_field(root, key);
    if (options == NULL) return WEIR_OK;
    if (!json_is_object(options))
        return weir_api_bad(error, key, "stream_options must be an object");
    if (!request->stream) return weir_api_bad(error, key, "stream_options needs stream: true");
    const weir_status status = read_stream_options(request, options, error);
    if (status != WEIR_OK) memcpy(error->param, key, sizeof key);
    return status;
}

static weir_status read_salt(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    const char *salt = NULL;
    WEIR_TRY(weir_field_text(root, "cache_salt", &salt, error));
    if (salt == NULL) return WEIR_OK;
    if (strlen(salt) > WEIR_SALT_BYTES)
        return weir_api_bad(
            error, "cache_salt", "cache_salt is longer than %d bytes", WEIR_SALT_BYTES
        );
    request->cache_salt = weir_memory_text(salt);
    return request->cache_salt != NULL ? WEIR_OK : weir_api_no_memory(error);
}

/* A request must not name files of the server. */
static weir_status read_policy_options(
    weir_policy_options *options, const char *list, weir_api_error *error
)
{
    weir_error why = { 0 };
    if (weir_policy_options_set(options, list, &why) != WEIR_OK)
        return weir_api_bad(error, "kv_policy_options", "%s", why.text);
    if (options->calibration[0] == '\0') return WEIR_OK;
    return weir_api_bad(
        error, "kv_policy_options",
        "calibration: the server's (kv.policy.calibration) is the only one"
    );
}

static weir_status read_policy(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    const char *name = NULL, *list = NULL;
    weir_error why = { 0 };
    WEIR_TRY(weir_field_integer(root, "kv_budget", 1, INT32_MAX, &request->kv_budget, error));
    WEIR_TRY(weir_field_bool(root, "kv_protect", &request->kv_protect, error));
    if (request->kv_protect && !request->chat)
        return weir_api_bad(
            error, "kv_protect", "kv_protect is for chats: a prompt has no system message"
        );
    WEIR_TRY(weir_field_text(root, "kv_policy", &name, error));
    WEIR_TRY(weir_field_text(root, "kv_policy_options", &list, error));
    if (name == NULL && list != NULL)
        return weir_api_bad(error, "kv_policy_options", "kv_policy_options needs kv_policy");
    if (name == NULL) return WEIR_OK;
    request->policy = weir_memory_take(sizeof *request->policy);
    if (request->policy == NULL) return weir_api_no_memory(error);
    if (weir_policy_options_default(request->policy, name, &why) != WEIR_OK)
        return weir_api_bad(error, "kv_policy", "%s", why.text);
    return list != NULL ? read_policy_options(request->policy, list, error) : WEIR_OK;
}

static weir_status read_overflow(
    weir_openai_request *request, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    const char *text = NULL;
    request->truncate_middle = limits->truncate_middle;
    WEIR_TRY(weir_field_text(root, "on_overflow", &text, error));
    if (text == NULL) return WEIR_OK;
    request->truncate_middle = strcmp(text, "truncate_middle") == 0;
    if (request->truncate_middle || strcmp(text, "error") == 0) return WEIR_OK;
    return weir_api_bad(
        error, "on_overflow", "on_overflow must be \"error\" or \"truncate_middle\""
    );
}

weir_status weir_openai_session_name(
    const json_t *root, const char *key, const char **out, weir_api_error *error
)
{
    const char *name = NULL;
    WEIR_TRY(weir_field_text(root, key, &name, error));
    if (name == NULL) return WEIR_OK;
    if (!weir_session_name_is_good(name, WEIR_SESSION_CLIENT_NAME))
        return weir_api_bad(
            error, key, "%s must be 1 to %d letters, digits, '.', '_' or '-', not a dot first", key,
            (int)WEIR_SESSION_CLIENT_NAME
        );
    *out = name;
    return WEIR_OK;
}

static weir_status read_session(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    const char *name = NULL;
    WEIR_TRY(weir_openai_session_name(root, "session", &name, error));
    if (name == NULL) return WEIR_OK;
    request->session = weir_memory_text(name);
    return request->session != NULL ? WEIR_OK : weir_api_no_memory(error);
}

/* Whether the state exists is checked later. */
static weir_status read_state(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    const char *name = NULL;
    WEIR_TRY(weir_field_text(root, "state", &name, error));
    if (name == NULL) return WEIR_OK;
    if (name[0] == '\0' || strlen(name) > WEIR_SESSION_CLIENT_NAME)
        return weir_api_bad(
            error, "state", "state must be the name of a state, 1 to %d bytes",
            (int)WEIR_SESSION_CLIENT_NAME
        );
    if (request->echo)
        return weir_api_bad(
            error, "state",
            "state and echo exclude each other: the tokens of a state are not scored"
        );
    request->state = weir_memory_text(name);
    return request->state != NULL ? WEIR_OK : weir_api_no_memory(error);
}

/* ---- whole requests -------------------------------------------------------------------------- */

static weir_status read_all(
    weir_openai_request *request, const weir_request_limits *limits, weir_api_error *error
)
{
    const json_t *const root = request->root;
    WEIR_TRY(weir_openai_check_model(root, limits, error));
    WEIR_TRY(weir_fields_check(
        root, request->chat ? WEIR_BODY_CHAT : WEIR_BODY_COMPLETION, &request->unknown, error
    ));
    WEIR_TRY(read_schedule(request, root, limits, error));
    WEIR_TRY(read_ping(request, root, error));
    WEIR_TRY(weir_structured_read(&request->structured, root, error));
    if (!request->chat) WEIR_TRY(weir_field_bool(root, "echo", &request->echo, error));
    WEIR_TRY(weir_field_bool(root, "ignore_eos", &request->ignore_eos, error));
    WEIR_TRY(weir_field_bool(root, "cache_prompt", &request->cache_prompt, error));
    WEIR_TRY(read_stream(request, root, error));
    WEIR_TRY(read_length(request, root, limits, error));
    WEIR_TRY(read_choices(request, root, limits, error));
    WEIR_TRY(weir_sampling_request_read(request, root, limits, error));
    WEIR_TRY(read_stop(&request->stop, root, error));
    WEIR_TRY(read_salt(request, root, error));
    WEIR_TRY(read_policy(request, root, error));
    WEIR_TRY(read_overflow(request, root, limits, error));
    WEIR_TRY(read_session(request, root, error));
    WEIR_TRY(read_state(request, root, error));
    return request->chat ? weir_chat_request_read(request, root, error)
                         : weir_completion_request_read(request, root, limits->n_vocab, error);
}

weir_status weir_openai_request_take(
    weir_openai_request *out, bool chat, json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    weir_openai_request request = {
        .chat = chat, .cache_prompt = true, .thought_tokens = -1, .root = root
    };
    const weir_status status = read_all(&request, limits, error);
    if (status == WEIR_OK)
        *out = request;
    else
        weir_openai_request_free(&request);
    return status;
}

weir_status weir_openai_request_read(
    weir_openai_request *out, bool chat, const char *text, size_t n,
    const weir_request_limits *limits, weir_api_error *error
)
{
    json_t *root = NULL;
    WEIR_TRY(weir_json_read(&root, text, n, error));
    return weir_openai_request_take(out, chat, root, limits, error);
}

void weir_openai_request_forget_prompt(weir_openai_request *request)
{
    json_decref(request->messages);
    json_decref(request->variables);
    json_decref(request->root);
    request->messages = request->variables = request->root = NULL;
    request->prompt = NULL;
}

void weir_openai_request_free(weir_openai_request *request)
{
    weir_openai_request_forget_prompt(request);
    weir_stop_list_free(&request->stop);
    weir_memory_give(request->bias);
    weir_memory_give(request->cache_salt);
    weir_memory_give(request->policy);
    weir_memory_give(request->session);
    weir_memory_give(request->state);
    weir_buffer_free(&request->structured.text);
    json_decref(request->tools);
    json_decref(request->callable);
    *request = (weir_openai_request){ 0 };
}
