// The chain of steps against its definition; threads and instruction levels against one another.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "engine/sample/random.h"
#include "offload/caps.h"
#include "tests/every_nth.h"
#include "tests/unit/sample/support.h"

using namespace sampling;

namespace {

/* The chain of weir_sample by its definition: every step reads all candidates. */
class Plain {
  public:
    Plain(const std::vector<float> &logits, const weir_sampling &s) : passes_(weir_passes_of({}))
    {
        std::vector<float> clean(logits.size());
        passes_->clean(clean.data(), logits.data(), clean.size());
        const float best = *std::max_element(clean.begin(), clean.end());
        const bool is_cooled = s.temperature != 1 && best > -infinity;
        for (size_t i = 0; i < clean.size(); i++)
            all_.push_back({ is_cooled ? (clean[i] - best) / s.temperature : clean[i],
                             static_cast<int32_t>(i) });
        shift_ = is_cooled || best == -infinity ? 0 : best;
        if (s.top_k > 0 && size_t(s.top_k) < all_.size()) {
            sort();
            all_.resize(std::min(all_.size(), size_t(s.top_k)));
        }
        if (s.top_p < 1) top_p(double(s.top_p));
        weigh();
        for (size_t i = 0, kept = 0; s.min_p > 0 && i < weights_.size(); i++) {
            if (weights_[i] >= s.min_p) all_[kept++] = all_[i];
            if (i + 1 == weights_.size()) all_.resize(kept);
        }
        weigh();
    }
    int32_t draw(double u) const
    {
        double sum = 0;
        size_t block = 0;
        while (block + 1 < sums_.size() && sum + sums_[block] <= u * total_) sum += sums_[block++];
        while (block > 0 && sums_[block] == 0) sum -= sums_[--block];
        size_t chosen = 64 * block;
        for (size_t i = chosen; i < std::min(all_.size(), 64 * (block + 1)); i++) {
            if (weights_[i] == 0) continue;
            chosen = i;
            sum += double(weights_[i]);
            if (sum > u * total_) break;
        }
        return all_[chosen].second;
    }

  private:
    void sort()
    {
        std::sort(all_.begin(), all_.end(), [](const auto &a, const auto &b) {
            return a.first != b.first ? a.first > b.first : a.second < b.second;
        });
        while (!all_.empty() && all_.back().first == -infinity) all_.pop_back();
    }
    void top_p(double p)
    {
        weigh();
        const double mass = p * total_;
        sort();
        weigh();
        double sum = 0;
        for (size_t i = 0; i < all_.size(); i++)
            if ((sum += double(weights_[i])) >= mass) all_.resize(i + 1);
    }
    void weigh()
    {
        const size_t n = all_.size();
        std::vector<float> values(n);
        for (size_t i = 0; i < n; i++) values[i] = all_[i].first;
        weights_.assign(n, 0);
        sums_.assign((n + 63) / 64, 0);
        passes_->weigh(weights_.data(), values.data(), n, { 0, 1 }, shift_);
        passes_->block_sums(sums_.data(), values.data(), n, { 0, 1 }, shift_);
        total_ = std::accumulate(sums_.begin(), sums_.end(), 0.0);
    }
    const weir_passes *passes_;
    std::vector<std::pair<float, int32_t>> all_;
    float shift_;
    std::vector<float> weights_;
    std::vector<double> sums_;
    double total_ = 0;
};

/* Random logits, with ties, NaN and infinities in some. */
std::vector<float> random_logits(std::mt19937 *random)
{
    const size_t most[] = { 100, 3000, 30000, 200000 };
    const float deviations[] = { 0, 0.01f, 1, 3, 8, 30, 1e30f };
    const auto pick = [&](size_t n) { return (*random)() % n; };
    auto logits =
        normal_logits(1 + pick(most[pick(4)]), unsigned((*random)()), deviations[pick(7)]);
    if (pick(2) == 0)
        for (float &x : logits) x = std::round(x * 4) / 4;
    const float odd[] = { nan_value, infinity, -infinity, -0.0f, 0.0f, largest, -largest };
    for (int i = 0; i < 20 && pick(4) == 0; i++) logits[pick(logits.size())] = odd[pick(7)];
    return logits;
}

TEST(Sampler, TheChainEqualsItsDefinition)
{
    std::mt19937 random(5);
    const auto pick = [&](size_t n) { return random() % n; };
    Sampler sampler(200001);
    for (int i = 0; i < 200; i += weir_test::every_nth(3)) {
        const auto logits = random_logits(&random);
        weir_sampling s = weir_sampling_default();
        s.temperature = std::vector<float>{ 1, 0.7f, 2, 0.01f, 1e-6f }[pick(5)];
        s.top_k = std::vector<int32_t>{ 0, 0, 1, 20, 1000, 100000 }[pick(6)];
        s.top_p = std::vector<float>{ 1, 1, 0.95f, 0.5f, 0.999f, 0.001f, 0.9999999f }[pick(7)];
        s.min_p = std::vector<float>{ 0, 0, 0.05f, 0.3f, 1, 1e-30f }[pick(6)];
        s.seed = random();
        weir_sampler_scratch_parallel(sampler.scratch, pick(2) == 0);
        const Plain plain(logits, s);
        for (uint64_t draw = 0; draw < 4; draw++)
            ASSERT_EQ(sampler.draw(logits, s, draw), plain.draw(weir_random(s.seed, 0, draw)))
                << i << ": " << logits.size() << " ids, temperature " << s.temperature << ", k "
                << s.top_k << ", p " << s.top_p << ", min p " << s.min_p;
    }
}

TEST(Sampler, ThreadsChangeNoLogprob)
{
    std::mt19937 random(6);
    Sampler alone(200001), shared(200001);
    weir_sampler_scratch_parallel(shared.scratch, true);
    for (int i = 0; i < 30; i++) {
        const auto logits = random_logits(&random);
        const auto id = int32_t(random() % logits.size());
        weir_logprob chosen[2], top[2][20];
        for (int k = 0; k < 2; k++)
            weir_logprobs(
                logits.data(), logits.size(), id, &chosen[k], top[k], 20,
                k == 0 ? alone.scratch : shared.scratch
            );
        ASSERT_EQ(chosen[0].logprob, chosen[1].logprob);
        for (int j = 0; j < 20; j++) {
            ASSERT_EQ(top[0][j].id, top[1][j].id);
            ASSERT_EQ(top[0][j].logprob, top[1][j].logprob);
        }
    }
}

/* Levels that this machine lacks are not run; x86-64-v2 is what all else is compared with. */
TEST(Passes, EveryLevelGivesTheSameBits)
{
    const weir_caps caps = weir_caps_detect();
    const weir_passes *const base = weir_passes_of(WEIR_ISA_V2), *const best = weir_passes_of(
                                                                     weir_caps_isa(&caps)
                                                                 );
    std::mt19937 random(7);
    for (int i = 0; i < 60; i++) {
        const auto logits = random_logits(&random);
        const size_t n = logits.size(), n_blocks = (n + 63) / 64;
        std::vector<float> largest_of(n_blocks);
        base->block_max(largest_of.data(), logits.data(), n);
        const float top = *std::max_element(largest_of.begin(), largest_of.end());
        const bool is_cooled = i % 2 == 1 && top > -infinity;
        const weir_temperature t = { top, is_cooled ? 0.7f : 1 };
        const float shift = is_cooled || top == -infinity ? 0 : top;
        std::vector<float> floats[2][3];
        std::vector<double> sums[2];
        for (int k = 0; k < 2; k++) {
            const weir_passes *const passes = k == 0 ? base : best;
            for (auto &list : floats[k]) list.resize(n);
            sums[k].resize(n_blocks);
            passes->clean(floats[k][0].data(), logits.data(), n);
            passes->block_max(floats[k][1].data(), logits.data(), n);
            passes->weigh(floats[k][2].data(), logits.data(), n, t, shift);
            passes->block_sums(sums[k].data(), logits.data(), n, t, shift);
        }
        for (int j = 0; j < 3; j++)
            ASSERT_EQ(memcmp(floats[0][j].data(), floats[1][j].data(), n * sizeof(float)), 0) << j;
        ASSERT_EQ(memcmp(sums[0].data(), sums[1].data(), n_blocks * sizeof(double)), 0);
    }
}

} // namespace
