/* A disk that hangs while a step attends to blocks on it: sequences without blocks there go on. */
#include "tests/unit/schedule/tiers_fixture.h"

#include <thread>

#include "engine/base/clock.h"
#include "engine/schedule/job.h"

namespace {

using namespace tiers;

class ColdBatch : public Tiers {
  protected:
    enum { LONG_ANSWER = 60, ANSWER = 12, GOES_ON = 40 };
    ColdBatch() : long_(prompt(1, 1100)), short_(prompt(2, 10)), other_(prompt(3, 12)) {}
    void TearDown() override
    {
        support::all_reads_gate = nullptr;
        disk_.open();
        cold_.reset(); /* before its service closes */
        Tiers::TearDown();
    }
    /* Of the requests alone, with memory for all. */
    void learn(const std::string &model)
    {
        start(model, 0, 0, "kv.tiers.hot=1", { format_ });
        want_long_ = run(long_, LONG_ANSWER);
        want_short_ = run(short_, GOES_ON);
        want_other_ = run(other_, ANSWER);
    }
    /* A request whose step waits for a disk that hangs, with memory for others. timeout_ns 0: it
     * has none. */
    void hang(const std::string &model, int64_t timeout_ns = 0)
    {
        disk_.is_open = disk_.is_reached = false;
        start(model, 16, 60, "kv.tiers.hot=1", { "batch.max_sequences=3", format_ });
        cold_ = std::make_unique<Call>(long_, LONG_ANSWER);
        cold_->request.cache_prompt = true;
        if (timeout_ns > 0) cold_->request.deadline_ns = weir_clock_ns() + timeout_ns;
        ASSERT_EQ(cold_->submit(service_, &error_), WEIR_OK) << error_.text;
        bool hangs = false;
        while (!hangs && !is_done()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            hangs = try_to_hang();
        }
        ASSERT_TRUE(hangs && disk_.wait_until_reached());
    }
    bool is_done()
    {
        const std::lock_guard<std::mutex> hold(cold_->lock);
        return cold_->done;
    }
    /* Between two steps that compute its answer; nothing moves, and two blocks are free. */
    bool try_to_hang()
    {
        struct Ask {
            ColdBatch *self;
            bool hangs;
        } ask = { this, false };
        weir_service_call(
            service_,
            [](weir_service *service, void *user) {
                Ask *const asked = static_cast<Ask *>(user);
                const choice *const c = service->slots[0].owner;
                asked->hangs = c != nullptr && c->n_answer > 0 &&
                               weir_kv_moves_begun(service->store) == 0 &&
                               weir_kv_free_blocks(service->store) >= 2;
                if (asked->hangs) support::all_reads_gate = &asked->self->disk_;
            },
            &ask
        );
        return ask.hangs;
    }
    std::vector<int32_t> go_on(const std::vector<int32_t> &ids, int max_tokens)
    {
        Call call(ids, max_tokens);
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.status, WEIR_OK) << call.message;
        call.release();
        return call.tokens[0];
    }
    void open_disk()
    {
        EXPECT_FALSE(disk_.was_late) << "others waited for the disk";
        support::all_reads_gate = nullptr;
        disk_.open();
        cold_->wait();
    }
    /* The request that waits ends with the disk still hanging; what it took is freed after. */
    void expect_end(int64_t since_ns, weir_status status, weir_finish finish)
    {
        enum { BOUND_NS = 100000000, BUSY = 20 }; /* other programs may take the processor */
        cold_->wait();
        EXPECT_LT(weir_clock_ns() - since_ns, int64_t{ BUSY } * BOUND_NS);
        EXPECT_EQ(cold_->status, status) << cold_->message;
        EXPECT_EQ(cold_->finish[0], finish);
        EXPECT_EQ(cold_->usage.n_answer, (int32_t)cold_->tokens[0].size());
        EXPECT_GE(cold_->usage.n_rows, 1100) << "of its rows when it ended";
        EXPECT_EQ(stats().running, 1) << "the step writes to what it holds";
        EXPECT_EQ(go_on(short_, GOES_ON), want_short_);
        open_disk();
        while (stats().running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(cold_->events_after_done, 0);
        EXPECT_EQ(run(long_, LONG_ANSWER), want_long_) << "also from what is cached of it";
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
    std::string format_ = "kv.format=f32";
    std::vector<int32_t> long_, short_, other_, want_long_, want_short_, want_other_;
    std::unique_ptr<Call> cold_;
    support::Gate disk_;
};

TEST_F(ColdBatch, OthersGoOnWhileItWaits)
{
    for (const char *const model : { "qwen3", "tq", "turbo4" }) {
        const bool is_rotated = std::string(model) == "turbo4"; /* of qwen3 */
        if (is_rotated) format_ = "kv.format=q8_0/turbo4";
        learn(is_rotated ? "qwen3" : model);
        hang(is_rotated ? "qwen3" : model);
        EXPECT_EQ(go_on(short_, GOES_ON), want_short_) << model;
        EXPECT_EQ(go_on(other_, ANSWER), want_other_) << model;
        EXPECT_FALSE(is_done());
        open_disk();
        EXPECT_EQ(cold_->status, WEIR_OK) << cold_->message;
        EXPECT_EQ(cold_->tokens[0], want_long_) << model;
        cold_->release();
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

/* The time of the request that waits passes. */
TEST_F(ColdBatch, ATimeoutEndsIt)
{
    learn("qwen3");
    hang("qwen3", 2000000000);
    EXPECT_FALSE(is_done());
    expect_end(cold_->request.deadline_ns, WEIR_OK, WEIR_FINISH_TIMEOUT);
    cold_->release();
}

/* Its client leaves; it may release the job at once. */
TEST_F(ColdBatch, ACancelEndsIt)
{
    learn("qwen3");
    for (const bool is_released : { false, true }) {
        hang("qwen3");
        const int64_t now = weir_clock_ns();
        weir_job_cancel(cold_->job);
        if (!is_released) {
            expect_end(now, WEIR_ECANCELED, WEIR_FINISH_CANCELED);
            cold_->release();
            continue;
        }
        cold_->release();
        EXPECT_EQ(go_on(short_, GOES_ON), want_short_);
        support::all_reads_gate = nullptr;
        disk_.open();
        while (stats().running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(run(long_, LONG_ANSWER), want_long_);
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

/* What begins like a request that waits does not wait for it once its client has left. */
TEST_F(ColdBatch, AFollowerGoesOnWithoutIt)
{
    learn("qwen3");
    hang("qwen3");
    weir_job_cancel(cold_->job);
    cold_->wait();
    EXPECT_EQ(go_on(std::vector<int32_t>(long_.begin(), long_.begin() + 40), 2).size(), 2u);
    open_disk();
}

/* A request that runs, and the one that waits, are cancelled. */
TEST_F(ColdBatch, BothMayBeCancelled)
{
    learn("qwen3");
    hang("qwen3");
    Call runs(short_, 1000);
    ASSERT_EQ(runs.submit(service_, &error_), WEIR_OK) << error_.text;
    weir_job_cancel(cold_->job);
    weir_job_cancel(runs.job);
    runs.wait();
    EXPECT_EQ(runs.status, WEIR_ECANCELED);
    runs.release();
    EXPECT_EQ(go_on(other_, ANSWER), want_other_);
    open_disk();
    EXPECT_EQ(cold_->status, WEIR_ECANCELED);
    cold_->release();
    EXPECT_EQ(run(long_, LONG_ANSWER), want_long_);
    expect_within();
    EXPECT_EQ(pages_used_when_idle(), 0);
}

/* Only the request whose blocks cannot be read fails. */
TEST_F(ColdBatch, AReadThatFailsIsItsOwn)
{
    learn("qwen3");
    hang("qwen3");
    Call runs(short_, GOES_ON);
    ASSERT_EQ(runs.submit(service_, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(go_on(other_, ANSWER), want_other_);
    EXPECT_FALSE(is_done());
    reads_fail = true;
    open_disk();
    EXPECT_EQ(cold_->status, WEIR_EIO);
    cold_->release();
    runs.wait();
    EXPECT_EQ(runs.status, WEIR_OK) << runs.message;
    EXPECT_EQ(runs.tokens[0], want_short_);
    runs.release();
    reads_fail = false;
    expect_within();
    EXPECT_EQ(pages_used_when_idle(), 0);
}

/* What the engine has reserved when it is open is what was planned. */
TEST_F(ColdBatch, ItsMemoryIsPlanned)
{
    for (const char *const model : { "qwen3", "tq" }) {
        start(model, 16, 60);
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        const weir_ledger *const ledger = weir_engine_ledger(engine_);
        EXPECT_EQ(
            weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS), plan->activations
        );
        EXPECT_LE(weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENS), plan->tokens);
    }
}

/* The server ends while a step waits. */
TEST_F(ColdBatch, TheServiceEnds)
{
    learn("qwen3");
    hang("qwen3");
    std::thread opens([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        disk_.open();
    });
    weir_job_cancel(cold_->job);
    cold_->release();
    stop();
    opens.join();
}

} // namespace
