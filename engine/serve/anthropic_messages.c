/* engine/serve/anthropic_messages.c - `system` and `messages`: content blocks become the text, the
 * reasoning, the calls and the answers of tools of a chat's messages. */
#include <stdio.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/serve/anthropic_convert.h"
#include "engine/serve/json_in.h"

/* A message while its blocks are read. */
typedef struct turn {
    json_t *list; /* takes what becomes complete */
    const char *role;
    char at[64]; /* "messages[3].content[1]", for errors */
    size_t index;
    weir_buffer text, thinking;
    json_t *calls; /* owned; NULL: none */
    bool has_text; /* `text` counts, even if it is empty */
    bool is_redacted;
} turn;

static bool is_role(const turn *t, const char *role) { return strcmp(t->role, role) == 0; }

static weir_status add_text(weir_buffer *out, const json_t *string, weir_api_error *error)
{
    const weir_status status =
        weir_buffer_add(out, json_string_value(string), json_string_length(string));
    return status == WEIR_OK ? WEIR_OK : weir_api_no_memory(error);
}

static json_t *text_of(const weir_buffer *text)
{
    return json_stringn(text->data != NULL ? text->data : "", text->size);
}

/* ---- the billing header ---------------------------------------------------------------------- */

/* Claude Code begins its system text with a line that differs in every request. It says nothing to
 * the model, and nothing behind it could be reused. */
static void without_billing(const char **text, size_t *n)
{
    static const char header[] = "x-anthropic-billing-header:";
    if (*n < sizeof header - 1 || memcmp(*text, header, sizeof header - 1) != 0) return;
    const char *const end = memchr(*text, '\n', *n);
    const size_t used = end != NULL ? (size_t)(end - *text) + 1 : *n;
    *text += used;
    *n -= used;
}

static weir_status add_system_text(weir_buffer *out, const json_t *string, weir_api_error *error)
{
    const char *text = json_string_value(string);
    size_t n = json_string_length(string);
    without_billing(&text, &n);
    return weir_buffer_add(out, text, n) == WEIR_OK ? WEIR_OK : weir_api_no_memory(error);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

weir_status weir_anthropic_cache_control(
    const json_t *object, const char *param, weir_api_error *error
)
{
    const json_t *const mark = weir_field(object, "cache_control");
    const char *const type = json_string_value(json_object_get(mark, "type"));
    const json_t *const ttl = weir_field(mark, "ttl");
    const char *const time = json_string_value(ttl);
    if (mark == NULL) return WEIR_OK;
    if (type == NULL || strcmp(type, "ephemeral") != 0)
        return weir_api_bad(
            error, param, "%s: cache_control must be {\"type\":\"ephemeral\"}", param
        );
    if (ttl == NULL || (time != NULL && (strcmp(time, "5m") == 0 || strcmp(time, "1h") == 0)))
        return WEIR_OK;
    return weir_api_bad(error, param, "%s: the ttl of cache_control is \"5m\" or \"1h\"", param);
}

static weir_status refuse_block(const char *type, const char *at, weir_api_error *error)
{
    if (strcmp(type, "image") == 0)
        return weir_api_fail(
            error, 400, "unsupported_content", at,
            "%s: images are not supported, this server computes text only; send text", at
        );
    return weir_api_fail(
        error, 400, "unsupported_content", at, "%s: blocks of type %s are not supported; send text",
        at, weir_quote(type).text
    );
}

/* Returns the type of a block; NULL: the error is filled. */
static const char *type_of(const json_t *block, const char *at, weir_api_error *error)
{
    const char *const type = json_string_value(json_object_get(block, "type"));
    if (type == NULL)
        (void)!weir_api_bad(error, at, "%s: each block must be an object with a type", at);
    else if (weir_anthropic_cache_control(block, at, error) == WEIR_OK)
        return type;
    return NULL;
}

/* Returns the string `key` of a block; NULL: the error is filled. */
static const json_t *string_of(
    const json_t *block, const char *key, const char *at, weir_api_error *error
)
{
    const json_t *const value = json_object_get(block, key);
    if (json_is_string(value)) return value;
    (void)!weir_api_bad(error, at, "%s needs the string `%s`", at, key);
    return NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Appends a message; takes over `content`. Returns NULL if there is no memory. */
static json_t *add_message(json_t *list, const char *role, json_t *content)
{
    json_t *const message = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (message == NULL || json_array_append_new(list, message) != 0) return NULL;
    return message;
}

/* Ends a message of the chat with the text so far; a system message without text is none. */
static weir_status flush(turn *t, weir_api_error *error)
{
    if (is_role(t, "system") && t->text.size == 0) return WEIR_OK;
    json_t *const message = add_message(t->list, t->role, text_of(&t->text));
    int failed = message == NULL;
    if (!failed && t->thinking.size > 0)
        failed = json_object_set_new(message, "reasoning_content", text_of(&t->thinking));
    if (!failed && t->calls != NULL) failed = json_object_set(message, "tool_calls", t->calls);
    weir_buffer_clear(&t->text);
    t->has_text = false;
    return failed ? weir_api_no_memory(error) : WEIR_OK;
}

/* The text of a tool's answer: a string, or text blocks; absent: none. */
static weir_status read_answer(
    weir_buffer *text, const json_t *content, const char *at, weir_api_error *error
)
{
    if (content == NULL) return WEIR_OK;
    if (json_is_string(content)) return add_text(text, content, error);
    if (!json_is_array(content))
        return weir_api_bad(error, at, "%s: content must be a string or an array of blocks", at);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *const block = json_array_get(content, i);
        const char *const type = type_of(block, at, error);
        if (type == NULL) return WEIR_EINVAL;
        if (strcmp(type, "text") != 0) return refuse_block(type, at, error);
        const json_t *const string = string_of(block, "text", at, error);
        if (string == NULL) return WEIR_EINVAL;
        WEIR_TRY(add_text(text, string, error));
    }
    return WEIR_OK;
}

/* A chat has no field for failures of tools, so the text says it. */
static weir_status read_tool_result(turn *t, const json_t *block, weir_api_error *error)
{
    bool is_error = false;
    weir_buffer text = { 0 };
    const json_t *const id = string_of(block, "tool_use_id", t->at, error);
    if (id == NULL) return WEIR_EINVAL;
    if (weir_field_bool(block, "is_error", &is_error, error) != WEIR_OK)
        return weir_api_bad(error, t->at, "%s: is_error must be true or false", t->at);
    if (t->has_text) WEIR_TRY(flush(t, error));
    weir_status status = WEIR_OK;
    if (is_error && weir_buffer_text(&text, "Error: ") != WEIR_OK)
        status = weir_api_no_memory(error);
    if (status == WEIR_OK) status = read_answer(&text, weir_field(block, "content"), t->at, error);
    if (status == WEIR_OK) {
        json_t *const message = add_message(t->list, "tool", text_of(&text));
        if (message == NULL || json_object_set(message, "tool_call_id", (json_t *)id) != 0)
            status = weir_api_no_memory(error);
    }
    weir_buffer_free(&text);
    return status;
}

static weir_status read_tool_use(turn *t, const json_t *block, weir_api_error *error)
{
    const json_t *const id = string_of(block, "id", t->at, error);
    const json_t *const name = id != NULL ? string_of(block, "name", t->at, error) : NULL;
    const json_t *const input = weir_field(block, "input");
    if (name == NULL) return WEIR_EINVAL;
    if (!json_is_object(input))
        return weir_api_bad(error, t->at, "%s: input must be an object", t->at);
    if (t->calls == NULL) t->calls = json_array();
    json_t *const call = json_pack(
        "{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", name,
        "arguments", input
    );
    if (call == NULL || json_array_append_new(t->calls, call) != 0)
        return weir_api_no_memory(error);
    return WEIR_OK;
}

static weir_status read_assistant_block(
    turn *t, const json_t *block, const char *type, weir_api_error *error
)
{
    if (strcmp(type, "tool_use") == 0) return read_tool_use(t, block, error);
    if (strcmp(type, "redacted_thinking") == 0) {
        t->is_redacted = true;
        return WEIR_OK;
    }
    if (strcmp(type, "thinking") != 0) return refuse_block(type, t->at, error);
    const json_t *const string = string_of(block, "thinking", t->at, error);
    return string != NULL ? add_text(&t->thinking, string, error) : WEIR_EINVAL;
}

static weir_status read_block(turn *t, const json_t *block, weir_api_error *error)
{
    const char *const type = type_of(block, t->at, error);
    if (type == NULL) return WEIR_EINVAL;
    if (strcmp(type, "text") == 0) {
        const json_t *const string = string_of(block, "text", t->at, error);
        if (string == NULL) return WEIR_EINVAL;
        t->has_text = true;
        return is_role(t, "system") ? add_system_text(&t->text, string, error)
                                    : add_text(&t->text, string, error);
    }
    if (is_role(t, "assistant")) return read_assistant_block(t, block, type, error);
    if (is_role(t, "user") && strcmp(type, "tool_result") == 0)
        return read_tool_result(t, block, error);
    return refuse_block(type, t->at, error);
}

static weir_status read_content(turn *t, const json_t *content, weir_api_error *error)
{
    if (json_is_string(content)) {
        WEIR_TRY(
            is_role(t, "system") ? add_system_text(&t->text, content, error)
                                 : add_text(&t->text, content, error)
        );
        return flush(t, error);
    }
    if (!json_is_array(content))
        return weir_api_bad(
            error, t->at, "%s must be a string or an array of content blocks", t->at
        );
    const size_t n_before = json_array_size(t->list);
    for (size_t i = 0; i < json_array_size(content); i++) {
        (void)snprintf(t->at, sizeof t->at, "messages[%zu].content[%zu]", t->index, i);
        WEIR_TRY(read_block(t, json_array_get(content, i), error));
    }
    /* Answers of tools need no message of the user behind them. */
    const bool is_answered = !t->has_text && json_array_size(t->list) > n_before;
    return is_answered ? WEIR_OK : flush(t, error);
}

static weir_status read_message(turn *t, const json_t *message, weir_api_error *error)
{
    (void)snprintf(t->at, sizeof t->at, "messages[%zu]", t->index);
    if (!json_is_object(message)) return weir_api_bad(error, t->at, "%s must be an object", t->at);
    t->role = json_string_value(json_object_get(message, "role"));
    if (t->role == NULL) return weir_api_bad(error, t->at, "%s has no role", t->at);
    if (!is_role(t, "user") && !is_role(t, "assistant") && !is_role(t, "system"))
        return weir_api_bad(
            error, t->at, "%s: unknown role %s; it is user or assistant", t->at,
            weir_quote(t->role).text
        );
    (void)snprintf(t->at, sizeof t->at, "messages[%zu].content", t->index);
    return read_content(t, weir_field(message, "content"), error);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static weir_status read_system_blocks(
    weir_buffer *text, const json_t *blocks, weir_api_error *error
)
{
    char at[64];
    if (!json_is_array(blocks))
        return weir_api_bad(error, "system", "system must be a string or an array of text blocks");
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *const block = json_array_get(blocks, i);
        (void)snprintf(at, sizeof at, "system[%zu]", i);
        const char *const type = type_of(block, at, error);
        if (type == NULL) return WEIR_EINVAL;
        if (strcmp(type, "text") != 0) return refuse_block(type, at, error);
        const json_t *const string = string_of(block, "text", at, error);
        if (string == NULL) return WEIR_EINVAL;
        WEIR_TRY(add_system_text(text, string, error));
    }
    return WEIR_OK;
}

static weir_status read_system(json_t *list, const json_t *system, weir_api_error *error)
{
    weir_buffer text = { 0 };
    if (system == NULL) return WEIR_OK;
    weir_status status = json_is_string(system) ? add_system_text(&text, system, error)
                                                : read_system_blocks(&text, system, error);
    if (status == WEIR_OK && text.size > 0 && add_message(list, "system", text_of(&text)) == NULL)
        status = weir_api_no_memory(error);
    weir_buffer_free(&text);
    return status;
}

static weir_status read_messages(
    json_t *list, bool *is_redacted, const json_t *messages, weir_api_error *error
)
{
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return weir_api_bad(error, "messages", "messages must be an array of at least one message");
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < json_array_size(messages) && status == WEIR_OK; i++) {
        turn t = { .list = list, .index = i };
        status = read_message(&t, json_array_get(messages, i), error);
        *is_redacted = *is_redacted || t.is_redacted;
        weir_buffer_free(&t.text);
        weir_buffer_free(&t.thinking);
        json_decref(t.calls);
    }
    return status;
}

weir_status weir_anthropic_messages(
    json_t **messages, bool *is_redacted, const json_t *root, weir_api_error *error
)
{
    json_t *const list = json_array();
    if (list == NULL) return weir_api_no_memory(error);
    weir_status status = read_system(list, weir_field(root, "system"), error);
    if (status == WEIR_OK)
        status = read_messages(list, is_redacted, weir_field(root, "messages"), error);
    if (status == WEIR_OK)
        *messages = list;
    else
        json_decref(list);
    return status;
}

/* Joins the contents of messages [begin, end) into the first one. */
static weir_status join(json_t *messages, size_t begin, size_t end)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = begin; i < end && status == WEIR_OK; i++) {
        const json_t *const content = json_object_get(json_array_get(messages, i), "content");
        if (text.size > 0) status = weir_buffer_text(&text, "\n\n");
        if (status == WEIR_OK)
            status =
                weir_buffer_add(&text, json_string_value(content), json_string_length(content));
    }
    if (status == WEIR_OK &&
        json_object_set_new(json_array_get(messages, begin), "content", text_of(&text)) != 0)
        status = WEIR_ENOMEM;
    weir_buffer_free(&text);
    return status;
}

static const char *role_of(const json_t *messages, size_t i)
{
    return json_string_value(json_object_get(json_array_get(messages, i), "role"));
}

bool weir_anthropic_has_late_system(const json_t *messages)
{
    for (size_t i = 1; i < json_array_size(messages); i++)
        if (strcmp(role_of(messages, i), "system") == 0) return true;
    return false;
}

static bool is_role_at(const json_t *messages, size_t i, const char *role)
{
    return strcmp(role_of(messages, i), role) == 0;
}

/* Into another list, so that many messages take linear time. */
static weir_status fold(json_t *folded, json_t *messages, bool joins)
{
    const size_t n = json_array_size(messages);
    for (size_t begin = 0, end; begin < n; begin = end) {
        json_t *const message = json_array_get(messages, begin);
        const bool is_system = is_role_at(messages, begin, "system");
        const bool takes = is_system || (joins && is_role_at(messages, begin, "user"));
        for (end = begin + 1; takes && end < n && is_role_at(messages, end, "system");) end++;
        if (end > begin + 1) WEIR_TRY(join(messages, begin, end));
        if (is_system && begin > 0 &&
            json_object_set_new(message, "role", json_string("user")) != 0)
            return WEIR_ENOMEM;
        if (json_array_append(folded, message) != 0) return WEIR_ENOMEM;
    }
    return WEIR_OK;
}

weir_status weir_anthropic_fold_system(json_t *messages, bool joins)
{
    json_t *const folded = json_array();
    weir_status status = folded != NULL ? fold(folded, messages, joins) : WEIR_ENOMEM;
    if (status == WEIR_OK &&
        (json_array_clear(messages) != 0 || json_array_extend(messages, folded) != 0))
        status = WEIR_ENOMEM;
    json_decref(folded);
    return status;
}

void weir_anthropic_keep_thinking(json_t *messages, int64_t n)
{
    static const char key[] = "reasoning_content";
    for (size_t i = json_array_size(messages); i > 0; i--) {
        json_t *const message = json_array_get(messages, i - 1);
        if (json_object_get(message, key) != NULL && --n < 0) (void)json_object_del(message, key);
    }
}
