#include "tools/load/event.h"

#include <jansson.h>
#include <string.h>

#include "engine/formats/json.h"

static const int64_t most_tokens = 1 << 30;

static int64_t count_of(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    const json_int_t count = json_is_integer(value) ? json_integer_value(value) : -1;
    return count >= 0 && count <= most_tokens ? (int64_t)count : -1;
}

static void read_usage(weir_load_event *out, const json_t *usage)
{
    out->prompt_tokens = count_of(usage, "prompt_tokens");
    out->answer_tokens = count_of(usage, "completion_tokens");
    out->cached_tokens = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

static bool has_text(const json_t *object, const char *key)
{
    return json_string_length(json_object_get(object, key)) > 0;
}

static weir_status read_choice(weir_load_event *out, const json_t *choice, weir_buffer *answer)
{
    const json_t *const delta = json_object_get(choice, "delta");
    const json_t *const text =
        delta != NULL ? json_object_get(delta, "content") : json_object_get(choice, "text");
    if (json_is_string(json_object_get(choice, "finish_reason"))) out->has_finish = true;
    if (json_string_length(text) > 0 || has_text(delta, "reasoning_content") ||
        has_text(delta, "reasoning") || json_array_size(json_object_get(delta, "tool_calls")) > 0)
        out->has_text = true;
    if (answer == NULL || json_string_length(text) == 0) return WEIR_OK;
    return weir_buffer_add(answer, json_string_value(text), json_string_length(text));
}

/* {"error": {"message": ..}}, {"error": ".."} or {"message": ..} */
static weir_status read_error(const json_t *error, weir_buffer *problem)
{
    const json_t *const message = json_is_string(error) ? error : json_object_get(error, "message");
    if (problem == NULL || json_string_length(message) == 0) return WEIR_OK;
    return weir_buffer_add(problem, json_string_value(message), json_string_length(message));
}

static weir_status read_object(
    weir_load_event *out, const json_t *root, weir_buffer *answer, weir_buffer *problem
)
{
    const json_t *const error = json_object_get(root, "error"), *const choices = json_object_get(
                                                                    root, "choices"
                                                                );
    if (error != NULL && !json_is_null(error)) {
        out->is_error = true;
        return read_error(error, problem);
    }
    read_usage(out, json_object_get(root, "usage"));
    for (size_t i = 0; i < json_array_size(choices); i++)
        WEIR_TRY(read_choice(out, json_array_get(choices, i), answer));
    return WEIR_OK;
}

weir_status weir_load_event_read(
    weir_load_event *out, const char *text, size_t n, weir_buffer *answer, weir_buffer *problem
)
{
    json_t *root = NULL;
    *out = (weir_load_event){ .prompt_tokens = -1, .answer_tokens = -1, .cached_tokens = -1 };
    if (n == 6 && memcmp(text, "[DONE]", 6) == 0) {
        out->is_done = true;
        return WEIR_OK;
    }
    const weir_json_fault fault = weir_json_build(&root, NULL, text, n, &weir_json_request);
    if (fault == WEIR_JSON_NO_MEMORY) return WEIR_ENOMEM;
    if (fault != WEIR_JSON_FINE || !json_is_object(root)) {
        json_decref(root);
        return WEIR_EFORMAT;
    }
    const weir_status status = read_object(out, root, answer, problem);
    json_decref(root);
    return status;
}
