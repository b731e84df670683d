/* Disks that take no blocks, or not all: every request ends within a bounded number of steps. */
#include "tests/unit/schedule/tiers_fixture.h"

namespace {

using namespace tiers;

/* Memory for less than two of the sequences, and a disk that takes nothing: a preempted one waits
 * until memory is free, instead of being computed and preempted again in every step of the others.
 * All are answered, or fail where one alone does not fit. */
TEST_F(Tiers, AFailingDiskIsNoReasonToComputeForever)
{
    enum { PROMPTS = 6, ROWS = 500, ANSWER = 120 };
    for (const int error_number : { ENOSPC, EIO }) {
        write_error = error_number;
        start("qwen3", 0);
        std::vector<std::vector<int32_t>> want;
        for (int i = 0; i < PROMPTS; i++) want.push_back(run(prompt(70 + i, ROWS), ANSWER));
        start("qwen3", 14, 60);
        writes_fail = true;
        const int64_t before = stats().steps;
        Call too_large(prompt(90, 1900), ANSWER);
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < PROMPTS; i++) {
            calls.push_back(std::make_unique<Call>(prompt(70 + i, ROWS), ANSWER));
            calls.back()->request.cache_prompt = i % 2 == 0;
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
            if (i == 2) ASSERT_EQ(too_large.submit(service_, &error_), WEIR_OK) << error_.text;
        }
        for (int i = 0; i < PROMPTS; i++) {
            calls[(size_t)i]->wait();
            EXPECT_EQ(calls[(size_t)i]->status, WEIR_OK) << calls[(size_t)i]->message;
            EXPECT_EQ(calls[(size_t)i]->tokens[0], want[(size_t)i]) << i;
        }
        too_large.wait();
        EXPECT_EQ(too_large.status, WEIR_EFULL);
        EXPECT_NE(too_large.message.find(strerror(error_number)), std::string::npos)
            << too_large.message;
        const weir_service_stats all = stats();
        EXPECT_LE(all.preemptions, PROMPTS + 1) << "each once at most";
        /* Each sequence alone, and once more. */
        EXPECT_LE(all.steps - before, 2 * (PROMPTS * (ROWS / 64 + 1 + ANSWER) + 1900 / 64 + 1));
        EXPECT_LE(all.kv_write_errors, 100) << "tried in every step";
        for (const auto &call : calls) call->release();
        too_large.release();
        writes_fail = false;
        EXPECT_EQ(run(prompt(1, 1900), 12).size(), 12u) << "the disk works again";
        EXPECT_GT(stats().kv_bytes_out, 0);
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

/* The same with a disk that takes some blocks and not others, for sequences of all sizes, with
 * policies and without, some of them with two answers: all end in a bounded number of steps, with
 * the bits that they have alone. */
TEST_F(Tiers, ADiskThatFailsNowAndThenOnlyTakesTime)
{
    enum { JOBS = 8, ANSWER = 40 };
    const std::vector<std::string> policy = { "kv.policy.name=sinks", "kv.policy.budget=400" };
    weir_policy_options full, sinks;
    ASSERT_EQ(weir_policy_options_default(&full, "full", &error_), WEIR_OK);
    ASSERT_EQ(weir_policy_options_default(&sinks, "sinks", &error_), WEIR_OK);
    ASSERT_EQ(weir_policy_options_set(&sinks, "in_prompt=true,every=16", &error_), WEIR_OK);
    const auto ask = [&](int i) {
        auto call = std::make_unique<Call>(prompt(200 + i, 100 + i * 347 % 700), ANSWER);
        call->request.policy = i % 3 == 0 ? &sinks : &full;
        call->request.n_choices = 1 + (i % 4 == 1);
        call->request.cache_prompt = i % 2 == 0;
        call->request.client = i % 3;
        return call;
    };
    start("qwen3", 0, 0, "kv.tiers.hot=1", policy);
    std::vector<std::vector<std::vector<int32_t>>> want;
    for (int i = 0; i < JOBS; i++) {
        const auto call = ask(i);
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        want.push_back(call->tokens);
        call->release();
    }
    const int64_t steps_alone = stats().steps;
    for (unsigned seed = 1; seed <= 4; seed++) {
        start("qwen3", 16, 60, "kv.tiers.hot=1", policy);
        fail_seed = seed;
        n_writes = 0;
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < JOBS; i++) calls.push_back(ask(i));
        support::submit_together(service_, calls, &error_);
        for (int i = 0; i < JOBS; i++) {
            Call &call = *calls[(size_t)i];
            call.wait();
            EXPECT_EQ(call.status, WEIR_OK) << call.message;
            EXPECT_EQ(call.tokens, want[(size_t)i]) << "job " << i << ", seed " << seed;
            call.release();
        }
        EXPECT_LE(stats().steps, 2 * steps_alone);
        EXPECT_LE(stats().preemptions, JOBS / 2) << "seed " << seed;
        EXPECT_GT(stats().kv_write_errors, 0);
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

} // namespace
