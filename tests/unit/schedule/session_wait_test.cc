// Sessions that are restored while the disk hangs or while a step is long: what waits for their
// pages takes no processor time, and reading needs no step.
#include <time.h>

#include "tests/unit/kv/file_gate.h"
#include "tests/unit/schedule/tiers_fixture.h"

namespace {

using support::Call;

std::atomic<int64_t> clock_calls{ 0 };

} // namespace

/* In front of libc's: the engine thread looks at the clock in each turn. */
extern "C" int clock_gettime(clockid_t clock, struct timespec *now) noexcept
{
    clock_calls++;
    return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
}

namespace {

class Waiting : public support::SessionService {
  protected:
    Waiting() : SessionService("waiting", 512) {}
    void TearDown() override
    {
        file_gate::reads = nullptr;
        SessionService::TearDown();
    }
    std::vector<int32_t> run(const std::vector<int32_t> &ids)
    {
        Call call(ids, 12);
        call.request.cache_prompt = true;
        return answer(call);
    }
};

TEST_F(Waiting, ARequestThatWaitsForPagesOfASessionSleeps)
{
    start("qwen3");
    const auto tokens = prompt(1, 400), other = prompt(2, 440);
    (void)run(tokens);
    const auto want = run(other);
    ASSERT_EQ(save("long", tokens), WEIR_OK) << error_.text;
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string memory = std::to_string(weir_plan_total(plan) - plan->kv / 2) + "B";
    stop();
    start("qwen3", {}, memory.c_str()); /* one window of 512 */
    support::Gate disk;
    file_gate::reads = &disk;
    weir_status status = WEIR_EIO;
    std::thread restoring([&] {
        weir_session_result result;
        status = weir_sessions_restore(sessions_, "long", &result, nullptr);
    });
    ASSERT_TRUE(disk.wait_until_reached());
    Call call(other, 12);
    call.request.cache_prompt = true;
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const int64_t calls = clock_calls, begin = weir_clock_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int64_t ms = (weir_clock_ns() - begin) / 1000000;
    EXPECT_LT(clock_calls - calls, 100 + 2 * ms);
    EXPECT_EQ(stats().waiting, 1) << "there was room for both";
    disk.open();
    restoring.join();
    EXPECT_EQ(status, WEIR_OK);
    call.wait();
    EXPECT_EQ(call.status, WEIR_OK) << call.message;
    EXPECT_EQ(call.tokens[0], want);
}

class WaitingWithTiers : public tiers::Tiers {
  protected:
    WaitingWithTiers() { std::filesystem::remove_all(sessions_); }
    void TearDown() override
    {
        file_gate::reads = nullptr;
        support::write_gate = nullptr;
        Tiers::TearDown();
        std::filesystem::remove_all(sessions_);
    }
    /* Opens the service again with a session of `n` tokens on disk, which it has not in its cache.
     * Returns what continues it. */
    std::vector<int32_t> start_with_session(int n, int64_t in_memory)
    {
        const std::string dir = "sessions.dir=" + sessions_;
        weir_session_result result;
        tokens_ = prompt(1, n);
        const weir_session_request request = { "large", nullptr, tokens_.data(), n };
        start("qwen3", in_memory, 75, dir);
        const auto want = run(tokens_, 20);
        EXPECT_EQ(
            weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
        ) << error_.text;
        start("qwen3", in_memory, 75, dir);
        return want;
    }
    weir_status restore(weir_error *error = nullptr)
    {
        weir_session_result result;
        return weir_sessions_restore(weir_engine_sessions(engine_), "large", &result, error);
    }
    void expect_continued(const std::vector<int32_t> &want)
    {
        EXPECT_EQ(run(tokens_, 20), want);
        EXPECT_EQ(usage_.n_cached, (int)tokens_.size() - 1) << usage_.reuse;
        expect_within();
    }
    const std::string sessions_ =
        ::testing::TempDir() + "/wait-sessions." + std::to_string(getpid());
    std::vector<int32_t> tokens_;
};

/* One turn of the engine gives the pages that are free; the disk fills them during a step. */
TEST_F(WaitingWithTiers, ARestoreGoesOnDuringAStep)
{
    const auto want = start_with_session(1900, 60);
    support::Gate disk, step;
    file_gate::reads = &disk;
    file_gate::bytes_read = 0;
    weir_status status = WEIR_EIO;
    std::thread restoring([&] { status = restore(); });
    ASSERT_TRUE(disk.wait_until_reached());
    static support::Gate *held;
    held = &step;
    Call call(prompt(2, 30), 4);
    call.request.callback = [](void *user, const weir_event *event) {
        if (event->type == WEIR_EVENT_TOKEN && held != nullptr)
            std::exchange(held, nullptr)->pass();
        return Call::on_event(user, event);
    };
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    ASSERT_TRUE(step.wait_until_reached());
    disk.open();
    const int64_t pages = 1900 / 64 * block_;
    for (int i = 0; i < 4000 && file_gate::bytes_read < pages; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GE(file_gate::bytes_read, pages) << "it waited for the step";
    EXPECT_FALSE(step.was_late);
    step.open();
    restoring.join();
    EXPECT_EQ(status, WEIR_OK);
    call.wait();
    call.release();
    file_gate::reads = nullptr;
    expect_continued(want);
}

/* A block that is being written is no sign of a disk that fails. */
TEST_F(WaitingWithTiers, ARestoreBeginsWhileABlockIsWritten)
{
    const auto want = start_with_session(1800, 14);
    support::Gate block, file;
    support::write_gate = &block;
    (void)run(prompt(40, 768), 1); /* 12 blocks: one leaves ahead of need, and hangs */
    EXPECT_TRUE(block.wait_until_reached());
    file_gate::reads = &file;
    weir_status status = WEIR_EIO;
    weir_error error = {};
    std::thread restoring([&] {
        status = restore(&error);
        file.open();
        file.pass(); /* also if it was refused before it read */
    });
    EXPECT_TRUE(file.wait_until_reached());
    for (int i = 0; i < 2000 && stats().kv_pages_used == 0; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GT(stats().kv_pages_used, 0) << "it was refused while a block is written";
    support::write_gate = nullptr;
    block.open();
    file.open();
    restoring.join();
    EXPECT_EQ(status, WEIR_OK) << error.text;
    EXPECT_FALSE(block.was_late);
    expect_continued(want);
}

/* The restore waits for memory, and requests do not wait for it. */
TEST_F(WaitingWithTiers, ARestoreThatWaitsStopsNoStep)
{
    const auto want = start_with_session(1800, 14);
    support::Gate block;
    support::write_gate = &block;
    (void)run(prompt(40, 768), 1); /* 12 blocks */
    EXPECT_TRUE(block.wait_until_reached());
    file_gate::bytes_read = 0;
    weir_status status = WEIR_EIO;
    weir_error error = {};
    std::thread restoring([&] { status = restore(&error); });
    for (int i = 0; i < 20000 && file_gate::bytes_read < block_; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(file_gate::bytes_read, block_) << "it begins with the memory that is free";
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); /* then it waits */
    for (int i = 0; i < 3; i++) {
        Call call(prompt(50 + i, 20), 4);
        ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        weir_job_cancel(call.job);
        call.wait();
        call.release();
    }
    support::write_gate = nullptr;
    block.open();
    EXPECT_FALSE(block.was_late) << "the engine's thread waited";
    restoring.join();
    EXPECT_EQ(status, WEIR_OK) << error.text;
    expect_continued(want);
}

/* As a request does, while nothing runs. */
TEST_F(WaitingWithTiers, ARestoreTriesADiskThatFailed)
{
    const auto want = start_with_session(1800, 14);
    tiers::writes_fail = true;
    (void)run(prompt(40, 768), 1);
    for (int i = 0; i < 2000 && stats().kv_write_errors == 0; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GT(stats().kv_write_errors, 0);
    weir_error error = {};
    EXPECT_EQ(restore(&error), WEIR_EFULL);
    tiers::writes_fail = false;
    EXPECT_EQ(restore(&error), WEIR_OK) << error.text;
    expect_continued(want);
}

} // namespace
