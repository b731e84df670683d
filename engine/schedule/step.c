/* engine/schedule/step.c - one step of the engine thread, and its results. When pages run out, the
 * last sequence in order is preempted: it loses pages and is computed again later, with the same
 * bits. */
#include "engine/base/clock.h"
#include "engine/schedule/job.h"

/* ---- results --------------------------------------------------------------------------------- */
static void report_prompt(
    weir_service *service, choice *c, const weir_batch_item *item, const float *logits
)
{
    weir_job *const job = c->job;
    const int32_t first = c->sequence->n_computed - item->n_rows;
    for (int32_t r = 0; r < item->n_rows; r++) {
        const int32_t next = first + r + 1; /* the position that row r predicts */
        if (next >= job->request.n_prompt || next <= job->n_prompt_reported) continue;
        weir_logprob top[WEIR_TOP_LOGPROBS], chosen;
        const float *const row =
            logits + (item->first_logit + r) * (int64_t)service->facts->n_vocab;
        weir_logprobs(
            row, (size_t)service->facts->n_valid_vocab, job->request.prompt[next], &chosen, top,
            (size_t)job->request.n_top_logprobs, service->samplers[0]
        );
        job->n_prompt_reported = next;
        (void)weir_job_emit(
            job, &(weir_event){ .type = WEIR_EVENT_PROMPT,
                                .token = job->request.prompt[next],
                                .logprob = chosen,
                                .top = top,
                                .n_top = job->request.n_top_logprobs }
        );
    }
}

/* Reports a sampled token of a choice, and ends the choice if it was the last. */
static void advance(choice *c, const sampled *sampled)
{
    weir_job *const job = c->job;
    const weir_request *const request = &job->request;
    const int32_t token = sampled->token;
    if (sampled->status != WEIR_OK) {
        weir_job_report_end(job, WEIR_FINISH_ERROR, sampled->status, sampled->error.text);
        return;
    }
    if (sampled->is_stop) {
        weir_choice_end(c, WEIR_FINISH_STOP, token);
        return;
    }
    weir_event event = { .type = WEIR_EVENT_TOKEN, .choice = c->index, .token = token };
    if (request->want_logprobs) {
        event.logprob = sampled->logprob;
        event.top = sampled->top;
        event.n_top = request->n_top_logprobs;
    }
    c->n_answer++;
    job->usage.n_answer++;
    if (job->usage.first_token_ns == 0)
        job->usage.first_token_ns = weir_clock_ns() - job->submitted_ns;
    const bool go_on = weir_job_emit(job, &event);
    if (!go_on)
        weir_choice_end(c, WEIR_FINISH_STOP, -1);
    else if (c->n_answer >= request->max_tokens || c->sequence->n_tokens >= job->row_limit)
        weir_choice_end(c, WEIR_FINISH_LENGTH, -1);
    else
        c->sequence->tokens[c->sequence->n_tokens++] = token;
}

/* The prompt is computed: the other choices of the job fork it, unless their first token is the
 * last. */
static void prompt_is_done(weir_service *service, choice *first, const float *row)
{
    weir_job *const job = first->job;
    if (job->prefilled_ns == 0) {
        job->prefilled_ns = weir_clock_ns();
        job->usage.prefill_ns = job->prefilled_ns - job->admitted_ns;
    }
    for (int32_t i = 1; i < job->request.n_choices; i++) {
        choice *const c = &job->choices[i];
        if (!c->is_waiting || c->is_ended) continue;
        weir_choice_wait_to_fork(c);
        c->n_evicted_before = first->n_evicted_before;
        c->banks_before = first->banks_before;
        if (job->request.max_tokens == 0) {
            weir_choice_end(c, WEIR_FINISH_LENGTH, -1);
            continue;
        }
        sampled drawn;
        weir_choice_sample(c, row, 0, &drawn, service->samplers[0]);
        advance(c, &drawn);
    }
    weir_service_fork(service);
}

/* Reports the tokens that the choice has drawn: those of right drafts, and one more. */
static void advance_all(choice *c, const weir_batch_item *item)
{
    const sampled *const sampled = c->job->service->step.sampled + c->first_sampled;
    int32_t n = 0;
    for (; n < c->n_sampled && !c->is_ended; n++) {
        if (n > 0 && atomic_load(&c->job->is_cancelled)) break;
        if (n > 0) weir_choice_accept(c, item, n);
        advance(c, &sampled[n]);
    }
    if (item->n_drafts == 0) {
        c->n_redo = 0;
        return;
    }
    weir_choice_learn(c, item->n_drafts, n - 1);
    if (c->is_ended) return;
    weir_choice_end_draft(c, false);
    c->n_redo = c->sequence->n_tokens - 1 - c->sequence->n_computed;
}

static void take_result(
    weir_service *service, choice *c, const weir_batch_item *item, const float *logits
)
{
    weir_job *const job = c->job;
    if (item->wanted == WEIR_LOGITS_ALL) report_prompt(service, c, item, logits);
    const float *const row = weir_service_last_row(service, item, logits);
    if (row == NULL) return;
    if (c->n_answer == 0 && c->index == 0 && job->request.want_logits)
        (void)weir_job_emit(job, &(weir_event){ .type = WEIR_EVENT_LOGITS, .logits = row });
    if (c->n_answer == 0 && c->index == 0) weir_choice_share(c);
    if (c->n_answer == 0 && c->index == 0) prompt_is_done(service, c, row);
    if (job->request.max_tokens == 0)
        weir_choice_end(c, WEIR_FINISH_LENGTH, -1);
    else
        advance_all(c, item);
}

static void set_running(weir_service *service, int32_t n_items, bool is_in_step)
{
    service->step.n_running = is_in_step ? n_items : 0;
    for (int32_t i = 0; i < n_items; i++) service->step.choices[i]->job->is_in_step = is_in_step;
}

/* Runs the works, for which there is memory; requested states go to their choices. */
static weir_status run_works(
    weir_service *service, int32_t n_items, const float **logits, weir_error *error
)
{
    for (int32_t i = 0; i < n_items; i++) {
        weir_choice_want_states(service->step.choices[i], &service->step.items[i]);
        weir_choice_want_draft_state(service->step.choices[i], &service->step.items[i]);
    }
    weir_service_begin_embedding(service, n_items);
    set_running(service, n_items, true);
    const weir_status status =
        weir_runner_step(service->step.runner, service->step.items, n_items, logits, error);
    set_running(service, n_items, false);
    for (int32_t i = 0; i < n_items; i++) {
        weir_batch_item *const item = &service->step.items[i];
        const bool is_done = status == WEIR_OK && !item->failed;
        const int32_t n_before =
            item->sequence->n_computed - (is_done ? item->n_rows - item->n_drafts : 0);
        weir_choice_got_states(service->step.choices[i], item, n_before, is_done);
        if (!is_done) weir_choice_end_draft(service->step.choices[i], true);
        weir_choice_end_embedding(service->step.choices[i], is_done);
    }
    weir_step_times_add(&service->times, WEIR_STEP_COMMIT);
    return status;
}

void weir_job_fail_in_step(weir_job *job, int32_t n_items, weir_status status, const char *message)
{
    weir_service *const service = job->service;
    for (int32_t k = 0; k < job->request.n_choices; k++)
        job->choices[k].is_torn = !job->choices[k].is_ended; /* those may still have slots */
    for (int32_t k = 0; k < n_items; k++) {
        if (service->step.choices[k] != NULL && service->step.choices[k]->job == job)
            service->step.choices[k] = NULL;
    }
    weir_job_finish(job, status, message);
}

/* The job of item i fails, unless an earlier item of it has failed. */
static void fail_item(
    weir_service *service, int32_t i, int32_t n_items, weir_status status, const char *message
)
{
    if (service->step.choices[i] != NULL)
        weir_job_fail_in_step(service->step.choices[i]->job, n_items, status, message);
}

static void fail_step(
    weir_service *service, int32_t n_items, weir_status status, const char *message
)
{
    for (int32_t i = 0; i < n_items; i++) fail_item(service, i, n_items, status, message);
}

static void count_step(weir_service *service, int32_t n_items)
{
    weir_service_count_overlooked(service);
    pthread_mutex_lock(&service->lock);
    service->stats.steps++;
    for (int32_t i = 0; i < n_items; i++)
        service->stats.batch_rows += service->step.items[i].n_rows;
    pthread_mutex_unlock(&service->lock);
    weir_service_publish(service);
}

static void fail_lost(weir_service *service)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c != NULL && c->is_lost && !c->job->is_in_step)
            weir_job_finish(
                c->job, WEIR_EFULL,
                "the state that this request continues was dropped from memory; send it again"
            );
    }
}

/* Those that are not in the step, and for which there is no memory. */
static void fail_returning(weir_service *service, weir_status status, const char *message)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c != NULL && c->is_returning && !c->job->is_in_step)
            weir_job_finish(c->job, status, message);
    }
}

typedef struct taken {
    int32_t n_items, n_left; /* n_left: of the other kind */
    const float *logits;
} taken;

/* A step that failed for lack of memory has reserved rows of some sequences, which may go after
 * those that lack it. */
static void give_back_rows(const weir_service *service)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c != NULL && !c->job->is_in_step && !weir_choice_is_pruned_by_thread(c))
            weir_kv_unreserve(&c->sequence->table, service->store);
    }
}

/* Plans and runs a step. n_items 0: nothing can be computed now. Those that need memory may lose
 * it to others (preempt.c), so each try plans anew. When as much was preempted as may be in an
 * iteration, the last try is of those for which there is memory. */
static weir_status run_step(
    weir_service *service, weir_step_kind kind, taken *out, weir_error *error
)
{
    int32_t *const n_items = &out->n_items;
    bool is_last = service->pace.is_preempting;
    for (;;) {
        bool waits = false;
        *n_items = weir_service_plan(service);
        weir_step_times_add(&service->times, WEIR_STEP_PLAN);
        if (*n_items == 0 && service->n_returning == 0) break;
        weir_status status = weir_service_find_memory(service, n_items, error);
        if (status == WEIR_OK)
            *n_items = weir_service_keep_kind(service, *n_items, kind, &out->n_left);
        if (status == WEIR_OK && *n_items == 0) return WEIR_OK;
        if (status == WEIR_OK) status = run_works(service, *n_items, &out->logits, error);
        if (status != WEIR_EFULL) return status;
        if (weir_service_free_memory(service, *n_items, &waits) == WEIR_OK) continue;
        if (!waits) return status;
        *n_items = 0;
        give_back_rows(service);
        if (is_last || !service->pace.is_preempting) return WEIR_OK;
        is_last = true;
    }
    service->n_short = 0;
    service->need = (weir_reclaim_need){ 0 };
    return WEIR_OK;
}

/* Returns false if no sequence of this kind could be computed. */
static bool take_step(weir_service *service, weir_step_kind kind, int32_t *n_left)
{
    taken out = { 0 };
    weir_error error = { 0 };
    const weir_status status = run_step(service, kind, &out, &error);
    const int32_t n_items = out.n_items;
    const float *const logits = out.logits;
    *n_left = out.n_left;
    if (status != WEIR_OK) {
        fail_step(service, n_items, status, error.text);
        if (status == WEIR_EFULL) fail_returning(service, status, error.text);
        weir_service_publish(service);
        return true;
    }
    if (n_items == 0) return false;
    weir_service_count_shares(service, n_items);
    for (int32_t i = 0; i < n_items; i++) {
        if (service->step.items[i].failed)
            fail_item(service, i, n_items, WEIR_EIO, weir_runner_problem(service->step.runner));
    }
    weir_service_sample(service, n_items, logits);
    weir_step_times_add(&service->times, WEIR_STEP_SAMPLE);
    for (int32_t i = 0; i < n_items; i++) {
        choice *const c = service->step.choices[i];
        if (c != NULL && !c->is_ended && !c->job->is_reported)
            take_result(service, c, &service->step.items[i], logits);
    }
    weir_step_times_add(&service->times, WEIR_STEP_EVENTS);
    weir_service_follow_step(service, n_items);
    weir_step_times_add(&service->times, WEIR_STEP_FORWARD);
    weir_service_finish_ended(service);
    weir_step_times_add(&service->times, WEIR_STEP_EVENTS);
    weir_service_evict(service, n_items);
    weir_runner_move(service->step.runner, service->step.items, n_items, service->n_short);
    weir_step_times_add(&service->times, WEIR_STEP_MAINTAIN);
    count_step(service, n_items);
    weir_step_times_add(&service->times, WEIR_STEP_PUBLISH);
    return true;
}

bool weir_service_step(weir_service *service)
{
    int32_t n_left;
    service->has_news = true; /* until the end of the step publishes it */
    weir_service_prune(service, 0);
    weir_service_start_read(service);
    weir_service_resume_stalled(service);
    if (!service->is_nested) service->pace.is_preempting = false;
    weir_service_fork(service);
    fail_lost(service);
    weir_step_times_add(&service->times, WEIR_STEP_ADMIT);
    if (service->is_nested) return take_step(service, WEIR_STEP_NESTED, &n_left);
    bool any = take_step(service, WEIR_STEP_FIRST, &n_left);
    if (n_left > 0) any = take_step(service, WEIR_STEP_LEFT, &n_left) || any;
    return any;
}
