/* engine/serve/logprobs.h - log-probabilities of the tokens of one text, stored as numbers and
 * written in the form of chat or of completions. */
#pragma once
#include "engine/sample/sampler.h"
#include "engine/serve/json_out.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_logprob_list {
    int32_t *id; /* [count] */
    float *logprob; /* [count]; NaN: none (the first prompt token) */
    int32_t *n_top; /* [count] */
    weir_logprob *top; /* [count, width], best first */
    int64_t *offset; /* [count]; code points of the text before this token */
    size_t count, capacity, width;
} weir_logprob_list; /* zero-initialise, then set width */

void weir_logprob_list_free(weir_logprob_list *logprobs);
WEIR_MUST_CHECK weir_status weir_logprob_list_add(
    weir_logprob_list *logprobs, int32_t id, float logprob, const weir_logprob *top, int32_t n_top,
    int64_t offset
);

/* Writes the array `content` of a chat answer, tokens [from, count). */
void weir_logprob_list_write_chat(
    weir_json_out *out, const weir_logprob_list *logprobs, size_t from,
    const weir_tokenizer *tokenizer
);
/* The same with the member "id" first, as llama-server has it. */
void weir_logprob_list_write_ids(
    weir_json_out *out, const weir_logprob_list *logprobs, size_t from,
    const weir_tokenizer *tokenizer
);
/* Writes {"tokens","token_logprobs","top_logprobs","text_offset"}: all of `prompt` (may be NULL),
 * then tokens [from, count) of `answer`. */
void weir_logprob_list_write_completion(
    weir_json_out *out, const weir_logprob_list *prompt, const weir_logprob_list *answer,
    size_t from, const weir_tokenizer *tokenizer
);
/* Number of code points in well-formed text [n]. */
int64_t weir_code_points(const char *text, size_t n);

#ifdef __cplusplus
}
#endif
