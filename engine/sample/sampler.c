/* engine/sample/sampler.c - parameters, the draw, log-probabilities. Keeps no state between
 * tokens. */
#include "engine/sample/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "engine/base/checked.h"
#include "engine/sample/processors.h"
#include "engine/sample/random.h"
#include "offload/caps.h"

weir_sampling weir_sampling_default(void)
{
    return (weir_sampling){ .temperature = 0, .top_p = 1, .repetition_penalty = 1 };
}

static weir_status check_number(
    const char *name, double value, double low, double high, weir_error *error
)
{
    if (value >= low && value <= high) return WEIR_OK; /* false for NaN */
    return weir_error_set(
        error, WEIR_EINVAL, "%s must lie between %g and %g, got %g", name, low, high, value
    );
}

weir_status weir_sampling_check(const weir_sampling *sampling, size_t n_vocab, weir_error *error)
{
    WEIR_TRY(check_number("temperature", (double)sampling->temperature, 0, 2, error));
    if (sampling->top_k < 0)
        return weir_error_set(
            error, WEIR_EINVAL, "top_k must not be negative, got %" PRId32, sampling->top_k
        );
    WEIR_TRY(check_number("top_p", (double)sampling->top_p, 0, 1, error));
    if (sampling->top_p == 0) return weir_error_set(error, WEIR_EINVAL, "top_p must be above 0");
    WEIR_TRY(check_number("min_p", (double)sampling->min_p, 0, 1, error));
    WEIR_TRY(check_number("repetition_penalty", (double)sampling->repetition_penalty, 0, 100, error)
    );
    if (sampling->repetition_penalty == 0)
        return weir_error_set(error, WEIR_EINVAL, "repetition_penalty must be above 0");
    WEIR_TRY(check_number("presence_penalty", (double)sampling->presence_penalty, -2, 2, error));
    WEIR_TRY(check_number("frequency_penalty", (double)sampling->frequency_penalty, -2, 2, error));
    if (sampling->n_bias > n_vocab)
        return weir_error_set(
            error, WEIR_EINVAL, "logit_bias has %zu entries for %zu tokens", sampling->n_bias,
            n_vocab
        );
    for (size_t i = 0; i < sampling->n_bias; i++) {
        if (sampling->bias[i].id < 0 || (size_t)sampling->bias[i].id >= n_vocab)
            return weir_error_set(
                error, WEIR_EINVAL, "logit_bias: no token %" PRId32 ", ids end at %zu",
                sampling->bias[i].id, n_vocab - 1
            );
        WEIR_TRY(check_number("logit_bias", (double)sampling->bias[i].bias, -100, 100, error));
    }
    return WEIR_OK;
}

size_t weir_sampler_scratch_bytes(size_t n_vocab)
{
    const weir_sampler_scratch *const s = NULL;
    const size_t n_blocks = (n_vocab + WEIR_SAMPLE_BLOCK - 1) / WEIR_SAMPLE_BLOCK;
    return sizeof *s +
           n_vocab * (sizeof *s->logits + sizeof *s->weights + sizeof *s->list + sizeof *s->spare) +
           n_blocks * (sizeof *s->block_max + sizeof *s->block_sums + sizeof *s->mask);
}

weir_status weir_sampler_scratch_open(weir_sampler_scratch **out, size_t n_vocab)
{
    size_t ignored;
    if (n_vocab == 0 || n_vocab > INT32_MAX ||
        !weir_mul_size(&ignored, n_vocab, sizeof(weir_candidate)))
        return WEIR_EINVAL;
    weir_sampler_scratch *const s = calloc(1, sizeof *s);
    if (s == NULL) return WEIR_ENOMEM;
    const size_t n_blocks = (n_vocab + WEIR_SAMPLE_BLOCK - 1) / WEIR_SAMPLE_BLOCK;
    const weir_caps caps = weir_caps_detect();
    s->passes = weir_passes_of(weir_caps_isa(&caps));
    s->n_vocab = n_vocab;
    s->logits = calloc(n_vocab, sizeof *s->logits);
    s->weights = calloc(n_vocab, sizeof *s->weights);
    s->list = calloc(n_vocab, sizeof *s->list);
    s->spare = calloc(n_vocab, sizeof *s->spare);
    s->block_max = calloc(n_blocks, sizeof *s->block_max);
    s->block_sums = calloc(n_blocks, sizeof *s->block_sums);
    s->mask = calloc(n_blocks, sizeof *s->mask);
    if (s->logits == NULL || s->weights == NULL || s->list == NULL || s->spare == NULL ||
        s->block_max == NULL || s->block_sums == NULL || s->mask == NULL) {
        weir_sampler_scratch_close(s);
        return WEIR_ENOMEM;
    }
    *out = s;
    return WEIR_OK;
}

void weir_sampler_scratch_close(weir_sampler_scratch *scratch)
{
    if (scratch == NULL) return;
    free(scratch->logits);
    free(scratch->weights);
    free(scratch->list);
    free(scratch->spare);
    free(scratch->block_max);
    free(scratch->block_sums);
    free(scratch->mask);
    free(scratch);
}

uint64_t *weir_sampler_scratch_mask(weir_sampler_scratch *scratch) { return scratch->mask; }

void weir_sampler_scratch_parallel(weir_sampler_scratch *scratch, bool is_parallel)
{
    scratch->is_parallel = is_parallel;
}

/* The candidate where the running sum of weights passes u * total: finds the block, then the place
 * inside it. Rounding can leave the sum of a block's members just below the block's own sum; the
 * last candidate with weight is then chosen. */
static int32_t draw_at(const weir_sampler_scratch *s, double u)
{
    const size_t n = weir_candidates_count(s), last_block = (n - 1) / WEIR_SAMPLE_BLOCK;
    const double target = u * s->total;
    double sum = 0;
    size_t block = 0;
    while (block < last_block && sum + s->block_sums[block] <= target)
        sum += s->block_sums[block++];
    while (block > 0 && s->block_sums[block] == 0) sum -= s->block_sums[--block];
    const size_t first = block * WEIR_SAMPLE_BLOCK,
                 end = first + WEIR_SAMPLE_BLOCK < n ? first + WEIR_SAMPLE_BLOCK : n;
    size_t chosen = first;
    float weights[WEIR_SAMPLE_BLOCK];
    weir_candidates_weights(s, first, end - first, weights);
    for (size_t i = first; i < end; i++) {
        if (weights[i - first] == 0) continue;
        chosen = i;
        sum += (double)weights[i - first];
        if (sum > target) break;
    }
    return weir_candidates_id(s, chosen);
}

static bool changes_logits(const weir_sampling *sampling, const weir_sampler_history *history)
{
    return sampling->n_bias > 0 || (history != NULL && (sampling->repetition_penalty != 1.0f ||
                                                        sampling->presence_penalty != 0.0f ||
                                                        sampling->frequency_penalty != 0.0f));
}

/* The lowest id that is allowed, and not banned if there is such a one; -1: none. */
static int32_t first_allowed(const weir_sample_limits *limits, size_t n_valid)
{
    int32_t first = -1;
    for (size_t id = 0; limits->allowed != NULL && id < n_valid; id++) {
        bool is_banned = false;
        if ((limits->allowed[id / 64] >> (id % 64) & 1) == 0) continue;
        for (size_t i = 0; i < limits->n_banned; i++)
            is_banned = is_banned || limits->banned[i] == (int32_t)id;
        if (!is_banned) return (int32_t)id;
        if (first < 0) first = (int32_t)id;
    }
    return first;
}

int32_t weir_sample(
    const float *logits, size_t n_vocab, size_t n_valid, const weir_sampling *sampling,
    const weir_sampler_history *history, const weir_sample_limits *limits, uint32_t choice,
    uint64_t draw, weir_sampler_scratch *scratch
)
{
    WEIR_ASSERT(n_valid > 0 && n_valid <= n_vocab && n_vocab <= scratch->n_vocab);
    if (limits->n_banned > 0 || limits->allowed != NULL || changes_logits(sampling, history)) {
        weir_process_load(scratch, logits, n_valid);
        weir_process_bias(scratch, sampling->bias, sampling->n_bias);
        weir_process_penalties(scratch, sampling, history);
        weir_process_ban(scratch, limits->banned, limits->n_banned);
        if (limits->allowed != NULL) weir_process_allow(scratch, limits->allowed);
        if (weir_process_best(scratch) == -INFINITY) {
            const int32_t first = first_allowed(limits, n_valid);
            if (first >= 0) return first;
            weir_process_view(scratch, logits, n_valid);
        }
    } else {
        weir_process_view(scratch, logits, n_valid);
    }
    if (sampling->temperature <= 0 || weir_process_best(scratch) == -INFINITY)
        return weir_process_best_id(scratch);

    weir_process_temperature(scratch, sampling->temperature);
    if (sampling->top_k > 0 && (size_t)sampling->top_k < n_valid)
        weir_process_top_k(scratch, (size_t)sampling->top_k);
    if (sampling->top_p < 1) weir_process_top_p(scratch, (double)sampling->top_p);
    if (sampling->min_p > 0) weir_process_min_p(scratch, sampling->min_p);
    weir_process_softmax(scratch);
    return draw_at(scratch, weir_random(sampling->seed, choice, draw));
}

/* JSON has no infinity: impossible tokens get this value. */
static const double never = -9999.0;

static weir_logprob logprob_of(int32_t id, float logit, double log_total)
{
    const double value = (double)logit - log_total;
    return (weir_logprob){ .id = id, .logprob = (float)(value > never ? value : never) };
}

void weir_logprobs(
    const float *logits, size_t n_valid, int32_t chosen, weir_logprob *chosen_out,
    weir_logprob *top, size_t n_top, weir_sampler_scratch *scratch
)
{
    WEIR_ASSERT(chosen >= 0 && (size_t)chosen < n_valid);
    weir_process_view(scratch, logits, n_valid);
    weir_process_softmax(scratch);
    const double log_total = (double)weir_process_best(scratch) + log(scratch->total);
    const float logit = weir_candidates_value(scratch, (size_t)chosen);
    *chosen_out = logprob_of(chosen, logit, log_total);
    if (n_top == 0) return;
    weir_process_top_k(scratch, n_top);
    for (size_t i = 0; i < n_top; i++)
        top[i] = i < scratch->n_listed ? logprob_of(
                                             weir_candidates_id(scratch, i),
                                             weir_candidates_value(scratch, i), log_total
                                         )
                                       : (weir_logprob){ .id = -1, .logprob = (float)never };
}
