#include "engine/toolcalls/detect.h"

#include <jansson.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/toolcalls/chat_parser.h"

/* Templates differ in what they demand of a message with calls: each is tried with all of these. */
typedef struct attempt {
    bool has_empty_content, has_text_arguments, has_answer;
    const char *id; /* some demand nine characters, some print the name from it */
} attempt;

static const char probe_name[] = "probe_tool",
                  probe_arguments[] = "{\"probe_key\": \"probe value\"}";

static json_t *make_tools(void)
{
    return json_pack(
        "[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}]", "type", "function", "function",
        "name", probe_name, "description", "a", "parameters", "type", "object", "properties",
        "probe_key", "type", "string", "description", "b", "required", "probe_key"
    );
}

static json_t *make_messages(const attempt *attempt)
{
    json_t *const arguments = attempt->has_text_arguments ? json_string(probe_arguments)
                                                          : json_loads(probe_arguments, 0, NULL);
    json_t *const call = json_pack(
        "{s:s, s:s, s:{s:s, s:o}}", "id", attempt->id, "type", "function", "function", "name",
        probe_name, "arguments", arguments
    );
    json_t *const content = attempt->has_empty_content ? json_string("") : json_null();
    json_t *const messages = json_pack(
        "[{s:s, s:s}, {s:s, s:o, s:[o]}]", "role", "user", "content", "a", "role", "assistant",
        "content", content, "tool_calls", call
    );
    if (messages != NULL && attempt->has_answer)
        (void)json_array_append_new(
            messages,
            json_pack(
                "{s:s, s:s, s:s}", "role", "tool", "tool_call_id", attempt->id, "content", "c"
            )
        );
    return messages;
}

static bool is_probe(const weir_tool_call *call)
{
    json_t *const want = json_loads(probe_arguments, 0, NULL), *const have = json_loads(
                                                                   call->arguments, 0, NULL
                                                               );
    const bool same = strcmp(call->name, probe_name) == 0 && json_equal(want, have) == 1;
    json_decref(want);
    json_decref(have);
    return same;
}

/* True if the format finds the call in the text. */
static weir_status finds(
    bool *found, const weir_chat_format *format, const json_t *tools, const weir_buffer *text
)
{
    const weir_chat_parser_options options = { .format = format,
                                               .tools = tools,
                                               .start = { WEIR_THINK_CONTENT, 0 } };
    weir_chat_parser *parser = NULL;
    weir_buffer content = { 0 }, reasoning = { 0 };
    WEIR_TRY(weir_chat_parser_open(&parser, &options));
    weir_status status =
        weir_chat_parser_push(parser, &content, &reasoning, text->data, text->size);
    if (status == WEIR_OK) status = weir_chat_parser_finish(parser, &content, &reasoning);
    size_t n;
    const weir_tool_call *const calls = weir_chat_parser_calls(parser, &n);
    *found = false;
    for (size_t i = 0; i < n && status == WEIR_OK; i++) *found = *found || is_probe(&calls[i]);
    weir_chat_parser_close(parser);
    weir_buffer_free(&content);
    weir_buffer_free(&reasoning);
    return status;
}

/* The text around the call: from a little before its name, which comes last. */
static const char *call_of(const weir_buffer *text, size_t *n)
{
    enum { BEFORE = 200 };
    const size_t length = sizeof probe_name - 1;
    size_t at = text->size >= length ? text->size - length : 0;
    while (at > 0 && memcmp(text->data + at, probe_name, length) != 0) at--;
    const size_t begin = at > BEFORE ? at - BEFORE : 0;
    *n = text->size - begin;
    return text->data + begin;
}

static weir_status find_format(
    const weir_chat_format **out, const json_t *tools, const weir_buffer *text
)
{
    size_t n_formats, n;
    const weir_chat_format *const formats = weir_chat_formats(&n_formats);
    const char *const call = call_of(text, &n);
    for (size_t i = 0; i < n_formats && *out == NULL; i++) {
        const char *const sign = formats[i].sign;
        bool found;
        if (memmem(call, n, sign, strlen(sign)) == NULL) continue;
        WEIR_TRY(finds(&found, &formats[i], tools, text));
        if (found) *out = &formats[i];
    }
    return WEIR_OK;
}

static weir_status try_once(
    const weir_chat_format **out, const weir_chat_template *chat, weir_chat_input *input,
    const attempt *attempt
)
{
    json_t *const messages = make_messages(attempt);
    if (messages == NULL) return WEIR_ENOMEM;
    input->messages = messages;
    weir_chat_output output = { 0 };
    weir_error refused = { 0 };
    weir_status status = weir_chat_render(chat, &output, input, &refused);
    if (status == WEIR_OK && output.text.size > 0)
        status = find_format(out, input->tools, &output.text);
    weir_chat_output_free(&output);
    json_decref(messages);
    return status == WEIR_ENOMEM ? WEIR_ENOMEM : WEIR_OK;
}

/* ---- templates that print no calls ----------------------------------------------------------- */

static weir_status render_question(
    weir_buffer *text, const weir_chat_template *chat, weir_chat_input input, const json_t *tools
)
{
    json_t *const messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
    if (messages == NULL) return WEIR_ENOMEM;
    input.messages = messages;
    input.tools = tools;
    input.add_generation_prompt = true;
    weir_chat_output output = { 0 };
    weir_error refused = { 0 };
    weir_status status = weir_chat_render(chat, &output, &input, &refused);
    if (status == WEIR_OK) status = weir_buffer_add(text, output.text.data, output.text.size);
    weir_chat_output_free(&output);
    json_decref(messages);
    return status == WEIR_ENOMEM ? WEIR_ENOMEM : WEIR_OK;
}

static bool holds(const weir_buffer *text, const char *part)
{
    return text->size > 0 && memmem(text->data, text->size, part, strlen(part)) != NULL;
}

/* The format whose tags are in what the template says to the model about tools. */
static weir_status find_instructed(
    const weir_chat_format **out, const weir_chat_template *chat, const weir_chat_input *input
)
{
    size_t n;
    const weir_chat_format *const formats = weir_chat_formats(&n);
    weir_buffer with = { 0 }, without = { 0 };
    weir_status status = render_question(&with, chat, *input, input->tools);
    if (status == WEIR_OK) status = render_question(&without, chat, *input, NULL);
    for (size_t i = 0; i < n && *out == NULL && status == WEIR_OK; i++) {
        const weir_format_opener *const opener = &formats[i].opener[0];
        if (opener->text != NULL && !opener->is_bare && holds(&with, opener->text) &&
            !holds(&without, opener->text) && holds(&with, formats[i].sign))
            *out = &formats[i];
    }
    weir_buffer_free(&with);
    weir_buffer_free(&without);
    return status;
}

weir_status weir_chat_format_detect(
    const weir_chat_format **out, const weir_chat_template *chat, const char *bos, const char *eos
)
{
    json_t *const tools = make_tools();
    if (tools == NULL) return WEIR_ENOMEM;
    weir_chat_input input = { .tools = tools,
                              .bos_token = bos,
                              .eos_token = eos,
                              .now_unix_seconds = weir_clock_unix_seconds() };
    static const char *const ids[] = { "functions.probe_tool:0", "probe1234" };
    weir_status status = WEIR_OK;
    *out = NULL;
    for (unsigned i = 0; i < 16 && *out == NULL && status == WEIR_OK; i++)
        status = try_once(
            out, chat, &input, &(attempt){ (i & 2) != 0, (i & 4) != 0, (i & 8) != 0, ids[i & 1] }
        );
    if (*out == NULL && status == WEIR_OK) status = find_instructed(out, chat, &input);
    json_decref(tools);
    return status;
}
