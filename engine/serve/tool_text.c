#include "engine/serve/tool_text.h"

#include <string.h>

#include "engine/base/buffer.h"

static int add_bytes(const char *bytes, size_t n, void *text)
{
    return weir_buffer_add(text, bytes, n) == WEIR_OK ? 0 : -1;
}

static weir_status add_json(weir_buffer *text, const json_t *value)
{
    return json_dump_callback(value, add_bytes, text, JSON_COMPACT) == 0 ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status write_tools(weir_buffer *text, const json_t *tools)
{
    WEIR_TRY(weir_buffer_text(
        text, "# Tools\n\nYou may call one or more functions to help with the user's request. "
              "Their signatures stand within <tools></tools>:\n<tools>\n"
    ));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        WEIR_TRY(add_json(text, json_array_get(tools, i)));
        WEIR_TRY(weir_buffer_text(text, "\n"));
    }
    return weir_buffer_text(
        text,
        "</tools>\n\nFor each call answer with a JSON object within <tool_call></tool_call>:\n"
        "<tool_call>\n{\"name\": <function name>, \"arguments\": <object of arguments>}\n"
        "</tool_call>"
    );
}

static weir_status write_call(weir_buffer *text, const json_t *call)
{
    const json_t *const function = json_object_get(call, "function");
    WEIR_TRY(weir_buffer_text(
        text, text->size > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": "
    ));
    const json_t *const name = json_object_get(function, "name"), *const arguments =
                                                                      json_object_get(
                                                                          function, "arguments"
                                                                      );
    if (json_dump_callback(name, add_bytes, text, JSON_ENCODE_ANY) != 0) return WEIR_ENOMEM;
    WEIR_TRY(weir_buffer_text(text, ", \"arguments\": "));
    if (json_dump_callback(arguments, add_bytes, text, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        return WEIR_ENOMEM;
    return weir_buffer_text(text, "}\n</tool_call>");
}

static weir_status set_content(json_t *message, weir_status status, weir_buffer *text)
{
    if (status == WEIR_OK &&
        json_object_set_new(message, "content", json_stringn(text->data, text->size)) != 0)
        status = WEIR_ENOMEM;
    weir_buffer_free(text);
    return status;
}

/* Writes the text of `message`, then its calls. */
static weir_status put_calls(json_t *message, const json_t *calls)
{
    const json_t *const content = json_object_get(message, "content");
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    if (json_string_length(content) > 0)
        status = weir_buffer_add(&text, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(calls) && status == WEIR_OK; i++)
        status = write_call(&text, json_array_get(calls, i));
    return set_content(message, status, &text);
}

static bool is_system(const json_t *message)
{
    const char *const role = json_string_value(json_object_get(message, "role"));
    return role != NULL && strcmp(role, "system") == 0;
}

/* Appends the tools to the system message; adds one if there is none. */
static weir_status put_tools(json_t *messages, const json_t *tools)
{
    json_t *first = json_array_get(messages, 0);
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    if (!is_system(first)) {
        first = json_pack("{s:s}", "role", "system");
        if (first == NULL || json_array_insert_new(messages, 0, first) != 0) return WEIR_ENOMEM;
    }
    const json_t *const content = json_object_get(first, "content");
    if (json_string_length(content) > 0) {
        status = weir_buffer_add(&text, json_string_value(content), json_string_length(content));
        if (status == WEIR_OK) status = weir_buffer_text(&text, "\n\n");
    }
    if (status == WEIR_OK) status = write_tools(&text, tools);
    return set_content(first, status, &text);
}

typedef enum calls { CALLS_KEPT, CALLS_DROPPED, CALLS_AS_TEXT } calls;

static weir_status change_calls(json_t *message, const json_t *list, calls what)
{
    if (list == NULL || what == CALLS_KEPT) return WEIR_OK;
    const weir_status status = what == CALLS_AS_TEXT ? put_calls(message, list) : WEIR_OK;
    (void)json_object_del(message, "tool_calls");
    return status;
}

static weir_status copy_messages(json_t **out, const json_t *messages, calls what)
{
    json_t *const copy = json_array();
    weir_status status = copy != NULL ? WEIR_OK : WEIR_ENOMEM;
    for (size_t i = 0; i < json_array_size(messages) && status == WEIR_OK; i++) {
        json_t *const message = json_copy(json_array_get(messages, i));
        if (message == NULL || json_array_append_new(copy, message) != 0)
            status = WEIR_ENOMEM;
        else
            status = change_calls(message, json_object_get(message, "tool_calls"), what);
    }
    if (status == WEIR_OK)
        *out = copy;
    else
        json_decref(copy);
    return status;
}

weir_status weir_messages_strip(json_t **out, const json_t *messages)
{
    return copy_messages(out, messages, CALLS_DROPPED);
}

weir_status weir_messages_with_tools(
    json_t **out, const json_t *messages, const json_t *tools, bool calls_as_text
)
{
    json_t *copy = NULL;
    weir_status status = copy_messages(&copy, messages, calls_as_text ? CALLS_AS_TEXT : CALLS_KEPT);
    if (status == WEIR_OK && tools != NULL) status = put_tools(copy, tools);
    if (status == WEIR_OK)
        *out = copy;
    else
        json_decref(copy);
    return status;
}
