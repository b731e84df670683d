/* engine/schedule/mtp.c - after each step the draft head gets the rows that the step computed, and
 * drafts what follows the tokens that were drawn. */
#include "engine/schedule/mtp.h"

#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/base/log.h"
#include "engine/schedule/job.h"
#include "engine/schedule/ngram.h"
#include "kernels/abi/minmax.h"

/* FIRST, RECENT: rows of a prompt that the head gets, as many as its page of first rows, where
 * trained heads may have their sinks, and as drafts of the answer are likely to need. */
enum { PAGES = 17, FIRST = WEIR_PAGE_TOKENS, RECENT = 256, LONGEST_PAUSE = 256 };
static const float LIMIT = 1.0f; /* what a choice may owe, in steps */

/* The rows of the head, of the choice with this job and index. */
typedef struct mtp_slot {
    int64_t serial;
    int32_t index, n_rows, next; /* next: the first position that it may get */
} mtp_slot;

struct weir_mtp {
    weir_ledger *ledger;
    size_t bytes;
    int32_t n_slots, rows;
    int64_t n_heads;
    /* Bytes of a draft, and of the states that a step with drafts copies, by those of a step. */
    float draft_cost, state_cost;
    mtp_slot *slots; /* [n_slots] */
    void **pages; /* [n_slots, n_heads, PAGES] */
    char *memory; /* of the pages */
    /* Of a pass. */
    int32_t *tokens, *positions; /* [rows] */
    const float **hidden; /* [rows] */
    weir_batch_segment *segments; /* [n_slots] */
    int32_t *logit_rows; /* [n_slots] */
    choice **choices; /* [n_slots] */
    int32_t n_rows, n_segments, n_logits;
    int32_t n_decoding; /* sequences that wait for its drafts */
};

/* ---- memory ---------------------------------------------------------------------------------- */
static size_t page_bytes(const weir_model *model)
{
    const weir_kv_pair formats[] = { { WEIR_MTP_FORMAT, WEIR_MTP_FORMAT } };
    const weir_kv_spec spec = { .n_layers = 1,
                                .geometry = weir_model_mtp_geometry(model),
                                .formats = formats };
    return (weir_kv_page_bytes(&spec, 0) + 63) / 64 * 64;
}

static size_t lay_out(weir_mtp *m, const weir_model *model, char *base)
{
    weir_arrays arrays = { .base = base };
    WEIR_ARRAYS_PLACE(&arrays, m->slots, m->n_slots);
    WEIR_ARRAYS_PLACE(&arrays, m->pages, m->n_slots * m->n_heads * PAGES);
    WEIR_ARRAYS_PLACE(&arrays, m->tokens, m->rows);
    WEIR_ARRAYS_PLACE(&arrays, m->positions, m->rows);
    WEIR_ARRAYS_PLACE(&arrays, m->hidden, m->rows);
    WEIR_ARRAYS_PLACE(&arrays, m->segments, m->n_slots);
    WEIR_ARRAYS_PLACE(&arrays, m->logit_rows, m->n_slots);
    WEIR_ARRAYS_PLACE(&arrays, m->choices, m->n_slots);
    m->memory = weir_arrays_place3(&arrays, page_bytes(model), m->n_slots, m->n_heads, PAGES);
    return arrays.bytes;
}

static weir_mtp sizes_of(const weir_model *model, int32_t n_slots, int32_t rows)
{
    return (weir_mtp
    ){ .n_slots = n_slots, .rows = rows, .n_heads = weir_model_mtp_geometry(model)->n_heads };
}

size_t weir_mtp_bytes(const weir_model *model, int32_t n_slots, int32_t rows)
{
    if (weir_model_draft_bytes(model) == 0) return 0;
    weir_mtp measure = sizes_of(model, n_slots, rows);
    return lay_out(&measure, model, NULL) + sizeof measure;
}

weir_status weir_service_open_mtp(weir_service *service, weir_error *error)
{
    const weir_model *const model = weir_runner_model(service->runner);
    const int32_t n_slots = service->facts->n_slots,
                  rows = weir_runner_limits_of(service->runner)->rows;
    const size_t bytes = weir_mtp_bytes(model, n_slots, rows);
    void *memory = NULL;
    if (bytes == 0 || service->n_drafts == 0) return WEIR_OK;
    WEIR_TRY(weir_ledger_alloc(service->ledger, &memory, WEIR_ACCOUNT_ACTIVATIONS, bytes, error));
    /* The struct is last: the arrays are aligned. Kernels read whole tiles, which are zero. */
    weir_mtp *const m = (weir_mtp *)(void *)((char *)memory + bytes - sizeof *m);
    *m = sizes_of(model, n_slots, rows);
    m->ledger = service->ledger;
    m->bytes = bytes;
    const float step = (float)weir_model_decode_bytes(model);
    m->draft_cost = (float)weir_model_draft_bytes(model) / step;
    m->state_cost = 4.0f * (float)weir_model_recurrent_bytes(model) / step; /* there and back */
    (void)lay_out(m, model, memory);
    for (int64_t i = 0; i < n_slots * m->n_heads * PAGES; i++)
        m->pages[i] = m->memory + (size_t)i * page_bytes(model);
    service->mtp = m;
    return WEIR_OK;
}

void weir_service_close_mtp(weir_service *service)
{
    weir_mtp *const m = service->mtp;
    if (m != NULL) weir_ledger_free(m->ledger, m->slots, WEIR_ACCOUNT_ACTIVATIONS, m->bytes);
    service->mtp = NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */
static int32_t slot_index(const choice *c)
{
    const weir_service *const service = c->job->service;
    int32_t i = 0;
    while (service->slots[i].owner != c) i++;
    return i;
}

static mtp_slot *slot_of(weir_mtp *m, const choice *c)
{
    mtp_slot *const slot = &m->slots[slot_index(c)];
    if (slot->serial != c->job->serial || slot->index != c->index)
        *slot = (mtp_slot){ .serial = c->job->serial, .index = c->index };
    return slot;
}

/* The oldest page after the first becomes the last. */
static void drop_page(const weir_mtp *m, mtp_slot *slot)
{
    void **const table = m->pages + (slot - m->slots) * m->n_heads * PAGES;
    for (int64_t h = 0; h < m->n_heads; h++) {
        void **const pages = table + h * PAGES, *const oldest = pages[1];
        memmove(pages + 1, pages + 2, (PAGES - 2) * sizeof *pages);
        pages[PAGES - 1] = oldest;
    }
    slot->n_rows -= WEIR_PAGE_TOKENS;
}

static void add_segment(weir_mtp *m, mtp_slot *slot, int32_t n_rows, int32_t n_past)
{
    m->segments[m->n_segments++] = (weir_batch_segment
    ){ .first_row = m->n_rows - n_rows,
       .n_rows = n_rows,
       .n_past = n_past,
       .pages = (void *const *)(m->pages + (slot - m->slots) * m->n_heads * PAGES),
       .page_stride = PAGES };
}

static void add_row(weir_mtp *m, int32_t token, int32_t position, const float *hidden)
{
    m->tokens[m->n_rows] = token;
    m->positions[m->n_rows] = position;
    m->hidden[m->n_rows++] = hidden;
}

/* Adds what the step has computed: rows of hidden states whose next token is known, as far as the
 * head wants them. Returns false if the last of them, from which it drafts, is not among them. */
static bool add_rows(weir_mtp *m, const weir_runner *runner, const choice *c, int32_t item)
{
    const weir_batch_item *const i = &c->job->service->step.items[item];
    const weir_kv_sequence *const sequence = c->sequence;
    mtp_slot *const slot = slot_of(m, c);
    const int32_t first = (int32_t)weir_max(slot->next, i->first_position + 1),
                  end = weir_min_i32(i->first_position + i->n_rows, sequence->n_tokens - 1),
                  before = m->n_rows;
    for (int32_t at = first; at <= end; at++)
        if (at <= FIRST || at > sequence->n_tokens - RECENT)
            add_row(m, sequence->tokens[at], at - 1, weir_runner_hidden(runner, i, at - 1));
    const int32_t n = m->n_rows - before;
    if (n == 0) return false;
    while (slot->n_rows + n + WEIR_MTP_DRAFTS > PAGES * WEIR_PAGE_TOKENS) drop_page(m, slot);
    add_segment(m, slot, n, slot->n_rows);
    slot->n_rows += n;
    slot->next = end + 1;
    return end == sequence->n_tokens - 1;
}

/* ---- drafts ---------------------------------------------------------------------------------- */
static bool has_match(const choice *c)
{
    const weir_kv_sequence *const sequence = c->sequence;
    int32_t token;
    return c->n_answer >= c->draft_from &&
           weir_ngram_draft(
               sequence->tokens, sequence->n_tokens, c->job->service->draft_match, &token, 1
           ) > 0;
}

static bool is_followed(const choice *c)
{
    return c->sequence->policy_run == NULL && c->n_answer >= c->mtp.from &&
           c->job->request.max_tokens - c->n_answer > 1 &&
           !(weir_choice_is_decoding(c) && has_match(c));
}

static int32_t count_decoding(const weir_service *service)
{
    int32_t n = 0;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        n += c != NULL && !c->is_ended && weir_choice_is_decoding(c);
    }
    return n;
}

/* Sequences that can have drafts in the next step. */
static int32_t most_drafting(const weir_service *service)
{
    const int32_t left = WEIR_STEP_DRAFTS - service->mtp->n_decoding;
    return service->facts->recurrent_bytes > 0 ? weir_min_i32(left, WEIR_DRAFT_STATES) : left;
}

static int32_t wanted_drafts(const choice *c)
{
    const int32_t length = (int32_t)weir_max(c->mtp.length, 1);
    return weir_min_i32(weir_min_i32(length, c->job->service->n_drafts), weir_choice_draft_rows(c));
}

/* By the request's bias and penalties. */
static int32_t likeliest(const choice *c, const float *logits)
{
    const weir_service *const service = c->job->service;
    const weir_engine_facts *const facts = service->facts;
    const weir_sample_limits limits = { 0 };
    weir_sampling sampling = c->job->request.sampling;
    sampling.temperature = 0.0f;
    weir_sampler_scratch_parallel(service->samplers[0], true);
    const int32_t token = weir_sample(
        logits, (size_t)facts->n_vocab, (size_t)facts->n_valid_vocab, &sampling, &c->history,
        &limits, (uint32_t)c->index, (uint64_t)c->n_answer, service->samplers[0]
    );
    weir_sampler_scratch_parallel(service->samplers[0], false);
    return token;
}

/* Runs the rows; then adds those of one more draft, of the choices that want one. */
static weir_status run_pass(weir_service *service, int32_t depth, weir_error *error)
{
    weir_mtp *const m = service->mtp;
    const weir_engine_facts *const facts = service->facts;
    const weir_mtp_batch batch = { .tokens = m->tokens,
                                   .positions = m->positions,
                                   .hidden = m->hidden,
                                   .segments = m->segments,
                                   .logit_rows = m->logit_rows,
                                   .n_rows = m->n_rows,
                                   .n_segments = m->n_segments,
                                   .n_logits = m->n_logits };
    const float *logits, *hidden;
    const int32_t n = m->n_logits;
    WEIR_TRY(weir_runner_draft(service->step.runner, &batch, &logits, &hidden, error));
    m->n_rows = m->n_segments = m->n_logits = 0;
    for (int32_t i = 0; i < n; i++) {
        choice *const c = m->choices[i];
        c->mtp.drafts[depth] = likeliest(c, logits + i * (int64_t)facts->n_vocab);
        c->mtp.n = depth + 1;
        c->mtp.at = c->sequence->n_tokens;
        c->mtp.debt += m->draft_cost * (float)m->n_decoding / (float)n;
        if (depth + 1 >= wanted_drafts(c)) continue;
        mtp_slot *const slot = slot_of(m, c);
        add_row(
            m, c->mtp.drafts[depth], c->sequence->n_tokens - 1 + depth,
            hidden + i * (int64_t)facts->d_model
        );
        add_segment(m, slot, 1, slot->n_rows + depth);
        m->logit_rows[m->n_logits] = m->n_rows - 1;
        m->choices[m->n_logits++] = c;
    }
    return WEIR_OK;
}

/* A choice that owes more than LIMIT makes a pause, after which it may owe half as much more;
 * pauses get longer until drafts have paid off. */
static void pause_debtor(choice *c)
{
    if (c->mtp.debt < 0.0f) c->mtp.n_pauses = 0;
    if (c->mtp.debt <= LIMIT) return;
    c->mtp.debt = LIMIT / 2.0f;
    const int32_t shift = weir_min_i32(2 * c->mtp.n_pauses++, 16);
    c->mtp.from = c->n_answer + weir_min_i32(8 << shift, LONGEST_PAUSE);
}

static void collect(weir_service *service, int32_t n_items)
{
    weir_mtp *const m = service->mtp;
    m->n_decoding = count_decoding(service);
    int32_t left = most_drafting(service);
    m->n_rows = m->n_segments = m->n_logits = 0;
    for (int32_t i = 0; i < n_items; i++) {
        choice *const c = service->step.choices[i];
        if (c == NULL || c->is_ended || service->step.items[i].failed) continue;
        pause_debtor(c);
        if (!is_followed(c)) continue;
        const bool decodes = weir_choice_is_decoding(c);
        if (decodes && left <= 0) continue;
        if (!add_rows(m, service->step.runner, c, i) || !decodes || wanted_drafts(c) <= 0) continue;
        left--;
        m->logit_rows[m->n_logits] = m->n_rows - 1;
        m->choices[m->n_logits++] = c;
    }
}

void weir_service_follow_step(weir_service *service, int32_t n_items)
{
    weir_error error = { 0 };
    weir_status status = WEIR_OK;
    if (service->mtp == NULL) return;
    collect(service, n_items);
    for (int32_t d = 0; d < WEIR_MTP_DRAFTS && service->mtp->n_rows > 0 && status == WEIR_OK; d++)
        status = run_pass(service, d, &error);
    if (status == WEIR_OK) return;
    weir_log(WEIR_LOG_WARNING, "no more drafts by the model's head: %s", error.text);
    weir_service_close_mtp(service);
}

int32_t weir_choice_take_drafts(const choice *c, int32_t *out, int32_t most)
{
    const int32_t n = c->mtp.at == c->sequence->n_tokens ? weir_min_i32(c->mtp.n, most) : 0;
    if (n > 0) memcpy(out, c->mtp.drafts, (size_t)n * sizeof *out);
    return n;
}

/* The debt is in steps of one sequence: what its drafts cost, be they used or not, less what right
 * ones saved. All sequences of a step wait for the drafts of some. */
void weir_choice_learn_mtp(choice *c, int32_t n_drafts, int32_t n_accepted)
{
    const weir_service *const service = c->job->service;
    const float row = 0.1f, states = service->mtp != NULL ? service->mtp->state_cost : 0.0f,
                n_waiting = (float)weir_max(service->n_decoding, 1);
    c->mtp.length = n_accepted == n_drafts ? weir_min_i32(n_drafts + 1, WEIR_MTP_DRAFTS)
                                           : (int32_t)weir_max(n_accepted, 1);
    c->mtp.debt += (row * (float)n_drafts + states) * n_waiting - (float)n_accepted;
    if (c->mtp.debt < -LIMIT) c->mtp.debt = -LIMIT;
}
