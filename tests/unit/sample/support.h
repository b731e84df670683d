/* Logits, a sampler and what it keeps, for tests of sampling. */
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/sample/processors.h"

namespace sampling {

inline const float infinity = std::numeric_limits<float>::infinity(),
                   nan_value = std::numeric_limits<float>::quiet_NaN();
inline const float largest = std::numeric_limits<float>::max();

struct Sampler {
    weir_sampler_scratch *scratch = nullptr;
    explicit Sampler(size_t n) { EXPECT_EQ(weir_sampler_scratch_open(&scratch, n), WEIR_OK); }
    ~Sampler() { weir_sampler_scratch_close(scratch); }
    Sampler(const Sampler &) = delete;
    int32_t draw(
        const std::vector<float> &logits, const weir_sampling &s, uint64_t draw = 0,
        uint32_t choice = 0, const std::vector<int32_t> &banned = {}, size_t n_valid = 0,
        const uint64_t *allowed = nullptr
    )
    {
        const weir_sample_limits limits = { banned.data(), banned.size(), allowed };
        return weir_sample(
            logits.data(), logits.size(), n_valid ? n_valid : logits.size(), &s, nullptr, &limits,
            choice, draw, scratch
        );
    }
    std::vector<int32_t> kept() const
    {
        std::vector<int32_t> out;
        for (size_t i = 0; i < weir_candidates_count(scratch); i++)
            out.push_back(weir_candidates_id(scratch, i));
        return out;
    }
};

inline weir_sampling with_temperature(float temperature)
{
    weir_sampling s = weir_sampling_default();
    s.temperature = temperature;
    return s;
}

inline std::vector<float> normal_logits(size_t n, unsigned seed, float deviation)
{
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> out(n);
    for (float &x : out) x = normal(generator);
    return out;
}

/* All ids, best first, lowest id on ties: what every filter keeps a beginning of. */
inline std::vector<int32_t> sorted_ids(const std::vector<float> &logits)
{
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
        return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)]
                                                      : a < b;
    });
    return ids;
}

} // namespace sampling
