/* engine/schedule/preempt.c - preemption, the last step of reclaiming. The last sequence in order
 * is preempted, so the first always makes progress. Its rows stay in the prefix cache until their
 * pages are needed; what is gone then is computed again, with the same bits. That takes time for
 * each block, so some are preempted in an iteration, and sequences that lack memory yet stall. */
#include "engine/schedule/job.h"

bool weir_choice_is_before(const choice *a, const choice *b)
{
    const int32_t p = a->job->request.priority, q = b->job->request.priority;
    if (p != q) return p < q;
    return a->job == b->job ? a->index < b->index : a->job->serial < b->job->serial;
}

/* The last of those that the next step may run; NULL if only one is left. */
static choice *last_of_all(const weir_service *service)
{
    choice *found = NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL || c->is_waiting || c->is_stalled || c->is_reading) continue;
        n++;
        if (found == NULL || weir_choice_is_before(found, c)) found = c;
    }
    return n > 1 ? found : NULL;
}

/* The last of those that run and hold pages, if it comes after the choice; else NULL. */
static choice *last_after(const weir_service *service, const choice *c)
{
    choice *found = NULL;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const other = service->slots[i].owner;
        if (other == NULL || other->is_waiting || other->is_stalled ||
            other->sequence->table.n_pages == 0)
            continue;
        if (weir_choice_is_before(found != NULL ? found : c, other)) found = other;
    }
    return found;
}

static const choice *owner_of(const weir_service *service, const weir_kv_sequence *sequence)
{
    const choice *owner = NULL;
    for (int32_t i = 0; owner == NULL && i < service->facts->n_slots; i++)
        if (&service->slots[i].sequence == sequence) owner = service->slots[i].owner;
    WEIR_ASSERT(owner != NULL);
    return owner;
}

void weir_choice_preempt(choice *c)
{
    weir_service *const service = c->job->service;
    pthread_mutex_lock(&service->lock);
    service->stats.preemptions++;
    pthread_mutex_unlock(&service->lock);
    WEIR_ASSERT(!weir_choice_is_pruned_by_thread(c));
    service->pace.preempts -= weir_choice_end_work(c);
    weir_choice_stop_pruning(c);
    weir_choice_stall_forks(c);
    weir_choice_release_followers(c);
    weir_choice_keep_preempted(c);
    weir_kv_sequence_reset(c->sequence);
    c->leader = NULL;
    c->n_redo = 0;
    c->is_stalled = true;
    c->is_again = true;
}

bool weir_service_preempt(void *user, const weir_kv_sequence *after)
{
    const weir_service *const service = user;
    if (service->is_nested) return false; /* the last in order may be in the step that waits */
    if (service->pace.preempts <= 0) return false; /* others in the next iteration */
    choice *const victim =
        after == NULL ? last_of_all(service) : last_after(service, owner_of(service, after));
    /* The thread will free its pages. */
    if (victim == NULL || weir_choice_is_pruned_by_thread(victim)) return false;
    weir_choice_preempt(victim);
    return true;
}
