// What may happen in a schedule, and the least of it with which a seed fails.
#include "tests/unit/schedule/simulator/schedule.h"

namespace sim {

const char *const feature_names[kFeatures] = { "disk",     "faults",     "stalls",  "cancels",
                                               "timeouts", "priorities", "choices", "sharing",
                                               "failures", "policies",   "leaves" };

std::string print_features(unsigned features)
{
    std::string out;
    for (size_t i = 0; i < kFeatures; i++)
        if ((features >> i & 1) != 0)
            out += (out.empty() ? "" : ",") + std::string(feature_names[i]);
    return out;
}

Limits shrink(const World &world, uint64_t seed, bool prunes)
{
    Limits least;
    least.prunes = prunes;
    const auto fails = [&](const Limits &limits) {
        return !run_schedule(world, seed, limits, false).problem.empty();
    };
    for (size_t i = 0; i < kFeatures; i++) {
        Limits without = least;
        without.features &= ~(1u << i);
        if (fails(without)) least = without;
    }
    for (int n = 1; n < 17; n++) {
        Limits fewer = least;
        fewer.n_jobs = n;
        if (fails(fewer)) return fewer;
    }
    return least;
}

} // namespace sim
