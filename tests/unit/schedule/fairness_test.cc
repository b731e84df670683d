/* Who goes first: short prompts do not wait for long ones, long ones are not starved, priorities,
 * and what may start ahead of a request that does not fit. */
#include <future>

#include "engine/schedule/job.h"
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
    void stop_after(
        const std::vector<std::unique_ptr<Timed>> &calls, const std::vector<Timed *> &others
    )
    {
        for (const auto &one : calls) one->call.release();
        for (Timed *const one : others) one->call.release();
        stop();
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
        weir_service_call(
            service_, [](weir_service *service, void *) { service->even_depth = 0; }, nullptr
        ); /* pieces are as long as the chunk */
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

/* A client sends 16 prompts, then another one: neither waits for all of the first client's, and
 * within a client they go in order. */
TEST_F(Fairness, ClientsTakeTurnsInSteps)
{
    enum { MANY = 16, CHUNK = 64 };
    for (const int n : { 10, 40, 200, 600 }) { /* several in a step, short, long */
        SCOPED_TRACE(n);
        open("qwen3", MANY + 3, nullptr, 1024, MANY + 3);
        weir_service_call(
            service_, [](weir_service *service, void *) { service->even_depth = 0; }, nullptr
        );
        const std::vector<int32_t> want = alone(prompt(40, n), 1);
        Timed first(service_, prompt(9, 1), 1), single(service_, prompt(40, n), 1),
            third(service_, prompt(41, n), 1);
        std::vector<std::unique_ptr<Timed>> many;
        single.call.request.client = 2;
        third.call.request.client = 2;
        std::unique_lock<std::mutex> hold(first.call.lock);
        ASSERT_EQ(first.call.submit(service_, &error_), WEIR_OK) << error_.text;
        for (int i = 0; i < MANY; i++) {
            many.push_back(std::make_unique<Timed>(service_, prompt(50 + i, n), 1));
            many.back()->call.request.client = 1;
            ASSERT_EQ(many.back()->call.submit(service_, &error_), WEIR_OK) << error_.text;
        }
        ASSERT_EQ(single.call.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(third.call.submit(service_, &error_), WEIR_OK) << error_.text;
        const int64_t before = stats().steps;
        hold.unlock();
        for (const auto &one : many) one->call.wait();
        single.call.wait();
        third.call.wait();
        EXPECT_EQ(single.call.tokens[0], want);
        EXPECT_LE(single.first - before, 2 * (n / CHUNK + 1) + 2) << "every other row is its own";
        EXPECT_LE(third.first - before, 4 * (n / CHUNK + 1) + 2);
        if (n == 10) EXPECT_EQ(third.first, many[0]->first) << "turns within a step";
        EXPECT_GE(many.back()->first - before, (MANY + 2) * n / CHUNK);
        for (int i = 1; i < MANY; i++) EXPECT_LE(many[i - 1]->first, many[i]->first) << i;
        stop_after(many, { &first, &single, &third });
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

/* Two answers outgrow the memory, and the one of lower priority is preempted. What has a better one
 * starts next to the other; what has the same waits for the preempted one. */
TEST_F(Fairness, APreemptedAnswerHoldsUpItsOwnPriority)
{
    open_with_rows("qwen3", 4, 1024, 1024);
    const int n = (int)weir_engine_plan_of(engine_)->kv_rows / 2 - 64;
    Timed running(service_, prompt(1, n), 200), preempted(service_, prompt(2, n), 200),
        high(service_, prompt(3, 10), 1), same(service_, prompt(4, 10), 1);
    preempted.call.request.priority = same.call.request.priority = 5;
    high.call.request.priority = -10;
    running.call.request.ignore_eos = preempted.call.request.ignore_eos = true;
    int64_t submitted = -1;
    running.on_token = [&] {
        if (submitted >= 0 || stats().preemptions == 0) return;
        submitted = stats().steps;
        EXPECT_EQ(same.call.submit(service_, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(high.call.submit(service_, &error_), WEIR_OK) << error_.text;
    };
    std::unique_lock<std::mutex> hold(running.call.lock);
    ASSERT_EQ(running.call.submit(service_, &error_), WEIR_OK) << error_.text;
    ASSERT_EQ(preempted.call.submit(service_, &error_), WEIR_OK) << error_.text;
    hold.unlock();
    running.call.wait();
    ASSERT_GE(submitted, 0) << "nothing was preempted";
    for (Timed *const t : { &preempted, &high, &same }) t->call.wait();
    EXPECT_EQ(stats().preemptions, 1);
    EXPECT_LE(high.first, submitted + 3);
    EXPECT_LT(high.first, running.end);
    EXPECT_GE(same.admitted, running.end);
    for (Timed *const t : { &running, &preempted, &high, &same })
        EXPECT_EQ(t->call.status, WEIR_OK) << t->call.message;
}

/* A long prompt waits for pages. Short ones of other clients start ahead of it, of as many rows as
 * it has, and then wait until it runs. */
TEST_F(Fairness, WhatFitsPassesWhatDoesNot)
{
    open_with_rows("qwen3", 4, 1536, 1024);
    std::atomic<bool> is_over{ false };
    Timed running(service_, prompt(1, 700), 300), long_one(service_, prompt(2, 900), 4),
        low(service_, prompt(6, 20), 1);
    std::vector<std::unique_ptr<Repeated>> shorts;
    int n_backfilled = 0;
    const auto count_admitted = [&] {
        n_backfilled = 0;
        for (const auto &one : shorts) n_backfilled += one->n_admitted;
        is_over = true; /* jobs take memory until they are released */
    };
    long_one.on_admitted = count_admitted;
    running.call.request.ignore_eos = true;
    low.call.request.priority = 1;
    std::unique_lock<std::mutex> hold(running.call.lock);
    ASSERT_EQ(running.call.submit(service_, &error_), WEIR_OK) << error_.text;
    long_one.call.request.client = 1;
    ASSERT_EQ(long_one.call.submit(service_, &error_), WEIR_OK) << error_.text;
    low.call.request.client = 4;
    ASSERT_EQ(low.call.submit(service_, &error_), WEIR_OK) << error_.text;
    for (int i = 2; i <= 3; i++) {
        shorts.push_back(std::make_unique<Repeated>(service_, prompt(i, 20), &is_over));
        shorts.back()->request.max_tokens = 4;
        shorts.back()->request.client = i;
        shorts.back()->submit();
    }
    hold.unlock();
    long_one.call.wait();
    running.call.wait();
    low.call.wait();
    wait_until_idle();
    EXPECT_EQ(n_backfilled, 960 / 64)
        << "pages of 900 + 4 rows, and one for each of the short ones";
    EXPECT_GE(long_one.admitted, running.end);
    EXPECT_LE(long_one.admitted, running.end + 1) << "those that passed it have ended";
    EXPECT_GE(low.admitted, long_one.admitted) << "a lower priority does not pass";
    EXPECT_EQ(running.call.tokens[0].size(), 300u);
    EXPECT_EQ(long_one.call.status, WEIR_OK) << long_one.call.message;
    shorts.clear();
}

/* Hooks that count the rows of each step. */
struct Rows {
    weir_service *service;
    const weir_service_hooks *before = nullptr;
    weir_service_hooks hooks = {};
    int64_t even_depth; /* of the service from now on */
    int64_t sum = 0;
    std::vector<int64_t> of_steps;
    Rows(weir_service *s, int64_t even) : service(s), even_depth(even)
    {
        hooks.user = this;
        hooks.after_step = [](void *user) { static_cast<Rows *>(user)->note(); };
        hooks.count = [](const void *, weir_service_stats *) {};
        hooks.held = [](const void *) { return weir_kv_pages{}; };
        hooks.release = [](void *) { return false; };
        weir_service_call(
            service,
            [](weir_service *of, void *user) {
                Rows *const self = static_cast<Rows *>(user);
                self->before = of->hooks;
                self->sum = of->stats.batch_rows;
                of->hooks = &self->hooks;
                of->even_depth = self->even_depth;
            },
            this
        );
    }
    ~Rows()
    {
        weir_service_call(
            service,
            [](weir_service *of, void *user) { of->hooks = static_cast<Rows *>(user)->before; },
            this
        );
    }
    void note()
    {
        const int64_t rows = service->stats.batch_rows - sum;
        if (rows > 0) of_steps.push_back(rows);
        sum += rows;
    }
};

/* While none decodes, too: a piece costs no more deep in a prompt than where attention costs as
 * much as all else, up to where it is whole. Answers have the same bits. */
TEST_F(Fairness, APieceCostsAsMuchDeepInAPrompt)
{
    enum { PROMPT = 1900, CHUNK = 256, LEAST = 32, ANSWER = 4 };
    for (const char *const model : { "qwen3", "tq" }) {
        open(model, 2, nullptr, 2048, 0, { "batch.chunk=256" });
        std::vector<int32_t> want;
        std::vector<float> logprobs;
        for (const int64_t even : { 0, 1900, 150, 20 }) {
            Call call(prompt(1, PROMPT), ANSWER);
            call.request.want_logprobs = true;
            std::vector<int64_t> rows;
            {
                Rows watch(service_, even);
                const auto tokens = answer(call);
                if (want.empty()) want = tokens, logprobs = call.logprobs[0];
                EXPECT_EQ(tokens, want) << even;
                EXPECT_EQ(call.logprobs[0], logprobs) << even;
                weir_service_call(service_, [](weir_service *, void *) {}, nullptr);
                rows = watch.of_steps;
            }
            const size_t whole = (PROMPT + CHUNK - 1) / CHUNK + ANSWER - 1;
            if (even == 0 || even == PROMPT) EXPECT_EQ(rows.size(), whole) << even;
            int64_t past = 0, n_less = 0;
            for (const int64_t n : rows) {
                const int64_t costs = std::max(2 * even, even + past) * n;
                if (even > 0) EXPECT_TRUE(n <= LEAST || costs <= 2 * even * CHUNK) << even;
                if (even > 0 && past <= even && past + n < PROMPT) EXPECT_EQ(n, CHUNK) << past;
                n_less += n < CHUNK && n > LEAST;
                past += n;
            }
            if (even == 150) EXPECT_GT(n_less, 2) << "pieces get shorter";
            call.release();
        }
        stop();
    }
}

/* Hooks that hold what is missing, and see whether others can look at the service meanwhile. */
struct Watch {
    weir_service *service;
    const weir_service_hooks *before = nullptr;
    weir_service_hooks hooks = {};
    int n_releases = 0, n_seen = 0;
    std::future<int32_t> seen; /* its destructor waits */
    explicit Watch(weir_service *s) : service(s)
    {
        hooks.user = this;
        hooks.after_step = [](void *) {};
        hooks.count = [](const void *, weir_service_stats *) {};
        hooks.held = [](const void *user) {
            return weir_kv_store_all(static_cast<const Watch *>(user)->service->store);
        };
        hooks.release = [](void *user) { return static_cast<Watch *>(user)->release(); };
        weir_service_call(
            service,
            [](weir_service *of, void *user) {
                static_cast<Watch *>(user)->before = of->hooks;
                of->hooks = &static_cast<Watch *>(user)->hooks;
            },
            this
        );
    }
    ~Watch()
    {
        weir_service_call(
            service,
            [](weir_service *of, void *user) { of->hooks = static_cast<Watch *>(user)->before; },
            this
        );
    }
    bool release()
    {
        if (n_releases++ > 0) return false;
        const auto look = [this] {
            weir_service_stats now;
            weir_service_stats_of(service, &now);
            return now.waiting;
        };
        seen = std::async(std::launch::async, look);
        n_seen = seen.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
        return false;
    }
};

/* Deciding whether a request fits may take long, as what others hold is released. */
TEST_F(Fairness, NoLockIsHeldWhileItIsDecidedWhoFits)
{
    open_with_rows("qwen3", 2, 1024, 1024);
    {
        Watch watch(service_);
        Timed running(service_, prompt(1, 700), 8), waiting(service_, prompt(2, 500), 4);
        std::unique_lock<std::mutex> hold(running.call.lock);
        ASSERT_EQ(running.call.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(waiting.call.submit(service_, &error_), WEIR_OK) << error_.text;
        hold.unlock();
        running.call.wait();
        waiting.call.wait();
        EXPECT_GE(waiting.admitted, running.end);
        EXPECT_GT(watch.n_releases, 0) << "nothing was tested";
        EXPECT_EQ(watch.n_seen, 1) << "the service's lock was held";
    }
}

/* A long prompt that went first, but stalled for lack of memory, goes first again. */
TEST_F(Fairness, WhoSatOutHasNotGoneFirst)
{
    weir_engine_facts facts = {};
    facts.n_slots = 2;
    slot slots[2] = {};
    weir_job job = {};
    choice first = {}, leader = {};
    first.job = leader.job = &job;
    auto service = std::make_unique<weir_service>();
    service->facts = &facts;
    service->slots = slots;
    slots[0].owner = &first;
    slots[1].owner = &leader;
    const auto count = [&](bool is_in_step, choice *with, bool leader_is) {
        first.goes_first = true;
        first.is_planned = is_in_step;
        first.leader = with;
        first.n_overlooked = 3;
        leader.is_planned = leader_is;
        weir_service_count_overlooked(service.get());
        return first.n_overlooked;
    };
    EXPECT_EQ(count(true, nullptr, false), 0);
    EXPECT_EQ(count(false, nullptr, false), 3);
    EXPECT_EQ(count(false, &leader, true), 0);
    EXPECT_EQ(count(false, &leader, false), 3);
}

} // namespace
