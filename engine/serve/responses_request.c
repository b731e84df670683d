#include "engine/serve/responses_request.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"

typedef struct reader {
    const json_t *root;
    json_t *chat; /* the chat's fields so far */
    json_t *functions; /* tools as they were sent */
    weir_responses out;
    weir_unknown_fields unknown;
    weir_api_error *error;
} reader;

/* Takes `value`; NULL: no memory. */
static weir_status put(reader *r, json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0 ? WEIR_OK : weir_api_no_memory(r->error);
}

/* Fields that a chat has in the same form. */
static weir_status copy_shared(reader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->root, key, value)
    {
        if (weir_field_is_read(key, WEIR_BODY_RESPONSES | WEIR_BODY_CHAT))
            WEIR_TRY(put(r, r->chat, key, weir_json_share(value)));
    }
    return WEIR_OK;
}

/* ---- fields with members --------------------------------------------------------------------- */

/* *out: the object in the field `key`; NULL if it is absent. Members that are not among `known`,
 * which ends with NULL, are reported like unknown fields. */
static weir_status read_object(
    reader *r, const char *key, const char *const *known, const json_t **out
)
{
    const json_t *const object = weir_field(r->root, key);
    const char *name;
    json_t *value;
    *out = object;
    if (object == NULL) return WEIR_OK;
    if (!json_is_object(object)) return weir_api_bad(r->error, key, "%s must be an object", key);
    json_object_foreach((json_t *)object, name, value)
    {
        const char *const *at = known;
        char path[80];
        while (*at != NULL && strcmp(*at, name) != 0) at++;
        if (*at != NULL || json_is_null(value)) continue;
        (void)snprintf(path, sizeof path, "%s.%s", key, weir_quote(name).text);
        weir_unknown_add(&r->unknown, path, NULL);
    }
    return WEIR_OK;
}

/* Checks that the member of the field `key` is one of `words`, which end with NULL, if it is there.
 * *out: the word; unchanged if it is absent. */
static weir_status read_word(
    reader *r, const char *key, const json_t *object, const char *member, const char *const *words,
    const char **out
)
{
    const json_t *const value = weir_field(object, member);
    const char *const word = json_string_value(value);
    char path[48];
    if (value == NULL) return WEIR_OK;
    for (; word != NULL && *words != NULL; words++) {
        if (strcmp(word, *words) != 0) continue;
        *out = word;
        return WEIR_OK;
    }
    (void)snprintf(path, sizeof path, "%s.%s", key, member);
    if (word == NULL) return weir_api_bad(r->error, path, "%s must be a string", path);
    return weir_api_bad(r->error, path, "unknown %s %s", path, weir_quote(word).text);
}

static weir_status read_reasoning(reader *r)
{
    static const char key[] = "reasoning";
    static const char *const known[] = { "effort", "summary", "generate_summary", NULL };
    static const char *const summaries[] = { "auto", "concise", "detailed", NULL };
    const json_t *object = NULL;
    const char *summary = NULL;
    WEIR_TRY(read_object(r, key, known, &object));
    WEIR_TRY(read_word(r, key, object, "generate_summary", summaries, &summary));
    WEIR_TRY(read_word(r, key, object, "summary", summaries, &summary));
    r->out.has_summary = summary != NULL;
    const json_t *const effort = weir_field(object, "effort");
    return effort != NULL ? put(r, r->chat, "reasoning_effort", weir_json_share(effort)) : WEIR_OK;
}

/* The chat's response_format. */
static weir_status put_schema(reader *r, const json_t *format)
{
    const json_t *const schema = weir_field(format, "schema");
    if (!json_is_object(schema))
        return weir_api_bad(
            r->error, "text.format", "text.format.schema must be there, and a JSON schema"
        );
    json_t *const chat =
        json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema);
    return put(r, r->chat, "response_format", chat);
}

static weir_status read_text(reader *r)
{
    static const char key[] = "text";
    static const char *const known[] = { "format", "verbosity", NULL };
    static const char *const verbosities[] = { "low", "medium", "high", NULL };
    static const char *const types[] = { "text", "json_object", "json_schema", NULL };
    const json_t *object = NULL;
    const char *ignored = NULL, *type = NULL;
    WEIR_TRY(read_object(r, key, known, &object));
    WEIR_TRY(read_word(r, key, object, "verbosity", verbosities, &ignored));
    const json_t *const format = weir_field(object, "format");
    if (format == NULL) return WEIR_OK;
    WEIR_TRY(read_word(r, "text.format", format, "type", types, &type));
    if (type == NULL) return weir_api_bad(r->error, "text.format", "text.format needs a type");
    if (strcmp(type, "json_schema") == 0) return put_schema(r, format);
    return put(r, r->chat, "response_format", json_pack("{s:s}", "type", type));
}

/* ---- other fields ---------------------------------------------------------------------------- */

static weir_status read_length(reader *r)
{
    static const char key[] = "max_output_tokens";
    int64_t ignored = 0;
    WEIR_TRY(weir_field_integer(r->root, key, 1, INT64_MAX, &ignored, r->error));
    const json_t *const value = weir_field(r->root, key);
    return value != NULL ? put(r, r->chat, "max_completion_tokens", weir_json_share(value))
                         : WEIR_OK;
}

static weir_status read_truncation(reader *r)
{
    static const char key[] = "truncation";
    const char *word = NULL;
    WEIR_TRY(weir_field_text(r->root, key, &word, r->error));
    if (word == NULL) return WEIR_OK;
    const bool is_auto = strcmp(word, "auto") == 0;
    if (!is_auto && strcmp(word, "disabled") != 0)
        return weir_api_bad(r->error, key, "truncation must be \"auto\" or \"disabled\"");
    return put(r, r->chat, "on_overflow", json_string(is_auto ? "truncate_middle" : "error"));
}

/* What is listed for tools and images that are not here is nowhere to be included. */
static weir_status read_include(reader *r)
{
    static const char key[] = "include";
    static const char *const nowhere[] = {
        "code_interpreter_call.outputs",  "computer_call_output.output.image_url",
        "file_search_call.results",       "message.input_image.image_url",
        "web_search_call.action.sources", "web_search_call.results",
    };
    const json_t *const list = weir_field(r->root, key);
    if (list != NULL && !json_is_array(list))
        return weir_api_bad(r->error, key, "include must be an array of strings");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *const word = json_string_value(json_array_get(list, i));
        bool is_known = false;
        if (word == NULL) return weir_api_bad(r->error, key, "include must be an array of strings");
        for (size_t k = 0; k < sizeof nowhere / sizeof nowhere[0]; k++)
            is_known = is_known || strcmp(word, nowhere[k]) == 0;
        if (strcmp(word, "reasoning.encrypted_content") == 0)
            r->out.has_encrypted = is_known = true;
        if (!is_known)
            return weir_api_fail(
                r->error, 400, "unsupported_parameter", key,
                "include: %s is not supported by this server", weir_quote(word).text
            );
    }
    return WEIR_OK;
}

static weir_status read_tools(reader *r)
{
    json_t *tools = NULL, *choice = NULL;
    const json_t *const given = weir_field(r->root, "tool_choice");
    WEIR_TRY(weir_responses_tools(
        &tools, &r->functions, weir_field(r->root, "tools"), &r->unknown, r->error
    ));
    WEIR_TRY(put(r, r->chat, "tools", tools));
    if (given == NULL) return WEIR_OK;
    WEIR_TRY(weir_responses_choice(&choice, given, r->error));
    return put(r, r->chat, "tool_choice", choice);
}

/* Fields with one supported value. */
static weir_status check_rest(reader *r)
{
    static const char key[] = "previous_response_id";
    int64_t number = 0;
    if (weir_field(r->root, key) != NULL)
        return weir_api_fail(
            r->error, 400, "unsupported_parameter", key,
            "previous_response_id: responses are not stored here; send the whole conversation as "
            "`input`"
        );
    WEIR_TRY(weir_field_integer(r->root, "top_logprobs", 0, 20, &number, r->error));
    if (number > 0) return weir_api_unsupported(r->error, "top_logprobs");
    /* It counts the calls of hosted tools, of which there are none. */
    return weir_field_integer(r->root, "max_tool_calls", 1, INT64_MAX, &number, r->error);
}

/* ---- what a Response repeats ----------------------------------------------------------------- */

/* A new reference to the format in `text`, or to what holds without one. NULL: no memory. */
static json_t *format_of(const json_t *text)
{
    const json_t *const given = weir_field(text, "format");
    return given != NULL ? weir_json_share(given) : json_pack("{s:s}", "type", "text");
}

static weir_status fill_echo(reader *r, json_t *echo, const weir_request_limits *limits)
{
    static const char *const keys[] = {
        "instructions", "max_output_tokens", "max_tool_calls",    "metadata", "parallel_tool_calls",
        "tool_choice",  "prompt_cache_key",  "safety_identifier", "user",     "truncation",
    };
    const json_t *const reasoning = weir_field(r->root, "reasoning");
    const json_t *const text = weir_field(r->root, "text");
    json_t *const values = json_pack(
        "{s:n, s:n, s:n, s:{}, s:b, s:s, s:n, s:n, s:n, s:s}", keys[0], keys[1], keys[2], keys[3],
        keys[4], 1, keys[5], "auto", keys[6], keys[7], keys[8], keys[9],
        limits->truncate_middle ? "auto" : "disabled"
    );
    json_t *const effects = json_pack(
        "{s:b, s:n, s:b, s:s, s:i, s:O, s:{s:O?, s:O?}, s:{s:o, s:O?}}", "background", 0,
        "previous_response_id", "store", 0, "service_tier", "default", "top_logprobs", 0, "tools",
        r->functions, "reasoning", "effort", weir_field(reasoning, "effort"), "summary",
        weir_field(reasoning, "summary"), "text", "format", format_of(text), "verbosity",
        weir_field(text, "verbosity")
    );
    weir_status status =
        json_object_update(echo, values) == 0 && json_object_update(echo, effects) == 0
            ? WEIR_OK
            : weir_api_no_memory(r->error);
    json_decref(values);
    json_decref(effects);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == WEIR_OK; i++) {
        const json_t *const value = weir_field(r->root, keys[i]);
        if (value != NULL) status = put(r, echo, keys[i], weir_json_share(value));
    }
    return status;
}

static weir_status make_echo(reader *r, const weir_request_limits *limits)
{
    weir_buffer text = { 0 };
    json_t *const echo = json_object();
    weir_status status = echo != NULL ? fill_echo(r, echo, limits) : weir_api_no_memory(r->error);
    if (status == WEIR_OK &&
        (weir_json_write(&text, echo, JSON_COMPACT) != WEIR_OK ||
         weir_buffer_add(&r->out.echo, text.data + 1, text.size - 2) != WEIR_OK))
        status = weir_api_no_memory(r->error);
    weir_buffer_free(&text);
    json_decref(echo);
    return status;
}

/* ---- whole requests -------------------------------------------------------------------------- */

static weir_status convert(reader *r, const weir_request_limits *limits)
{
    json_t *messages = NULL;
    WEIR_TRY(weir_openai_check_model(r->root, limits, r->error));
    WEIR_TRY(weir_fields_check(r->root, WEIR_BODY_RESPONSES, &r->unknown, r->error));
    WEIR_TRY(copy_shared(r));
    WEIR_TRY(check_rest(r));
    WEIR_TRY(read_include(r));
    WEIR_TRY(read_length(r));
    WEIR_TRY(read_truncation(r));
    WEIR_TRY(read_text(r));
    WEIR_TRY(read_reasoning(r));
    WEIR_TRY(read_tools(r));
    WEIR_TRY(weir_responses_messages(&messages, r->root, r->error));
    WEIR_TRY(put(r, r->chat, "messages", messages));
    return make_echo(r, limits);
}

void weir_responses_name_error(weir_api_error *error)
{
    static const weir_api_name names[] = {
        { "messages", "input" },
        { "response_format", "text" },
        { "reasoning_effort", "reasoning" },
        { "max_tokens", "max_output_tokens" },
        { "max_completion_tokens", "max_output_tokens" },
        { "on_overflow", "truncation" },
    };
    weir_api_rename(error, names, sizeof names / sizeof names[0]);
}

/* Takes the chat, and what was unknown in it. */
static weir_status take_chat(weir_openai_request *out, reader *r, const weir_request_limits *limits)
{
    json_t *const chat = r->chat;
    r->chat = NULL;
    const weir_status status = weir_openai_request_take(out, true, chat, limits, r->error);
    if (status != WEIR_OK) {
        weir_responses_name_error(r->error);
        return status;
    }
    const char *const field = out->structured.field;
    if (field != NULL && strcmp(field, "response_format") == 0) out->structured.field = "text";
    for (size_t i = 0; i < r->unknown.count; i++) {
        const bool has_name = i < WEIR_UNKNOWN_NAMED;
        weir_unknown_add(
            &out->unknown, has_name ? r->unknown.name[i].text : "",
            has_name ? r->unknown.nearest[i] : NULL
        );
    }
    return WEIR_OK;
}

weir_status weir_responses_read(
    weir_openai_request *out, weir_responses *more, const char *text, size_t n,
    const weir_request_limits *limits, weir_api_error *error
)
{
    json_t *root = NULL;
    WEIR_TRY(weir_json_read(&root, text, n, error));
    reader r = { .root = root, .chat = json_object(), .error = error };
    weir_status status = r.chat != NULL ? convert(&r, limits) : weir_api_no_memory(error);
    if (status == WEIR_OK) status = take_chat(out, &r, limits);
    json_decref(r.chat);
    json_decref(r.functions);
    json_decref(root);
    if (status == WEIR_OK)
        *more = r.out;
    else
        weir_buffer_free(&r.out.echo);
    return status;
}

void weir_responses_free(void *more)
{
    if (more == NULL) return;
    weir_buffer_free(&((weir_responses *)more)->echo);
    weir_memory_give(more);
}
