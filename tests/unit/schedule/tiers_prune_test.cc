/* Policies that are due on rows on disk, which a thread reads: the others go on, and each gets the
 * bits that it has where all is in memory. */
#include "tests/unit/schedule/tiers_fixture.h"

#include "engine/schedule/job.h"

namespace {

using namespace tiers;

/* The disk does not answer from the first token of this one on, which comes before its policy is
 * applied; others are submitted then, and one is cancelled. */
struct Pruned : Call {
    Pruned(std::vector<int32_t> ids, int max_tokens, weir_service *to)
        : Call(std::move(ids), max_tokens), service(to)
    {
        request.callback = on_event;
        request.user = static_cast<Call *>(this);
        request.want_logprobs = true;
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Pruned *const self = static_cast<Pruned *>(static_cast<Call *>(user));
        const bool is_first = event->type == WEIR_EVENT_TOKEN && !self->has_token;
        if (is_first) {
            self->has_token = true;
            support::all_reads_gate = self->disk;
            weir_error error = {};
            if (self->ends != nullptr) weir_job_cancel(self->ends->job);
            for (Call *const call : self->others)
                EXPECT_EQ(call->submit(self->service, &error), WEIR_OK) << error.text;
        }
        return Call::on_event(user, event);
    }
    weir_service *service;
    support::Gate *disk = nullptr;
    std::vector<Call *> others;
    Call *ends = nullptr; /* is cancelled then */
    bool has_token = false;
};

/* snapkv reads keys when it plans, the others only the rows that stay. */
struct Case {
    const char *name, *options;
};
constexpr Case cases[] = { { "snapkv", "sinks=2" },
                           { "h2o", "sinks=2,recent=16,every=16" },
                           { "keydiff", "recent=16,every=16" } };

class PrunedTiers : public Tiers {
  protected:
    enum { ROWS = 1000, ANSWER = 30, TOKENS = 40 };
    void SetUp() override
    {
        Tiers::SetUp();
        ASSERT_EQ(weir_policy_options_default(&full_, "full", &error_), WEIR_OK);
    }
    void TearDown() override
    {
        support::all_reads_gate = nullptr;
        disk_.open();
        Tiers::TearDown();
    }
    void begin(
        const Case &c, int64_t in_memory, int n_slots = 2, int64_t on_disk = 60, int budget = 200
    )
    {
        support::all_reads_gate = nullptr;
        disk_.is_open = disk_.is_reached = disk_.was_late = false;
        start(
            "qwen3", in_memory, in_memory > 0 ? on_disk : 0, "kv.tiers.hot=1",
            { std::string("kv.policy.name=") + c.name, "kv.policy.budget=" + std::to_string(budget),
              std::string("kv.policy.options=") + c.options,
              "batch.max_sequences=" + std::to_string(n_slots) }
        );
    }
    void keep_all(Call *call) { call->request.policy = &full_; }
    void go_on()
    {
        EXPECT_FALSE(disk_.was_late) << "the engine's thread waited";
        support::all_reads_gate = nullptr;
        disk_.open();
    }
    int64_t n_pruning()
    {
        int64_t n = 0;
        weir_service_call(
            service_,
            [](weir_service *service, void *out) {
                for (int32_t i = 0; i < service->facts->n_slots; i++)
                    *static_cast<int64_t *>(out) +=
                        service->slots[i].owner != nullptr && service->slots[i].owner->is_pruning;
            },
            &n
        );
        return n;
    }
    void expect_clean()
    {
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
    weir_policy_options full_;
    support::Gate disk_;
};

TEST_F(PrunedTiers, OthersGoOnWhileItsRowsAreRead)
{
    for (const Case &c : cases) {
        SCOPED_TRACE(c.name);
        begin(c, 0);
        Call want(prompt(2, ROWS), ANSWER), want_small(prompt(1, 20), TOKENS);
        want.request.want_logprobs = true;
        keep_all(&want_small);
        (void)answer(want);
        (void)answer(want_small);
        want.release();
        want_small.release();
        begin(c, 14);
        Call small(prompt(1, 20), TOKENS);
        keep_all(&small);
        Pruned large(prompt(2, ROWS), ANSWER, service_);
        large.disk = &disk_;
        large.others = { &small };
        ASSERT_EQ(large.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_TRUE(disk_.wait_until_reached());
        small.wait();
        EXPECT_EQ(small.status, WEIR_OK) << small.message;
        EXPECT_EQ(small.tokens[0], want_small.tokens[0]);
        EXPECT_FALSE(large.done);
        EXPECT_EQ(large.tokens[0].size(), 1u);
        EXPECT_EQ(n_pruning(), 1);
        go_on();
        large.wait();
        EXPECT_EQ(large.status, WEIR_OK) << large.message;
        EXPECT_EQ(large.tokens[0], want.tokens[0]);
        EXPECT_EQ(large.logprobs[0], want.logprobs[0]);
        EXPECT_GT(large.usage.n_evicted, 0);
        EXPECT_EQ(large.usage.n_evicted, want.usage.n_evicted);
        EXPECT_EQ(stats().preemptions, 0);
        small.release();
        large.release();
        expect_clean();
    }
}

/* Two answers of one request, which share the memory of their policy, and a second request: one
 * after the other. */
TEST_F(PrunedTiers, OneAfterTheOther)
{
    for (const Case &c : cases) {
        SCOPED_TRACE(c.name);
        std::vector<std::vector<int32_t>> want[2];
        for (const int64_t in_memory : { 0, 20 }) {
            begin(c, in_memory, 3);
            Call two(prompt(2, ROWS), ANSWER), one(prompt(3, 900), ANSWER);
            two.request.n_choices = 2;
            two.request.sampling.temperature = 1;
            two.request.sampling.seed = 5;
            for (Call *const call : { &two, &one })
                ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
            for (Call *const call : { &two, &one }) {
                call->wait();
                EXPECT_EQ(call->status, WEIR_OK) << call->message;
                auto &wanted = want[call == &one];
                if (in_memory == 0) wanted = call->tokens;
                EXPECT_EQ(call->tokens, wanted);
                EXPECT_GT(call->usage.n_evicted, 0);
                call->release();
            }
            expect_clean();
        }
    }
}

TEST_F(PrunedTiers, AJobMayEndMeanwhile)
{
    for (const Case &c : cases)
        for (const bool times_out : { false, true }) {
            SCOPED_TRACE(c.name);
            begin(c, 14);
            const auto want = run(prompt(2, ROWS), ANSWER);
            Pruned large(prompt(2, ROWS), ANSWER, service_);
            large.disk = &disk_;
            ASSERT_EQ(large.submit(service_, &error_), WEIR_OK) << error_.text;
            ASSERT_TRUE(disk_.wait_until_reached());
            if (times_out)
                weir_service_call(
                    service_,
                    [](weir_service *, void *job) {
                        static_cast<weir_job *>(job)->deadline_ns = 1;
                    },
                    large.job
                );
            else
                weir_job_cancel(large.job);
            large.wait();
            EXPECT_EQ(large.status, times_out ? WEIR_OK : WEIR_ECANCELED) << large.message;
            EXPECT_EQ(large.finish[0], times_out ? WEIR_FINISH_TIMEOUT : WEIR_FINISH_CANCELED);
            EXPECT_EQ(large.tokens[0].size(), 1u);
            large.release();
            Call small(prompt(1, 20), TOKENS);
            keep_all(&small);
            EXPECT_EQ(answer(small).size(), (size_t)TOKENS) << "its slot is used again";
            small.release();
            go_on();
            EXPECT_EQ(run(prompt(2, ROWS), ANSWER), want);
            expect_clean();
        }
}

TEST_F(PrunedTiers, AReadErrorFailsOneJob)
{
    for (const Case &c : cases) {
        SCOPED_TRACE(c.name);
        begin(c, 14);
        const auto want = run(prompt(2, ROWS), ANSWER);
        Call small(prompt(1, 20), TOKENS);
        keep_all(&small);
        Pruned large(prompt(2, ROWS), ANSWER, service_);
        large.disk = &disk_;
        large.others = { &small };
        ASSERT_EQ(large.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_TRUE(disk_.wait_until_reached());
        reads_fail = true;
        go_on();
        large.wait();
        EXPECT_EQ(large.status, WEIR_EIO);
        EXPECT_NE(large.message.find("read"), std::string::npos) << large.message;
        small.wait();
        EXPECT_EQ(small.status, WEIR_OK) << small.message;
        reads_fail = false;
        large.release();
        small.release();
        EXPECT_EQ(run(prompt(2, ROWS), ANSWER), want) << "what was not read is computed";
        expect_clean();
    }
}

/* A request of better priority needs memory meanwhile: nothing is preempted that will free some,
 * and all have their bits. */
TEST_F(PrunedTiers, WhoNeedsMemoryWaitsForIt)
{
    for (const Case &c : cases) {
        SCOPED_TRACE(c.name);
        begin(c, 0);
        Call want_first(prompt(4, 800), ANSWER);
        keep_all(&want_first);
        const auto want = run(prompt(2, ROWS), ANSWER);
        (void)answer(want_first);
        want_first.release();
        begin(c, 14);
        Call first(prompt(4, 800), ANSWER);
        keep_all(&first);
        first.request.priority = -1;
        Pruned large(prompt(2, ROWS), ANSWER, service_);
        large.disk = &disk_;
        large.others = { &first };
        ASSERT_EQ(large.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_TRUE(disk_.wait_until_reached());
        go_on();
        for (Call *const call : { static_cast<Call *>(&large), &first }) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
        }
        EXPECT_EQ(large.tokens[0], want);
        EXPECT_EQ(first.tokens[0], want_first.tokens[0]);
        large.release();
        first.release();
        expect_clean();
    }
}

/* Another one fills memory and disk with it, and ends while the policy plans. What is cached then
 * has fewer blocks in memory than stay: the disk must give room, so that others can leave. */
TEST_F(PrunedTiers, WhatIsCachedMakesRoomOnDisk)
{
    enum { IN_MEMORY = 14, ON_DISK = 18, STAY = 640 };
    begin(cases[0], 0, 2, 0, STAY);
    const auto want = run(prompt(2, ROWS), ANSWER);
    begin(cases[0], IN_MEMORY, 2, ON_DISK, STAY);
    Call other(prompt(4, ROWS - 60), 4 * TOKENS);
    keep_all(&other);
    other.request.cache_prompt = true;
    Pruned large(prompt(2, ROWS), ANSWER, service_);
    large.disk = &disk_;
    large.ends = &other;
    for (Call *const call : { &other, static_cast<Call *>(&large) })
        ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
    ASSERT_TRUE(disk_.wait_until_reached());
    other.wait();
    EXPECT_EQ(other.status, WEIR_ECANCELED) << other.message;
    EXPECT_FALSE(large.done);
    go_on();
    large.wait();
    EXPECT_EQ(large.status, WEIR_OK) << large.message;
    EXPECT_EQ(large.tokens[0], want);
    EXPECT_GT(large.usage.n_evicted, 0);
    large.release();
    other.release();
    expect_clean();
}

/* The last step of a turn makes its policy due: its end waits for no disk. */
TEST_F(PrunedTiers, TheEndOfATurnReadsNothing)
{
    begin(cases[0], 14);
    const auto want = run(prompt(2, ROWS), ANSWER);
    Pruned large(prompt(2, ROWS), 1, service_);
    large.request.cache_prompt = true;
    large.disk = &disk_;
    ASSERT_EQ(large.submit(service_, &error_), WEIR_OK) << error_.text;
    large.wait();
    EXPECT_EQ(large.status, WEIR_OK) << large.message;
    EXPECT_FALSE(disk_.was_late);
    large.release();
    go_on();
    EXPECT_EQ(run(prompt(2, ROWS), ANSWER), want);
    expect_clean();
}

/* Some of each, over a slow disk. */
TEST_F(PrunedTiers, ASlowDiskChangesNoAnswer)
{
    enum { PROMPTS = 6, ASKS = 24, AT_ONCE = 2 };
    std::vector<std::vector<std::vector<int32_t>>> want;
    std::vector<std::vector<float>> logprobs;
    const auto ask = [&](int i) {
        auto call = std::make_unique<Call>(prompt(100 + i, 200 + i * 173 % 900), ANSWER);
        call->request.want_logprobs = true;
        if (i % 3 == 0) keep_all(call.get());
        EXPECT_EQ(call->submit_when_it_fits(service_, &error_), WEIR_OK) << error_.text;
        return call;
    };
    begin(cases[0], 0);
    for (int i = 0; i < PROMPTS; i++) {
        const auto call = ask(i);
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        want.push_back(call->tokens);
        logprobs.push_back(call->logprobs[0]);
    }
    for (unsigned seed = 1; seed <= 4; seed++) {
        begin(cases[0], 18);
        slow_us = 1000;
        unsigned random = seed;
        std::vector<std::pair<std::unique_ptr<Call>, int>> running;
        for (int n = 0; n < ASKS || !running.empty();) {
            random = random * 1664525 + 1013904223;
            if (n < ASKS && running.size() < AT_ONCE) {
                const int i = (int)(random >> 16) % PROMPTS;
                running.emplace_back(ask(i), i);
                n++;
                continue;
            }
            const auto one = running.begin() + (int)((random >> 16) % running.size());
            Call &call = *one->first;
            const bool is_cancelled = (random >> 8) % 6 == 0;
            if (is_cancelled) weir_job_cancel(call.job);
            call.wait();
            if (!is_cancelled || call.status != WEIR_ECANCELED) {
                EXPECT_EQ(call.status, WEIR_OK) << call.message;
                EXPECT_EQ(call.tokens, want[(size_t)one->second]) << "seed " << seed;
                EXPECT_EQ(call.logprobs[0], logprobs[(size_t)one->second]) << "seed " << seed;
            }
            call.release();
            running.erase(one);
        }
        expect_clean();
    }
}

} // namespace
