/* tests/wire/fake_model.c - a hash of the tokens before stands for a model. */
#include "tests/wire/fake_model.h"

#include <math.h>
#include <stdlib.h>

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static double unit(uint64_t x) { return (double)(x >> 11) * 0x1p-53; }

uint64_t weir_fake_model_step(uint64_t state, int32_t token)
{
    return mix(state ^ (uint64_t)(uint32_t)token * 0x100000001b3u);
}

static void fill_logits(const weir_fake_model *m, uint64_t state)
{
    for (int32_t i = 0; i < m->n_vocab; i++)
        m->logits[i] =
            (float)(6.0 * unit(mix(state + (uint64_t)i))) + (m->printable[i] ? 3.0f : 0.0f);
}

static double log_sum(const weir_fake_model *m)
{
    double sum = 0;
    for (int32_t i = 0; i < m->n_vocab; i++) sum += exp((double)m->logits[i]);
    return log(sum);
}

static const float *sort_by;
static int descending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_by[x] != sort_by[y]) return sort_by[x] > sort_by[y] ? -1 : 1;
    return x - y;
}

static void sort_ids(weir_fake_model *m)
{
    for (int32_t i = 0; i < m->n_vocab; i++) m->order[i] = i;
    sort_by = m->logits;
    qsort(m->order, (size_t)m->n_vocab, sizeof *m->order, descending);
}

void weir_fake_model_score(
    weir_fake_model *m, const weir_request *r, uint64_t state, weir_event *event,
    weir_logprob top[WEIR_TOP_LOGPROBS]
)
{
    fill_logits(m, state);
    const double total = log_sum(m);
    event->logprob = (weir_logprob){ .id = event->token,
                                     .logprob = (float)((double)m->logits[event->token] - total) };
    if (r->n_top_logprobs > 0) sort_ids(m);
    for (int32_t i = 0; i < r->n_top_logprobs; i++)
        top[i] = (weir_logprob){ .id = m->order[i],
                                 .logprob = (float)((double)m->logits[m->order[i]] - total) };
    event->top = top;
    event->n_top = r->n_top_logprobs;
}

bool weir_fake_model_is_stop(const weir_fake_model *m, int32_t token)
{
    size_t n;
    const int32_t *const stops = weir_tokenizer_stop_ids(m->tokenizer, &n);
    for (size_t i = 0; i < n; i++)
        if (stops[i] == token) return true;
    return false;
}

static void adjust_logits(weir_fake_model *m, const weir_request *r, const weir_fake_answer *q)
{
    const weir_sampling *const p = &r->sampling;
    for (size_t i = 0; i < p->n_bias; i++) m->logits[p->bias[i].id] += p->bias[i].bias;
    for (int32_t i = 0; i < m->n_vocab; i++) {
        if (q->seen[i] > 0)
            m->logits[i] -= p->presence_penalty + p->frequency_penalty * (float)q->seen[i];
        if (q->seen[i] > 0 && p->repetition_penalty != 1)
            m->logits[i] *= m->logits[i] > 0 ? 1 / p->repetition_penalty : p->repetition_penalty;
        if ((r->ignore_eos || q->n < r->min_tokens) && weir_fake_model_is_stop(m, i))
            m->logits[i] = -INFINITY;
    }
}

int32_t weir_fake_model_draw(
    weir_fake_model *m, const weir_request *r, int32_t choice, const weir_fake_answer *q
)
{
    const weir_sampling *const p = &r->sampling;
    fill_logits(m, q->state);
    adjust_logits(m, r, q);
    sort_ids(m);
    if (p->temperature <= 0) return m->order[0];
    int32_t n = p->top_k > 0 && p->top_k < m->n_vocab ? p->top_k : m->n_vocab;
    const double best = (double)m->logits[m->order[0]] / (double)p->temperature;
    double total = 0, kept = 0;
    for (int32_t i = 0; i < n; i++)
        total += exp((double)m->logits[m->order[i]] / (double)p->temperature - best);
    int32_t k = 0;
    for (; k < n && kept < (double)p->top_p * total; k++) {
        const double w = exp((double)m->logits[m->order[k]] / (double)p->temperature - best);
        if (w < (double)p->min_p) break;
        kept += w;
    }
    double at = unit(mix(p->seed ^ mix((uint64_t)choice << 32 ^ (uint64_t)q->n))) * kept;
    for (int32_t i = 0; i < k; i++) {
        at -= exp((double)m->logits[m->order[i]] / (double)p->temperature - best);
        if (at <= 0) return m->order[i];
    }
    return m->order[0];
}

static bool is_printable(const weir_tokenizer *tokenizer, int32_t id)
{
    size_t n;
    bool special;
    const char *const bytes = weir_tokenizer_token_bytes(tokenizer, id, &n, &special);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] < 0x20 || bytes[i] >= 0x7f || bytes[i] == '<' || bytes[i] == '>') return false;
    return n > 0 && !special;
}

weir_status weir_fake_model_open(weir_fake_model *m, const weir_tokenizer *tokenizer)
{
    const size_t n = weir_tokenizer_size(tokenizer);
    *m = (weir_fake_model){ .tokenizer = tokenizer, .n_vocab = (int32_t)n };
    m->printable = calloc(n, sizeof *m->printable);
    m->logits = calloc(n, sizeof *m->logits);
    m->order = calloc(n, sizeof *m->order);
    if (m->printable == NULL || m->logits == NULL || m->order == NULL) {
        weir_fake_model_close(m);
        return WEIR_ENOMEM;
    }
    for (int32_t i = 0; i < m->n_vocab; i++) m->printable[i] = is_printable(tokenizer, i);
    return WEIR_OK;
}

void weir_fake_model_close(weir_fake_model *m)
{
    free(m->printable);
    free(m->logits);
    free(m->order);
    *m = (weir_fake_model){ 0 };
}
