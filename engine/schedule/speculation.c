/* engine/schedule/speculation.c - speculative decoding. A decoding sequence gets guesses of its
 * next tokens as further rows of its item; what is sampled decides which of them stand, so answers
 * have the same bits (docs/decisions/0066-speculation.md). */
#include "engine/schedule/job.h"
#include "engine/schedule/ngram.h"
#include "kernels/abi/minmax.h"

enum { FIRST_LENGTH = 4, LONGEST_PAUSE = 64 };

bool weir_choice_is_decoding(const choice *c)
{
    return c->sequence->n_tokens - c->sequence->n_computed == 1 + c->n_redo && c->n_answer > 0;
}

/* ---- drafts ---------------------------------------------------------------------------------- */
/* Rows of rejected drafts must not fill a page, which would seal it. */
static int32_t page_rows(const weir_kv_sequence *sequence)
{
    return WEIR_PAGE_TOKENS - 1 - (sequence->n_tokens - 1) % WEIR_PAGE_TOKENS - 1;
}

static bool may_draft(const weir_service *service, const choice *c)
{
    return service->n_drafts > 0 && service->block_rows == 1 && c->sequence->policy_run == NULL &&
           weir_choice_is_decoding(c);
}

int32_t weir_choice_draft_rows(const choice *c)
{
    const weir_job *const job = c->job;
    const int32_t rows =
        weir_min_i32(page_rows(c->sequence), job->request.max_tokens - c->n_answer - 1);
    return weir_min_i32(rows, job->row_limit - c->sequence->n_tokens);
}

static int32_t length_of(const choice *c)
{
    const weir_service *const service = c->job->service;
    const int32_t first = (int32_t)weir_max(FIRST_LENGTH / service->n_decoding, 1);
    return weir_min_i32(c->draft_length > 0 ? c->draft_length : first, service->n_drafts);
}

/* Drafts behind the sequence's tokens, at most `rows`: by n-gram lookup or else by the model's
 * head. */
static int32_t draft(choice *c, int32_t rows)
{
    const weir_service *const service = c->job->service;
    weir_kv_sequence *const sequence = c->sequence;
    int32_t *const out = sequence->tokens + sequence->n_tokens, n = 0;
    rows = weir_min_i32(rows, weir_choice_draft_rows(c));
    if (rows <= 0 || !may_draft(service, c)) return 0;
    if (c->n_answer >= c->draft_from)
        n = weir_ngram_draft(
            sequence->tokens, sequence->n_tokens, service->draft_match, out,
            weir_min_i32(rows, length_of(c))
        );
    c->is_drafted_by_head = n == 0;
    return n > 0 ? n : weir_choice_take_drafts(c, out, rows);
}

/* Rows of logits that the items ask for. */
static int32_t logits_of(const weir_batch_item *item)
{
    return item->wanted == WEIR_LOGITS_ALL ? item->n_rows : item->wanted == WEIR_LOGITS_LAST;
}

/* Rows that are cheap: with many sequences in a step further rows cost what they would save. */
static int32_t free_rows(const weir_service *service, int32_t n_items)
{
    const weir_runner_limits *const limits = weir_runner_limits_of(service->step.runner);
    int32_t rows = 0, logits = 0, n_redo = 0;
    for (int32_t i = 0; i < n_items; i++) {
        rows += service->step.items[i].n_rows;
        logits += logits_of(&service->step.items[i]);
    }
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c != NULL) n_redo += c->n_redo;
    }
    const int32_t most = weir_min_i32(limits->rows, service->step_rows) - rows;
    return weir_min_i32(
        weir_min_i32(most, limits->logits - logits), WEIR_STEP_DRAFTS - n_items - n_redo
    );
}

void weir_service_draft(weir_service *service, int32_t n_items)
{
    int32_t rows = service->n_drafts > 0 ? free_rows(service, n_items) : 0;
    service->n_decoding = 0;
    for (int32_t i = 0; i < n_items; i++)
        service->n_decoding += weir_choice_is_decoding(service->step.choices[i]);
    for (int32_t i = 0; i < n_items && rows > 0; i++) {
        weir_batch_item *const item = &service->step.items[i];
        item->n_drafts = draft(service->step.choices[i], rows);
        item->n_rows += item->n_drafts;
        rows -= item->n_drafts;
    }
}

/* ---- recurrent states ------------------------------------------------------------------------ */
static void drop_drafts(weir_batch_item *item)
{
    item->n_rows -= item->n_drafts;
    item->n_drafts = 0;
}

static int32_t n_states(const weir_engine_facts *facts)
{
    return weir_min_i32(WEIR_DRAFT_STATES, facts->n_slots);
}

size_t weir_service_draft_bytes(const weir_engine_facts *facts, int32_t n_drafts)
{
    return n_drafts > 0 ? (size_t)n_states(facts) * (size_t)facts->recurrent_bytes : 0;
}

weir_status weir_service_open_drafts(weir_service *service, weir_error *error)
{
    const size_t bytes = weir_service_draft_bytes(service->facts, service->n_drafts);
    void *states = NULL;
    if (bytes > 0)
        WEIR_TRY(weir_ledger_alloc(service->ledger, &states, WEIR_ACCOUNT_ACTIVATIONS, bytes, error)
        );
    service->draft_states = states;
    return WEIR_OK;
}

void weir_service_close_drafts(weir_service *service)
{
    weir_ledger_free(
        service->ledger, service->draft_states, WEIR_ACCOUNT_ACTIVATIONS,
        weir_service_draft_bytes(service->facts, service->n_drafts)
    );
}

static float *take_state(weir_service *service)
{
    for (int32_t i = 0; i < n_states(service->facts); i++) {
        if (service->has_draft_state[i]) continue;
        service->has_draft_state[i] = true;
        return (float *)(void *)(service->draft_states + i * service->facts->recurrent_bytes);
    }
    return NULL;
}

static void give_state(weir_service *service, const float *state)
{
    const ptrdiff_t at = (const char *)state - service->draft_states;
    service->has_draft_state[at / service->facts->recurrent_bytes] = false;
}

/* The state after the last row that is no draft is copied; if there is no memory for one more,
 * nothing is drafted. Others ask for states of earlier rows only. */
void weir_choice_want_draft_state(choice *c, weir_batch_item *item)
{
    const int32_t after = item->n_rows - item->n_drafts, n = item->n_snapshots;
    if (item->n_drafts == 0 || c->sequence->recurrent_bytes == 0) return;
    const bool is_free =
        n < WEIR_BATCH_SNAPSHOTS && (n == 0 || item->snapshots[n - 1].after < after);
    c->draft_state = is_free ? take_state(c->job->service) : NULL;
    if (c->draft_state == NULL)
        drop_drafts(item);
    else
        item->snapshots[item->n_snapshots++] =
            (weir_batch_snapshot){ .after = after, .dst = c->draft_state };
}

void weir_choice_end_draft(choice *c, bool keeps_state)
{
    weir_kv_sequence *const sequence = c->sequence;
    if (c->draft_state == NULL) return;
    if (!keeps_state && !c->is_torn)
        weir_ledger_copy(
            sequence->ledger, sequence->recurrent, c->draft_state, sequence->recurrent_bytes
        );
    give_state(c->job->service, c->draft_state);
    c->draft_state = NULL;
}

/* ---- acceptance ------------------------------------------------------------------------------ */
static void commit(weir_kv_sequence *sequence, int32_t n_rows)
{
    sequence->n_computed += n_rows;
    weir_kv_commit(&sequence->table, n_rows);
}

void weir_choice_accept(choice *c, const weir_batch_item *item, int32_t n)
{
    if (c->draft_state == NULL) {
        commit(c->sequence, 1);
    } else if (n == item->n_drafts) {
        commit(c->sequence, n);
        weir_choice_end_draft(c, true);
    }
}

/* Drafts get longer as long as they are right, and pauses as long as they are wrong. A wrong draft
 * delays all sequences of the step, so pauses grow with their number. */
void weir_choice_learn(choice *c, int32_t n_drafts, int32_t n_accepted)
{
    const int32_t length = (int32_t)weir_max(c->draft_length, n_drafts);
    c->job->usage.n_drafted += n_drafts;
    c->job->usage.n_accepted += n_accepted;
    if (c->is_drafted_by_head) {
        weir_choice_learn_mtp(c, n_drafts, n_accepted);
        return;
    }
    if (n_accepted > 0) {
        c->draft_length = n_accepted == n_drafts
                              ? weir_min_i32(2 * length, c->job->service->n_drafts)
                              : n_accepted + 1;
        c->n_draft_misses = 0;
        return;
    }
    c->draft_length = (int32_t)weir_max(length / 2, 1);
    c->n_draft_misses++;
    const int32_t pause = weir_min_i32(1 << weir_min_i32(c->n_draft_misses, 16), LONGEST_PAUSE);
    c->draft_from = c->n_answer + pause * (int32_t)weir_max(c->job->service->n_decoding, 1);
}
