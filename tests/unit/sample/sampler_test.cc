#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/sample/random.h"
#include "tests/unit/sample/support.h"

using namespace sampling;

/* Known answers published with the generator (Random123, philox4x32 10 rounds). */
TEST(Random, PhiloxKnownAnswers)
{
    const weir_philox zero = weir_philox_block({ { 0, 0, 0, 0 } }, 0);
    EXPECT_EQ(zero.word[0], 0x6627e8d5u);
    EXPECT_EQ(zero.word[1], 0xe169c58du);
    EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
    EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
    const weir_philox ones = weir_philox_block({ { ~0u, ~0u, ~0u, ~0u } }, ~uint64_t(0));
    EXPECT_EQ(ones.word[0], 0x408f276du);
    EXPECT_EQ(ones.word[1], 0x41c83b0eu);
    EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
    EXPECT_EQ(ones.word[3], 0x6d5451fdu);
}

TEST(Random, IsUniformAndDependsOnEveryArgument)
{
    double sum = 0;
    for (uint64_t draw = 0; draw < 10000; draw++) {
        const double u = weir_random(7, 1, draw);
        ASSERT_TRUE(u >= 0 && u < 1);
        sum += u;
    }
    EXPECT_NEAR(sum / 10000, 0.5, 0.015);
    EXPECT_EQ(weir_random(7, 1, 5), weir_random(7, 1, 5));
    EXPECT_NE(weir_random(7, 1, 5), weir_random(8, 1, 5));
    EXPECT_NE(weir_random(7, 1, 5), weir_random(7, 2, 5));
    EXPECT_NE(weir_random(7, 1, 5), weir_random(7, 1, 6));
    EXPECT_NE(weir_random(7, 1, 5), weir_random(7, 1, 5 + (uint64_t(1) << 32)));
    EXPECT_NE(weir_random(7, 1, 5), weir_random(7 + (uint64_t(1) << 32), 1, 5));
}

TEST(Sampler, GreedyTakesTheLowestIdOfTies)
{
    Sampler sampler(1000);
    auto logits = normal_logits(1000, 1, 1);
    logits[993] = logits[17] = logits[500] = 50;
    EXPECT_EQ(sampler.draw(logits, weir_sampling_default()), 17);
    EXPECT_EQ(sampler.draw(logits, weir_sampling_default(), 0, 0, { 17 }), 500);
    EXPECT_EQ(
        sampler.draw(logits, weir_sampling_default(), 0, 0, { 17, 500, 993, -5, 100000 }),
        sorted_ids(logits)[3]
    );
    weir_sampling one = with_temperature(1.5f);
    one.top_k = 1;
    for (uint64_t draw = 0; draw < 50; draw++) EXPECT_EQ(sampler.draw(logits, one, draw), 17);
    for (uint64_t draw = 0; draw < 50; draw++)
        EXPECT_EQ(
            sampler.draw(normal_logits(1000, 2, 1), with_temperature(1e-30f), draw),
            sorted_ids(normal_logits(1000, 2, 1))[0]
        );
}

TEST(Sampler, PaddingRowsAndBannedIdsNeverWin)
{
    Sampler sampler(130);
    std::vector<float> logits(130, 1.0f);
    for (size_t i = 100; i < 130; i++) logits[i] = 100;
    EXPECT_LT(sampler.draw(logits, weir_sampling_default(), 0, 0, {}, 100), 100);
    std::vector<int32_t> banned(99);
    std::iota(banned.begin(), banned.end(), 0);
    for (uint64_t draw = 0; draw < 20; draw++)
        EXPECT_EQ(sampler.draw(logits, with_temperature(1), draw, 0, banned, 100), 99);
    banned.push_back(99);
    logits[42] = 3;
    /* All banned: the best one, whatever is said */
    EXPECT_EQ(sampler.draw(logits, with_temperature(1), 0, 0, banned, 100), 42);
}

TEST(Sampler, DrawsWhatAMaskAllows)
{
    Sampler sampler(1000);
    const auto logits = normal_logits(1000, 1, 1);
    std::vector<uint64_t> mask((1000 + 63) / 64, 0);
    const auto allow = [&](size_t id) { mask[id / 64] |= uint64_t(1) << (id % 64); };
    const auto draw = [&](const std::vector<float> &from, const weir_sampling &s, uint64_t n = 0,
                          const std::vector<int32_t> &banned = {}) {
        return sampler.draw(from, s, n, 0, banned, 0, mask.data());
    };
    for (const size_t id : { 3u, 64u, 700u, 999u }) allow(id);
    const auto ids = sorted_ids(logits);
    int32_t best = -1;
    for (const int32_t id : ids)
        if (best < 0 && (id == 3 || id == 64 || id == 700 || id == 999)) best = id;
    EXPECT_EQ(draw(logits, weir_sampling_default()), best);
    std::vector<int> seen(1000, 0);
    for (uint64_t n = 0; n < 400; n++)
        seen[static_cast<size_t>(draw(logits, with_temperature(2), n))]++;
    EXPECT_EQ(seen[3] + seen[64] + seen[700] + seen[999], 400);
    EXPECT_GT(std::min({ seen[3], seen[64], seen[700], seen[999] }), 0);
    /* What a mask leaves is chosen even if the model excludes it. */
    const std::vector<float> none(1000, -infinity);
    EXPECT_EQ(draw(none, with_temperature(1)), 3);
    EXPECT_EQ(draw(none, with_temperature(1), 0, { 3 }), 64);
    EXPECT_EQ(draw(none, with_temperature(1), 0, { 3, 64, 700, 999 }), 3);
    std::fill(mask.begin(), mask.end(), ~uint64_t(0));
    EXPECT_EQ(draw(logits, with_temperature(1), 5), sampler.draw(logits, with_temperature(1), 5));
}

TEST(Sampler, SurvivesNanAndInfinity)
{
    Sampler sampler(70);
    weir_sampling s = with_temperature(0.7f);
    s.top_k = 10;
    s.top_p = 0.9f;
    s.min_p = 0.01f;
    const std::vector<std::vector<float>> cases = {
        std::vector<float>(70, nan_value), std::vector<float>(70, -infinity),
        std::vector<float>(70, infinity),  std::vector<float>(70, 0.0f),
        std::vector<float>(70, largest),   std::vector<float>(70, -largest)
    };
    for (const auto &logits : cases)
        for (const float temperature : { 0.0f, 1e-38f, 1.0f, 2.0f }) {
            for (const bool filters : { false, true }) {
                weir_sampling t = filters ? s : with_temperature(0);
                t.temperature = temperature;
                const int32_t id = sampler.draw(logits, t);
                EXPECT_TRUE(id >= 0 && id < 70);
            }
        }
    std::vector<float> mixed(70, nan_value);
    mixed[3] = -infinity;
    mixed[69] = -5;
    EXPECT_EQ(sampler.draw(mixed, weir_sampling_default()), 69);
    EXPECT_EQ(sampler.draw(mixed, s), 69);
    mixed[40] = infinity;
    EXPECT_EQ(sampler.draw(mixed, weir_sampling_default()), 40);
    EXPECT_EQ(sampler.draw(mixed, s), 40);
    weir_logprob chosen, top[3];
    weir_logprobs(mixed.data(), 70, 69, &chosen, top, 3, sampler.scratch);
    EXPECT_EQ(top[0].id, 40);
    EXPECT_EQ(top[0].logprob, 0);
    EXPECT_EQ(chosen.logprob, -9999.0f);
    EXPECT_EQ(top[2].id, -1); /* two ids are possible */
    weir_logprobs(cases[0].data(), 70, 5, &chosen, top, 3, sampler.scratch);
    EXPECT_EQ(chosen.logprob, -9999.0f);
}

TEST(Sampler, BiasMovesAndBans)
{
    Sampler sampler(50);
    const auto logits = normal_logits(50, 3, 1);
    weir_sampling s = weir_sampling_default();
    const std::vector<weir_logit_bias> up = { { 7, 100 }, { 50, 100 }, { -1, 100 } };
    s.bias = up.data();
    s.n_bias = up.size();
    EXPECT_EQ(sampler.draw(logits, s), 7);
    std::vector<weir_logit_bias> all;
    for (int32_t i = 0; i < 50; i++) all.push_back({ i, -100 });
    s.bias = all.data();
    s.n_bias = all.size();
    EXPECT_EQ(sampler.draw(logits, s), sorted_ids(logits)[0]);
    s.temperature = 1;
    const int32_t id = sampler.draw(logits, s);
    EXPECT_TRUE(id >= 0 && id < 50);
}

TEST(Sampler, RepetitionPunishesOnceWhereverTheTokenWas)
{
    Sampler sampler(4);
    const std::vector<float> logits = { 2, -2, 2, 2 };
    std::vector<uint16_t> prompt = { 1, 1, 0, 0 }, answer = { 3, 0, 65535, 0 };
    weir_sampling s = weir_sampling_default();
    s.repetition_penalty = 2;
    const weir_sampler_history both = { prompt.data(), answer.data(), 4 },
                               only_answer = { nullptr, answer.data(), 4 },
                               none = { nullptr, nullptr, 4 };
    const auto processed = [&](const weir_sampler_history &history) {
        weir_process_load(sampler.scratch, logits.data(), 4);
        weir_process_penalties(sampler.scratch, &s, &history);
        return std::vector<float>(sampler.scratch->logits, sampler.scratch->logits + 4);
    };
    EXPECT_EQ(processed(both), (std::vector<float>{ 1, -4, 1, 2 }));
    EXPECT_EQ(processed(only_answer), (std::vector<float>{ 1, -2, 1, 2 }));
    EXPECT_EQ(processed(none), logits);
    s.presence_penalty = 0.5f;
    s.frequency_penalty = 0.25f;
    EXPECT_EQ(
        processed(both), (std::vector<float>{ 1 - 0.5f - 0.75f, -4, 1 - 0.5f - 0.25f * 65535, 2 })
    );
}

/* Against a plain sort, on a vocabulary of real size and shapes from peaked to flat. */
TEST(Sampler, FiltersOnLargeVocabulariesEqualASort)
{
    const size_t n = 248077;
    Sampler sampler(n);
    for (const float deviation : { 0.0f, 0.01f, 1.0f, 4.0f, 30.0f }) {
        auto logits = normal_logits(n, 11, deviation);
        for (size_t i = 0; i < n; i += 3) logits[i] = std::round(logits[i] * 4) / 4; /* many ties */
        const auto ids = sorted_ids(logits);
        for (const size_t k :
             { size_t(1), size_t(20), size_t(1000), size_t(3877), size_t(3878), size_t(200000) }) {
            weir_process_load(sampler.scratch, logits.data(), n);
            weir_process_top_k(sampler.scratch, k);
            ASSERT_EQ(sampler.kept(), std::vector<int32_t>(ids.begin(), ids.begin() + long(k)))
                << deviation << " " << k;
        }
        double total = 0;
        for (const float x : logits) total += std::exp(double(x) - double(logits[size_t(ids[0])]));
        for (const double p : { 0.001, 0.5, 0.95, 0.999 }) {
            weir_process_load(sampler.scratch, logits.data(), n);
            weir_process_top_p(sampler.scratch, p);
            const auto kept = sampler.kept();
            ASSERT_EQ(kept, std::vector<int32_t>(ids.begin(), ids.begin() + long(kept.size())));
            double mass = 0, before = 0;
            for (const int32_t id : kept) {
                before = mass;
                mass += std::exp(double(logits[size_t(id)]) - double(logits[size_t(ids[0])]));
            }
            EXPECT_GT(mass, p * total * (1 - 1e-6)) << deviation << " " << p;
            EXPECT_LT(before, p * total * (1 + 1e-6)) << deviation << " " << p;
        }
        weir_process_load(sampler.scratch, logits.data(), n);
        weir_process_min_p(sampler.scratch, 0.3f);
        size_t expected = 0;
        for (const float x : logits)
            expected += std::exp(double(x) - double(logits[size_t(ids[0])])) >= double(0.3f);
        EXPECT_NEAR(
            double(weir_candidates_count(sampler.scratch)), double(expected),
            1 + 1e-4 * double(expected)
        );
    }
}

TEST(Sampler, WeightsAreExponentials)
{
    const size_t n = 9001;
    Sampler sampler(n);
    std::vector<float> logits(n);
    for (size_t i = 0; i < n; i++) logits[i] = -0.01f * float(i);
    weir_process_load(sampler.scratch, logits.data(), n);
    weir_process_softmax(sampler.scratch);
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        const double exact = logits[i] < -87 ? 0 : std::exp(double(logits[i]));
        total += exact;
        float weight;
        weir_candidates_weights(sampler.scratch, i, 1, &weight);
        ASSERT_NEAR(weight, exact, 2.5e-7 * exact) << i;
    }
    EXPECT_NEAR(sampler.scratch->total, total, 1e-7 * total);
}

TEST(Sampler, ADrawIsAFunctionOfSeedChoiceAndDraw)
{
    const size_t n = 5000;
    Sampler sampler(n), other(n + 100);
    const auto logits = normal_logits(n, 5, 1);
    weir_sampling s = with_temperature(1);
    s.seed = 42;
    std::vector<int32_t> first, again, choice, seed;
    for (uint64_t draw = 0; draw < 64; draw++) {
        first.push_back(sampler.draw(logits, s, draw));
        (void
        )other.draw(normal_logits(n, unsigned(draw), 2), s, 3); /* other draws leave no trace */
        again.push_back(other.draw(logits, s, draw));
        choice.push_back(sampler.draw(logits, s, draw, 1));
        weir_sampling t = s;
        t.seed = 43;
        seed.push_back(sampler.draw(logits, t, draw));
    }
    EXPECT_EQ(first, again);
    EXPECT_NE(first, choice);
    EXPECT_NE(first, seed);
}

TEST(Sampler, DrawsOverTheWholeVocabularyFollowTheWeights)
{
    const size_t n = 1000, draws = 40000;
    Sampler sampler(n);
    std::vector<float> logits(n, -infinity);
    for (size_t i = 130; i < 700; i += 10)
        logits[i] = std::log(float(i)); /* whole blocks without weight at both ends and between */
    double total = 0;
    for (size_t i = 130; i < 700; i += 10) total += double(i);
    std::vector<double> seen(n);
    for (uint64_t draw = 0; draw < draws; draw++)
        seen[size_t(sampler.draw(logits, with_temperature(1), draw))]++;
    double chi2 = 0;
    for (size_t i = 0; i < n; i++) {
        if (logits[i] == -infinity) {
            ASSERT_EQ(seen[i], 0) << i;
            continue;
        }
        const double expected = double(draws) * double(i) / total;
        chi2 += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    EXPECT_LT(chi2, 110); /* 56 degrees of freedom: 1 in 100000 would be above */
}

TEST(Sampler, LogprobsAreTheRawLogSoftmax)
{
    const size_t n = 3000;
    Sampler sampler(n);
    auto logits = normal_logits(n, 9, 3);
    logits[2000] = logits[100] = 20;
    const auto ids = sorted_ids(logits);
    double total = 0;
    for (const float x : logits) total += std::exp(double(x));
    weir_logprob chosen, top[20];
    weir_logprobs(logits.data(), n, 1234, &chosen, top, 20, sampler.scratch);
    EXPECT_EQ(chosen.id, 1234);
    EXPECT_NEAR(chosen.logprob, double(logits[1234]) - std::log(total), 2e-6);
    for (size_t i = 0; i < 20; i++) {
        EXPECT_EQ(top[i].id, ids[i]);
        EXPECT_NEAR(top[i].logprob, double(logits[size_t(ids[i])]) - std::log(total), 2e-6);
    }
    weir_logprobs(logits.data(), 2, 1, &chosen, top, 0, sampler.scratch);
    EXPECT_NEAR(
        chosen.logprob,
        double(logits[1]) - std::log(std::exp(double(logits[0])) + std::exp(double(logits[1]))),
        2e-6
    );
}

TEST(Sampler, CheckNamesTheField)
{
    const auto refused = [](auto change, const char *field) {
        weir_sampling s = weir_sampling_default();
        change(s);
        weir_error error = {};
        EXPECT_EQ(weir_sampling_check(&s, 100, &error), WEIR_EINVAL) << field;
        EXPECT_EQ(std::string(error.text).rfind(field, 0), 0u) << error.text;
    };
    const weir_sampling fine = weir_sampling_default();
    EXPECT_EQ(weir_sampling_check(&fine, 100, nullptr), WEIR_OK);
    for (const float x : { -1.0f, 3.0f, nan_value, infinity }) {
        refused([x](weir_sampling &s) { s.temperature = x; }, "temperature");
        refused([x](weir_sampling &s) { s.top_p = x; }, "top_p");
        refused([x](weir_sampling &s) { s.min_p = x; }, "min_p");
        refused([x](weir_sampling &s) { s.presence_penalty = 3 * x; }, "presence_penalty");
        refused([x](weir_sampling &s) { s.frequency_penalty = 3 * x; }, "frequency_penalty");
        refused([x](weir_sampling &s) { s.repetition_penalty = 50 * x; }, "repetition_penalty");
    }
    refused([](weir_sampling &s) { s.top_p = 0; }, "top_p");
    refused([](weir_sampling &s) { s.top_k = -5; }, "top_k");
    refused([](weir_sampling &s) { s.repetition_penalty = 0; }, "repetition_penalty");
    for (const weir_logit_bias bias :
         { weir_logit_bias{ 100, 0 }, weir_logit_bias{ -1, 0 }, weir_logit_bias{ 5, infinity },
           weir_logit_bias{ 5, 101 } }) {
        static weir_logit_bias kept;
        kept = bias;
        refused([](weir_sampling &s) { s.bias = &kept, s.n_bias = 1; }, "logit_bias");
    }
    refused([](weir_sampling &s) { s.n_bias = 101; }, "logit_bias");
    weir_sampler_scratch *scratch = nullptr;
    EXPECT_EQ(weir_sampler_scratch_open(&scratch, 0), WEIR_EINVAL);
    weir_sampler_scratch_close(nullptr);
}
