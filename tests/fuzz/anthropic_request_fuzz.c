/* tests/fuzz/anthropic_request_fuzz.c - bodies of /v1/messages of any shape: refused with a status
 * and a message in Anthropic's form, or read into a chat. The first byte picks an answer or a count
 * of tokens. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/serve/anthropic_convert.h"
#include "engine/serve/anthropic_error.h"
#include "engine/serve/anthropic_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_warning(const char *warning)
{
    for (const char *c = warning; *c != 0; c++) WEIR_ASSERT(*c >= 0x20 && *c < 0x7f);
}

static void check_request(weir_openai_request *r, bool count)
{
    char warning[WEIR_WARNING_BYTES] = "";
    weir_warning_unknown(warning, &r->unknown);
    check_warning(warning);
    WEIR_ASSERT(r->chat && r->n == 1 && !r->echo && !r->logprobs && r->state == NULL);
    WEIR_ASSERT(count || r->max_tokens >= 1);
    WEIR_ASSERT(r->add_generation_prompt != r->continue_final_message);
    WEIR_ASSERT(json_is_boolean(json_object_get(r->variables, "enable_thinking")));
    for (size_t i = 0; i < json_array_size(r->messages); i++) {
        const json_t *const message = json_array_get(r->messages, i);
        WEIR_ASSERT(json_is_string(json_object_get(message, "role")));
        WEIR_ASSERT(json_is_string(json_object_get(message, "content")));
    }
    WEIR_ASSERT(json_array_size(r->messages) > 0);
    WEIR_ASSERT(weir_anthropic_fold_system(r->messages, count) == WEIR_OK);
    WEIR_ASSERT(!weir_anthropic_has_late_system(r->messages));
}

static void check_error(const weir_api_error *error)
{
    weir_buffer out = { 0 };
    WEIR_ASSERT(error->status >= 400 && error->status < 600 && error->message[0] != 0);
    WEIR_ASSERT(weir_anthropic_error_write(&out, error, "r") == WEIR_OK);
    json_t *const object = json_loadb(out.data, out.size, JSON_REJECT_DUPLICATES, NULL);
    WEIR_ASSERT(object != NULL); /* whatever was sent, the answer is valid JSON */
    json_decref(object);
    weir_buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const weir_request_limits limits = {
        .model_name = "m",
        .n_vocab = 2048,
        .n_slots = 4,
        .window = 4096,
        .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 }
    };
    char *const text = malloc(size);
    if (text == NULL) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    const bool count = data[0] == 'c';
    weir_openai_request request = { 0 };
    weir_api_error error = { 0 };
    char warning[WEIR_WARNING_BYTES] = "";
    bool omits_thinking = false;
    const weir_status status = weir_anthropic_request_read(
        &request, count ? WEIR_ANTHROPIC_COUNT : WEIR_ANTHROPIC_MESSAGE, text, size - 1, &limits,
        &omits_thinking, warning, &error
    );
    check_warning(warning);
    if (status == WEIR_OK)
        check_request(&request, count);
    else
        check_error(&error);
    weir_openai_request_free(&request);
    free(text);
    return 0;
}
