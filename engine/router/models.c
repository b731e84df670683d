#include "engine/router/models.h"

enum { MOST_DOUBLINGS = 6 };

int64_t weir_loads_used(const weir_loads *loads)
{
    int64_t used = 0;
    for (size_t i = 0; i < loads->n; i++)
        if (loads->of[i].state != WEIR_LOAD_NONE || loads->of[i].start) used += loads->of[i].bytes;
    return used;
}

/* The model whose first request waits longest of those that are not in memory. */
static weir_load *first_waiting(weir_loads *loads)
{
    weir_load *first = NULL;
    for (size_t i = 0; i < loads->n; i++) {
        weir_load *const load = &loads->of[i];
        if (load->state != WEIR_LOAD_NONE || load->start || load->n_waiting == 0) continue;
        if (first == NULL || load->waits_since_ns < first->waits_since_ns) first = load;
    }
    return first;
}

/* A load that no request waits for any more, or that is late, may be one that never ends. */
static bool is_idle(const weir_load *load)
{
    return load->n_running == 0 &&
           (load->state == WEIR_LOAD_DONE || load->n_waiting == 0 || load->is_late);
}

/* Of the models in memory that are not to go yet, the one used least recently. */
static weir_load *least_used(weir_loads *loads, bool idle)
{
    weir_load *least = NULL;
    for (size_t i = 0; i < loads->n; i++) {
        weir_load *const load = &loads->of[i];
        if (load->state != WEIR_LOAD_DONE && !(idle && load->state == WEIR_LOAD_BEGUN)) continue;
        if (load->stop || load->leaves || is_idle(load) != idle) continue;
        if (least == NULL || load->used_ns < least->used_ns) least = load;
    }
    return least;
}

/* Frees room for `bytes`, of which `coming` are on their way. */
static void make_room(weir_loads *loads, int64_t bytes, int64_t coming)
{
    for (weir_load *load; coming < bytes && (load = least_used(loads, true)) != NULL;) {
        load->stop = true;
        coming += load->bytes;
    }
    for (weir_load *load; coming < bytes && (load = least_used(loads, false)) != NULL;) {
        load->leaves = true;
        coming += load->bytes;
    }
}

void weir_loads_plan(weir_loads *loads)
{
    int64_t ending = 0;
    for (size_t i = 0; i < loads->n; i++) {
        weir_load *const load = &loads->of[i];
        load->start = load->stop = load->leaves = false;
        if (load->state == WEIR_LOAD_ENDING) ending += load->bytes;
    }
    for (weir_load *first; (first = first_waiting(loads)) != NULL;) {
        const int64_t left = loads->bytes - weir_loads_used(loads);
        if (first->bytes > left) {
            make_room(loads, first->bytes, left + ending);
            return;
        }
        first->start = true;
    }
}

void weir_load_begin(weir_load *load, int64_t now_ns)
{
    load->state = WEIR_LOAD_BEGUN;
    load->begun_ns = now_ns;
    load->answered = false;
}

void weir_load_outlive(weir_load *load)
{
    if (load->answered) load->n_failures = 0;
}

void weir_load_fail(weir_load *load, int exit_code, int64_t now_ns, int64_t backoff_ns)
{
    const int doublings = load->n_failures < MOST_DOUBLINGS ? load->n_failures : MOST_DOUBLINGS;
    load->failed = true;
    load->exit_code = exit_code;
    load->retry_ns = now_ns + (backoff_ns << doublings);
    load->n_failures++;
    load->n_crashes++;
}

const char *weir_load_name(const weir_load *load)
{
    switch (load->state) {
    case WEIR_LOAD_BEGUN: return "loading";
    case WEIR_LOAD_DONE: return "loaded";
    case WEIR_LOAD_NONE:
    case WEIR_LOAD_ENDING: break;
    }
    return "unloaded";
}
