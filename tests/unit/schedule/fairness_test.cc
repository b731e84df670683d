/* Who goes first: short prompts do not wait for long ones, which are not starved; priorities. */
#include "tests/unit/schedule/timed.h"

namespace {

using support::Call;
using support::Repeated;
using support::Service;
using support::Timed;

class Fairness : public Service {
  protected:
    void wait_until_idle()
    {
        while (stats().running + stats().waiting > 0) std::this_thread::yield();
    }
};

TEST_F(Fairness, ShortPromptsGoBeforeLongOnes)
{
    open("qwen3", 4, nullptr, 2048);
    Timed first(service_, prompt(9, 1), 1), long_one(service_, prompt(1, 1900), 1),
        short_one(service_, prompt(2, 10), 1);
    std::unique_lock<std::mutex> hold(first.call.lock);
    ASSERT_EQ(first.call.submit(service_, &error_), WEIR_OK);
    ASSERT_EQ(long_one.call.submit(service_, &error_), WEIR_OK);
    ASSERT_EQ(short_one.call.submit(service_, &error_), WEIR_OK);
    const int64_t before = stats().steps;
    hold.unlock();
    long_one.call.wait();
    short_one.call.wait();
    EXPECT_LE(short_one.first - before, 3) << "chunks that it waited for";
    EXPECT_GE(long_one.first - before, 1900 / 64);
}

/* What long and short prompts ask for. */
struct Mix {
    const char *name;
    bool long_policy, short_policy, long_scores, short_scores;
};

/* Short prompts keep coming, more than fill a step: a long one gets a quarter of the rows, also if
 * its pieces do not fit in a quarter of a step or theirs fill it. */
TEST_F(Fairness, LongPromptsAreNotStarved)
{
    weir_policy_options h2o;
    ASSERT_EQ(weir_policy_options_default(&h2o, "h2o", &error_), WEIR_OK) << error_.text;
    ASSERT_EQ(weir_policy_options_set(&h2o, "recent=16", &error_), WEIR_OK) << error_.text;
    const auto ask = [&h2o](weir_request *request, bool has_policy, bool scores) {
        request->policy = has_policy ? &h2o : nullptr;
        request->kv_budget = has_policy ? 48 : 0;
        request->want_prompt_logprobs = scores;
    };
    const Mix mixes[] = {
        { "no policy", false, false, false, false },
        { "a policy for the long one", true, false, false, false },
        { "a policy for the short ones", false, true, false, false },
        { "a policy for all", true, true, false, false },
        { "scores of all", false, false, true, true },
    };
    for (const Mix &mix : mixes) {
        SCOPED_TRACE(mix.name);
        open("qwen3", 4, nullptr, 2048, 8);
        Call alone(prompt(4, 1024), 8);
        ask(&alone.request, mix.long_policy, mix.long_scores);
        const auto expected = answer(alone);
        std::atomic<bool> is_over{ false };
        Timed first(service_, prompt(9, 1), 1), long_one(service_, prompt(4, 1024), 8);
        ask(&long_one.call.request, mix.long_policy, mix.long_scores);
        std::vector<std::unique_ptr<Repeated>> shorts;
        std::unique_lock<std::mutex> hold(first.call.lock);
        ASSERT_EQ(first.call.submit(service_, &error_), WEIR_OK);
        for (int i = 1; i <= 3; i++) {
            shorts.push_back(std::make_unique<Repeated>(service_, prompt(i, 60), &is_over));
            ask(&shorts.back()->request, mix.short_policy, mix.short_scores);
            shorts.back()->submit();
        }
        ASSERT_EQ(long_one.call.submit(service_, &error_), WEIR_OK) << error_.text;
        const int64_t before = stats().steps;
        hold.unlock();
        long_one.call.wait();
        is_over = true;
        wait_until_idle();
        EXPECT_EQ(long_one.call.tokens[0], expected);
        EXPECT_LE(long_one.first - before, 4 * (1024 / 64) + 4);
        for (const auto &one : shorts)
            EXPECT_GE(one->jobs.size(), 8u) << "three quarters are for these";
        shorts.clear();
        alone.release();
        long_one.call.release();
        first.call.release();
        stop();
    }
}

TEST_F(Fairness, PriorityOrdersTheQueue)
{
    open("qwen3", 1, nullptr, 512, 8);
    Timed first(service_, prompt(9, 1), 1), normal(service_, prompt(1, 20), 1),
        low(service_, prompt(2, 20), 1), high(service_, prompt(3, 20), 1);
    low.call.request.priority = 5;
    high.call.request.priority = -5;
    std::unique_lock<std::mutex> hold(first.call.lock);
    for (Timed *const t : { &first, &low, &normal, &high })
        ASSERT_EQ(t->call.submit(service_, &error_), WEIR_OK);
    hold.unlock();
    for (Timed *const t : { &low, &normal, &high }) t->call.wait();
    EXPECT_LT(high.first, normal.first);
    EXPECT_LT(normal.first, low.first);
}

} // namespace
