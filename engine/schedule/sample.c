/* engine/schedule/sample.c - draws the next tokens after a step: a thread for each row, or all
 * threads for one row if there are few. A draw is a function of logits, parameters and counts of
 * its choice only, so the bits do not depend on threads. */
#include <omp.h>
#include <string.h>

#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

/* A request's first tokens may not be stop ids. */
static bool bans_stops(const choice *c, int32_t n_answer)
{
    return c->job->request.ignore_eos || n_answer < c->job->request.min_tokens;
}

static bool is_stop(const weir_service *service, int32_t id)
{
    for (size_t i = 0; i < service->n_stop_ids; i++) {
        if (service->stop_ids[i] == id) return true;
    }
    return false;
}

static void count_token(uint16_t *counts, int32_t id)
{
    if (counts != NULL && counts[id] < UINT16_MAX) counts[id]++;
}

/* The request is at fault, and the same one will fail again: not a lack of room (EFULL). */
static weir_status too_ambiguous(weir_status status)
{
    return status == WEIR_EFULL ? WEIR_EINVAL : status;
}

/* Writes what the grammar of the choice allows next. A complete answer that nothing can follow
 * ends, whatever bans its end. */
static weir_status limit_to_grammar(
    choice *c, weir_sample_limits *limits, weir_sampler_scratch *scratch, weir_error *error
)
{
    bool must_end = false;
    if (c->grammar == NULL) return WEIR_OK;
    uint64_t *const mask = weir_sampler_scratch_mask(scratch);
    weir_status status = weir_grammar_mask(c->grammar, mask, error);
    if (status == WEIR_OK) status = weir_grammar_must_end(c->grammar, &must_end, error);
    if (status != WEIR_OK) return too_ambiguous(status);
    if (must_end) limits->n_banned = 0;
    limits->allowed = mask;
    return WEIR_OK;
}

static weir_status accept(choice *c, int32_t token, weir_error *error)
{
    bool is_accepted = true;
    if (c->grammar == NULL) return WEIR_OK;
    const weir_status status = weir_grammar_accept_token(c->grammar, token, &is_accepted, error);
    if (status != WEIR_OK) return too_ambiguous(status);
    if (is_accepted) return WEIR_OK;
    return weir_error_set(error, WEIR_EINVAL, "no token goes on with an answer of the grammar");
}

/* Allows only the token that ends reasoning, if its limit is reached. Where the grammar does not
 * allow it, the reasoning has ended: its tag was spelled out. */
static void limit_thought(choice *c, weir_sample_limits *limits, weir_sampler_scratch *scratch)
{
    const weir_thought_limit *const thought = &c->job->request.thought;
    const size_t words = ((size_t)c->job->service->facts->n_vocab + 63) / 64;
    if (!thought->is_limited || !c->in_thought || c->n_thought < thought->n_tokens) return;
    uint64_t *const mask = weir_sampler_scratch_mask(scratch);
    if (limits->allowed != NULL && (mask[thought->end / 64] >> (thought->end % 64) & 1) == 0) {
        c->in_thought = false;
        return;
    }
    memset(mask, 0, words * sizeof *mask);
    mask[thought->end / 64] |= (uint64_t)1 << (thought->end % 64);
    limits->allowed = mask;
}

/* The text ends with the first n bytes of `tag`, then with `byte`: with how many after it. */
static int32_t tag_bytes(const char *tag, int32_t n, char byte)
{
    int32_t k = n + 1;
    while (k > 0 && (tag[k - 1] != byte || memcmp(tag, tag + n + 1 - k, (size_t)k - 1) != 0)) k--;
    return k;
}

/* True if the tag that ends reasoning is complete, spelled with other tokens than its own. */
static bool spells_end(choice *c, int32_t token)
{
    const weir_thought_limit *const thought = &c->job->request.thought;
    size_t n = 0;
    if (thought->end_text == NULL) return false;
    const int32_t whole = (int32_t)strlen(thought->end_text);
    const char *const text = thought->text_of(thought->vocabulary, token, &n);
    for (size_t i = 0; i < n && c->n_end_text < whole; i++)
        c->n_end_text = tag_bytes(thought->end_text, c->n_end_text, text[i]);
    return c->n_end_text == whole;
}

/* n_answer: tokens of the answer before it. */
static void note_thought(choice *c, int32_t token, int32_t n_answer)
{
    const weir_thought_limit *const thought = &c->job->request.thought;
    if (!thought->is_limited) return;
    if (!c->in_thought)
        c->in_thought = n_answer == 0 && token == thought->begin;
    else if (token == thought->end || spells_end(c, token))
        c->in_thought = false;
    else
        c->n_thought++;
}

void weir_choice_sample(
    choice *c, const float *row, int32_t ahead, sampled *out, weir_sampler_scratch *scratch
)
{
    const int32_t n_answer = c->n_answer + ahead;
    const weir_service *const service = c->job->service;
    const weir_request *const request = &c->job->request;
    const size_t n_valid = (size_t)service->facts->n_valid_vocab;
    weir_sample_limits limits = { .banned = service->banned,
                                  .n_banned = bans_stops(c, n_answer) ? service->n_stop_ids : 0 };
    out->status = limit_to_grammar(c, &limits, scratch, &out->error);
    if (out->status != WEIR_OK) return;
    limit_thought(c, &limits, scratch);
    out->token = weir_sample(
        row, (size_t)service->facts->n_vocab, n_valid, &request->sampling, &c->history, &limits,
        (uint32_t)c->index, (uint64_t)n_answer, scratch
    );
    out->is_stop = limits.n_banned == 0 && is_stop(service, out->token);
    out->status = accept(c, out->token, &out->error);
    if (out->status != WEIR_OK) return;
    note_thought(c, out->token, n_answer);
    if (!out->is_stop) count_token(c->history.answer, out->token);
    if (request->want_logprobs && !out->is_stop)
        weir_logprobs(
            row, n_valid, out->token, &out->logprob, out->top, (size_t)request->n_top_logprobs,
            scratch
        );
}

const float *weir_service_last_row(
    const weir_service *service, const weir_batch_item *item, const float *logits
)
{
    if (item->failed || item->sequence->n_computed < item->sequence->n_tokens) return NULL;
    const int32_t last =
        item->first_logit + (item->wanted == WEIR_LOGITS_ALL ? item->n_rows - 1 : 0);
    return logits + last * (int64_t)service->facts->n_vocab;
}

/* The row that item `i` draws from; NULL if it draws no token. */
static const float *row_of(const weir_service *service, int32_t i, const float *logits)
{
    const choice *const c = service->step.choices[i];
    const bool draws = c != NULL && !c->is_ended && c->job->request.max_tokens > 0;
    return draws ? weir_service_last_row(service, &service->step.items[i], logits) : NULL;
}

/* Draws tokens as long as the drafts are right. */
static void sample_item(
    const weir_service *service, int32_t i, const float *row, weir_sampler_scratch *scratch
)
{
    choice *const c = service->step.choices[i];
    const weir_batch_item *const item = &service->step.items[i];
    const int32_t *const drafts = item->sequence->tokens + item->sequence->n_tokens;
    sampled *const out = service->step.sampled + c->first_sampled;
    weir_choice_sample(c, row, 0, out, scratch);
    c->n_sampled = 1;
    for (int32_t r = 0; r < item->n_drafts; r++) {
        if (out[r].status != WEIR_OK || out[r].is_stop || out[r].token != drafts[r]) return;
        row += service->facts->n_vocab;
        weir_choice_sample(c, row, r + 1, &out[r + 1], scratch);
        c->n_sampled++;
    }
}

/* Items t, t + n, ...: those of sampler t of n. */
static void sample_some(
    weir_service *service, int32_t n_items, const float *logits, int32_t t, int32_t n
)
{
    for (int32_t i = t; i < n_items; i += n) {
        const float *const row = row_of(service, i, logits);
        if (row != NULL) sample_item(service, i, row, service->samplers[t]);
    }
}

/* Few rows are sampled one after another, by all threads. A region of one thread, or of another
 * team than the kernels', would allocate memory. */
void weir_service_sample(weir_service *service, int32_t n_items, const float *logits)
{
    const int32_t n = weir_min_i32(service->facts->n_samplers, n_items);
    int32_t n_rows = 0, n_sampled = 0;
    for (int32_t i = 0; i < n_items; i++) {
        if (row_of(service, i, logits) == NULL) continue;
        service->step.choices[i]->first_sampled = n_sampled;
        n_sampled += 1 + service->step.items[i].n_drafts;
        n_rows++;
    }
    const bool are_few = 2 * n_rows <= omp_get_max_threads();
    if (are_few || n == 1) {
        weir_sampler_scratch_parallel(service->samplers[0], are_few);
        sample_some(service, n_items, logits, 0, 1);
        weir_sampler_scratch_parallel(service->samplers[0], false);
        return;
    }
#pragma omp parallel for schedule(static, 1)
    for (int32_t t = 0; t < n; t++) sample_some(service, n_items, logits, t, n);
}
