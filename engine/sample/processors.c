/* engine/sample/processors.c - logit processors, in the order of Hugging Face's generate().
 *
 * Cost with a vocabulary of 248k: every step over all ids is one pass of simple vector code over 1
 * MB. The whole vocabulary is sorted only if a large part of it is kept: the k-th largest of the
 * maxima of blocks of 64 ids is a lower bound for the k-th largest logit (k blocks hold one each),
 * so only the candidates at or above it are sorted: they are few, and the k best are among them. */
#include "engine/sample/processors.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LANES = 16 }; /* independent partial results: the compiler may not reorder floats itself */

static size_t count_blocks(size_t n) { return (n + WEIR_SAMPLE_BLOCK - 1) / WEIR_SAMPLE_BLOCK; }

float weir_largest(const float *values, size_t n)
{
    float lanes[LANES], best = -INFINITY;
    const size_t whole = n / LANES * LANES;
    for (size_t j = 0; j < LANES; j++) lanes[j] = -INFINITY;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    for (size_t j = 0; j < LANES; j++) best = lanes[j] > best ? lanes[j] : best;
    for (size_t i = whole; i < n; i++) best = values[i] > best ? values[i] : best;
    return best;
}

/* ---- candidates as numbers ------------------------------------------------------------------- */

/* Positive floats order like their bits, negative ones in reverse; + 0 turns -0 into 0. Inverted,
 * so that the larger logit comes first. */
static weir_candidate candidate_of(float logit, size_t id)
{
    const float clean = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &clean, sizeof bits);
    const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)~ascending << 32 | (uint32_t)id;
}

static float logit_of(weir_candidate candidate)
{
    const uint32_t ascending = ~(uint32_t)(candidate >> 32);
    const uint32_t bits = ascending & 0x80000000u ? ascending & 0x7FFFFFFFu : ~ascending;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

size_t weir_candidates_count(const weir_sampler_scratch *s)
{
    return s->listed ? s->n_listed : s->n;
}

int32_t weir_candidates_id(const weir_sampler_scratch *s, size_t index)
{
    return s->listed ? (int32_t)(uint32_t)s->list[index] : (int32_t)index;
}

float weir_candidates_logit(const weir_sampler_scratch *s, size_t index)
{
    return s->listed ? logit_of(s->list[index]) : s->logits[index];
}

/* Radix sort over the logit's 4 bytes, least significant first. Stable, so ids in ascending order
 * stay so on ties. The result is in `list`. */
static void sort_candidates(weir_candidate *list, weir_candidate *spare, size_t n)
{
    weir_candidate *from = list, *to = spare;
    for (int shift = 32; shift < 64; shift += 8) {
        size_t start[256] = { 0 };
        for (size_t i = 0; i < n; i++) start[from[i] >> shift & 255]++;
        if (n == 0 || start[from[0] >> shift & 255] == n) continue;
        for (size_t digit = 0, sum = 0; digit < 256; digit++) {
            const size_t count = start[digit];
            start[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) to[start[from[i] >> shift & 255]++] = from[i];
        weir_candidate *const swap = from;
        from = to;
        to = swap;
    }
    if (from != list) memcpy(list, from, n * sizeof *list);
}

/* ---- steps over all ids ---------------------------------------------------------------------- */

void weir_process_load(weir_sampler_scratch *s, const float *logits, size_t n_valid)
{
    WEIR_ASSERT(n_valid > 0 && n_valid <= s->n_vocab);
    float *const out = s->logits;
    for (size_t i = 0; i < n_valid; i++) {
        const float x = logits[i] > FLT_MAX ? FLT_MAX : logits[i];
        out[i] = x == x ? x : -INFINITY;
    }
    s->n = n_valid;
    s->listed = false;
    s->n_listed = 0;
}

/* Keeps logits finite after arithmetic that may overflow. */
static float bounded(float x) { return x > FLT_MAX ? FLT_MAX : x; }

void weir_process_bias(weir_sampler_scratch *s, const weir_logit_bias *bias, size_t n_bias)
{
    for (size_t i = 0; i < n_bias; i++)
        if (bias[i].id >= 0 && (size_t)bias[i].id < s->n)
            s->logits[bias[i].id] = bounded(s->logits[bias[i].id] + bias[i].bias);
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
}

void weir_process_ban(weir_sampler_scratch *s, const int32_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] >= 0 && (size_t)ids[i] < s->n) s->logits[ids[i]] = -INFINITY;
}

/* Shifting by the best logit changes no probability, and with a tiny temperature the others become
 * -inf instead of several becoming +inf. */
void weir_process_temperature(weir_sampler_scratch *s, float temperature)
{
    if (temperature == 1.0f) return;
    const float best = weir_largest(s->logits, s->n);
    if (best == -INFINITY) return;
    for (size_t i = 0; i < s->n; i++) s->logits[i] = (s->logits[i] - best) / temperature;
}

/* ---- filters --------------------------------------------------------------------------------- */

static void find_block_max(weir_sampler_scratch *s)
{
    for (size_t b = 0; b < count_blocks(s->n); b++) {
        const size_t first = b * WEIR_SAMPLE_BLOCK, left = s->n - first;
        s->block_max[b] =
            weir_largest(s->logits + first, left < WEIR_SAMPLE_BLOCK ? left : WEIR_SAMPLE_BLOCK);
    }
}

/* A bound that at least min(k, number of possible ids) candidates reach. Uses the list as
 * scratch. */
static float bound_of_best(weir_sampler_scratch *s, size_t k)
{
    const size_t n_blocks = count_blocks(s->n);
    if (k > n_blocks) return -FLT_MAX;
    for (size_t b = 0; b < n_blocks; b++) s->list[b] = candidate_of(s->block_max[b], b);
    sort_candidates(s->list, s->spare, n_blocks);
    const float bound = logit_of(s->list[k - 1]);
    return bound > -FLT_MAX ? bound : -FLT_MAX;
}

/* Lists every id whose logit reaches `bound`, best first. Requires block_max. */
static void list_from(weir_sampler_scratch *s, float bound)
{
    size_t n = 0;
    for (size_t b = 0; b < count_blocks(s->n); b++) {
        if (!(s->block_max[b] >= bound)) continue;
        const size_t first = b * WEIR_SAMPLE_BLOCK,
                     end = first + WEIR_SAMPLE_BLOCK < s->n ? first + WEIR_SAMPLE_BLOCK : s->n;
        for (size_t i = first; i < end; i++)
            if (s->logits[i] >= bound) s->list[n++] = candidate_of(s->logits[i], i);
    }
    sort_candidates(s->list, s->spare, n);
    s->listed = true;
    s->n_listed = n;
}

void weir_process_top_k(weir_sampler_scratch *s, size_t k)
{
    WEIR_ASSERT(!s->listed && k > 0);
    find_block_max(s);
    list_from(s, bound_of_best(s, k));
    if (s->n_listed > k) s->n_listed = k;
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

void weir_process_top_p(weir_sampler_scratch *s, double p)
{
    weir_process_softmax(s);
    const double mass = p * s->total;
    if (s->listed) {
        (void)cut_at_mass(s, mass);
        return;
    }
    find_block_max(s);
    const size_t n_blocks = count_blocks(s->n);
    for (size_t k = 128;;
         k *= 8) { /* most distributions need one round; a flat one sorts everything once */
        s->listed = false;
        list_from(s, bound_of_best(s, k));
        weir_process_softmax(s);
        if (cut_at_mass(s, mass) || k > n_blocks) return;
    }
}

void weir_process_min_p(weir_sampler_scratch *s, float min_p)
{
    weir_process_softmax(s);
    const size_t n = weir_candidates_count(s);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(s->weights[i] >= min_p)) continue; /* the best candidate has weight 1 */
        s->list[kept++] = s->listed ? s->list[i] : candidate_of(s->logits[i], i);
    }
    s->listed = true;
    s->n_listed = kept;
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* exp(x) for x <= 0, within 2 units in the last place; 0 below -87. x = k ln 2 + r with |r| <= ln 2
 * / 2, and the Taylor series of exp(r) up to r^7 (error below 6e-9). ln 2 is split so that k times
 * its first part is exact. */
static inline float exp_of_negative(float x)
{
    const float inside = x < -87.0f ? -87.0f : x;
    const float k =
        inside * 1.44269504f + 12582912.0f - 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    const float r = inside - k * 0.693115234375f - k * 3.19461849e-5f;
    const float tail =
        1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040))));
    const float series = 1.0f + (r + r * r * (0.5f + r * tail));
    const int32_t bits = ((int32_t)k + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : series * power;
}

/* Sums each block in eight lanes, then the blocks in order: the same order on every machine. */
static void sum_blocks(weir_sampler_scratch *s, size_t n)
{
    s->total = 0;
    for (size_t first = 0; first < n; first += WEIR_SAMPLE_BLOCK) {
        const size_t count = n - first < WEIR_SAMPLE_BLOCK ? n - first : WEIR_SAMPLE_BLOCK,
                     whole = count / 8 * 8;
        double lanes[8] = { 0 }, sum = 0;
        for (size_t i = first; i < first + whole; i += 8)
            for (size_t j = 0; j < 8; j++) lanes[j] += (double)s->weights[i + j];
        for (size_t j = 0; j < 8; j++) sum += lanes[j];
        for (size_t i = first + whole; i < first + count; i++) sum += (double)s->weights[i];
        s->block_sums[first / WEIR_SAMPLE_BLOCK] = sum;
        s->total += sum;
    }
}

void weir_process_softmax(weir_sampler_scratch *s)
{
    const size_t n = weir_candidates_count(s);
    const float *logits = s->logits;
    if (s->listed) {
        for (size_t i = 0; i < n; i++) s->weights[i] = logit_of(s->list[i]);
        logits = s->weights;
    }
    const float best = weir_largest(logits, n),
                shift = best > -INFINITY ? best : 0; /* no id is possible: every weight is 0 */
    for (size_t i = 0; i < n; i++) s->weights[i] = exp_of_negative(logits[i] - shift);
    sum_blocks(s, n);
}
