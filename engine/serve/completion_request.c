#include "engine/serve/completion_request.h"

#include "engine/serve/json_in.h"

weir_status weir_openai_check_ids(
    const json_t *ids, int32_t n_vocab, const char *param, weir_api_error *error
)
{
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *const id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= n_vocab)
            return weir_api_bad(
                error, param, "%s: entry %zu is not a token id of this model (0 to %d)", param, i,
                n_vocab - 1
            );
    }
    return WEIR_OK;
}

static bool is_list_of_prompts(const json_t *prompt)
{
    const json_t *const first = json_array_get(prompt, 0);
    return json_is_string(first) || json_is_array(first);
}

size_t weir_openai_prompt_count(const json_t *prompt)
{
    return is_list_of_prompts(prompt) ? json_array_size(prompt) : 1;
}
const json_t *weir_openai_prompt_at(const json_t *prompt, size_t index)
{
    return is_list_of_prompts(prompt) ? json_array_get(prompt, index) : prompt;
}

weir_status weir_openai_check_prompts(
    const json_t *prompts, const char *key, size_t most, int32_t n_vocab, weir_api_error *error
)
{
    if (!json_is_string(prompts) && !(json_is_array(prompts) && json_array_size(prompts) > 0))
        return weir_api_bad(
            error, key, "%s must be a string, a list of token ids, or a list of these", key
        );
    const size_t count = weir_openai_prompt_count(prompts);
    if (count > most)
        return weir_api_bad(
            error, key, "%s holds %zu texts; at most %zu are allowed", key, count, most
        );
    for (size_t i = 0; i < count; i++) {
        const json_t *const one = weir_openai_prompt_at(prompts, i);
        const bool empty =
            json_is_array(one) ? json_array_size(one) == 0 : json_string_length(one) == 0;
        if ((!json_is_string(one) && !json_is_array(one)) || empty)
            return weir_api_bad(
                error, key, "%s: text %zu must be a string or a list of token ids, and not empty",
                key, i
            );
        if (json_is_array(one)) WEIR_TRY(weir_openai_check_ids(one, n_vocab, key, error));
    }
    return WEIR_OK;
}

weir_status weir_completion_request_read(
    weir_openai_request *request, const json_t *root, int32_t n_vocab, weir_api_error *error
)
{
    int64_t top = -1;
    WEIR_TRY(weir_field_integer(root, "logprobs", 0, 5, &top, error));
    request->logprobs = top >= 0;
    request->n_top_logprobs = top > 0 ? (int32_t)top : 0;
    request->prompt = weir_field(root, "prompt");
    return weir_openai_check_prompts(request->prompt, "prompt", WEIR_PROMPTS, n_vocab, error);
}
