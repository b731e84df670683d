/* engine/sample/seed.c - draws the seed of a request that sets none. */
#include <sys/random.h>

#include "engine/base/clock.h"
#include "engine/sample/sampler.h"

uint64_t weir_sampling_seed(int64_t seed)
{
    uint64_t drawn;
    if (seed >= 0) return (uint64_t)seed;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return (uint64_t)weir_clock_ns();
    return drawn;
}
