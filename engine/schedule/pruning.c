/* engine/schedule/pruning.c - drops rows after a step. A choice whose policy is due and whose rows
 * are on disk in part, or for which there is no memory yet, stalls until it is done
 * (docs/decisions/0054). */
#include "engine/kv/prune/pruner.h"
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"

bool weir_job_is_pruning(const weir_job *job)
{
    bool any = false;
    for (int32_t i = 0; job->policy_run != NULL && !any && i < job->request.n_choices; i++)
        any = job->choices[i].is_pruning;
    return any;
}

static bool uses_pruner(const choice *c)
{
    return c->sequence != NULL && weir_pruner_sequence(c->job->service->pruner) == c->sequence;
}

bool weir_choice_is_pruned_by_thread(const choice *c)
{
    return uses_pruner(c) && weir_pruner_is_busy(c->job->service->pruner);
}

void weir_choice_stop_pruning(choice *c)
{
    if (uses_pruner(c)) weir_pruner_stop(c->job->service->pruner);
    c->is_pruning = false;
    c->pruning_need = (weir_reclaim_need){ 0 };
    c->n_pruning_blocks = 0;
}

static bool has_cold_blocks(const choice *c)
{
    return weir_kv_table_cold_blocks(&c->sequence->table, c->job->service->store) > 0;
}

/* ---- memory for the rows that stay ----------------------------------------------------------- */
typedef struct attempt {
    choice *c;
    bool may_preempt;
    /* out: something will be freed when a move, or the thread, has ended, or when others are
     * preempted in the next iteration */
    bool waits;
} attempt;

static weir_reclaim_request request_of(
    const choice *c, weir_reclaim_caller caller, weir_kv_pages pages, weir_reclaim_need *need
)
{
    return (weir_reclaim_request){ .caller = caller,
                                   .store = c->job->service->store,
                                   .sequence = c->sequence,
                                   .pages = pages,
                                   .need = need };
}

static bool try_pages(attempt *a, weir_reclaim_caller caller, weir_kv_pages pages)
{
    const weir_service *const service = a->c->job->service;
    weir_reclaim_need need = { 0 };
    const weir_reclaim_request request = request_of(a->c, caller, pages, &need);
    const weir_status status = weir_reclaim(&service->holders, &request, NULL);
    a->waits = status != WEIR_OK && need.waits;
    return status == WEIR_OK;
}

/* The sequence's own blocks may leave, too. */
static bool try_blocks(attempt *a, int64_t n_blocks)
{
    const weir_service *const service = a->c->job->service;
    const weir_batch_item item = { .sequence = a->c->sequence };
    weir_reclaim_request request =
        request_of(a->c, WEIR_RECLAIM_FOR_MEMORY, (weir_kv_pages){ 0 }, &a->c->pruning_need);
    request.items = &item;
    request.n_items = 1;
    request.blocks = n_blocks;
    request.hot = weir_runner_limits_of(service->runner)->hot;
    const weir_status status = weir_reclaim(&service->holders, &request, NULL);
    a->waits = status != WEIR_OK && a->c->pruning_need.waits;
    return status == WEIR_OK;
}

/* As in a step, pages come first: what is cached may fill the lower tier, and then no block could
 * leave. Also as there, the youngest sequences are preempted, so the oldest makes progress. */
static bool find_pages(void *user, const weir_kv_sequence *sequence, weir_kv_pages pages)
{
    attempt *const a = user;
    const weir_kv_spec *const spec = weir_kv_store_spec(sequence->store);
    const int64_t n_blocks = weir_kv_pages_blocks(spec, pages);
    a->waits = false;
    a->c->n_pruning_blocks = n_blocks;
    if (!weir_kv_pages_fit(pages, weir_kv_store_free(sequence->store)) &&
        try_pages(a, WEIR_RECLAIM_FOR_POLICY, pages))
        return true;
    if (weir_kv_cold_pages(spec) > 0 && weir_kv_free_blocks(sequence->store) < n_blocks &&
        try_blocks(a, n_blocks))
        return true;
    if (!a->waits && try_pages(a, WEIR_RECLAIM_FOR_POLICY, pages)) return true;
    if (a->waits || !a->may_preempt) return false;
    if (try_pages(a, WEIR_RECLAIM_FOR_POLICY_FULL, pages)) return true;
    a->waits = a->waits || weir_service_will_preempt(a->c->job->service);
    return false;
}

/* ---- a choice -------------------------------------------------------------------------------- */
/* Its policy is due, or the pages of its rows are there to be dropped. */
static weir_status apply(attempt *a, weir_error *error)
{
    const weir_reclaim_hook hook = { .reclaim = find_pages, .user = a };
    weir_kv_evictor *const evictor = weir_runner_evictor(a->c->job->service->runner);
    return weir_apply_policy(a->c->sequence, evictor, &hook, error);
}

/* The thread has planned. */
static weir_status move(attempt *a, weir_error *error)
{
    weir_pruner *const pruner = a->c->job->service->pruner;
    weir_status status = weir_pruner_move(pruner, error);
    while (status == WEIR_EFULL && find_pages(a, a->c->sequence, weir_pruner_pages(pruner)))
        status = weir_pruner_move(pruner, error);
    return status;
}

bool weir_choice_apply_policy(choice *c, const char **why)
{
    const weir_service *const service = c->job->service;
    attempt a = { .c = c };
    weir_application due;
    *why = "its policy is being applied to another answer";
    if (weir_pruner_uses(service->pruner, c->sequence->policy_run)) return false;
    *why = "its policy is due, and rows are on disk";
    if (service->pruner != NULL && has_cold_blocks(c) && weir_application_begin(&due, c->sequence))
        return false;
    *why = "there is no memory for the rows that stay";
    const weir_status status = apply(&a, NULL);
    if (status == WEIR_EIO) *why = "its rows cannot be read from disk";
    return status == WEIR_OK;
}

/* True if running sequences hold pages that will be freed later. */
static bool is_worth_waiting(const weir_service *service, const choice *c)
{
    for (size_t i = 0; i < sizeof service->session_sequences / sizeof *service->session_sequences;
         i++)
        if (service->session_sequences[i] != NULL &&
            service->session_sequences[i]->table.n_pages > 0)
            return true;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const other = service->slots[i].owner;
        if (other != NULL && other != c && !other->is_waiting && !other->is_stalled &&
            other->sequence->table.n_pages > 0)
            return true;
    }
    return false;
}

static void settle(choice *c, int32_t n_items, weir_status status, const char *message)
{
    weir_service *const service = c->job->service;
    service->has_news = true;
    weir_choice_stop_pruning(c);
    /* The only running sequence would fail again in the same way. */
    if (status == WEIR_EFULL && is_worth_waiting(service, c))
        weir_choice_preempt(c);
    else if (status != WEIR_OK)
        weir_job_fail_in_step(c->job, n_items, status, message);
    else
        weir_choice_keep_checkpoint(c);
}

static void go_on(choice *c, int32_t n_items)
{
    weir_pruner *const pruner = c->job->service->pruner;
    attempt a = { .c = c, .may_preempt = true };
    weir_application due;
    weir_error error = { 0 };
    weir_status status = WEIR_OK;
    c->n_pruning_blocks = 0;
    if (uses_pruner(c)) {
        status = move(&a, &error);
    } else if (weir_application_begin(&due, c->sequence)) {
        const bool needs_thread = pruner != NULL && has_cold_blocks(c);
        if (needs_thread && weir_pruner_is_idle(pruner))
            (void)weir_pruner_begin(pruner, c->sequence);
        if (needs_thread) return;
        status = apply(&a, &error);
    }
    const bool is_over = status == WEIR_OK ? !uses_pruner(c) : status != WEIR_EFULL || !a.waits;
    if (status == WEIR_OK) c->n_pruning_blocks = 0; /* it has them */
    if (is_over) settle(c, n_items, status, error.text);
}

/* ---- all of them ----------------------------------------------------------------------------- */
static choice *owner_of(const weir_service *service, const weir_kv_sequence *sequence)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (&service->slots[i].sequence == sequence) return service->slots[i].owner;
    return NULL;
}

/* What the thread has done. */
static void end_work(weir_service *service, int32_t n_items)
{
    choice *const c = owner_of(service, weir_pruner_sequence(service->pruner));
    weir_status status;
    weir_error error = { 0 };
    if (!weir_pruner_end(service->pruner, &status, &error) || c == NULL) return;
    if (status != WEIR_OK || !uses_pruner(c)) settle(c, n_items, status, error.text);
}

/* The first in order that has not been tried, whose rows no other choice is to fork, and whose
 * policy run the thread leaves alone. */
static choice *next_untried(const weir_service *service)
{
    choice *next = NULL;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL || !c->is_pruning || c->is_tried || c->job->n_unforked > 0) continue;
        const bool is_used = weir_pruner_uses(service->pruner, c->sequence->policy_run) &&
                             (!uses_pruner(c) || weir_pruner_is_busy(service->pruner));
        if (!is_used && (next == NULL || weir_choice_is_before(c, next))) next = c;
    }
    return next;
}

void weir_service_prune(weir_service *service, int32_t n_items)
{
    if (weir_pruner_is_busy(service->pruner)) end_work(service, n_items);
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (service->slots[i].owner != NULL) service->slots[i].owner->is_tried = false;
    for (choice *c; (c = next_untried(service)) != NULL;) {
        c->is_tried = true;
        go_on(c, n_items);
    }
}

void weir_service_evict(weir_service *service, int32_t n_items)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL || c->job->is_in_step || c->is_waiting || c->is_stalled || c->is_pruning ||
            weir_policy_is_applied(c->sequence))
            continue;
        weir_choice_keep_prompt(c);
        c->is_pruning = true;
    }
    weir_service_prune(service, n_items);
}
