/* tests/wire/fake_model.h - logits that are a hash of the tokens before. Greedy text is printable;
 * hot sampling reaches every byte. */
#pragma once
#include "engine/schedule/service.h"
#include "engine/text/tokenizer.h"

typedef struct weir_fake_model {
    const weir_tokenizer *tokenizer;
    int32_t n_vocab;
    bool *printable; /* [n_vocab] */
    float *logits; /* [n_vocab] scratch of the engine thread */
    int32_t *order; /* [n_vocab] scratch */
} weir_fake_model;

/* An answer as the model sees it. */
typedef struct weir_fake_answer {
    uint64_t state; /* hash of all tokens so far */
    int32_t n;
    uint16_t *seen; /* [n_vocab] its tokens, for penalties */
} weir_fake_answer;

WEIR_MUST_CHECK weir_status
weir_fake_model_open(weir_fake_model *model, const weir_tokenizer *tokenizer);
void weir_fake_model_close(weir_fake_model *model);

/* The state after one more token. */
uint64_t weir_fake_model_step(uint64_t state, int32_t token);
bool weir_fake_model_is_stop(const weir_fake_model *model, int32_t token);
/* The next token of an answer; `choice` is part of the seed. */
int32_t weir_fake_model_draw(
    weir_fake_model *model, const weir_request *request, int32_t choice,
    const weir_fake_answer *answer
);
/* Log-probabilities after `state`: of the token, and of the likeliest ones, which stay in `top`. */
void weir_fake_model_score(
    weir_fake_model *model, const weir_request *request, uint64_t state, weir_event *event,
    weir_logprob top[WEIR_TOP_LOGPROBS]
);
