/* engine/serve/responses_input.c - `instructions` and the items of `input` as messages of a chat.
 * Nothing is ever fetched, and no item is found by its id. */
#include <stdio.h>
#include <string.h>

#include "engine/serve/json_in.h"
#include "engine/serve/responses_request.h"

typedef struct place {
    char text[48];
} place;

static place field_of(size_t index, const char *field)
{
    place at;
    (void)snprintf(at.text, sizeof at.text, "input[%zu]%s%s", index, field[0] ? "." : "", field);
    return at;
}

/* What was read so far. Texts are collected in buffers, so that many small items take linear
 * time. */
typedef struct input {
    json_t *messages; /* complete ones */
    weir_buffer system; /* the first message, while nothing follows it */
    bool has_system;
    /* The assistant's message that further items belong to. */
    weir_buffer content, reasoning;
    json_t *calls; /* NULL: none */
    bool is_open, has_text;
    weir_api_error *error;
} input;

static const char *text_of(const weir_buffer *text) { return text->data != NULL ? text->data : ""; }

static weir_status add_bytes(weir_buffer *text, const json_t *string, weir_api_error *error)
{
    const size_t n = json_string_length(string);
    const weir_status status = weir_buffer_add(text, json_string_value(string), n);
    return status == WEIR_OK ? WEIR_OK : weir_api_no_memory(error);
}

/* Appends a blank line between two texts. */
static weir_status add_gap(weir_buffer *text, weir_api_error *error)
{
    if (text->size == 0 || weir_buffer_text(text, "\n\n") == WEIR_OK) return WEIR_OK;
    return weir_api_no_memory(error);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Takes `message`; NULL: no memory. */
static weir_status add_message(input *in, json_t *message)
{
    if (message == NULL || json_array_append_new(in->messages, message) != 0)
        return weir_api_no_memory(in->error);
    return WEIR_OK;
}

static weir_status end_system(input *in)
{
    if (!in->has_system) return WEIR_OK;
    in->has_system = false;
    return add_message(
        in,
        json_pack("{s:s, s:s%}", "role", "system", "content", text_of(&in->system), in->system.size)
    );
}

static weir_status end_assistant(input *in)
{
    if (!in->is_open) return WEIR_OK;
    json_t *const reasoning =
        in->reasoning.size > 0 ? json_stringn(in->reasoning.data, in->reasoning.size) : NULL;
    if (in->reasoning.size > 0 && reasoning == NULL) return weir_api_no_memory(in->error);
    json_t *const message = json_pack(
        "{s:s, s:s%, s:o*, s:o*}", "role", "assistant", "content", text_of(&in->content),
        in->content.size, "reasoning_content", reasoning, "tool_calls", in->calls
    );
    in->calls = NULL;
    in->is_open = in->has_text = false;
    weir_buffer_clear(&in->content);
    weir_buffer_clear(&in->reasoning);
    return add_message(in, message);
}

/* Ends what a message of another role cannot belong to. */
static weir_status end_open(input *in)
{
    WEIR_TRY(end_system(in));
    return end_assistant(in);
}

static weir_status open_assistant(input *in)
{
    WEIR_TRY(end_system(in));
    in->is_open = true;
    return WEIR_OK;
}

/* ---- content --------------------------------------------------------------------------------- */

static weir_status add_part(
    weir_buffer *text, const json_t *part, const char *param, weir_api_error *error
)
{
    static const char *const kinds[] = { "input_text", "output_text", "text" };
    const char *const type = json_string_value(json_object_get(part, "type"));
    if (type == NULL)
        return weir_api_bad(error, param, "%s: each part must be an object with a type", param);
    const char *key = strcmp(type, "refusal") == 0 ? "refusal" : NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(type, kinds[i]) == 0) key = "text";
    if (key == NULL)
        return weir_api_fail(
            error, 400, "unsupported_content", param,
            "%s: parts of type %s are not supported; send input_text", param, weir_quote(type).text
        );
    const json_t *const value = json_object_get(part, key);
    if (!json_is_string(value))
        return weir_api_bad(
            error, param, "%s: a part of type %s needs a string `%s`", param, type, key
        );
    return add_bytes(text, value, error);
}

/* Appends a string, or the texts of an array of parts. */
static weir_status add_content(
    weir_buffer *text, const json_t *content, const char *param, weir_api_error *error
)
{
    if (json_is_string(content)) return add_bytes(text, content, error);
    if (!json_is_array(content))
        return weir_api_bad(error, param, "%s must be a string or an array of parts", param);
    for (size_t i = 0; i < json_array_size(content); i++)
        WEIR_TRY(add_part(text, json_array_get(content, i), param, error));
    return WEIR_OK;
}

/* Adds a message with a content and, of a tool, the id of its call (may be NULL). */
static weir_status add_text_message(
    input *in, const char *role, const json_t *content, const char *call_id, const char *param
)
{
    weir_buffer text = { 0 };
    weir_status status = end_open(in);
    if (status == WEIR_OK) status = add_content(&text, content, param, in->error);
    if (status == WEIR_OK)
        status = add_message(
            in, json_pack(
                    "{s:s, s:s%, s:s*}", "role", role, "content", text_of(&text), text.size,
                    "tool_call_id", call_id
                )
        );
    weir_buffer_free(&text);
    return status;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* System messages at the beginning are joined: many templates allow one, and only there. */
static weir_status read_system(input *in, const json_t *content, const char *param)
{
    if (in->is_open || json_array_size(in->messages) > 0)
        return add_text_message(in, "system", content, NULL, param);
    WEIR_TRY(add_gap(&in->system, in->error));
    in->has_system = true;
    return add_content(&in->system, content, param, in->error);
}

/* A second text is a message of its own, but not after calls, whose answers follow. */
static weir_status read_assistant(input *in, const json_t *content, const char *param)
{
    if (in->has_text && in->calls == NULL) WEIR_TRY(end_assistant(in));
    WEIR_TRY(open_assistant(in));
    in->has_text = true;
    return add_content(&in->content, content, param, in->error);
}

static weir_status read_message(input *in, const json_t *item, size_t index)
{
    const char *const role = json_string_value(json_object_get(item, "role"));
    const json_t *const content = weir_field(item, "content");
    const place at = field_of(index, "content");
    if (role == NULL)
        return weir_api_bad(
            in->error, field_of(index, "role").text, "input[%zu]: a message needs a role", index
        );
    if (content == NULL)
        return weir_api_bad(in->error, at.text, "input[%zu] has no content", index);
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)
        return read_system(in, content, at.text);
    if (strcmp(role, "assistant") == 0) return read_assistant(in, content, at.text);
    if (strcmp(role, "user") == 0) return add_text_message(in, role, content, NULL, at.text);
    return weir_api_bad(
        in->error, field_of(index, "role").text, "input[%zu]: unknown role %s", index,
        weir_quote(role).text
    );
}

static weir_status need_string(
    const json_t *item, const char *key, const char **out, size_t index, weir_api_error *error
)
{
    const json_t *const value = weir_field(item, key);
    const char *const text = json_string_value(value);
    if (text == NULL || strlen(text) != json_string_length(value))
        return weir_api_bad(
            error, field_of(index, key).text, "input[%zu] needs the string `%s`", index, key
        );
    *out = text;
    return WEIR_OK;
}

static weir_status read_call(input *in, const json_t *item, size_t index)
{
    const char *id = NULL, *name = NULL;
    const json_t *const arguments = weir_field(item, "arguments");
    WEIR_TRY(need_string(item, "call_id", &id, index, in->error));
    WEIR_TRY(need_string(item, "name", &name, index, in->error));
    if (!json_is_string(arguments))
        return weir_api_bad(
            in->error, field_of(index, "arguments").text,
            "input[%zu] needs the string `arguments`, the JSON of an object", index
        );
    WEIR_TRY(open_assistant(in));
    if (in->calls == NULL) in->calls = json_array();
    if (in->calls == NULL) return weir_api_no_memory(in->error);
    json_t *const call = json_pack(
        "{s:s, s:s, s:{s:s, s:O}}", "id", id, "type", "function", "function", "name", name,
        "arguments", arguments
    );
    if (call == NULL || json_array_append_new(in->calls, call) != 0)
        return weir_api_no_memory(in->error);
    return WEIR_OK;
}

static weir_status read_output(input *in, const json_t *item, size_t index)
{
    const char *id = NULL;
    const json_t *const output = weir_field(item, "output");
    const place at = field_of(index, "output");
    WEIR_TRY(need_string(item, "call_id", &id, index, in->error));
    return add_text_message(in, "tool", output, id, at.text);
}

/* Appends the `text` of each entry. */
static weir_status add_texts(input *in, const json_t *list, const char *key, size_t index)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const text = json_object_get(json_array_get(list, i), "text");
        if (!json_is_string(text))
            return weir_api_bad(
                in->error, field_of(index, key).text,
                "input[%zu].%s: each entry needs the string `text`", index, key
            );
        WEIR_TRY(add_gap(&in->reasoning, in->error));
        WEIR_TRY(add_bytes(&in->reasoning, text, in->error));
    }
    return WEIR_OK;
}

/* Reasoning as this server or another one returned it; encrypted by another, it is unreadable. */
static weir_status read_reasoning(input *in, const json_t *item, size_t index)
{
    static const char begin[] = WEIR_RESPONSES_REASONING;
    const size_t n = sizeof begin - 1;
    const json_t *const encrypted = weir_field(item, "encrypted_content");
    const json_t *const content = weir_field(item, "content"), *const summary =
                                                                   weir_field(item, "summary");
    if (in->has_text || in->calls != NULL) WEIR_TRY(end_assistant(in));
    WEIR_TRY(open_assistant(in));
    if (json_array_size(content) > 0) return add_texts(in, content, "content", index);
    if (json_string_length(encrypted) < n || memcmp(json_string_value(encrypted), begin, n) != 0)
        return add_texts(in, summary, "summary", index);
    WEIR_TRY(add_gap(&in->reasoning, in->error));
    const weir_status status = weir_buffer_add(
        &in->reasoning, json_string_value(encrypted) + n, json_string_length(encrypted) - n
    );
    return status == WEIR_OK ? WEIR_OK : weir_api_no_memory(in->error);
}

static weir_status read_item(input *in, const json_t *item, size_t index)
{
    const place at = field_of(index, "");
    const json_t *const type = weir_field(item, "type");
    const char *const name = type != NULL ? json_string_value(type) : "message";
    if (!json_is_object(item) || name == NULL)
        return weir_api_bad(
            in->error, at.text, "input[%zu] must be an object, a message or one with a type", index
        );
    if (strcmp(name, "message") == 0) return read_message(in, item, index);
    if (strcmp(name, "function_call") == 0) return read_call(in, item, index);
    if (strcmp(name, "function_call_output") == 0) return read_output(in, item, index);
    if (strcmp(name, "reasoning") == 0) return read_reasoning(in, item, index);
    if (strcmp(name, "item_reference") == 0)
        return weir_api_bad(
            in->error, at.text, "input[%zu]: items are not stored here; send the item itself", index
        );
    return weir_api_fail(
        in->error, 400, "unsupported_content", at.text,
        "input[%zu]: items of type %s are not supported; message, reasoning, function_call and "
        "function_call_output are",
        index, weir_quote(name).text
    );
}

static weir_status read_all(input *in, const json_t *root)
{
    const json_t *const instructions = weir_field(root, "instructions");
    const json_t *const items = weir_field(root, "input");
    if (instructions != NULL && !json_is_string(instructions))
        return weir_api_bad(in->error, "instructions", "instructions must be a string");
    if (!json_is_string(items) && json_array_size(items) == 0)
        return weir_api_bad(
            in->error, "input", "input must be a string, or an array of at least one item"
        );
    if (instructions != NULL) WEIR_TRY(read_system(in, instructions, "instructions"));
    if (json_is_string(items)) WEIR_TRY(add_text_message(in, "user", items, NULL, "input"));
    for (size_t i = 0; i < json_array_size(items); i++)
        WEIR_TRY(read_item(in, json_array_get(items, i), i));
    return end_open(in);
}

weir_status weir_responses_messages(json_t **out, const json_t *root, weir_api_error *error)
{
    input in = { .messages = json_array(), .error = error };
    const weir_status status =
        in.messages != NULL ? read_all(&in, root) : weir_api_no_memory(error);
    weir_buffer_free(&in.system);
    weir_buffer_free(&in.content);
    weir_buffer_free(&in.reasoning);
    json_decref(in.calls);
    if (status == WEIR_OK)
        *out = in.messages;
    else
        json_decref(in.messages);
    return status;
}
