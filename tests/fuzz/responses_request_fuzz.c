/* tests/fuzz/responses_request_fuzz.c - bodies of /v1/responses of any shape: refused with a status
 * and a message, or read into a chat, with members that a Response repeats. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/serve/responses_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No two messages of the system begin a chat, and calls are the assistant's. */
static void check_messages(const json_t *messages)
{
    WEIR_ASSERT(json_array_size(messages) > 0);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *const message = json_array_get(messages, i);
        const char *const role = json_string_value(json_object_get(message, "role"));
        WEIR_ASSERT(role != NULL && json_is_string(json_object_get(message, "content")));
        WEIR_ASSERT(
            i != 1 || strcmp(role, "system") != 0 ||
            strcmp(
                json_string_value(json_object_get(json_array_get(messages, 0), "role")), "system"
            ) != 0
        );
        WEIR_ASSERT(
            json_object_get(message, "tool_calls") == NULL || strcmp(role, "assistant") == 0
        );
    }
}

/* The members are those of one valid object. */
static void check_echo(const weir_buffer *echo)
{
    weir_buffer text = { 0 };
    if (weir_buffer_text(&text, "{") == WEIR_OK &&
        weir_buffer_add(&text, echo->data, echo->size) == WEIR_OK &&
        weir_buffer_text(&text, "}") == WEIR_OK) {
        json_t *const object =
            json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        WEIR_ASSERT(json_is_array(json_object_get(object, "tools")));
        WEIR_ASSERT(json_is_false(json_object_get(object, "store")));
        json_decref(object);
    }
    weir_buffer_free(&text);
}

static void check_error(const weir_api_error *error)
{
    static const char *const chats[] = { "messages", "response_format", "max_completion_tokens" };
    WEIR_ASSERT(error->status >= 400 && error->status < 600 && error->message[0] != 0);
    for (size_t i = 0; i < sizeof chats / sizeof chats[0]; i++)
        WEIR_ASSERT(strncmp(error->param, chats[i], strlen(chats[i])) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weir_request_limits limits = {
        .model_name = "m",
        .n_vocab = 2048,
        .n_slots = 4,
        .window = 4096,
        .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 }
    };
    char *const text = malloc(size + 1);
    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    text[size] = 0;
    weir_openai_request request = { 0 };
    weir_responses more = { 0 };
    weir_api_error error = { 0 };
    if (weir_responses_read(&request, &more, text, size, &limits, &error) == WEIR_OK) {
        WEIR_ASSERT(request.chat && request.n == 1);
        check_messages(request.messages);
        check_echo(&more.echo);
        weir_openai_request_free(&request);
        weir_buffer_free(&more.echo);
    } else {
        check_error(&error);
    }
    free(text);
    return 0;
}
