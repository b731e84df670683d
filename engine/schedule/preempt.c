/* engine/schedule/preempt.c - preemption, the last step of reclaiming.
 *
 * The youngest sequence is preempted, so the oldest always makes progress. It loses what it
 * computed and is computed again later, with the same bits. */
#include "engine/schedule/job.h"

static bool is_younger(const choice *a, const choice *b)
{
    return a->job->serial > b->job->serial || (a->job == b->job && a->index > b->index);
}

/* The youngest of those that the next step may run; NULL if only one is left. */
static choice *youngest(const weir_service *service)
{
    choice *found = NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL || c->is_waiting || c->is_stalled) continue;
        n++;
        if (found == NULL || is_younger(c, found)) found = c;
    }
    return n > 1 ? found : NULL;
}

/* The youngest of those that run and hold pages, if it is younger than the choice; else NULL. */
static choice *youngest_behind(const weir_service *service, const choice *c)
{
    choice *found = NULL;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const other = service->slots[i].owner;
        if (other == NULL || other->is_waiting || other->is_stalled ||
            other->sequence->table.n_pages == 0)
            continue;
        if (is_younger(other, found != NULL ? found : c)) found = other;
    }
    return found;
}

static const choice *owner_of(const weir_service *service, const weir_kv_sequence *sequence)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (&service->slots[i].sequence == sequence) return service->slots[i].owner;
    return NULL;
}

void weir_choice_preempt(choice *c)
{
    weir_service *const service = c->job->service;
    pthread_mutex_lock(&service->lock);
    service->stats.preemptions++;
    pthread_mutex_unlock(&service->lock);
    weir_kv_sequence_reset(c->sequence);
    c->is_stalled = true;
    c->is_again = true;
}

bool weir_service_preempt(void *user, const weir_kv_sequence *behind)
{
    const weir_service *const service = user;
    choice *const victim =
        behind == NULL ? youngest(service) : youngest_behind(service, owner_of(service, behind));
    if (victim != NULL) weir_choice_preempt(victim);
    return victim != NULL;
}
