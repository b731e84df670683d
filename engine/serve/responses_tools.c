/* engine/serve/responses_tools.c - tools and tool_choice of /v1/responses, which have no object
 * `function`, in the form of chats. */
#include <stdio.h>
#include <string.h>

#include "engine/serve/json_in.h"
#include "engine/serve/messages.h"
#include "engine/serve/responses_request.h"

/* Copies the members of a function that a chat has. NULL: no memory. */
static json_t *function_of(const json_t *tool)
{
    static const char *const keys[] = { "name", "description", "parameters", "strict" };
    json_t *const function = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *const value = weir_field(tool, keys[i]);
        if (value == NULL || json_object_set_new(function, keys[i], weir_json_share(value)) == 0)
            continue;
        json_decref(function);
        return NULL;
    }
    return function;
}

static weir_status add_function(
    json_t *tools, const json_t *tool, size_t index, weir_api_error *error
)
{
    json_t *const chat = json_pack("{s:s, s:o}", "type", "function", "function", function_of(tool));
    if (chat == NULL || json_array_append_new(tools, chat) != 0) return weir_api_no_memory(error);
    return weir_tool_check(chat, index, error);
}

static weir_status add_tool(
    json_t *tools, json_t *functions, const json_t *tool, size_t index,
    weir_unknown_fields *unknown, weir_api_error *error
)
{
    const char *const type = json_string_value(json_object_get(tool, "type"));
    const bool is_function = type != NULL && strcmp(type, "function") == 0;
    if (type == NULL || (is_function && !json_is_string(json_object_get(tool, "name"))))
        return weir_api_bad(
            error, "tools", "tools[%zu] must be {\"type\": \"function\", \"name\": ...}", index
        );
    if (!is_function) {
        char path[80];
        (void)snprintf(path, sizeof path, "tools.%s", weir_quote(type).text);
        weir_unknown_add(unknown, path, NULL);
        return WEIR_OK;
    }
    if (json_array_append_new(functions, weir_json_share(tool)) != 0)
        return weir_api_no_memory(error);
    return add_function(tools, tool, index, error);
}

weir_status weir_responses_tools(
    json_t **out, json_t **functions, const json_t *tools, weir_unknown_fields *unknown,
    weir_api_error *error
)
{
    if (tools != NULL && !json_is_array(tools))
        return weir_api_bad(error, "tools", "tools must be an array");
    json_t *const list = json_array(), *const given = json_array();
    weir_status status = list != NULL && given != NULL ? WEIR_OK : weir_api_no_memory(error);
    for (size_t i = 0; i < json_array_size(tools) && status == WEIR_OK; i++)
        status = add_tool(list, given, json_array_get(tools, i), i, unknown, error);
    if (status == WEIR_OK) {
        *out = list;
        *functions = given;
    } else {
        json_decref(list);
        json_decref(given);
    }
    return status;
}

/* ---- tool_choice ----------------------------------------------------------------------------- */

static json_t *named(const char *name)
{
    return json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name);
}

static weir_status read_allowed(json_t **out, const json_t *choice, weir_api_error *error)
{
    static const char key[] = "tool_choice";
    const char *const mode = json_string_value(json_object_get(choice, "mode"));
    const json_t *const tools = json_object_get(choice, "tools");
    if (mode == NULL || !json_is_array(tools))
        return weir_api_bad(error, key, "allowed_tools needs a mode and an array of tools");
    json_t *const list = json_array();
    weir_status status = list != NULL ? WEIR_OK : weir_api_no_memory(error);
    for (size_t i = 0; i < json_array_size(tools) && status == WEIR_OK; i++) {
        const json_t *const tool = json_array_get(tools, i);
        const char *const type = json_string_value(json_object_get(tool, "type"));
        const char *const name = json_string_value(json_object_get(tool, "name"));
        if (type == NULL || strcmp(type, "function") != 0 || name == NULL)
            status = weir_api_bad(error, key, "allowed_tools: tools must be functions with a name");
        else if (json_array_append_new(list, named(name)) != 0)
            status = weir_api_no_memory(error);
    }
    if (status == WEIR_OK) {
        *out = json_pack(
            "{s:s, s:{s:s, s:O}}", "type", "allowed_tools", "allowed_tools", "mode", mode, "tools",
            list
        );
        if (*out == NULL) status = weir_api_no_memory(error);
    }
    json_decref(list);
    return status;
}

weir_status weir_responses_choice(json_t **out, const json_t *choice, weir_api_error *error)
{
    static const char key[] = "tool_choice";
    const char *const type = json_string_value(json_object_get(choice, "type"));
    const char *const name = json_string_value(json_object_get(choice, "name"));
    if (type != NULL && strcmp(type, "allowed_tools") == 0) return read_allowed(out, choice, error);
    const bool is_named = type != NULL && strcmp(type, "function") == 0 && name != NULL;
    if (!is_named && !json_is_string(choice))
        return weir_api_bad(
            error, key, "tool_choice must be none, auto, required or a function with a name"
        );
    *out = is_named ? named(name) : weir_json_share(choice);
    return *out != NULL ? WEIR_OK : weir_api_no_memory(error);
}
