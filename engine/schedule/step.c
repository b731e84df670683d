/* engine/schedule/step.c - admission, planning and one step of the engine thread.
 *
 * A step takes one row of every sequence that decodes and one piece of the oldest prompt; short prompts share what is left of the rows.
 * Pieces end at multiples of the chunk from position 0; while others decode, smaller pieces of the same grid keep them moving. When pages
 * run out, the youngest sequence is preempted: it forgets what it computed and is computed again later, bit for bit the same. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/kv/cut_texts.h"
#include "engine/schedule/job.h"

/* ---- admission ------------------------------------------------------------------------------------------- */
static int32_t free_slots(const weir_service *service)
{
    int32_t n = 0;
    for (int32_t i = 0; i < service->info.n_slots; i++) n += service->slots[i].owner == NULL;
    return n;
}

static bool any_stalled(const weir_service *service)
{
    for (int32_t i = 0; i < service->info.n_slots; i++) {
        if (service->slots[i].owner != NULL && service->slots[i].owner->is_stalled) return true;
    }
    return false;
}

/* Kept texts give theirs up when they are asked for. */
static weir_kv_pages free_pages(const weir_service *service)
{
    weir_kv_pages free = weir_kv_store_free(service->store);
    if (service->prefix == NULL) return free;
    const weir_kv_pages kept = weir_prefix_reclaimable(service->prefix);
    return (weir_kv_pages){ .sinks = free.sinks + kept.sinks, .others = free.others + kept.others };
}

/* Rows that a choice holds when its tokens are computed. */
static int64_t rows_to_come(const choice *c)
{
    const weir_sequence *const s = c->sequence;
    const int64_t              rows = s->table.n_rows + s->n_tokens - s->n_computed;
    return c->job->keeping != NULL && rows > c->job->row_peak ? c->job->row_peak : rows;
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* Free pages less those that the tokens of running sequences will still take: who was let in must not find them gone. */
weir_kv_pages weir_service_unclaimed_pages(const weir_service *service)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    weir_kv_pages             n = free_pages(service);
    for (int32_t i = 0; i < service->info.n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL || c->is_waiting || c->is_stalled) continue;
        const int64_t       all = (rows_to_come(c) + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
        const weir_kv_pages wanted = weir_kv_pages_of(spec, c->sequence->table.n_pages, all);
        n.sinks -= wanted.sinks;
        n.others -= wanted.others;
    }
    return n;
}

/* Room for a sequence of `rows` rows and `more` to go on with; a window never needs more than its own rows. */
static bool has_room(weir_service *service, int64_t rows, int64_t more)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    const int64_t             most = rows + more < spec->max_rows ? rows + more : spec->max_rows;
    return weir_saver_makes_room(service->saver, service, weir_kv_pages_of(spec, 0, (most + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS));
}

static bool fits(weir_service *service, const weir_job *job)
{
    return free_slots(service) >= job->request.n_choices && !any_stalled(service) &&
           has_room(service, least(job->request.n_prompt, job->row_peak), 1);
}

static void take_slot(weir_service *service, choice *c)
{
    slot *free_one = NULL;
    for (int32_t i = 0; free_one == NULL && i < service->info.n_slots; i++) {
        if (service->slots[i].owner == NULL) free_one = &service->slots[i];
    }
    WEIR_ASSERT(free_one != NULL);
    free_one->owner = c;
    c->sequence = &free_one->sequence;
    c->is_waiting = c->index > 0;
    weir_choice_watch(c);
    if (c->is_waiting) return;
    memcpy(c->sequence->tokens, c->job->request.prompt, (size_t)c->job->request.n_prompt * sizeof(int32_t));
    c->sequence->n_tokens = c->job->request.n_prompt;
    weir_choice_reuse(c);
}

static uint64_t *turn_of(weir_service *service, int32_t client) { return &service->turns[(uint32_t)client % CLIENT_TURNS]; }

static void start_job(weir_service *service, weir_job *job)
{
    job->next = service->running;
    service->running = job;
    *turn_of(service, job->request.client) = ++service->n_turns;
    job->admitted_ns = weir_clock_ns();
    job->usage.n_prompt = job->request.n_prompt;
    job->usage.queue_ns = job->admitted_ns - job->submitted_ns;
    for (int32_t i = 0; i < job->request.n_choices; i++) take_slot(service, &job->choices[i]);
    (void)weir_job_emit(job, &(weir_event){ .type = WEIR_EVENT_ADMITTED, .usage = job->usage });
}

/* Jobs of a client that run now. */
static int32_t running_of(const weir_service *service, int32_t client)
{
    int32_t n = 0;
    for (const weir_job *job = service->running; job != NULL; job = job->next) n += job->request.client == client;
    return n;
}

/* The choices that run for its client leave room for the job in the client's budget. */
static bool fits_budget(const weir_service *service, const weir_job *job)
{
    int64_t bytes = job->request.n_choices * job->choice_bytes;
    if (service->info.kv_per_client == 0) return true;
    for (const weir_job *other = service->running; other != NULL; other = other->next) {
        if (other->request.client == job->request.client) bytes += (other->request.n_choices - other->n_ended) * other->choice_bytes;
    }
    return bytes <= service->info.kv_per_client;
}

/* Whose turn it is: the oldest job of the client that has the fewest running, of several the one that was served least recently. Only this one may start, so that a large job is not passed by
 * small ones for ever. A client whose oldest job waits for its own budget is passed over with all its jobs; clients that share an entry of
 * `turns` then wait together. Lock held. */
static const weir_job *next_in_turn(weir_service *service)
{
    const weir_job *next = NULL;
    int32_t         fewest = 0;
    uint64_t        longest_ago = 0;
    bool            is_over_budget[CLIENT_TURNS] = { false };
    for (const weir_job *job = service->queue_head; job != NULL; job = job->next) {
        const int32_t         n = running_of(service, job->request.client);
        const uint64_t *const turn = turn_of(service, job->request.client);
        bool *const           is_over = &is_over_budget[turn - service->turns];
        *is_over = *is_over || !fits_budget(service, job);
        if (*is_over || (next != NULL && (n > fewest || (n == fewest && *turn >= longest_ago)))) continue;
        next = job;
        fewest = n;
        longest_ago = *turn;
    }
    return next;
}

/* Takes a job that is cancelled, or the one whose turn it is if it can start; NULL when neither. */
static weir_job *pop_job(weir_service *service)
{
    weir_job *job = NULL;
    pthread_mutex_lock(&service->lock);
    const weir_job *const next = next_in_turn(service);
    const bool            can_start = next != NULL && fits(service, next);
    weir_job            **at = &service->queue_head;
    weir_job             *before = NULL;
    while (*at != NULL && !atomic_load(&(*at)->is_cancelled) && !(can_start && *at == next)) {
        before = *at;
        at = &(*at)->next;
    }
    if (*at != NULL) {
        job = *at;
        *at = job->next;
        if (service->queue_tail == job) service->queue_tail = before;
        job->next = NULL;
        service->n_queued--;
        if (!atomic_load(&job->is_cancelled)) {
            job->state = JOB_RUNNING;
            service->n_running++;
        }
    }
    pthread_mutex_unlock(&service->lock);
    return job;
}

void weir_service_admit(weir_service *service)
{
    for (weir_job *job = pop_job(service); job != NULL; job = pop_job(service)) {
        if (job->state == JOB_RUNNING)
            start_job(service, job);
        else
            weir_job_finish(job, WEIR_ECANCELED, "cancelled while queued");
    }
    for (weir_job *job = service->running, *next; job != NULL; job = next) {
        next = job->next;
        if (atomic_load(&job->is_cancelled)) weir_job_finish(job, WEIR_ECANCELED, "cancelled");
    }
}

/* ---- planning -------------------------------------------------------------------------------------------- */
static bool is_decoding(const choice *c) { return c->sequence->n_tokens - c->sequence->n_computed == 1 && c->n_answer > 0; }

static bool can_run(const slot *s) { return s->owner != NULL && !s->owner->is_waiting && !s->owner->is_stalled; }

static void add_work(weir_service *service, int32_t *n_works, choice *c, int32_t n_rows)
{
    const weir_sequence *const sequence = c->sequence;
    const bool                 is_end = sequence->n_computed + n_rows == sequence->n_tokens;
    const bool scores = c->job->request.want_prompt_logprobs && c->index == 0 && sequence->n_computed < c->job->request.n_prompt;
    service->working[*n_works] = c;
    service->works[(*n_works)++] = (weir_work){ .sequence = c->sequence,
                                                .n_rows = n_rows,
                                                .wanted = scores   ? WEIR_LOGITS_ALL
                                                          : is_end ? WEIR_LOGITS_LAST
                                                                   : WEIR_LOGITS_NONE };
}

/* The oldest choice that has a piece of prompt to compute and is not in the plan yet. */
static choice *oldest_prefill(const weir_service *service, int32_t n_works)
{
    choice *oldest = NULL;
    for (int32_t i = 0; i < service->info.n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (!can_run(&service->slots[i]) || is_decoding(c)) continue;
        bool planned = false;
        for (int32_t w = 0; w < n_works; w++) planned = planned || service->working[w] == c;
        if (!planned && (oldest == NULL || c->job->serial < oldest->job->serial)) oldest = c;
    }
    return oldest;
}

static int32_t piece_rows(const weir_service *service, const choice *c, bool others_decode)
{
    const weir_sequence *const sequence = c->sequence;
    const int32_t              most = weir_runner_limits_of(service->runner)->logits - service->info.n_slots;
    int32_t                    chunk = others_decode ? service->busy_chunk : service->chunk;
    if (sequence->keeping != NULL && weir_keeping_sees_all(sequence->keeping)) chunk = service->busy_chunk; /* whoever else runs */
    const int32_t prompt =
        sequence->keeping != NULL ? weir_keeping_prompt_end(sequence->keeping, sequence->n_computed) : sequence->n_tokens;
    if (sequence->n_computed >= prompt) return 1; /* an answer again, as it was */
    if (c->job->request.want_prompt_logprobs && chunk > most) chunk = most;
    int32_t end = (sequence->n_computed / chunk + 1) * chunk;
    if (end > sequence->n_tokens) end = sequence->n_tokens;
    if (end > prompt) end = prompt;
    return end - sequence->n_computed;
}

static int32_t plan(weir_service *service)
{
    int32_t n_works = 0, rows = 0, scoring = 0;
    for (int32_t i = 0; i < service->info.n_slots; i++) {
        if (can_run(&service->slots[i]) && is_decoding(service->slots[i].owner)) add_work(service, &n_works, service->slots[i].owner, 1);
    }
    const bool others_decode = n_works > 0;
    for (choice *c = oldest_prefill(service, n_works); c != NULL; c = oldest_prefill(service, n_works)) {
        const int32_t piece = piece_rows(service, c, others_decode);
        const bool    scores = c->job->request.want_prompt_logprobs;
        if (rows > 0 && (rows + piece > (others_decode ? service->busy_chunk : service->chunk) || (scores && scoring > 0))) break;
        add_work(service, &n_works, c, piece);
        rows += piece;
        scoring += scores ? 1 : 0;
    }
    return n_works;
}

/* ---- room ------------------------------------------------------------------------------------------------ */
/* NULL when only one is left. */
static choice *youngest(const weir_service *service)
{
    choice *found = NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < service->info.n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (!can_run(&service->slots[i])) continue;
        n++;
        if (found == NULL || c->job->serial > found->job->serial || (c->job == found->job && c->index > found->index)) found = c;
    }
    return n > 1 ? found : NULL;
}

/* Stalled choices run again, oldest first, when all their rows and one page more fit. */
static void resume_stalled(weir_service *service)
{
    for (;;) {
        choice *oldest = NULL;
        for (int32_t i = 0; i < service->info.n_slots; i++) {
            choice *const c = service->slots[i].owner;
            if (c != NULL && c->is_stalled && (oldest == NULL || c->job->serial < oldest->job->serial)) oldest = c;
        }
        if (oldest == NULL || !has_room(service, least(oldest->sequence->n_tokens, oldest->job->row_peak), WEIR_PAGE_TOKENS)) return;
        oldest->is_stalled = false;
        weir_choice_reuse(oldest);
    }
}

void weir_choice_preempt(choice *c)
{
    weir_service *const service = c->job->service;
    pthread_mutex_lock(&service->lock);
    service->stats.preemptions++;
    pthread_mutex_unlock(&service->lock);
    weir_sequence_reset(c->sequence);
    c->is_stalled = true;
    c->is_again = true;
}

/* ---- results --------------------------------------------------------------------------------------------- */
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

static void report_prompt(weir_service *service, choice *c, const weir_work *work, const float *logits)
{
    weir_job *const job = c->job;
    const int32_t   first = c->sequence->n_computed - work->n_rows;
    for (int32_t r = 0; r < work->n_rows; r++) {
        const int32_t next = first + r + 1; /* row r predicts this position */
        if (next >= job->request.n_prompt || next <= job->n_prompt_reported) continue;
        weir_logprob       top[WEIR_TOP_LOGPROBS], chosen;
        const float *const row = logits + (work->first_logit + r) * (int64_t)service->info.n_vocab;
        weir_logprobs(row, (size_t)service->info.n_valid_vocab, job->request.prompt[next], &chosen, top,
                      (size_t)job->request.n_top_logprobs, service->scratch);
        job->n_prompt_reported = next;
        (void)weir_job_emit(job, &(weir_event){ .type = WEIR_EVENT_PROMPT,
                                                .token = job->request.prompt[next],
                                                .logprob = chosen,
                                                .top = top,
                                                .n_top = job->request.n_top_logprobs });
    }
}

/* Draws the next token of a choice from its logits row, reports it, and ends the choice if that was the last. */
static void advance(weir_service *service, choice *c, const float *row)
{
    weir_job *const           job = c->job;
    const weir_request *const request = &job->request;
    const bool                ban = request->ignore_eos || c->n_answer < request->min_tokens;
    const int32_t             token =
        weir_sample(row, (size_t)service->info.n_vocab, (size_t)service->info.n_valid_vocab, &request->sampling, &c->history,
                    service->banned, ban ? service->n_stop_ids : 0, (uint32_t)c->index, (uint64_t)c->n_answer, service->scratch);
    if (!ban && is_stop(service, token)) {
        weir_choice_end(c, WEIR_FINISH_STOP, token);
        return;
    }
    weir_logprob top[WEIR_TOP_LOGPROBS];
    weir_event   event = { .type = WEIR_EVENT_TOKEN, .choice = c->index, .token = token };
    if (request->want_logprobs) {
        weir_logprobs(row, (size_t)service->info.n_valid_vocab, token, &event.logprob, top, (size_t)request->n_top_logprobs,
                      service->scratch);
        event.top = top;
        event.n_top = request->n_top_logprobs;
    }
    count_token(c->history.answer, token);
    c->n_answer++;
    job->usage.n_answer++;
    if (job->usage.first_token_ns == 0) job->usage.first_token_ns = weir_clock_ns() - job->submitted_ns;
    const bool go_on = weir_job_emit(job, &event);
    if (!go_on)
        weir_choice_end(c, WEIR_FINISH_STOP, -1);
    else if (c->n_answer >= request->max_tokens || c->sequence->n_tokens >= job->row_limit)
        weir_choice_end(c, WEIR_FINISH_LENGTH, -1);
    else
        c->sequence->tokens[c->sequence->n_tokens++] = token;
}

/* The prompt is computed: the other choices of the job continue from it. */
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
        c->is_waiting = false;
        weir_sequence_fork(c->sequence, first->sequence);
        c->n_evicted_before = first->n_evicted_before;
        if (job->request.max_tokens == 0)
            weir_choice_end(c, WEIR_FINISH_LENGTH, -1);
        else
            advance(service, c, row);
    }
}

static void take_result(weir_service *service, choice *c, const weir_work *work, const float *logits)
{
    weir_job *const job = c->job;
    if (work->wanted == WEIR_LOGITS_ALL) report_prompt(service, c, work, logits);
    if (c->sequence->n_computed < c->sequence->n_tokens) return;
    const int32_t      last = work->first_logit + (work->wanted == WEIR_LOGITS_ALL ? work->n_rows - 1 : 0);
    const float *const row = logits + last * (int64_t)service->info.n_vocab;
    if (c->n_answer == 0 && c->index == 0) weir_choice_share(c);
    if (c->n_answer == 0 && c->index == 0) prompt_is_done(service, c, row);
    if (job->request.max_tokens == 0)
        weir_choice_end(c, WEIR_FINISH_LENGTH, -1);
    else
        advance(service, c, row);
}

/* One pass over the planned works; states that were asked for go to their choices. */
static weir_status run_step(weir_service *service, int32_t n_works, const float **logits, weir_error *error)
{
    for (int32_t i = 0; i < n_works; i++) weir_choice_want_states(service->working[i], &service->works[i]);
    weir_service_make_room(service, n_works);
    const weir_status status = weir_runner_step(service->runner, service->works, n_works, logits, error);
    for (int32_t i = 0; i < n_works; i++) {
        weir_work *const work = &service->works[i];
        const bool       is_done = status == WEIR_OK && !work->failed;
        const int32_t    n_before = work->sequence->n_computed - (is_done ? work->n_rows : 0);
        weir_choice_got_states(service->working[i], work, n_before, is_done);
    }
    return status;
}

/* The job of work i fails, with all its other works. */
static void fail_work(weir_service *service, int32_t i, int32_t n_works, weir_status status, const char *message)
{
    if (service->working[i] == NULL) return;
    weir_job *const job = service->working[i]->job;
    for (int32_t k = 0; k < job->request.n_choices; k++) job->choices[k].is_torn = true;
    for (int32_t k = 0; k < n_works; k++) {
        if (service->working[k] != NULL && service->working[k]->job == job) service->working[k] = NULL;
    }
    weir_job_finish(job, status, message);
}

static void fail_step(weir_service *service, int32_t n_works, weir_status status, const char *message)
{
    for (int32_t i = 0; i < n_works; i++) fail_work(service, i, n_works, status, message);
}

static void finish_ended_jobs(weir_service *service)
{
    for (weir_job *job = service->running, *next; job != NULL; job = next) {
        next = job->next;
        if (job->n_ended == job->request.n_choices) weir_job_finish(job, WEIR_OK, NULL);
    }
}

/* Pages of all layers and heads are taken and given back together. */
static int64_t bytes_of(const weir_service *service, weir_kv_pages pages)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    const int64_t             per_block = weir_kv_pages_for(spec, 1);
    if (per_block == 0) return 0;
    return pages.others / per_block * (int64_t)weir_kv_block_room(spec) + pages.sinks / per_block * (int64_t)weir_kv_sink_block_room(spec);
}

static weir_service_sequence seen_of(const choice *c)
{
    const weir_sequence *const sequence = c->sequence;
    weir_service_sequence      seen = { .job = c->job->serial,
                                        .choice = c->index,
                                        .tokens = sequence->n_computed,
                                        .client = c->job->request.client,
                                        .bytes = (int64_t)weir_sequence_bytes(sequence),
                                        .kv_bytes = (int64_t)weir_sequence_kv_bytes(sequence),
                                        .kv_claim = c->job->choice_bytes };
    if (sequence->keeping == NULL) return seen;
    const weir_keeping_count rows = weir_keeping_count_of(sequence->keeping, &sequence->table, sequence->n_computed);
    seen.kv_policy = c->job->usage.kv_policy;
    seen.kv_budget = c->job->usage.kv_budget;
    seen.n_live = rows.live;
    seen.n_evicted = rows.evicted;
    seen.policy_bytes = (int64_t)weir_keeping_bytes(c->job->keeping);
    return seen;
}

void weir_service_publish(weir_service *service)
{
    pthread_mutex_lock(&service->lock);
    service->n_seen = 0;
    for (int32_t i = 0; i < service->info.n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL) continue;
        service->seen[service->n_seen++] = seen_of(c);
    }
    const weir_kv_pages free = free_pages(service);
    const int64_t       per_block = weir_kv_pages_for(weir_kv_store_spec(service->store), 1);
    service->stats.kv_pages_used = service->info.kv_pages_total - free.sinks - free.others;
    service->stats.kv_sink_pages_free = free.sinks;
    service->stats.kv_bytes_used = service->stats.kv_bytes_total - bytes_of(service, free);
    service->stats.kv_tokens_free = per_block > 0 ? (free.sinks + free.others) / per_block * WEIR_PAGE_TOKENS : 0;
    const weir_kv_residency pages = weir_kv_residency_of(service->store);
    service->stats.kv_disk_pages_used = pages.pages_on_disk;
    service->stats.kv_bytes_out = pages.bytes_out;
    service->stats.kv_bytes_back = pages.bytes_back;
    service->stats.kv_bytes_read = pages.bytes_read;
    service->stats.kv_write_errors = pages.write_errors;
    service->stats.kv_read_errors = pages.read_errors;
    if (service->prefix != NULL) {
        const weir_prefix_stats kept = weir_prefix_stats_of(service->prefix);
        service->stats.kept_tokens = kept.n_tokens;
        service->stats.kept_cut_texts = kept.n_cut;
        service->stats.kept_cut_tokens = kept.n_cut_tokens;
        service->stats.kept_states = kept.n_snapshots;
        service->stats.kept_bytes = bytes_of(service, weir_prefix_reclaimable(service->prefix));
        service->stats.dropped_tokens = kept.dropped_tokens;
        service->stats.unsaved_tokens = kept.unsaved_tokens;
        weir_saver_count(service->saver, &service->stats);
    }
    pthread_mutex_unlock(&service->lock);
}

static void count_step(weir_service *service, int32_t n_works)
{
    pthread_mutex_lock(&service->lock);
    service->stats.steps++;
    for (int32_t i = 0; i < n_works; i++) service->stats.batch_rows += service->works[i].n_rows;
    pthread_mutex_unlock(&service->lock);
    weir_service_publish(service);
}

void weir_service_step(weir_service *service)
{
    resume_stalled(service);
    int32_t n_works = plan(service);
    if (n_works == 0) return;
    const float *logits = NULL;
    weir_error   error = { 0 };
    weir_status  status = run_step(service, n_works, &logits, &error);
    if (status == WEIR_EFULL && weir_saver_give_way(service->saver)) status = run_step(service, n_works, &logits, &error);
    while (status == WEIR_EFULL) {
        if (service->prefix != NULL &&
            weir_prefix_drop_cut(service->prefix)) { /* pages of one size may be missing where there are enough */
            status = run_step(service, n_works, &logits, &error);
            continue;
        }
        choice *const victim = youngest(service);
        if (victim == NULL && !weir_service_yield(service, n_works))
            break; /* a lone sequence always fits: the window is at most the pool */
        if (victim != NULL) {
            weir_choice_preempt(victim);
            n_works = plan(service);
        }
        if (n_works == 0) return;
        status = run_step(service, n_works, &logits, &error);
    }
    if (status != WEIR_OK) {
        fail_step(service, n_works, status, error.text);
        return;
    }
    for (int32_t i = 0; i < n_works; i++) {
        if (service->works[i].failed) fail_work(service, i, n_works, WEIR_EIO, weir_runner_problem(service->runner));
    }
    for (int32_t i = 0; i < n_works; i++) {
        choice *const c = service->working[i];
        if (c != NULL && !c->is_ended) take_result(service, c, &service->works[i], logits);
    }
    finish_ended_jobs(service);
    weir_service_evict(service, n_works);
    weir_runner_tend(service->runner, service->works, n_works);
    count_step(service, n_works);
}
