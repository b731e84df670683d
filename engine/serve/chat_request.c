#include "engine/serve/chat_request.h"

#include <string.h>

#include "engine/serve/json_in.h"
#include "engine/serve/messages.h"

static weir_status read_logprobs(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    int64_t top = 0;
    WEIR_TRY(weir_field_bool(root, "logprobs", &request->logprobs, error));
    WEIR_TRY(weir_field_integer(root, "top_logprobs", 0, 20, &top, error));
    if (top > 0 && !request->logprobs)
        return weir_api_bad(error, "top_logprobs", "top_logprobs needs logprobs: true");
    request->n_top_logprobs = (int32_t)top;
    return WEIR_OK;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static json_t *find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *const tool = json_array_get(tools, i);
        const json_t *const function = json_object_get(tool, "function");
        if (strcmp(json_string_value(json_object_get(function, "name")), name) == 0) return tool;
    }
    return NULL;
}

/* Adds the tool that {"type":"function","function":{"name":...}} names to the callable ones. */
static weir_status add_named(
    weir_openai_request *request, const json_t *choice, weir_api_error *error
)
{
    static const char key[] = "tool_choice";
    const char *const type = json_string_value(json_object_get(choice, "type"));
    const json_t *const function = json_object_get(choice, "function");
    const char *const name = json_string_value(json_object_get(function, "name"));
    if (name == NULL || (type != NULL && strcmp(type, "function") != 0))
        return weir_api_bad(
            error, key,
            "tool_choice must be none, auto, required, allowed_tools or a function with a name"
        );
    json_t *const tool = find_tool(request->tools, name);
    if (tool == NULL)
        return weir_api_bad(
            error, key, "tool_choice names %s, which is not among the tools", weir_quote(name).text
        );
    if (request->callable == NULL) request->callable = json_array();
    for (size_t i = 0; i < json_array_size(request->callable); i++)
        if (json_array_get(request->callable, i) == tool) return WEIR_OK;
    return json_array_append(request->callable, tool) == 0 ? WEIR_OK : weir_api_no_memory(error);
}

/* Reads {"mode": "auto" | "required", "tools": [...]}. */
static weir_status read_allowed(
    weir_openai_request *request, const json_t *allowed, weir_api_error *error
)
{
    static const char key[] = "tool_choice";
    const char *const mode = json_string_value(json_object_get(allowed, "mode"));
    const json_t *const list = json_object_get(allowed, "tools");
    if (mode == NULL || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return weir_api_bad(error, key, "the mode of allowed_tools must be auto or required");
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > WEIR_TOOLS)
        return weir_api_bad(
            error, key, "the tools of allowed_tools must be an array of 1 to %d", WEIR_TOOLS
        );
    for (size_t i = 0; i < json_array_size(list); i++)
        WEIR_TRY(add_named(request, json_array_get(list, i), error));
    request->must_call = strcmp(mode, "required") == 0;
    return WEIR_OK;
}

static weir_status read_choice_object(
    weir_openai_request *request, const json_t *choice, weir_api_error *error
)
{
    const char *const type = json_string_value(json_object_get(choice, "type"));
    if (type != NULL && strcmp(type, "allowed_tools") == 0)
        return read_allowed(request, json_object_get(choice, type), error);
    request->must_call = request->one_call = true;
    return add_named(request, choice, error);
}

static weir_status read_choice(
    weir_openai_request *request, const json_t *choice, weir_api_error *error
)
{
    static const char key[] = "tool_choice";
    const char *const word = json_string_value(choice);
    if (word == NULL) return read_choice_object(request, choice, error);
    if (strcmp(word, "auto") == 0) return WEIR_OK;
    if (strcmp(word, "none") == 0) {
        json_decref(request->tools);
        request->tools = NULL;
        return WEIR_OK;
    }
    if (strcmp(word, "required") != 0)
        return weir_api_bad(error, key, "unknown tool_choice %s", weir_quote(word).text);
    if (request->tools == NULL) return weir_api_bad(error, key, "tool_choice required needs tools");
    request->must_call = true;
    return WEIR_OK;
}

static bool has_strict(const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *const function = json_object_get(json_array_get(tools, i), "function");
        if (json_is_true(json_object_get(function, "strict"))) return true;
    }
    return false;
}

static weir_status read_tools(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    const json_t *const choice = weir_field(root, "tool_choice");
    bool parallel = true;
    WEIR_TRY(weir_field_bool(root, "parallel_tool_calls", &parallel, error));
    request->one_call = !parallel;
    WEIR_TRY(weir_tools_read(&request->tools, weir_field(root, "tools"), error));
    if (choice != NULL) WEIR_TRY(read_choice(request, choice, error));
    /* A model that may not answer with text goes on with calls, unless it was trained to end. */
    if (request->must_call && weir_field(root, "parallel_tool_calls") == NULL)
        request->one_call = true;
    request->holds_calls =
        request->must_call || request->callable != NULL || has_strict(request->tools);
    return WEIR_OK;
}

/* ---- variables of the template --------------------------------------------------------------- */

static weir_status set_thinking(weir_openai_request *request, bool on, weir_api_error *error)
{
    json_t *const value = json_boolean(on);
    if (json_object_set_new(request->variables, "enable_thinking", value) == 0) return WEIR_OK;
    return weir_api_no_memory(error);
}

/* Passes on only variables that are known to be harmless. */
static weir_status read_variables(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    static const char key[] = "chat_template_kwargs", template[] = "chat_template";
    if (weir_field(root, template) != NULL)
        return weir_api_bad(
            error, template, "a template in a request is not accepted; the model's own is used"
        );
    const json_t *const source = weir_field(root, key);
    if (source != NULL && !json_is_object(source))
        return weir_api_bad(error, key, "chat_template_kwargs must be an object");
    request->variables = json_object();
    if (request->variables == NULL) return weir_api_no_memory(error);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)source, name, value)
    {
        if (strcmp(name, "enable_thinking") != 0)
            return weir_api_bad(error, key, "unknown template variable %s", weir_quote(name).text);
        if (!json_is_boolean(value))
            return weir_api_bad(error, key, "enable_thinking must be true or false");
        WEIR_TRY(set_thinking(request, json_is_true(value), error));
    }
    return WEIR_OK;
}

static bool is_effort(const char *word)
{
    static const char *const words[] = { "none", "minimal", "low", "medium", "high", "xhigh" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

/* "none" turns thinking off, any other value turns it on; some templates read the value itself.
 * chat_template_kwargs has precedence. */
static weir_status read_effort(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    static const char key[] = "reasoning_effort";
    const char *effort = NULL;
    WEIR_TRY(weir_field_text(root, key, &effort, error));
    if (effort == NULL) return WEIR_OK;
    if (!is_effort(effort))
        return weir_api_bad(
            error, key,
            "unknown reasoning_effort %s; it is none, minimal, low, medium, high or xhigh",
            weir_quote(effort).text
        );
    const bool on = strcmp(effort, "none") != 0;
    if (json_object_get(request->variables, "enable_thinking") != NULL) return WEIR_OK;
    WEIR_TRY(set_thinking(request, on, error));
    request->wants_thought = on;
    if (!on || json_object_set_new(request->variables, key, json_string(effort)) == 0)
        return WEIR_OK;
    return weir_api_no_memory(error);
}

/* vLLM's name of the field, and one that is its own explanation. */
static weir_status read_budget(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    static const char vllm[] = "thinking_token_budget", other[] = "max_thinking_tokens";
    int64_t *const most = &request->thought_tokens;
    WEIR_TRY(weir_field_integer(root, vllm, 0, INT32_MAX, most, error));
    if (weir_field(root, vllm) != NULL && weir_field(root, other) != NULL)
        return weir_api_bad(error, other, "%s and %s exclude each other", vllm, other);
    return weir_field_integer(root, other, 0, INT32_MAX, most, error);
}

/* ---- fields with one supported value --------------------------------------------------------- */

static weir_status check_modalities(const json_t *root, weir_api_error *error)
{
    static const char key[] = "modalities";
    const json_t *const list = weir_field(root, key);
    if (list == NULL) return WEIR_OK;
    if (!json_is_array(list))
        return weir_api_bad(error, key, "modalities must be an array of strings");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *const word = json_string_value(json_array_get(list, i));
        if (word == NULL) return weir_api_bad(error, key, "modalities must be an array of strings");
        if (strcmp(word, "text") != 0)
            return weir_api_fail(
                error, 400, "unsupported_parameter", key,
                "modalities: %s is not supported by this server; text is", weir_quote(word).text
            );
    }
    return WEIR_OK;
}

static weir_status check_verbosity(const json_t *root, weir_api_error *error)
{
    static const char key[] = "verbosity";
    const char *word = NULL;
    WEIR_TRY(weir_field_text(root, key, &word, error));
    if (word == NULL || strcmp(word, "low") == 0 || strcmp(word, "medium") == 0 ||
        strcmp(word, "high") == 0)
        return WEIR_OK;
    return weir_api_bad(
        error, key, "unknown verbosity %s; it is low, medium or high", weir_quote(word).text
    );
}

weir_status weir_chat_request_read(
    weir_openai_request *request, const json_t *root, weir_api_error *error
)
{
    static const char begin[] = "add_generation_prompt";
    WEIR_TRY(check_modalities(root, error));
    WEIR_TRY(check_verbosity(root, error));
    WEIR_TRY(read_logprobs(request, root, error));
    WEIR_TRY(read_variables(request, root, error));
    WEIR_TRY(read_effort(request, root, error));
    WEIR_TRY(read_budget(request, root, error));
    request->no_thought = json_is_false(json_object_get(request->variables, "enable_thinking"));
    WEIR_TRY(read_tools(request, root, error));
    WEIR_TRY(
        weir_field_bool(root, "continue_final_message", &request->continue_final_message, error)
    );
    request->add_generation_prompt = !request->continue_final_message;
    WEIR_TRY(weir_field_bool(root, begin, &request->add_generation_prompt, error));
    if (request->add_generation_prompt && request->continue_final_message)
        return weir_api_bad(
            error, begin, "add_generation_prompt and continue_final_message exclude each other"
        );
    return weir_messages_read(&request->messages, weir_field(root, "messages"), error);
}
