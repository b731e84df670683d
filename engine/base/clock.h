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
static inline int64_t weir_clock_unix_seconds(void) { return (int64_t)time(NULL); }
