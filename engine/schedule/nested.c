/* engine/schedule/nested.c - steps of sequences with blocks in the lower tier, and iterations of
 * all others within them, while they wait for a block (docs/decisions/0065-cold-batches.md). */
#include "engine/base/clock.h"
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"

/* ---- two kinds ------------------------------------------------------------------------------- */
static bool is_cold(const weir_service *service, int32_t item)
{
    weir_kv_table *const table = &service->step.items[item].sequence->table;
    return weir_kv_table_cold_blocks(table, service->store) > 0;
}

bool weir_choice_is_for_later(const choice *c)
{
    const weir_service *const service = c->job->service;
    return service->is_nested && weir_kv_table_cold_blocks(&c->sequence->table, service->store) > 0;
}

static void forget_left(const weir_service *service)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (service->slots[i].owner != NULL) service->slots[i].owner->is_left = false;
}

int32_t weir_service_keep_kind(
    weir_service *service, int32_t n_items, weir_step_kind kind, int32_t *n_left
)
{
    service_step *const step = &service->step;
    int32_t n = 0, n_cold = 0;
    *n_left = 0;
    if (service->other.runner == NULL) return n_items;
    for (int32_t i = 0; i < n_items; i++) n_cold += is_cold(service, i);
    const bool all_cold = kind == WEIR_STEP_FIRST && n_cold == n_items;
    if (kind == WEIR_STEP_FIRST) forget_left(service);
    for (int32_t i = 0; i < n_items; i++) {
        choice *const c = step->choices[i];
        c->is_planned = kind == WEIR_STEP_LEFT ? c->is_left : is_cold(service, i) == all_cold;
        if (kind == WEIR_STEP_FIRST) c->is_left = !c->is_planned;
        if (!c->is_planned) continue;
        c->item = n;
        step->items[n] = step->items[i];
        step->choices[n++] = c;
    }
    *n_left = n_items - n;
    return n;
}

/* ---- an iteration within a step -------------------------------------------------------------- */
static void exchange(weir_service *service)
{
    const service_step step = service->step;
    service->step = service->other;
    service->other = step;
}

static void begin(weir_service *service)
{
    weir_step_times_add(&service->times, WEIR_STEP_FORWARD);
    exchange(service);
    service->is_nested = true;
}

static void end(weir_service *service)
{
    service->is_nested = false;
    exchange(service);
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner; /* others were counted in their own step */
        if (c != NULL && !c->job->is_in_step) c->is_overlooked = c->goes_first = false;
    }
}

/* Lock held. Without a nested runner calls and new jobs wait for the step. */
static void sleep_in_step(weir_service *service, int64_t serial)
{
    enum { LOOK_AGAIN_NS = 10000000 };
    if (service->other.runner != NULL) {
        weir_service_sleep(service, serial);
    } else if (!service->is_stopping && !service->has_moved) {
        const struct timespec until = weir_clock_after(CLOCK_REALTIME, LOOK_AGAIN_NS);
        (void)pthread_cond_timedwait(&service->work, &service->lock, &until);
    }
    service->has_moved = false;
}

/* Returns false if no sequence could be computed. */
static bool iterate(weir_service *service)
{
    if (service->other.runner == NULL) {
        weir_service_end_over(service);
        return false;
    }
    begin(service);
    const bool has_stepped = weir_service_iterate(service, false);
    end(service);
    return has_stepped;
}

bool weir_service_iterate_nested(void *user)
{
    weir_service *const service = user;
    if (service->step.n_running == 0) return false; /* the runner is used by another */
    pthread_mutex_lock(&service->lock);
    const int64_t serial = service->next_serial;
    const bool stops = service->is_stopping;
    pthread_mutex_unlock(&service->lock);
    if (stops) return false;
    const bool has_stepped = iterate(service);
    if (has_stepped || !service->sleeps) return has_stepped;
    pthread_mutex_lock(&service->lock);
    sleep_in_step(service, serial);
    pthread_mutex_unlock(&service->lock);
    weir_step_times_resume(&service->times);
    return true;
}
