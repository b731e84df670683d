/* engine/api/sequence.c - sequences: their tokens, and the calls that compute them. */
#include <stdlib.h>
#include <string.h>

#include "engine/api/api_internal.h"
#include "engine/base/checked.h"
#include "engine/base/memory.h"

/* ---- making and ending ----------------------------------------------------------------------- */
static void *take(weir_sequence *s, void *memory, size_t bytes)
{
    weir_memory_tracker *const before = weir_memory_tracker_set(&s->tracker.tracker);
    void *const taken = weir_memory_resize(memory, bytes);
    (void)weir_memory_tracker_set(before);
    return taken;
}

weir_status weir_sequence_new(weir_sequence **out, weir_engine *engine, weir_error *error)
{
    const size_t n_vocab = (size_t)weir_api_facts(engine)->n_vocab;
    weir_sequence *const s = calloc(1, sizeof *s);
    if (s == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a sequence");
    s->engine = engine;
    weir_ledger_tracker_init(&s->tracker, weir_engine_ledger(engine), WEIR_ACCOUNT_HTTP, NULL);
    s->logits = take(s, NULL, n_vocab * sizeof *s->logits);
    if (s->logits == NULL) {
        weir_sequence_free(s);
        return weir_error_set(
            error, WEIR_ENOMEM,
            "no memory for the logits of a sequence (%zu tokens); raise "
            "memory.host, or free other sequences",
            n_vocab
        );
    }
    *out = s;
    return WEIR_OK;
}

void weir_sequence_free(weir_sequence *sequence)
{
    if (sequence == NULL) return;
    weir_memory_give(sequence->tokens);
    weir_memory_give(sequence->logits);
    free(sequence);
}

weir_status weir_api_reserve(weir_sequence *s, size_t n, weir_error *error)
{
    size_t bytes;
    if (n <= s->capacity) return WEIR_OK;
    int32_t *const grown =
        weir_mul_size(&bytes, n, sizeof *s->tokens) ? take(s, s->tokens, bytes) : NULL;
    if (grown == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for the %zu tokens of a sequence; raise memory.host", n
        );
    s->tokens = grown;
    s->capacity = n;
    return WEIR_OK;
}

const int32_t *weir_sequence_tokens(const weir_sequence *sequence, size_t *n)
{
    *n = sequence->n;
    return sequence->tokens;
}

void weir_sequence_cancel(weir_sequence *sequence) { atomic_store(&sequence->is_canceled, true); }

const char *weir_finish_reason(const weir_sequence *sequence)
{
    switch (sequence->finish) {
    case WEIR_FINISH_STOP: return "stop";
    case WEIR_FINISH_LENGTH: return "length";
    case WEIR_FINISH_CANCELED: return "cancelled";
    case WEIR_FINISH_TIMEOUT: return "timeout";
    case WEIR_FINISH_NONE:
    case WEIR_FINISH_ERROR: break;
    }
    return "";
}

/* ---- computing ------------------------------------------------------------------------------- */
/* Computes all tokens for the logits after the last one. */
static weir_status compute(weir_sequence *s, weir_error *error)
{
    weir_request request = { .want_logits = true, .sampling = weir_sampling_default() };
    return weir_api_run(s, &request, NULL, NULL, error);
}

static weir_status check_tokens(
    const weir_sequence *s, const int32_t *tokens, size_t n, weir_error *error
)
{
    const weir_engine_facts *const info = weir_api_facts(s->engine);
    if (n > (size_t)info->window)
        return weir_error_set(
            error, WEIR_EINVAL,
            "%zu tokens do not fit the context window of %d; raise model.context", n,
            (int)info->window
        );
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= info->n_valid_vocab)
            return weir_error_set(
                error, WEIR_EINVAL, "token %d at position %zu is not in the vocabulary of %d",
                (int)tokens[i], i, (int)info->n_valid_vocab
            );
    }
    return WEIR_OK;
}

weir_status weir_sequence_sync(
    weir_sequence *sequence, const int32_t *tokens, size_t n, weir_error *error
)
{
    WEIR_TRY(check_tokens(sequence, tokens, n, error));
    WEIR_TRY(weir_api_reserve(sequence, n, error));
    if (n > 0) memmove(sequence->tokens, tokens, n * sizeof *tokens); /* may overlap */
    sequence->n = n;
    sequence->has_logits = false;
    sequence->finish = WEIR_FINISH_NONE;
    sequence->usage = (weir_usage){ 0 };
    return n > 0 ? compute(sequence, error) : WEIR_OK;
}

static weir_status check_not_empty(const weir_sequence *s, weir_error *error)
{
    if (s->n > 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "the sequence is empty; call weir_sequence_sync with a prompt first"
    );
}

weir_status weir_sequence_logits(
    weir_sequence *sequence, const float **logits, size_t *vocab_size, weir_error *error
)
{
    WEIR_TRY(check_not_empty(sequence, error));
    if (!sequence->has_logits) WEIR_TRY(compute(sequence, error));
    *logits = sequence->logits;
    *vocab_size = (size_t)weir_api_facts(sequence->engine)->n_vocab;
    return WEIR_OK;
}

/* ---- generating ------------------------------------------------------------------------------ */
static weir_sampling_params configured(const weir_engine *engine)
{
    const weir_config *const c = weir_engine_config(engine);
    const int64_t most = c->sampling.max_tokens;
    return (weir_sampling_params){ .size = sizeof(weir_sampling_params),
                                   .max_tokens = most < INT32_MAX ? (int32_t)most : 0,
                                   .top_k = (int32_t)c->sampling.top_k,
                                   .temperature = (float)c->sampling.temperature,
                                   .top_p = (float)c->sampling.top_p,
                                   .min_p = (float)c->sampling.min_p,
                                   .repetition_penalty = (float)c->sampling.repetition_penalty,
                                   .presence_penalty = (float)c->sampling.presence_penalty,
                                   .frequency_penalty = (float)c->sampling.frequency_penalty,
                                   .seed = c->sampling.seed };
}

void weir_sampling_params_init(weir_sampling_params *params, size_t size, const weir_engine *engine)
{
    weir_sampling_params known = configured(engine);
    known.size = size < sizeof known ? size : sizeof known;
    memcpy(params, &known, known.size);
}

static weir_sampling sampling_of(const weir_sampling_params *params)
{
    weir_sampling sampling = weir_sampling_default();
    sampling.temperature = params->temperature;
    sampling.top_k = params->top_k;
    sampling.top_p = params->top_p;
    sampling.min_p = params->min_p;
    sampling.repetition_penalty = params->repetition_penalty;
    sampling.presence_penalty = params->presence_penalty;
    sampling.frequency_penalty = params->frequency_penalty;
    sampling.seed = weir_sampling_seed(params->seed);
    return sampling;
}

/* Fields that a caller built for an earlier version does not know keep their configured values. */
static weir_sampling_params complete(const weir_sampling_params *given, const weir_engine *engine)
{
    weir_sampling_params params = configured(engine);
    if (given != NULL)
        memcpy(&params, given, given->size < sizeof params ? given->size : sizeof params);
    return params;
}

/* The most tokens of an answer: the last one is sampled and need not be computed. */
static size_t most_tokens(const weir_sequence *s, int32_t max_tokens)
{
    const size_t window = (size_t)weir_api_facts(s->engine)->window,
                 left = s->n < window ? window - s->n + 1 : 1;
    return max_tokens > 0 && (size_t)max_tokens < left ? (size_t)max_tokens : left;
}

weir_status weir_generate(
    weir_sequence *sequence, const weir_sampling_params *params, weir_token_callback *callback,
    void *user, weir_error *error
)
{
    const weir_sampling_params wanted = complete(params, sequence->engine);
    WEIR_TRY(check_not_empty(sequence, error));
    if (wanted.max_tokens < 0 || wanted.min_tokens < 0)
        return weir_error_set(error, WEIR_EINVAL, "max_tokens and min_tokens must not be negative");
    const size_t most = most_tokens(sequence, wanted.max_tokens);
    WEIR_TRY(weir_api_reserve(sequence, sequence->n + most + 1, error)); /* and the stop token */
    weir_request request = { .max_tokens = (int32_t)most,
                             .min_tokens = wanted.min_tokens,
                             .ignore_eos = wanted.ignore_eos != 0,
                             .sampling = sampling_of(&wanted) };
    return weir_api_run(sequence, &request, callback, user, error);
}

/* ---- files ----------------------------------------------------------------------------------- */
/* With a KV policy only whole sequences can be continued, so the last token is computed first. */
weir_status weir_sequence_save(weir_sequence *sequence, const char *path, weir_error *error)
{
    weir_session_result result;
    if (sequence->usage.kv_policy != NULL && !sequence->has_logits && sequence->n > 0)
        WEIR_TRY(compute(sequence, error));
    return weir_engine_write_sequence(
        sequence->engine, sequence->tokens, (int32_t)sequence->n, WEIR_API_SALT, path, &result,
        error
    );
}

weir_status weir_sequence_restore(weir_sequence *sequence, const char *path, weir_error *error)
{
    weir_session_result result;
    weir_ids ids = { 0 };
    weir_memory_tracker *const before = weir_memory_tracker_set(&sequence->tracker.tracker);
    weir_status status =
        weir_engine_read_sequence(sequence->engine, &ids, WEIR_API_SALT, path, &result, error);
    (void)weir_memory_tracker_set(before);
    if (status == WEIR_OK) status = weir_api_reserve(sequence, ids.count, error);
    if (status == WEIR_OK) {
        memcpy(sequence->tokens, ids.data, ids.count * sizeof *ids.data);
        sequence->n = ids.count;
        sequence->has_logits = false;
        sequence->finish = WEIR_FINISH_NONE;
        sequence->usage = (weir_usage){ 0 };
    }
    weir_ids_free(&ids);
    return status;
}
