#include "tools/eval/toolcalls.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/formats/json.h"
#include "engine/toolcalls/chat_parser.h"
#include "engine/toolcalls/detect.h"

enum { MOST_BYTES = 1 << 22 }; /* of a template */

/* One run of the parser over a text. */
typedef struct run {
    weir_chat_parser *parser;
    weir_buffer content, reasoning;
    size_t n_calls; /* those that were taken */
} run;

/* ---- formats --------------------------------------------------------------------------------- */

/* The families of the acceptance data. */
static const weir_chat_format *format_of_family(const char *family)
{
    static const char *const names[][2] = {
        { "deepseek-r1", "deepseek_v3" },
        { "deepseek-v3.1", "deepseek_v31" },
        { "deepseek-v3.2", "deepseek_v32" },
        { "gemma4", "gemma4" },
        { "glm-4.6", "glm" },
        { "glm-4.7", "glm" },
        { "gpt-oss", "harmony" },
        { "granite-3.3", "granite" },
        { "granite-4", "hermes" },
        { "hermes3", "hermes" },
        { "kimi-k2", "kimi_k2" },
        { "lfm2", "lfm2" },
        { "llama3-json", "llama3_json" },
        { "minimax-m2", "minimax_m2" },
        { "ministral3", "mistral" },
        { "mistral-nemo", "mistral" },
        { "mistral-small3.2", "mistral" },
        { "nemotron-nano2", "nemotron" },
        { "nemotron3", "qwen3_coder" },
        { "pythonic", "pythonic" },
        { "qwen2.5", "hermes" },
        { "qwen3", "hermes" },
        { "qwen3-coder", "qwen3_coder" },
        { "qwen3.5", "qwen3_coder" },
        { "seed-oss", "seed_oss" },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], family) == 0) return weir_chat_format_find(names[i][1]);
    return weir_chat_format_find(family);
}

static weir_status detect(
    const weir_chat_format **out, const weir_buffer *text, const char *path, weir_error *error
)
{
    weir_chat_template *chat = NULL;
    weir_status status = weir_chat_template_open(&chat, text->data, text->size, error);
    if (status != WEIR_OK) return weir_error_prefix(error, status, "%s", path);
    status = weir_chat_format_detect(out, chat, "", "");
    weir_chat_template_close(chat);
    return status;
}

/* *out: NULL if neither the template nor the family has a known one. */
static weir_status find_format(
    const weir_chat_format **out, const json_t *item, const char *templates, weir_error *error
)
{
    const char *const name = json_string_value(json_object_get(item, "template"));
    const char *const family = json_string_value(json_object_get(item, "family"));
    char path[1024];
    weir_buffer text = { 0 };
    weir_status status = WEIR_ENOTFOUND;
    if (name != NULL && templates != NULL && strchr(name, '/') == NULL &&
        (size_t)snprintf(path, sizeof path, "%s/%s", templates, name) < sizeof path)
        status = weir_file_read(&text, path, MOST_BYTES, error);
    if (status == WEIR_OK) status = detect(out, &text, path, error);
    weir_buffer_free(&text);
    if (status != WEIR_ENOTFOUND) return status;
    *out = family != NULL ? format_of_family(family) : NULL;
    return WEIR_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static weir_status open_run(
    run *r, const weir_chat_format *format, const json_t *item, const json_t *tools
)
{
    const json_t *const prompt = json_object_get(item, "prompt_end");
    const char *const end = json_string_value(prompt);
    const weir_chat_parser_options options = {
        .format = format,
        .tools = tools,
        .start = weir_reasoning_after(end != NULL ? end : "", json_string_length(prompt), true),
    };
    return weir_chat_parser_open(&r->parser, &options);
}

static void close_run(run *r)
{
    weir_chat_parser_close(r->parser);
    weir_buffer_free(&r->content);
    weir_buffer_free(&r->reasoning);
}

static weir_status push(run *r, const char *text, size_t n)
{
    return weir_chat_parser_push(r->parser, &r->content, &r->reasoning, text, n);
}

static weir_status finish(run *r)
{
    return weir_chat_parser_finish(r->parser, &r->content, &r->reasoning);
}

/* The model's own id, or one that counts. */
static json_t *id_of(const weir_tool_call *call, size_t index)
{
    char id[32];
    (void)snprintf(id, sizeof id, "call_%zu", index);
    return json_string(call->id != NULL ? call->id : id);
}

static json_t *string_of(const weir_buffer *text)
{
    return json_stringn(text->data != NULL ? text->data : "", text->size);
}

/* ---- results --------------------------------------------------------------------------------- */

static json_t *result_of(const run *r, const char *stop)
{
    size_t n;
    const weir_tool_call *const calls = weir_chat_parser_calls(r->parser, &n);
    json_t *const list = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(
            list, json_pack(
                      "{s:o, s:s, s:s}", "id", id_of(&calls[i], i), "name", calls[i].name,
                      "arguments", calls[i].arguments
                  )
        );
    const bool cut = strcmp(stop, "stop") != 0;
    return json_pack(
        "{s:o, s:o, s:o, s:s}", "content", string_of(&r->content), "reasoning_content",
        string_of(&r->reasoning), "tool_calls", list, "finish_reason",
        cut     ? stop
        : n > 0 ? "tool_calls"
                : "stop"
    );
}

static weir_status add_delta(json_t *deltas, json_t *delta)
{
    return json_array_append_new(deltas, delta) == 0 ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status take_text(json_t *deltas, const char *key, weir_buffer *text)
{
    if (text->size == 0) return WEIR_OK;
    WEIR_TRY(add_delta(deltas, json_pack("{s:o}", key, string_of(text))));
    weir_buffer_clear(text);
    return WEIR_OK;
}

/* What a stream would send now: of each new call its id and name, then its arguments. */
static weir_status take_deltas(json_t *deltas, run *r)
{
    size_t n;
    WEIR_TRY(take_text(deltas, "reasoning_content", &r->reasoning));
    WEIR_TRY(take_text(deltas, "content", &r->content));
    const weir_tool_call *const calls = weir_chat_parser_calls(r->parser, &n);
    for (; r->n_calls < n; r->n_calls++) {
        const weir_tool_call *const call = &calls[r->n_calls];
        const int index = (int)r->n_calls;
        json_t *const first = json_pack(
            "{s:[{s:i, s:o, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", index, "id",
            id_of(call, r->n_calls), "type", "function", "function", "name", call->name,
            "arguments", ""
        );
        WEIR_TRY(add_delta(deltas, first));
        json_t *const rest = json_pack(
            "{s:[{s:i, s:{s:s}}]}", "tool_calls", "index", index, "function", "arguments",
            call->arguments
        );
        WEIR_TRY(add_delta(deltas, rest));
    }
    return WEIR_OK;
}

static weir_status parse_whole(
    json_t **result, const weir_chat_format *format, const json_t *item, const json_t *tools
)
{
    const json_t *const text = json_object_get(item, "text");
    run r = { 0 };
    weir_status status = open_run(&r, format, item, tools);
    if (status == WEIR_OK) status = push(&r, json_string_value(text), json_string_length(text));
    if (status == WEIR_OK) status = finish(&r);
    if (status == WEIR_OK)
        *result = result_of(&r, json_string_value(json_object_get(item, "stop")));
    close_run(&r);
    return status;
}

static weir_status parse_bytes(
    json_t *deltas, const weir_chat_format *format, const json_t *item, const json_t *tools
)
{
    const json_t *const text = json_object_get(item, "text");
    run r = { 0 };
    weir_status status = open_run(&r, format, item, tools);
    for (size_t i = 0; i < json_string_length(text) && status == WEIR_OK; i++) {
        status = push(&r, json_string_value(text) + i, 1);
        if (status == WEIR_OK) status = take_deltas(deltas, &r);
    }
    if (status == WEIR_OK) status = finish(&r);
    if (status == WEIR_OK) status = take_deltas(deltas, &r);
    close_run(&r);
    return status;
}

static weir_status write_short(weir_buffer *out, const json_t *line)
{
    const json_t *const result = json_object_get(line, "result");
    const json_t *const calls = json_object_get(result, "tool_calls");
    const char *const id = json_string_value(json_object_get(line, "id"));
    if (result == NULL) return weir_buffer_format(out, "%s: no format of this family is known", id);
    WEIR_TRY(weir_buffer_format(
        out, "%s (%s): %s", id, json_string_value(json_object_get(line, "format")),
        json_string_value(json_object_get(result, "finish_reason"))
    ));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *const call = json_array_get(calls, i);
        WEIR_TRY(weir_buffer_format(
            out, "%s %s %s", i > 0 ? "," : "", json_string_value(json_object_get(call, "name")),
            json_string_value(json_object_get(call, "arguments"))
        ));
    }
    return WEIR_OK;
}

weir_status weir_eval_toolcalls_case(
    weir_buffer *out, const json_t *item, const json_t *tools, const char *templates, bool json,
    weir_error *error
)
{
    const char *const id = json_string_value(json_object_get(item, "id"));
    if (id == NULL || !json_is_string(json_object_get(item, "text")) ||
        !json_is_string(json_object_get(item, "stop")))
        return weir_error_set(
            error, WEIR_EFORMAT, "a case needs \"id\", \"text\" and \"stop\", all strings"
        );
    const weir_chat_format *format = NULL;
    WEIR_TRY(find_format(&format, item, templates, error));
    json_t *const deltas = json_array();
    json_t *result = NULL, *line = NULL;
    weir_status status = WEIR_OK;
    if (format != NULL) {
        status = parse_whole(&result, format, item, tools);
        if (status == WEIR_OK) status = parse_bytes(deltas, format, item, tools);
        line = json_pack(
            "{s:s, s:s, s:o*, s:O}", "id", id, "format", format->name, "result", result, "deltas",
            deltas
        );
    } else {
        line = json_pack("{s:s, s:s}", "id", id, "problem", "no format of this family is known");
    }
    if (status == WEIR_OK)
        status = json ? weir_json_write(out, line, JSON_COMPACT | JSON_ENSURE_ASCII)
                      : write_short(out, line);
    if (status == WEIR_OK) status = weir_buffer_add(out, "\n", 1);
    json_decref(line);
    json_decref(deltas);
    return status;
}
