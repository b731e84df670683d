/* engine/schedule/admission.c - which jobs may run: a queued job (queue.c) or a preempted choice
 * starts when its rows fit together with those of the running sequences. Preempted choices go
 * before queued jobs of the same priority. */
#include <inttypes.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/schedule/job.h"
#include "engine/schedule/queue.h"
#include "engine/schedule/tiers.h"
#include "kernels/abi/minmax.h"

/* ---- memory ---------------------------------------------------------------------------------- */
weir_kv_pages weir_service_free_pages(const weir_service *service)
{
    const weir_kv_pages free = weir_kv_store_free(service->store);
    if (service->prefix == NULL) return free;
    return weir_kv_pages_plus(free, weir_prefix_reclaimable(service->prefix));
}

/* Rows that a choice holds when its tokens are computed. */
static int64_t rows_to_come(const choice *c)
{
    const weir_kv_sequence *const s = c->sequence;
    const int64_t rows = s->table.n_rows + s->n_tokens - s->n_computed;
    return c->job->policy_run != NULL && rows > c->job->row_peak ? c->job->row_peak : rows;
}

/* Free pages, and memory for tables, less what the tokens of running sequences will still take, so
 * that an admitted job does not run out of either. */
static weir_kv_pages unclaimed_pages(const weir_service *service)
{
    const weir_kv_store *const store = service->store;
    weir_kv_pages n = weir_tiers_free_pages(store, service->prefix);
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL || c->is_waiting || c->is_stalled) continue;
        const weir_kv_table *const table = &c->sequence->table;
        const int64_t all = (rows_to_come(c) + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
        n = weir_kv_pages_minus(n, weir_kv_store_pages_of(store, table->n_pages, all));
        n.tables -= weir_kv_table_more(table, store, all);
    }
    return n;
}

bool weir_service_spares_table(const weir_service *service, int64_t n_rows)
{
    const int64_t n_blocks = (n_rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    return weir_kv_store_tables_of(service->store, n_blocks) <= unclaimed_pages(service).tables;
}

bool weir_service_claim(weir_service *service, weir_kv_pages wanted)
{
    const weir_service_hooks *const hooks = service->hooks;
    const weir_kv_pages unclaimed = unclaimed_pages(service);
    if (weir_kv_pages_fit(wanted, unclaimed)) return true;
    if (hooks == NULL) return false;
    const weir_kv_pages held = hooks->held(hooks->user);
    return weir_kv_pages_fit(wanted, weir_kv_pages_plus(unclaimed, held)) &&
           hooks->release(hooks->user) && weir_kv_pages_fit(wanted, unclaimed_pages(service));
}

/* A sequence that is to run: its rows, those that it needs to continue, and its tokens. */
typedef struct candidate {
    const weir_job *job;
    const int32_t *tokens;
    int32_t n_tokens;
    int64_t rows, more;
} candidate;

/* What a candidate takes of which running sequences hold the first n_shared rows; its table is its
 * own. A window never needs more than its own rows. */
static weir_kv_pages pages_of(const weir_service *service, const candidate *of, int64_t n_shared)
{
    const int64_t all = of->rows + of->more,
                  max_rows = weir_kv_store_spec(service->store)->max_rows,
                  most = all < max_rows ? all : max_rows;
    const int64_t end = (most + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    weir_kv_pages n = weir_kv_store_pages_of(service->store, n_shared / WEIR_PAGE_TOKENS, end);
    n.tables = weir_kv_store_tables_of(service->store, end);
    return n;
}

/* Rows of a candidate that it would share with running sequences. Walks the prefix tree. */
static int64_t shared_rows(const candidate *of)
{
    const weir_request *const request = &of->job->request;
    if (of->job->service->prefix == NULL || !request->cache_prompt ||
        request->want_prompt_logprobs || request->want_embedding || of->job->policy_run != NULL)
        return 0;
    return weir_prefix_shared_rows(
        of->job->service->prefix, of->tokens, of->n_tokens - 1, request->cache_salt
    );
}

/* True if there is space. The tree is walked only where what is shared decides: a job may wait for
 * thousands of steps. */
static bool has_room(weir_service *service, const candidate *of)
{
    const weir_service_hooks *const hooks = service->hooks;
    const weir_kv_pages most = pages_of(service, of, 0);
    if (weir_tiers_may_try(service->store, &service->holders)) return true;
    weir_kv_pages available = unclaimed_pages(service);
    if (!weir_kv_pages_fit(most, available) && weir_service_release_ended(service, true))
        available = unclaimed_pages(service);
    if (weir_kv_pages_fit(most, available)) return true;
    if (hooks != NULL) available = weir_kv_pages_plus(available, hooks->held(hooks->user));
    if (!weir_kv_pages_fit(pages_of(service, of, of->n_tokens), available)) return false;
    return weir_service_claim(service, pages_of(service, of, shared_rows(of)));
}

/* Rows of a sequence that has the whole pool to itself. */
static int64_t pool_rows(const weir_kv_spec *spec)
{
    const int64_t per_block = weir_kv_pages_for(spec, 1);
    if (per_block == 0) return spec->max_rows;
    const int64_t sinks = spec->pages.n_sinks / per_block,
                  others = (spec->pages.n - spec->pages.n_sinks) / per_block;
    return (sinks < spec->sinks.n_pages ? sinks : spec->sinks.n_pages + others) * WEIR_PAGE_TOKENS;
}

weir_status weir_job_check_memory(weir_job *job, weir_error *error)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(job->service->store);
    const int64_t all = pool_rows(spec),
                  most_rows =
                      all - WEIR_PAGE_TOKENS; /* has_room needs some more to continue with */
    if (all >= spec->max_rows) return WEIR_OK;
    if (job->policy_run == NULL &&
        job->request.n_prompt <= most_rows) { /* the answer ends where memory does */
        job->row_limit = weir_min_i32(job->row_limit, (int32_t)most_rows);
        job->row_peak = weir_min_i32(job->row_peak, (int32_t)most_rows);
        return WEIR_OK;
    }
    if (job->policy_run != NULL && job->row_peak <= most_rows) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL,
        "the prompt of %d tokens needs KV memory for %d rows at once, and there is room for "
        "%" PRId64
        "; shorten it, use a KV policy with in_prompt=true and a smaller budget, or raise %s",
        (int)job->request.n_prompt, (int)job->row_peak, most_rows,
        weir_kv_store_budget(job->service->store)
    );
}

static candidate resumed_of(const choice *c)
{
    return (candidate){ .job = c->job,
                        .tokens = c->sequence->tokens,
                        .n_tokens = c->sequence->n_tokens,
                        .rows = weir_min_i32(c->sequence->n_tokens, c->job->row_peak),
                        .more = WEIR_PAGE_TOKENS };
}

bool weir_choice_may_fork(const choice *c, int64_t n_rows)
{
    weir_service *const service = c->job->service;
    int64_t n =
        weir_kv_store_tables_of(service->store, (n_rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS);
    bool any = false;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const other = service->slots[i].owner;
        if (other == NULL || !other->is_stalled || !weir_choice_is_before(other, c)) continue;
        const candidate of = resumed_of(other);
        n += pages_of(service, &of, 0).tables;
        any = true;
    }
    return !any || n <= unclaimed_pages(service).tables ||
           (weir_service_release_ended(service, true) && n <= unclaimed_pages(service).tables);
}

/* False if there is no room even without all that run behind it, because of those before it. */
static bool may_make_room(const weir_service *service, const candidate *of, const choice *c)
{
    const weir_service_hooks *const hooks = service->hooks;
    const weir_kv_store *const store = service->store;
    weir_kv_pages most = unclaimed_pages(service);
    bool is_first = true; /* of those that hold pages */
    if (hooks != NULL) most = weir_kv_pages_plus(most, hooks->held(hooks->user));
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const other = service->slots[i].owner;
        if (other == NULL || other->is_waiting || other->is_stalled) continue;
        const weir_kv_table *const table = &other->sequence->table;
        const int64_t all = (rows_to_come(other) + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
        if (weir_choice_is_before(other, c)) {
            is_first = is_first && table->n_pages == 0;
            continue;
        }
        most = weir_kv_pages_plus(
            most, weir_kv_store_pages_of(store, 0, weir_max(table->n_pages, all))
        );
        most.tables += table->n_units + weir_kv_table_more(table, store, all);
    }
    return is_first || weir_kv_pages_fit(pages_of(service, of, shared_rows(of)), most);
}

/* Choices that found no memory to fork a prompt may stall while others behind them run: these are
 * preempted then, from the last one on, if that may help. */
static bool makes_room(weir_service *service, const candidate *of, const choice *c)
{
    bool fits = has_room(service, of);
    if (!fits && !may_make_room(service, of, c)) return false;
    while (!fits && !weir_pruner_is_busy(service->pruner) &&
           weir_service_preempt(service, c->sequence))
        fits = has_room(service, of);
    return fits;
}

void weir_service_resume_stalled(weir_service *service)
{
    for (;;) {
        choice *first = NULL;
        for (int32_t i = 0; i < service->facts->n_slots; i++) {
            choice *const c = service->slots[i].owner;
            if (c != NULL && c->is_stalled && (first == NULL || weir_choice_is_before(c, first)))
                first = c;
        }
        if (first == NULL || service->pace.is_preempting || service->pace.resumes <= 0 ||
            weir_pruner_uses(service->pruner, first->sequence->policy_run))
            return;
        const candidate resumed = resumed_of(first);
        if (!makes_room(service, &resumed, first)) return;
        first->is_stalled = false;
        weir_choice_reuse(first);
        service->pace.resumes -= weir_choice_work(first);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */
/* With those whose sequence has ended, which are released when they are needed. */
static int32_t free_slots(const weir_service *service)
{
    int32_t n = 0;
    for (int32_t i = 0; i < service->facts->n_slots; i++) n += service->slots[i].owner == NULL;
    return n;
}

static bool is_free(const slot *s) { return s->owner == NULL && s->ended == NULL; }

/* True if a preempted choice of this priority or a better one waits for pages: what starts now
 * would take them. */
static bool waits_for_stalled(const weir_service *service, const weir_job *job)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c != NULL && c->is_stalled && c->job->request.priority <= job->request.priority)
            return true;
    }
    return false;
}

static bool fits(weir_service *service, const weir_job *job)
{
    const candidate of = {
        .job = job,
        .tokens = job->request.prompt,
        .n_tokens = job->request.n_prompt,
        .rows = weir_min_i32(job->request.n_prompt, job->row_peak),
        .more = 1,
    };
    return free_slots(service) >= job->request.n_choices && has_room(service, &of);
}

static void take_slot(weir_service *service, choice *c)
{
    slot *free_one = NULL;
    do {
        for (int32_t i = 0; free_one == NULL && i < service->facts->n_slots; i++)
            if (is_free(&service->slots[i])) free_one = &service->slots[i];
    } while (free_one == NULL && weir_service_release_one(service));
    WEIR_ASSERT(free_one != NULL);
    free_one->owner = c;
    c->sequence = &free_one->sequence;
    c->is_waiting = c->index > 0;
    weir_choice_watch(c);
    if (c->is_waiting) return;
    memcpy(
        c->sequence->tokens, c->job->request.prompt,
        (size_t)c->job->request.n_prompt * sizeof(int32_t)
    );
    c->sequence->n_tokens = c->job->request.n_prompt;
    weir_choice_reuse(c);
    if (!c->is_reading) weir_choice_count_before(c);
}

static void report_admitted(weir_job *job)
{
    (void)weir_job_emit(job, &(weir_event){ .type = WEIR_EVENT_ADMITTED, .usage = job->usage });
}

static void start_job(weir_service *service, weir_job *job)
{
    weir_service_release_before(service, job);
    job->next = service->running;
    service->running = job;
    service->has_news = true;
    weir_job_count_served(job);
    job->admitted_ns = weir_clock_ns();
    job->usage.n_prompt = job->request.n_prompt;
    job->usage.queue_ns = job->admitted_ns - job->submitted_ns;
    for (int32_t i = 0; i < job->request.n_choices; i++) take_slot(service, &job->choices[i]);
    service->pace.begins -= weir_choice_work(&job->choices[0]);
    if (!job->choices[0].is_reading) report_admitted(job);
}

/* The first in order that was not looked at in this call. */
static choice *next_reading(const weir_service *service)
{
    choice *first = NULL;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c != NULL && c->is_reading && !c->is_tried &&
            !weir_pruner_uses(service->pruner, c->sequence->policy_run) &&
            (first == NULL || weir_choice_is_before(c, first)))
            first = c;
    }
    return first;
}

void weir_service_start_read(weir_service *service)
{
    choice *c;
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (service->slots[i].owner != NULL) service->slots[i].owner->is_tried = false;
    while ((c = next_reading(service)) != NULL && service->pace.resumes > 0) {
        c->is_tried = true;
        weir_choice_reuse(c);
        service->pace.resumes -= weir_choice_work(c);
        if (c->is_reading || c->is_again) continue;
        weir_choice_count_before(c);
        report_admitted(c->job);
    }
    weir_prefix_hold_read(service->prefix, c != NULL);
}

/* ---- the queue ------------------------------------------------------------------------------- */
/* The job that may start now; NULL: none. `waiting`: the one that it is backfilled before, or
 * NULL. */
static weir_job *next_to_start(weir_service *service, const weir_queue *queue, weir_job **waiting)
{
    *waiting = NULL;
    const int32_t n_slots = free_slots(service);
    if (queue->first == NULL || n_slots == 0) return NULL;
    weir_job *const next = weir_queue_next(service, queue, NULL);
    if (next == NULL || waits_for_stalled(service, next)) return NULL;
    if (fits(service, next)) return next;
    *waiting = next;
    const weir_queue_past past = { next, unclaimed_pages(service), n_slots };
    return weir_queue_next(service, queue, &past);
}

static bool is_late(const weir_job *job, int64_t now)
{
    return job->deadline_ns != 0 && job->deadline_ns <= now;
}

static weir_job *first_over(const weir_queue *queue, int64_t now)
{
    weir_job *job = queue->first;
    while (job != NULL && !atomic_load(&job->is_cancelled) && !is_late(job, now))
        job = weir_queue_after(queue, job);
    return job;
}

/* Removes and returns a job that is cancelled or late; if there is none, and one may, one that can
 * start, which is RUNNING then. NULL if there is neither. What it takes to find out, such as a look
 * into the prefix cache, happens without the lock. */
static weir_job *pop_job(weir_service *service, bool may_start)
{
    const weir_queue queue = weir_queue_look(service);
    weir_job *job = first_over(&queue, weir_clock_ns()), *waiting = NULL;
    const bool starts = job == NULL;
    if (starts && may_start) job = next_to_start(service, &queue, &waiting);
    if (job == NULL) return NULL;
    if (waiting != NULL) waiting->rows_backfilled += weir_job_rows(job);
    weir_queue_remove(service, &queue, job, starts ? JOB_RUNNING : JOB_QUEUED);
    return job;
}

void weir_service_end_over(weir_service *service)
{
    const int64_t now = weir_clock_ns();
    for (weir_job *job = service->running, *next; job != NULL; job = next) {
        next = job->next;
        const bool is_cancelled = atomic_load(&job->is_cancelled);
        if (!is_cancelled && !is_late(job, now)) continue;
        if (job->is_in_step && is_cancelled)
            weir_job_report_end(job, WEIR_FINISH_CANCELED, WEIR_ECANCELED, "cancelled");
        else if (job->is_in_step)
            weir_job_report_end(job, WEIR_FINISH_TIMEOUT, WEIR_OK, NULL);
        else if (is_cancelled)
            weir_job_finish(job, WEIR_ECANCELED, "cancelled");
        else
            weir_job_time_out(job);
    }
}

void weir_service_admit(weir_service *service)
{
    for (weir_job *job; (job = pop_job(service, service->pace.begins > 0)) != NULL;) {
        if (job->state == JOB_RUNNING)
            start_job(service, job);
        else if (atomic_load(&job->is_cancelled))
            weir_job_finish(job, WEIR_ECANCELED, "cancelled while queued");
        else
            weir_job_time_out(job);
    }
    weir_service_end_over(service);
}
