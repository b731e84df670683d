/* A disk that does not answer, under sequences that need memory: the others go on. */
#include "tests/unit/schedule/tiers_fixture.h"

#include <random>
#include <thread>

#include "engine/base/clock.h"
#include "engine/schedule/job.h"

namespace {

using namespace tiers;

/* Submits others after its fifth token, and looks at their tokens at its last one: its end frees
 * memory. */
struct Others : Call {
    enum { AT = 5, TOKENS = 40 };
    Others(std::vector<int32_t> ids, weir_service *to, std::vector<Call *> calls)
        : Call(std::move(ids), TOKENS), service(to), others(std::move(calls))
    {
        request.callback = on_event;
        request.user = static_cast<Call *>(this);
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Others *const self = static_cast<Others *>(static_cast<Call *>(user));
        weir_error error = {};
        if (event->type == WEIR_EVENT_TOKEN && ++self->n == AT)
            for (Call *const call : self->others)
                EXPECT_EQ(call->submit(self->service, &error), WEIR_OK) << error.text;
        if (event->type == WEIR_EVENT_TOKEN && self->n == TOKENS)
            for (const Call *const call : self->others)
                self->seen.push_back(call->tokens[0].size());
        return Call::on_event(user, event);
    }
    weir_service *service;
    std::vector<Call *> others;
    std::vector<size_t> seen;
    int n = 0;
};

class WaitingTiers : public Tiers {
  protected:
    /* From now on; what moves has moved. */
    void hang()
    {
        while (moves() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        support::write_gate = &disk_;
    }
    void go_on()
    {
        EXPECT_FALSE(disk_.was_late) << "the engine's thread waited";
        support::write_gate = nullptr;
        disk_.open();
    }
    void TearDown() override
    {
        support::write_gate = support::all_reads_gate = nullptr;
        disk_.open();
        Tiers::TearDown();
    }
    int64_t ask(void (*question)(weir_service *service, void *answer))
    {
        int64_t n = 0;
        weir_service_call(service_, question, &n);
        return n;
    }
    int64_t free_blocks()
    {
        return ask([](weir_service *service, void *answer) {
            *static_cast<int64_t *>(answer) = weir_kv_free_blocks(service->store);
        });
    }
    int64_t moves()
    {
        return ask([](weir_service *service, void *answer) {
            *static_cast<int64_t *>(answer) = weir_kv_moves_begun(service->store);
        });
    }
    /* Fills memory with a sequence that is cached until `n` blocks are free. */
    void fill_but(int64_t n, int seed)
    {
        const int64_t free = free_blocks();
        if (free > n) (void)run(prompt(seed, (int)((free - n) * 64)), 1);
        ASSERT_EQ(free_blocks(), n);
    }
    /* Ends the calls, which waited, with what they answer alone. */
    void expect_answers(
        const std::vector<Call *> &calls, const std::vector<std::vector<int32_t>> &want
    )
    {
        go_on();
        for (size_t i = 0; i < calls.size(); i++) {
            calls[i]->wait();
            EXPECT_EQ(calls[i]->status, WEIR_OK) << calls[i]->message;
            EXPECT_EQ(calls[i]->tokens[0], want[i]) << i;
            calls[i]->release();
        }
        EXPECT_EQ(stats().preemptions, 0);
        EXPECT_EQ(stats().dropped_tokens, 0) << "memory was dropped while blocks left";
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
    support::Gate disk_;
};

TEST_F(WaitingTiers, APromptWithoutMemorySitsOut)
{
    for (const char *const model : { "qwen3", "tq" }) {
        start(model, 0);
        const auto small = prompt(1, 20), large = prompt(2, 700);
        const auto want_small = run(small, Others::TOKENS), want_large = run(large, 20);
        start(model, 14, 60);
        (void)run(prompt(3, 500), 1);
        hang();
        fill_but(2, 4);
        Call waits(large, 20);
        Others goes_on(small, service_, { &waits });
        ASSERT_EQ(goes_on.submit(service_, &error_), WEIR_OK) << error_.text;
        goes_on.wait();
        EXPECT_EQ(goes_on.tokens[0], want_small) << model;
        goes_on.release();
        EXPECT_FALSE(waits.done);
        EXPECT_TRUE(waits.tokens[0].empty());
        EXPECT_TRUE(disk_.wait_until_reached());
        expect_answers({ &waits }, { want_large });
        disk_.is_open = disk_.is_reached = false;
    }
}

/* Two that decode, of which one needs a block for its next row. */
TEST_F(WaitingTiers, AnAnswerWithoutMemorySitsOut)
{
    start("qwen3", 0);
    const auto small = prompt(1, 20), other = prompt(2, 60);
    const auto want_small = run(small, Others::TOKENS), want_other = run(other, 20);
    start("qwen3", 14, 60);
    (void)run(prompt(3, 500), 1);
    hang();
    fill_but(2, 4);
    Call waits(other, 20);
    Others goes_on(small, service_, { &waits });
    ASSERT_EQ(goes_on.submit(service_, &error_), WEIR_OK) << error_.text;
    goes_on.wait();
    EXPECT_EQ(goes_on.tokens[0], want_small);
    goes_on.release();
    EXPECT_EQ(goes_on.seen, std::vector<size_t>{ 5 }) << "its rows fill the first block";
    expect_answers({ &waits }, { want_other });
}

/* What continues a cached sequence on disk has to write after its last row there: to read that
 * block takes memory, too. */
TEST_F(WaitingTiers, ALastBlockWithoutMemorySitsOut)
{
    start("qwen3", 0);
    const auto small = prompt(1, 20), kept = prompt(2, 300);
    const auto want_small = run(small, Others::TOKENS), want_kept = run(kept, 12);
    for (const int n_kept : { 1, 2 }) {
        start("qwen3", 14, 60, "kv.tiers.hot=1", { "batch.max_sequences=3" });
        ASSERT_EQ(run(kept, 12), want_kept);
        (void)run(prompt(3, 1000), 1); /* pushes it out */
        hang();
        fill_but(1, 4);
        const int64_t before = stats().kv_bytes_back;
        Call one(kept, 12), two(kept, 12);
        one.request.cache_prompt = two.request.cache_prompt = true;
        const std::vector<Call *> waiting =
            n_kept == 1 ? std::vector<Call *>{ &one } : std::vector<Call *>{ &one, &two };
        Others goes_on(small, service_, waiting);
        ASSERT_EQ(goes_on.submit(service_, &error_), WEIR_OK) << error_.text;
        goes_on.wait();
        EXPECT_EQ(goes_on.tokens[0], want_small);
        goes_on.release();
        EXPECT_EQ(goes_on.seen, std::vector<size_t>(waiting.size(), 0));
        expect_answers(waiting, std::vector<std::vector<int32_t>>(waiting.size(), want_kept));
        EXPECT_GT(stats().kv_bytes_back, before);
        for (const Call *const call : waiting)
            EXPECT_EQ(call->usage.n_cached, 299) << call->usage.reuse;
        disk_.is_open = disk_.is_reached = false;
    }
}

/* The job that waits is cancelled, or its time ends. */
TEST_F(WaitingTiers, AJobMayEndWhileItSitsOut)
{
    const auto large = prompt(2, 700);
    for (const bool times_out : { false, true }) {
        start("qwen3", 14, 60);
        (void)run(prompt(3, 500), 1);
        hang();
        fill_but(2, 4);
        Call waits(large, 20);
        if (times_out) waits.request.deadline_ns = weir_clock_ns() + 50000000;
        Others goes_on(prompt(1, 20), service_, { &waits });
        ASSERT_EQ(goes_on.submit(service_, &error_), WEIR_OK) << error_.text;
        goes_on.wait();
        goes_on.release();
        if (!times_out) weir_job_cancel(waits.job);
        waits.wait();
        EXPECT_EQ(waits.status, times_out ? WEIR_OK : WEIR_ECANCELED) << waits.message;
        EXPECT_TRUE(waits.tokens[0].empty());
        waits.release();
        go_on();
        EXPECT_EQ(run(large, 20).size(), 20u);
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
        disk_.is_open = disk_.is_reached = false;
    }
}

/* The blocks that should leave cannot be written: what is cached in memory is dropped, or the
 * request fails and says why. */
TEST_F(WaitingTiers, AWriteThatFailsEndsTheWait)
{
    start("qwen3", 0);
    const auto fits = prompt(2, 600), large = prompt(5, 1900);
    const auto want = run(fits, 20);
    for (const int error_number : { ENOSPC, EIO }) {
        write_error = error_number;
        start("qwen3", 14, 60);
        (void)run(prompt(3, 500), 1);
        hang();
        fill_but(2, 4);
        Call waits(fits, 20), too_large(large, 20);
        Others goes_on(prompt(1, 20), service_, { &waits, &too_large });
        ASSERT_EQ(goes_on.submit(service_, &error_), WEIR_OK) << error_.text;
        goes_on.wait();
        goes_on.release();
        EXPECT_FALSE(waits.done);
        writes_fail = true;
        go_on();
        waits.wait();
        EXPECT_EQ(waits.status, WEIR_OK) << waits.message;
        EXPECT_EQ(waits.tokens[0], want);
        too_large.wait();
        EXPECT_EQ(too_large.status, WEIR_EFULL);
        EXPECT_NE(too_large.message.find(strerror(error_number)), std::string::npos)
            << too_large.message;
        EXPECT_GT(stats().dropped_tokens, 0);
        waits.release();
        too_large.release();
        writes_fail = false;
        EXPECT_EQ(run(large, 20).size(), 20u) << "the disk works again";
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
        disk_.is_open = disk_.is_reached = false;
    }
}

/* Conversations that share a small memory above a slow disk, which sometimes fails, too: some
 * stall, some are cancelled, and the others get the bits that they have alone. */
TEST_F(WaitingTiers, ASlowDiskChangesNoAnswer)
{
    enum { TEXTS = 6, ASKS = 30, ANSWER = 24, AT_ONCE = 4 };
    std::vector<std::vector<int32_t>> prompts, want;
    std::vector<std::vector<float>> logprobs;
    int64_t bytes_out = 0, bytes_back = 0;
    start("qwen3", 0);
    for (int i = 0; i < TEXTS; i++) {
        prompts.push_back(prompt(100 + i, 60 + i * 173 % 700));
        want.push_back(run(prompts.back(), ANSWER));
        logprobs.push_back(logprobs_);
    }
    for (unsigned seed = 1; seed <= 4; seed++) {
        start("qwen3", 14 + seed % 3, 40, "kv.tiers.hot=1", { "batch.max_sequences=3" });
        slow_us = 1000;
        fail_seed = seed % 2 * seed;
        n_writes = 0;
        std::mt19937 random(seed);
        std::vector<std::pair<std::unique_ptr<Call>, int>> running;
        for (int n = 0; n < ASKS || !running.empty();) {
            if (n < ASKS && running.size() < AT_ONCE) {
                const int i = (int)(random() % TEXTS);
                auto call = std::make_unique<Call>(prompts[(size_t)i], ANSWER);
                call->request.cache_prompt = random() % 4 > 0;
                call->request.want_logprobs = true;
                call->request.priority = (int)(random() % 8 == 0);
                ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
                running.emplace_back(std::move(call), i);
                n++;
                continue;
            }
            const auto one = running.begin() + (int)(random() % running.size());
            Call &call = *one->first;
            const bool is_cancelled = random() % 6 == 0;
            if (is_cancelled) weir_job_cancel(call.job);
            call.wait();
            if (!is_cancelled || call.status != WEIR_ECANCELED) {
                EXPECT_EQ(call.status, WEIR_OK) << call.message;
                EXPECT_EQ(call.tokens[0], want[(size_t)one->second]) << "seed " << seed;
                EXPECT_EQ(call.logprobs[0], logprobs[(size_t)one->second]) << "seed " << seed;
            }
            call.release();
            running.erase(one);
        }
        bytes_out += stats().kv_bytes_out;
        bytes_back += stats().kv_bytes_back;
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
    EXPECT_GT(bytes_out, 0);
    EXPECT_GT(bytes_back, 0);
}

} // namespace
