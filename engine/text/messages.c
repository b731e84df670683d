#include "engine/text/messages.h"

#include <string.h>

#include "engine/base/clock.h"

/* Members other than messages and tools are passed to the template. */
static json_t *further_variables(const json_t *chat)
{
    json_t *const variables = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)chat, key, value)
    {
        if (strcmp(key, "messages") != 0 && strcmp(key, "tools") != 0 &&
            strcmp(key, "documents") != 0)
            (void)json_object_set(variables, key, value);
    }
    return variables;
}

weir_status weir_messages_render(
    weir_ids *ids, weir_buffer *text, const weir_tokenizer *tokenizer,
    const weir_chat_template *chat_template, const json_t *chat, weir_messages_place place,
    weir_error *error
)
{
    const bool is_object = json_is_object(chat);
    const json_t *const list = is_object ? json_object_get(chat, "messages") : chat;
    if (!json_is_array(list))
        return weir_error_set(
            error, WEIR_EINVAL, "messages: an array is expected, or an object with \"messages\""
        );
    json_t *const variables = is_object ? further_variables(chat) : NULL;
    const weir_chat_input input = { .messages = list,
                                    .tools = is_object ? json_object_get(chat, "tools") : NULL,
                                    .documents =
                                        is_object ? json_object_get(chat, "documents") : NULL,
                                    .variables = variables,
                                    .bos_token =
                                        place.follows ? "" : weir_tokenizer_bos_text(tokenizer),
                                    .eos_token = weir_tokenizer_eos_text(tokenizer),
                                    .add_generation_prompt = place.is_question,
                                    .now_unix_seconds = weir_clock_unix_seconds() };
    weir_chat_output output = { 0 };
    weir_status status = weir_chat_render(chat_template, &output, &input, error);
    if (status != WEIR_OK)
        status = weir_error_prefix(error, status, "messages: the model's chat template says");
    if (status == WEIR_OK && text != NULL)
        status = weir_buffer_add(text, output.text.data, output.text.size);
    if (status == WEIR_OK && ids != NULL)
        status = weir_tokenizer_encode(
            tokenizer, ids, output.text.data, output.text.size,
            &(weir_encode_options
            ){ .parse_special = true, .plain = output.user, .n_plain = output.n_user },
            error
        );
    weir_chat_output_free(&output);
    json_decref(variables);
    return status;
}
