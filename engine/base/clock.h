/* engine/base/clock.h - monotonic time for measurements, wall-clock time for timestamps. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline int64_t weir_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
/* The time in `ns` on a clock, for pthread_cond_timedwait. */
static inline struct timespec weir_clock_after(clockid_t clock, int64_t ns)
{
    struct timespec at;
    (void)clock_gettime(clock, &at);
    ns += at.tv_nsec;
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}
static inline int64_t weir_clock_unix_seconds(void) { return (int64_t)time(NULL); }
