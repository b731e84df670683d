/* engine/sample/processors.c - logit processors, in the order of Hugging Face's generate(). Only
 * the passes of passes.h read the whole vocabulary: maxima of blocks of 64 logits, and sums of
 * weights if all ids stay candidates. */
#include "engine/sample/processors.h"

#include <float.h>
#include <math.h>
#include <string.h>

static size_t count_blocks(size_t n) { return (n + WEIR_SAMPLE_BLOCK - 1) / WEIR_SAMPLE_BLOCK; }

static size_t members(size_t n, size_t first)
{
    return n - first < WEIR_SAMPLE_BLOCK ? n - first : WEIR_SAMPLE_BLOCK;
}

/* ---- values of logits ------------------------------------------------------------------------ */

static float at_temperature(weir_temperature t, float logit)
{
    return t.temperature == 1.0f ? logit : (logit - t.best) / t.temperature;
}

/* Keeps logits finite after arithmetic that may overflow. */
static float bounded(float x) { return x > FLT_MAX ? FLT_MAX : x; }

static float logit_of(const weir_sampler_scratch *s, size_t id)
{
    return weir_clean_logit(s->source[id]);
}

size_t weir_candidates_count(const weir_sampler_scratch *s)
{
    return s->is_listed ? s->n_listed : s->n;
}

int32_t weir_candidates_id(const weir_sampler_scratch *s, size_t index)
{
    return s->is_listed ? (int32_t)(uint32_t)s->list[index] : (int32_t)index;
}

float weir_candidates_value(const weir_sampler_scratch *s, size_t index)
{
    return s->is_listed ? weir_candidate_value(s->list[index])
                        : at_temperature(s->temperature, logit_of(s, index));
}

void weir_candidates_weights(const weir_sampler_scratch *s, size_t first, size_t n, float *weights)
{
    if (s->is_listed)
        memcpy(weights, s->weights + first, n * sizeof *weights);
    else
        s->passes->weigh(weights, s->source + first, n, s->temperature, s->shift);
}

/* ---- passes over all ids --------------------------------------------------------------------- */

typedef void range_pass(weir_sampler_scratch *s, size_t first, size_t n);

/* Ranges are whole blocks, so threads change no sum. */
static void pass_over(weir_sampler_scratch *s, range_pass *pass)
{
    enum { RANGE = 64 * WEIR_SAMPLE_BLOCK, PARALLEL = 8 * RANGE };
    if (!s->is_parallel || s->n < PARALLEL) {
        pass(s, 0, s->n);
        return;
    }
    const size_t n_ranges = (s->n + RANGE - 1) / RANGE;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n_ranges; i++)
        pass(s, i * RANGE, s->n - i * RANGE < RANGE ? s->n - i * RANGE : RANGE);
}

static void find_max(weir_sampler_scratch *s, size_t first, size_t n)
{
    s->passes->block_max(s->block_max + first / WEIR_SAMPLE_BLOCK, s->source + first, n);
}

static void find_sums(weir_sampler_scratch *s, size_t first, size_t n)
{
    s->passes->block_sums(
        s->block_sums + first / WEIR_SAMPLE_BLOCK, s->source + first, n, s->temperature, s->shift
    );
}

static void find_weights(weir_sampler_scratch *s, size_t first, size_t n)
{
    s->passes->weigh(s->weights + first, s->source + first, n, s->temperature, s->shift);
}

float weir_process_best(weir_sampler_scratch *s)
{
    if (s->has_max) return s->best;
    pass_over(s, find_max);
    s->best = -INFINITY;
    for (size_t b = 0; b < count_blocks(s->n); b++)
        s->best = s->block_max[b] > s->best ? s->block_max[b] : s->best;
    s->has_max = true;
    return s->best;
}

int32_t weir_process_best_id(weir_sampler_scratch *s)
{
    const float best = weir_process_best(s);
    size_t block = 0;
    for (size_t i = 0; best == FLT_MAX && i < s->n; i++)
        if (s->source[i] > FLT_MAX) return (int32_t)i;
    while (s->block_max[block] < best) block++;
    size_t id = block * WEIR_SAMPLE_BLOCK;
    while (logit_of(s, id) < best) id++;
    return (int32_t)id;
}

/* ---- steps that change logits ---------------------------------------------------------------- */

void weir_process_view(weir_sampler_scratch *s, const float *logits, size_t n_valid)
{
    WEIR_ASSERT(n_valid > 0 && n_valid <= s->n_vocab);
    s->source = logits;
    s->n = n_valid;
    s->temperature = (weir_temperature){ 0, 1 };
    s->has_max = s->is_listed = false;
    s->n_listed = 0;
}

void weir_process_load(weir_sampler_scratch *s, const float *logits, size_t n_valid)
{
    weir_process_view(s, logits, n_valid);
    s->passes->clean(s->logits, logits, n_valid);
    s->source = s->logits;
}

void weir_process_bias(weir_sampler_scratch *s, const weir_logit_bias *bias, size_t n_bias)
{
    for (size_t i = 0; i < n_bias; i++)
        if (bias[i].id >= 0 && (size_t)bias[i].id < s->n)
            s->logits[bias[i].id] = bounded(s->logits[bias[i].id] + bias[i].bias);
    s->has_max = false;
}

/* Applies the penalty once, whether the prompt, the answer or both contain the token. */
static void repetition(
    float *restrict logits, const uint16_t *restrict prompt, const uint16_t *restrict answer,
    size_t n, float penalty
)
{
    for (size_t i = 0; i < n; i++) {
        const float x = logits[i], punished = x > 0 ? x / penalty : x * penalty;
        logits[i] = bounded((prompt[i] | answer[i]) != 0 ? punished : x);
    }
}

static void presence_frequency(
    float *restrict logits, const uint16_t *restrict answer, size_t n, float presence,
    float frequency
)
{
    for (size_t i = 0; i < n; i++) {
        const float count = (float)answer[i];
        logits[i] = bounded(logits[i] - (answer[i] != 0 ? presence : 0.0f) - frequency * count);
    }
}

void weir_process_penalties(
    weir_sampler_scratch *s, const weir_sampling *sampling, const weir_sampler_history *history
)
{
    if (history == NULL) return;
    const size_t n = s->n < history->n_vocab ? s->n : history->n_vocab;
    const uint16_t *const prompt = history->prompt != NULL ? history->prompt : history->answer;
    const uint16_t *const answer = history->answer != NULL ? history->answer : history->prompt;
    if (prompt != NULL && sampling->repetition_penalty != 1.0f)
        repetition(s->logits, prompt, answer, n, sampling->repetition_penalty);
    if (history->answer != NULL &&
        (sampling->presence_penalty != 0.0f || sampling->frequency_penalty != 0.0f))
        presence_frequency(
            s->logits, history->answer, n, sampling->presence_penalty, sampling->frequency_penalty
        );
    s->has_max = false;
}

void weir_process_ban(weir_sampler_scratch *s, const int32_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] >= 0 && (size_t)ids[i] < s->n) s->logits[ids[i]] = -INFINITY;
    s->has_max = false;
}

/* Most words of a mask are 0 or all ones. */
void weir_process_allow(weir_sampler_scratch *s, const uint64_t *allowed)
{
    for (size_t first = 0; first < s->n; first += 64) {
        const uint64_t word = allowed[first / 64];
        const size_t n = s->n - first < 64 ? s->n - first : 64;
        for (size_t i = 0; word != UINT64_MAX && i < n; i++)
            if ((word >> i & 1) == 0) s->logits[first + i] = -INFINITY;
    }
    s->has_max = false;
}

/* Shifting by the best logit changes no probability, and with a tiny temperature the others become
 * -inf instead of several becoming +inf. */
void weir_process_temperature(weir_sampler_scratch *s, float temperature)
{
    const float best = weir_process_best(s);
    if (temperature != 1.0f && best > -INFINITY)
        s->temperature = (weir_temperature){ best, temperature };
}

/* ---- filters: none drops the best candidate -------------------------------------------------- */

/* A bound that at least min(k, number of possible ids) candidates reach: the k-th largest maximum,
 * as k blocks hold one such logit each. Filters read only blocks that reach the bound, and sort
 * only the ids that do. */
static float bound_of_best(weir_sampler_scratch *s, size_t k)
{
    const size_t n_blocks = count_blocks(s->n);
    if (k > n_blocks) return -FLT_MAX;
    for (size_t b = 0; b < n_blocks; b++) s->spare[b] = weir_candidate_of(s->block_max[b], b);
    const float bound = at_temperature(
        s->temperature, weir_candidate_value(weir_candidates_select(s->spare, n_blocks, k))
    );
    return bound > -FLT_MAX ? bound : -FLT_MAX;
}

/* Lists every id whose value reaches `bound`, best first. */
static void list_from(weir_sampler_scratch *s, float bound)
{
    size_t n = 0;
    s->is_listed = false;
    for (size_t b = 0; b < count_blocks(s->n); b++) {
        if (!(at_temperature(s->temperature, s->block_max[b]) >= bound)) continue;
        const size_t first = b * WEIR_SAMPLE_BLOCK, end = first + members(s->n, first);
        for (size_t i = first; i < end; i++) {
            const float value = weir_candidates_value(s, i);
            if (value >= bound) s->list[n++] = weir_candidate_of(value, i);
        }
    }
    weir_candidates_sort(s->list, s->spare, n);
    s->is_listed = true;
    s->n_listed = n;
}

void weir_process_top_k(weir_sampler_scratch *s, size_t k)
{
    WEIR_ASSERT(!s->is_listed && k > 0);
    (void)weir_process_best(s);
    list_from(s, bound_of_best(s, k));
    if (s->n_listed > k) s->n_listed = k;
}

/* A value that all candidates of at least this weight reach. exp and log are not exact, and may not
 * be monotone in the last places. */
static float value_of_weight(const weir_sampler_scratch *s, float weight)
{
    return s->shift + logf(weight) - 1e-3f - 1e-6f * fabsf(s->shift);
}

/* A bound whose candidates have at least `mass` together: by sums of weights with equal exponents
 * and first four bits of the fraction. */
static float bound_of_mass(weir_sampler_scratch *s, double mass)
{
    enum { SHIFT = 19, CLASSES = (0x3F800000 >> SHIFT) + 1 }; /* weights up to 1 */
    double sums[CLASSES] = { 0 }, sum = 0;
    pass_over(s, find_weights);
    for (size_t i = 0; i < s->n; i++) {
        uint32_t bits;
        memcpy(&bits, &s->weights[i], sizeof bits);
        sums[bits >> SHIFT] += (double)s->weights[i];
    }
    for (uint32_t class = CLASSES - 1; class > 0; class --) {
        sum += sums[class];
        if (sum < mass * (1 + 1e-9)) continue;
        const uint32_t bits = class << SHIFT;
        float weight;
        memcpy(&weight, &bits, sizeof weight);
        return value_of_weight(s, weight);
    }
    return -FLT_MAX;
}

/* Truncates the sorted list where the weights reach `mass`; returns false if they do not. */
static bool cut_at_mass(weir_sampler_scratch *s, double mass)
{
    double sum = 0;
    for (size_t i = 0; i < s->n_listed; i++) {
        sum += (double)s->weights[i];
        if (sum < mass) continue;
        s->n_listed = i + 1;
        return true;
    }
    return false;
}

/* The list of candidates from `bound` on reaches `mass`, or holds all that are possible. */
static bool list_mass(weir_sampler_scratch *s, float bound, double mass)
{
    list_from(s, bound);
    weir_process_softmax(s);
    return cut_at_mass(s, mass) || bound == -FLT_MAX;
}

/* Most distributions need the first list only. */
void weir_process_top_p(weir_sampler_scratch *s, double p)
{
    enum { FEW = 128 };
    weir_process_softmax(s);
    const double mass = p * s->total;
    if (s->is_listed)
        (void)cut_at_mass(s, mass);
    else if (!list_mass(s, bound_of_best(s, FEW), mass) &&
             !list_mass(s, bound_of_mass(s, mass), mass))
        (void)list_mass(s, -FLT_MAX, mass);
}

static void min_p_of_list(weir_sampler_scratch *s, float min_p)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_listed; i++)
        if (s->weights[i] >= min_p) s->list[kept++] = s->list[i];
    s->n_listed = kept;
}

static void min_p_of_all(weir_sampler_scratch *s, float min_p)
{
    const float bound = value_of_weight(s, min_p);
    size_t kept = 0;
    for (size_t b = 0; b < count_blocks(s->n); b++) {
        if (!(at_temperature(s->temperature, s->block_max[b]) >= bound)) continue;
        const size_t first = b * WEIR_SAMPLE_BLOCK, count = members(s->n, first);
        float weights[WEIR_SAMPLE_BLOCK];
        weir_candidates_weights(s, first, count, weights);
        for (size_t i = 0; i < count; i++)
            if (weights[i] >= min_p)
                s->list[kept++] = weir_candidate_of(weir_candidates_value(s, first + i), first + i);
    }
    s->n_listed = kept;
    s->is_listed = true;
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Every list holds the best candidate. */
static void find_shift(weir_sampler_scratch *s)
{
    const float best = at_temperature(s->temperature, weir_process_best(s));
    s->shift = best > -INFINITY ? best : 0;
}

static void weigh_list(weir_sampler_scratch *s)
{
    const weir_temperature none = { 0, 1 };
    for (size_t first = 0; first < s->n_listed; first += WEIR_SAMPLE_BLOCK) {
        const size_t count = members(s->n_listed, first);
        float values[WEIR_SAMPLE_BLOCK];
        for (size_t i = 0; i < count; i++) values[i] = weir_candidate_value(s->list[first + i]);
        s->passes->weigh(s->weights + first, values, count, none, s->shift);
        s->passes->block_sums(
            s->block_sums + first / WEIR_SAMPLE_BLOCK, values, count, none, s->shift
        );
    }
}

void weir_process_softmax(weir_sampler_scratch *s)
{
    find_shift(s);
    if (s->is_listed)
        weigh_list(s);
    else
        pass_over(s, find_sums);
    s->total = 0;
    for (size_t b = 0; b < count_blocks(weir_candidates_count(s)); b++)
        s->total += s->block_sums[b];
}

void weir_process_min_p(weir_sampler_scratch *s, float min_p)
{
    if (s->is_listed) {
        weir_process_softmax(s);
        min_p_of_list(s, min_p);
    } else {
        find_shift(s);
        min_p_of_all(s, min_p);
    }
}
