/* engine/serve/messages.c - checks and converts messages and tools. Nothing is ever fetched: parts
 * other than text are refused. */
#include "engine/serve/messages.h"

#include <stdio.h>
#include <string.h>

#include "engine/serve/json_in.h"

typedef struct place {
    char text[48];
} place;

static place field_of(size_t index, const char *field)
{
    place at;
    (void
    )snprintf(at.text, sizeof at.text, "messages[%zu]%s%s", index, field[0] != 0 ? "." : "", field);
    return at;
}

static weir_status add_part(
    weir_buffer *text, const json_t *part, const char *param, weir_api_error *error
)
{
    const char *const type = json_string_value(json_object_get(part, "type"));
    if (type == NULL)
        return weir_api_bad(error, param, "%s: each part must be an object with a type", param);
    if (strcmp(type, "text") != 0)
        return weir_api_fail(
            error, 400, "unsupported_content", param,
            "%s: parts of type %s are not supported; send text", param, weir_quote(type).text
        );
    const json_t *const value = json_object_get(part, "text");
    if (!json_is_string(value))
        return weir_api_bad(error, param, "%s: a text part needs the string `text`", param);
    if (weir_buffer_add(text, json_string_value(value), json_string_length(value)) != WEIR_OK)
        return weir_api_no_memory(error);
    return WEIR_OK;
}

/* *out: a new string; NULL if there is no content. */
static weir_status read_content(
    json_t **out, const json_t *content, const char *param, weir_api_error *error
)
{
    if (content == NULL) return WEIR_OK;
    if (json_is_string(content)) {
        *out = json_stringn(json_string_value(content), json_string_length(content));
        return *out != NULL ? WEIR_OK : weir_api_no_memory(error);
    }
    if (!json_is_array(content))
        return weir_api_bad(error, param, "%s must be a string or an array of parts", param);
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < json_array_size(content) && status == WEIR_OK; i++)
        status = add_part(&text, json_array_get(content, i), param, error);
    if (status == WEIR_OK) {
        *out = json_stringn(text.data != NULL ? text.data : "", text.size);
        if (*out == NULL) status = weir_api_no_memory(error);
    }
    weir_buffer_free(&text);
    return status;
}

/* Arguments are a JSON string in the API; templates need an object. A string that is not an object,
 * or exceeds the limits of requests, stays a string. NULL: no memory. */
static json_t *read_arguments(const json_t *arguments)
{
    if (json_is_object(arguments)) return json_deep_copy(arguments);
    if (!json_is_string(arguments)) return json_object();
    const char *const text = json_string_value(arguments);
    const size_t n = json_string_length(arguments);
    weir_api_error ignored;
    json_t *object = NULL;
    const weir_status status = weir_json_read(&object, text, n, &ignored);
    return status == WEIR_OK ? object : status == WEIR_ENOMEM ? NULL : json_stringn(text, n);
}

static weir_status read_tool_calls(
    json_t *message, const json_t *calls, const char *param, weir_api_error *error
)
{
    if (calls == NULL) return WEIR_OK;
    if (!json_is_array(calls)) return weir_api_bad(error, param, "%s must be an array", param);
    if (json_array_size(calls) == 0) return WEIR_OK;
    json_t *const list = json_array();
    if (json_object_set_new(message, "tool_calls", list) != 0) return weir_api_no_memory(error);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *const call = json_array_get(calls, i), *const function =
                                                                 json_object_get(call, "function");
        const char *const name = json_string_value(json_object_get(function, "name"));
        const char *const id = json_string_value(json_object_get(call, "id"));
        if (name == NULL)
            return weir_api_bad(error, param, "%s: a call needs function.name", param);
        json_t *const copy = json_pack(
            "{s:s*, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", name,
            "arguments", read_arguments(json_object_get(function, "arguments"))
        );
        if (copy == NULL || json_array_append_new(list, copy) != 0)
            return weir_api_no_memory(error);
    }
    return WEIR_OK;
}

static weir_status copy_text(
    json_t *message, const char *key, const json_t *value, const char *param, weir_api_error *error
)
{
    if (value == NULL) return WEIR_OK;
    if (!json_is_string(value)) return weir_api_bad(error, param, "%s must be a string", param);
    json_t *const copy = json_stringn(json_string_value(value), json_string_length(value));
    return copy != NULL && json_object_set_new(message, key, copy) == 0 ? WEIR_OK
                                                                        : weir_api_no_memory(error);
}

static weir_status read_assistant(
    json_t *message, const json_t *source, size_t index, weir_api_error *error
)
{
    const json_t *reasoning = weir_field(source, "reasoning_content");
    if (reasoning == NULL) reasoning = weir_field(source, "reasoning");
    WEIR_TRY(copy_text(
        message, "reasoning_content", reasoning, field_of(index, "reasoning_content").text, error
    ));
    WEIR_TRY(read_tool_calls(
        message, weir_field(source, "tool_calls"), field_of(index, "tool_calls").text, error
    ));
    if (json_object_get(message, "content") != NULL) return WEIR_OK;
    if (json_object_get(message, "tool_calls") == NULL)
        return weir_api_bad(
            error, field_of(index, "content").text,
            "messages[%zu]: an assistant message needs content or tool calls", index
        );
    return json_object_set_new(message, "content", json_string("")) == 0
               ? WEIR_OK
               : weir_api_no_memory(error);
}

static weir_status read_tool_answer(
    json_t *message, const json_t *source, size_t index, weir_api_error *error
)
{
    const json_t *const id = weir_field(source, "tool_call_id");
    if (!json_is_string(id))
        return weir_api_bad(
            error, field_of(index, "tool_call_id").text,
            "messages[%zu]: a tool message needs the string tool_call_id", index
        );
    return copy_text(message, "tool_call_id", id, field_of(index, "tool_call_id").text, error);
}

static weir_status read_message(
    json_t *message, const json_t *source, size_t index, weir_api_error *error
)
{
    if (!json_is_object(source))
        return weir_api_bad(
            error, field_of(index, "").text, "messages[%zu] must be an object", index
        );
    const char *role = json_string_value(json_object_get(source, "role"));
    if (role == NULL)
        return weir_api_bad(
            error, field_of(index, "role").text, "messages[%zu] has no role", index
        );
    if (strcmp(role, "developer") == 0) role = "system";
    const bool assistant = strcmp(role, "assistant") == 0, tool = strcmp(role, "tool") == 0;
    if (!assistant && !tool && strcmp(role, "user") != 0 && strcmp(role, "system") != 0)
        return weir_api_bad(
            error, field_of(index, "role").text, "messages[%zu]: unknown role %s", index,
            weir_quote(role).text
        );
    if (json_object_set_new(message, "role", json_string(role)) != 0)
        return weir_api_no_memory(error);

    json_t *content = NULL;
    WEIR_TRY(read_content(
        &content, weir_field(source, "content"), field_of(index, "content").text, error
    ));
    if (content != NULL && json_object_set_new(message, "content", content) != 0)
        return weir_api_no_memory(error);
    WEIR_TRY(
        copy_text(message, "name", weir_field(source, "name"), field_of(index, "name").text, error)
    );
    if (assistant) return read_assistant(message, source, index, error);
    if (content == NULL)
        return weir_api_bad(
            error, field_of(index, "content").text, "messages[%zu] has no content", index
        );
    return tool ? read_tool_answer(message, source, index, error) : WEIR_OK;
}

weir_status weir_messages_read(json_t **out, const json_t *messages, weir_api_error *error)
{
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return weir_api_bad(error, "messages", "messages must be an array of at least one message");
    json_t *const list = json_array();
    weir_status status = list != NULL ? WEIR_OK : weir_api_no_memory(error);
    for (size_t i = 0; i < json_array_size(messages) && status == WEIR_OK; i++) {
        json_t *const message = json_object();
        if (message == NULL || json_array_append_new(list, message) != 0)
            status = weir_api_no_memory(error);
        else
            status = read_message(message, json_array_get(messages, i), i, error);
    }
    if (status == WEIR_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

static bool is_tool_name(const char *name)
{
    const size_t length =
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return length > 0 && length <= WEIR_TOOL_NAME && name[length] == 0;
}

/* True for a valid "type" of a schema: absent, a name or a list of names. */
static bool is_schema_type(const json_t *type)
{
    static const char *const names[] = { "object",  "array",   "string", "number",
                                         "integer", "boolean", "null" };
    const char *const text = json_string_value(type);
    for (size_t i = 0; i < json_array_size(type); i++)
        if (!json_is_string(json_array_get(type, i)) || !is_schema_type(json_array_get(type, i)))
            return false;
    for (size_t i = 0; text != NULL && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0) return true;
    return type == NULL || (json_is_array(type) && json_array_size(type) > 0);
}

static weir_status check_function(const json_t *function, size_t index, weir_api_error *error)
{
    const json_t *const text = weir_field(function, "description"), *const strict = weir_field(
                                                                        function, "strict"
                                                                    );
    const json_t *const parameters = weir_field(function, "parameters");
    if (text != NULL && !json_is_string(text))
        return weir_api_bad(error, "tools", "tools[%zu]: description must be a string", index);
    if (strict != NULL && !json_is_boolean(strict))
        return weir_api_bad(error, "tools", "tools[%zu]: strict must be true or false", index);
    if (parameters != NULL && !json_is_object(parameters))
        return weir_api_bad(error, "tools", "tools[%zu]: parameters must be an object", index);
    if (!is_schema_type(weir_field(parameters, "type")))
        return weir_api_bad(
            error, "tools", "tools[%zu]: the type of parameters is not a type of JSON Schema", index
        );
    return WEIR_OK;
}

weir_status weir_tool_check(const json_t *tool, size_t index, weir_api_error *error)
{
    const char *const type = json_string_value(json_object_get(tool, "type"));
    const json_t *const function = json_object_get(tool, "function");
    const char *const name = json_string_value(json_object_get(function, "name"));
    if (type == NULL || strcmp(type, "function") != 0 || name == NULL)
        return weir_api_bad(
            error, "tools",
            "tools[%zu] must be {\"type\":\"function\",\"function\":{\"name\":...}}", index
        );
    if (!is_tool_name(name))
        return weir_api_bad(
            error, "tools", "tools[%zu]: the name must be 1 to %d of A-Z a-z 0-9 _ -", index,
            WEIR_TOOL_NAME
        );
    return check_function(function, index, error);
}

/* Requires checked tools. */
static bool same_name(const json_t *a, const json_t *b)
{
    const json_t *const one = json_object_get(json_object_get(a, "function"), "name");
    return json_equal(one, json_object_get(json_object_get(b, "function"), "name"));
}

weir_status weir_tools_read(json_t **out, const json_t *tools, weir_api_error *error)
{
    if (tools == NULL) return WEIR_OK;
    const size_t count = json_array_size(tools);
    if (!json_is_array(tools) || count > WEIR_TOOLS)
        return weir_api_bad(
            error, "tools", "tools must be an array of at most %d tools", WEIR_TOOLS
        );
    for (size_t i = 0; i < count; i++) {
        const json_t *const tool = json_array_get(tools, i);
        WEIR_TRY(weir_tool_check(tool, i, error));
        for (size_t j = 0; j < i; j++)
            if (same_name(json_array_get(tools, j), tool))
                return weir_api_bad(
                    error, "tools", "tools[%zu] and tools[%zu] have the same name", i, j
                );
    }
    if (count == 0) return WEIR_OK;
    *out = json_deep_copy(tools);
    return *out != NULL ? WEIR_OK : weir_api_no_memory(error);
}
