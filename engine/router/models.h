/* engine/router/models.h - which models are in memory, and which are loaded or unloaded next.
 * Arithmetic only: no process, no clock. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/router/router.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_load_state {
    WEIR_LOAD_NONE,
    WEIR_LOAD_BEGUN, /* its server runs and does not listen yet */
    WEIR_LOAD_DONE,
    WEIR_LOAD_ENDING /* its server was told to end, and still has its memory */
} weir_load_state;

/* Times are of CLOCK_MONOTONIC, in nanoseconds. */
typedef struct weir_load {
    const char *name;
    int64_t bytes;
    weir_load_state state;
    int64_t n_running, n_waiting; /* requests */
    int64_t waits_since_ns; /* of the first that waits */
    int64_t used_ns; /* when its last request began or ended; without its key none counts */
    int64_t begun_ns; /* of WEIR_LOAD_BEGUN */
    bool is_late; /* it loads for so long that another that waits may have its memory */
    /* Of the last end that was not asked for. */
    bool failed;
    int exit_code; /* 128 + signal, as a shell has it */
    int n_failures; /* in a row */
    bool answered; /* since it was started: an answer, perhaps cut by its end */
    int64_t retry_ns; /* it is not started before */
    /* What is to be done, of weir_loads_plan. */
    bool start, stop;
    bool leaves; /* gets no further requests, since another waits for its memory */
    uint64_t n_loads, n_unloads, n_crashes, n_requests;
} weir_load;

typedef struct weir_loads {
    weir_load of[WEIR_ROUTER_MODELS];
    size_t n;
    int64_t bytes; /* of all models together */
} weir_loads;

/* Sets start, stop and leaves. Those that wait are served in order: the first model that does not
 * fit gets the memory of those without requests, used least recently first, then of those that
 * answer, once they have none. A model that answers is not stopped, nor one that is being loaded
 * while a request waits for it, unless it is late. */
void weir_loads_plan(weir_loads *loads);
int64_t weir_loads_used(const weir_loads *loads);
/* Its server was started. */
void weir_load_begin(weir_load *load, int64_t now_ns);
/* It outlives what it has answered: if that is anything, its failures are no longer in a row. */
void weir_load_outlive(weir_load *load);
/* Records an end that was not asked for. backoff_ns: see weir_router_options. */
void weir_load_fail(weir_load *load, int exit_code, int64_t now_ns, int64_t backoff_ns);
/* As llama-server's router names them. */
const char *weir_load_name(const weir_load *load);

#ifdef __cplusplus
}
#endif
