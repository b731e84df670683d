/* tests/fuzz/openai_request_fuzz.c - request bodies of any shape: refused with a status and a
 * message, or read into values in range. The first byte picks chat or completions. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/serve/openai_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_values(const weir_openai_request *r, const weir_request_limits *limits)
{
    const weir_sampling *const s = &r->sampling;
    WEIR_ASSERT(
        r->n >= 1 && r->n <= limits->n_slots && r->n_top_logprobs >= 0 && r->n_top_logprobs <= 20 &&
        r->max_tokens >= -1
    );
    WEIR_ASSERT(
        s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1 &&
        s->top_k >= 0 && s->repetition_penalty > 0
    );
    for (size_t i = 0; i < s->n_bias; i++)
        WEIR_ASSERT(s->bias[i].id >= 0 && s->bias[i].id < limits->n_vocab);
    for (size_t i = 0; i < r->stop.count; i++) WEIR_ASSERT(r->stop.length[i] > 0);
    char warning[WEIR_WARNING_BYTES] = "";
    weir_warning_unknown(warning, &r->unknown);
    WEIR_ASSERT((warning[0] != 0) == (r->unknown.count > 0));
    for (const char *c = warning; *c != 0; c++) WEIR_ASSERT(*c >= 0x20 && *c < 0x7f);
    if (r->chat)
        WEIR_ASSERT(json_array_size(r->messages) > 0);
    else
        WEIR_ASSERT(
            weir_openai_prompt_count(r->prompt) >= 1 &&
            weir_openai_prompt_count(r->prompt) <= WEIR_PROMPTS
        );
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
    weir_openai_request request = { 0 };
    weir_api_error error = { 0 };
    if (weir_openai_request_read(&request, data[0] != 'p', text, size - 1, &limits, &error) ==
        WEIR_OK) {
        check_values(&request, &limits);
        weir_openai_request_free(&request);
    } else {
        WEIR_ASSERT(error.status >= 400 && error.status < 600 && error.message[0] != 0);
        weir_buffer out = { 0 };
        if (weir_api_error_write(&out, &error) == WEIR_OK) {
            json_t *const object = json_loadb(out.data, out.size, JSON_REJECT_DUPLICATES, NULL);
            WEIR_ASSERT(object != NULL); /* whatever was sent, the answer is valid JSON */
            json_decref(object);
        }
        weir_buffer_free(&out);
    }
    free(text);
    return 0;
}
