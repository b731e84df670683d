/* engine/schedule/step_times.h - the engine thread's time by part of a step. A part ends where the
 * next one begins, so their sum is the time from the first step on, except what the thread waited
 * for work. One clock read per part. */
#pragma once
#include <stdint.h>

#include "engine/base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_step_part {
    WEIR_STEP_ADMIT, /* calls of other threads, the queue, sequences that resume */
    WEIR_STEP_PLAN, /* which rows are computed */
    WEIR_STEP_MEMORY, /* pages: reclaimed and reserved */
    WEIR_STEP_MARSHAL, /* the batch as the model sees it */
    WEIR_STEP_FORWARD, /* the model */
    WEIR_STEP_COMMIT, /* rows become visible, pages go to the prefix cache */
    WEIR_STEP_SAMPLE,
    WEIR_STEP_EVENTS, /* callbacks, and the ends of sequences and jobs */
    WEIR_STEP_MAINTAIN, /* policies, promotion, hooks */
    WEIR_STEP_PUBLISH, /* statistics for other threads */
    WEIR_STEP_PARTS
} weir_step_part;

typedef struct weir_step_times {
    int64_t last_ns; /* when the last part ended */
    int64_t ns[WEIR_STEP_PARTS];
} weir_step_times;

static inline void weir_step_times_resume(weir_step_times *times)
{
    times->last_ns = weir_clock_ns();
}

/* The part ends now. */
static inline void weir_step_times_add(weir_step_times *times, weir_step_part part)
{
    const int64_t now_ns = weir_clock_ns();
    times->ns[part] += now_ns - times->last_ns;
    times->last_ns = now_ns;
}

#ifdef __cplusplus
}
#endif
