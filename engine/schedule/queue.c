/* engine/schedule/queue.c - the order of queued jobs: by priority, then of the client with the
 * fewest running jobs that was served least recently. Jobs may be backfilled before one that does
 * not fit, with no more rows together than it has (docs/decisions/0047-backfilling.md). */
#include <string.h>

#include "engine/schedule/queue.h"

/* ---- the queue ------------------------------------------------------------------------------- */
weir_queue weir_queue_look(weir_service *service)
{
    pthread_mutex_lock(&service->lock);
    const weir_queue queue = { service->queue_head, service->queue_tail };
    pthread_mutex_unlock(&service->lock);
    return queue;
}

weir_job *weir_queue_after(const weir_queue *queue, const weir_job *job)
{
    return job != queue->last ? job->next : NULL;
}

void weir_queue_remove(
    weir_service *service, const weir_queue *queue, weir_job *job, job_state state
)
{
    weir_job *before = NULL;
    WEIR_ASSERT(job != NULL);
    for (weir_job *at = queue->first; at != job; at = weir_queue_after(queue, at)) before = at;
    pthread_mutex_lock(&service->lock);
    *(before != NULL ? &before->next : &service->queue_head) = job->next;
    if (service->queue_tail == job) service->queue_tail = before;
    job->next = NULL;
    job->state = state;
    service->n_queued--;
    service->n_running += state == JOB_RUNNING;
    pthread_mutex_unlock(&service->lock);
}

/* ---- clients --------------------------------------------------------------------------------- */
static uint64_t *last_served_of(weir_service *service, int32_t client)
{
    return &service->last_served[(uint32_t)client % CLIENT_ENTRIES];
}

void weir_job_count_served(const weir_job *job)
{
    *last_served_of(job->service, job->request.client) = ++job->service->n_served;
}

/* The client's entry: its own, or the free one where it would be. There are more entries than
 * running jobs. */
static client_use *use_of(weir_service *service, int32_t client)
{
    const uint32_t n = (uint32_t)weir_service_clients(service->facts->n_slots);
    uint32_t at = (uint32_t)client % n;
    while (service->clients[at].n_running > 0 && service->clients[at].client != client)
        at = (at + 1) % n;
    return &service->clients[at];
}

/* What each client has running, and is charged for. */
static void count_uses(weir_service *service)
{
    memset(
        service->clients, 0,
        (size_t)weir_service_clients(service->facts->n_slots) * sizeof *service->clients
    );
    for (const weir_job *job = service->running; job != NULL; job = job->next) {
        if (job->n_ended == job->request.n_choices) continue;
        client_use *const use = use_of(service, job->request.client);
        use->client = job->request.client;
        use->n_running++;
        use->bytes += (job->request.n_choices - job->n_ended) * job->choice_bytes;
    }
}

/* True if the client's budget covers its running choices and this job. */
static bool fits_budget(const weir_service *service, const weir_job *job, const client_use *use)
{
    const int64_t bytes = use->bytes + job->request.n_choices * job->choice_bytes;
    return service->facts->kv_per_key == 0 || bytes <= service->facts->kv_per_key;
}

/* ---- backfilling ----------------------------------------------------------------------------- */
static int64_t blocks_of(const weir_job *job)
{
    return ((int64_t)job->row_peak + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}

int64_t weir_job_rows(const weir_job *job)
{
    return job->request.n_choices * blocks_of(job) * WEIR_PAGE_TOKENS;
}

/* True if all that its choices will need is free, even if they share nothing. */
static bool fits_whole(const weir_job *job, weir_kv_pages available)
{
    const weir_kv_store *const store = job->service->store;
    weir_kv_pages each = weir_kv_store_pages_of(store, 0, blocks_of(job)), all = { 0 };
    each.tables = weir_kv_store_tables_of(store, blocks_of(job));
    for (int32_t i = 0; i < job->request.n_choices; i++) all = weir_kv_pages_plus(all, each);
    return weir_kv_pages_fit(all, available);
}

static bool may_backfill(const weir_queue_past *past, const weir_job *job)
{
    const weir_job *const waiting = past->waiting;
    return job->request.priority == waiting->request.priority &&
           job->request.n_choices <= past->n_slots &&
           waiting->rows_backfilled + weir_job_rows(job) <= weir_job_rows(waiting) &&
           job != waiting && fits_whole(job, past->available);
}

/* ---- order ----------------------------------------------------------------------------------- */
/* Clients that share an entry of `last_served` wait together for their budgets. */
weir_job *weir_queue_next(
    weir_service *service, const weir_queue *queue, const weir_queue_past *past
)
{
    weir_job *next = NULL;
    int32_t fewest = 0;
    uint64_t longest_ago = 0;
    bool is_over_budget[CLIENT_ENTRIES] = { false };
    count_uses(service);
    for (weir_job *job = queue->first; job != NULL; job = weir_queue_after(queue, job)) {
        const client_use *const use = use_of(service, job->request.client);
        const int32_t n = use->n_running;
        const uint64_t *const served = last_served_of(service, job->request.client);
        bool *const is_over = &is_over_budget[served - service->last_served];
        *is_over = *is_over || !fits_budget(service, job, use);
        const int32_t priority = job->request.priority;
        if (*is_over ||
            (next != NULL && (priority > next->request.priority ||
                              (priority == next->request.priority &&
                               (n > fewest || (n == fewest && *served >= longest_ago))))))
            continue;
        if (past != NULL && !may_backfill(past, job)) continue;
        next = job;
        fewest = n;
        longest_ago = *served;
    }
    return next;
}
