/* engine/serve/anthropic_tools.c - `tools` and `tool_choice` as those of a chat. */
#include <stdio.h>
#include <string.h>

#include "engine/serve/anthropic_convert.h"
#include "engine/serve/json_in.h"

/* Members that need no effect here: every tool is shown, and every prompt is cached. */
static bool is_hint(const char *key)
{
    static const char *const hints[] = { "type", "cache_control", "defer_loading",
                                         "eager_input_streaming" };
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strcmp(key, hints[i]) == 0) return true;
    return false;
}

/* Copies what the model sees of a tool. */
static weir_status read_members(
    json_t *function, const json_t *tool, size_t index, weir_unknown_fields *unknown,
    weir_api_error *error
)
{
    char path[96];
    const char *key;
    json_t *value;
    int failed = 0;
    json_object_foreach((json_t *)tool, key, value)
    {
        if (json_is_null(value) || is_hint(key)) continue;
        if (strcmp(key, "input_schema") == 0) {
            failed |= json_object_set(function, "parameters", value);
        } else if (strcmp(key, "name") == 0 || strcmp(key, "description") == 0 ||
                   strcmp(key, "strict") == 0) {
            failed |= json_object_set(function, key, value);
        } else {
            (void)snprintf(path, sizeof path, "tools[%zu].%.40s", index, key);
            weir_unknown_add(unknown, path, NULL);
        }
    }
    return failed ? weir_api_no_memory(error) : WEIR_OK;
}

/* The rest of the form is checked like that of a chat's tools. */
static weir_status check_tool(const json_t *tool, size_t index, weir_api_error *error)
{
    static const char key[] = "tools";
    const json_t *const type = weir_field(tool, "type");
    const char *const word = json_string_value(type);
    if (!json_is_object(tool))
        return weir_api_bad(error, key, "tools[%zu] must be an object", index);
    if (type != NULL && (word == NULL || strcmp(word, "custom") != 0))
        return weir_api_fail(
            error, 400, "unsupported_parameter", key,
            "tools[%zu]: tools of type %s are Anthropic's own; this server takes tools with an "
            "input_schema",
            index, word != NULL ? weir_quote(word).text : "that is no string"
        );
    if (!json_is_string(weir_field(tool, "name")))
        return weir_api_bad(error, key, "tools[%zu] needs the string `name`", index);
    if (!json_is_object(weir_field(tool, "input_schema")))
        return weir_api_bad(error, key, "tools[%zu] needs the object `input_schema`", index);
    return weir_anthropic_cache_control(tool, key, error);
}

static weir_status read_tools(
    json_t *chat, const json_t *tools, weir_unknown_fields *unknown, weir_api_error *error
)
{
    if (tools == NULL) return WEIR_OK;
    if (!json_is_array(tools)) return weir_api_bad(error, "tools", "tools must be an array");
    json_t *const list = json_array();
    if (list == NULL || json_object_set_new(chat, "tools", list) != 0)
        return weir_api_no_memory(error);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *const tool = json_array_get(tools, i);
        WEIR_TRY(check_tool(tool, i, error));
        json_t *const function = json_object();
        json_t *const copy = json_pack("{s:s, s:o}", "type", "function", "function", function);
        if (copy == NULL || json_array_append_new(list, copy) != 0)
            return weir_api_no_memory(error);
        WEIR_TRY(read_members(function, tool, i, unknown, error));
    }
    return WEIR_OK;
}

/* *out: a new value of a chat's tool_choice. */
static weir_status read_type(
    json_t **out, const json_t *choice, bool has_tools, weir_api_error *error
)
{
    static const char key[] = "tool_choice";
    const char *const type = json_string_value(json_object_get(choice, "type"));
    const json_t *const name = weir_field(choice, "name");
    if (type == NULL)
        return weir_api_bad(
            error, key, "tool_choice must be an object with the type auto, any, tool or none"
        );
    const bool any = strcmp(type, "any") == 0, tool = strcmp(type, "tool") == 0;
    if (!any && !tool && strcmp(type, "auto") != 0 && strcmp(type, "none") != 0)
        return weir_api_bad(
            error, key, "unknown tool_choice %s; it is auto, any, tool or none",
            weir_quote(type).text
        );
    if ((any || tool) && !has_tools)
        return weir_api_bad(error, key, "tool_choice %s needs tools", type);
    if (tool && !json_is_string(name))
        return weir_api_bad(error, key, "tool_choice tool needs the string `name`");
    *out = tool ? json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name)
                : json_string(any ? "required" : type);
    return *out != NULL ? WEIR_OK : weir_api_no_memory(error);
}

static weir_status read_choice(json_t *chat, const json_t *choice, weir_api_error *error)
{
    static const char key[] = "tool_choice";
    bool one_call = false;
    json_t *value = NULL;
    if (choice == NULL) return WEIR_OK;
    const bool has_tools = json_array_size(json_object_get(chat, "tools")) > 0;
    WEIR_TRY(read_type(&value, choice, has_tools, error));
    if (json_object_set_new(chat, key, value) != 0) return weir_api_no_memory(error);
    if (weir_field_bool(choice, "disable_parallel_tool_use", &one_call, error) != WEIR_OK)
        return weir_api_bad(
            error, key, "tool_choice.disable_parallel_tool_use must be true or false"
        );
    /* Without it a chat decides: one forced call, any number of others. */
    if (weir_field(choice, "disable_parallel_tool_use") != NULL &&
        json_object_set_new(chat, "parallel_tool_calls", json_boolean(!one_call)) != 0)
        return weir_api_no_memory(error);
    return WEIR_OK;
}

weir_status weir_anthropic_tools(
    json_t *chat, const json_t *root, weir_unknown_fields *unknown, weir_api_error *error
)
{
    WEIR_TRY(read_tools(chat, weir_field(root, "tools"), unknown, error));
    return read_choice(chat, weir_field(root, "tool_choice"), error);
}
