/* What layers with a window read after the ends of cached sequences goes to disk and comes back,
 * with the same bits, while steps go on, on a disk that works, hangs, fails or is full. */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <thread>

#include "engine/schedule/job.h"
#include "engine/session/session_store.h"
#include "tests/every_nth.h"
#include "tests/unit/kv/read_gate.h"
#include "tests/unit/schedule/window_rows.h"

namespace {

using namespace windows;

enum class Fault { NONE, WRITES, READS, BITS };
std::atomic<Fault> fault{ Fault::NONE };

ssize_t write_or_fail(int fd, const struct iovec *pieces, int n, off_t at)
{
    support::pass(support::write_gate);
    if (fault != Fault::WRITES) return pwritev(fd, pieces, n, at);
    errno = ENOSPC;
    return -1;
}

ssize_t read_or_fail(int fd, void *bytes, size_t n, off_t at)
{
    support::pass(support::all_reads_gate);
    if (fault == Fault::READS) return errno = EIO, -1;
    const ssize_t got = pread(fd, bytes, n, at);
    if (fault == Fault::BITS && got > 0) static_cast<char *>(bytes)[0] ^= 1;
    return got;
}

/* Conversations of two turns, on models of which one has layers that see the whole sequence. */
class WindowDisk : public WindowRows, public ::testing::WithParamInterface<const char *> {
  protected:
    enum { TEXTS = 24, ROWS = 250, MORE = 20, ANSWER = 6, END = ROWS + ANSWER - 1 };

    void SetUp() override
    {
        fault = Fault::NONE;
        start(GetParam(), true);
        for (int i = 0; i < TEXTS; i++) want_.push_back(run(first(i)));
        for (int i = 0; i < TEXTS; i++) want_again_.push_back(run(second(i)));
    }
    void TearDown() override
    {
        support::write_gate = support::all_reads_gate = nullptr;
        disk_.open();
        stop();
    }
    /* Memory for the windows of a few of them. */
    void open_with(const char *disk, Settings more = {})
    {
        more.push_back(std::string("memory.disk=") + disk);
        more.push_back("memory.disk_dir=" + ::testing::TempDir());
        start(GetParam(), false, more);
        const size_t few = 40 * 64 * (size_t)weir_engine_plan_of(engine_)->facts.kv_bytes_per_token;
        const std::string memory = std::to_string(least_memory() + few) + "B";
        start(GetParam(), false, more, memory.c_str());
        const weir_kv_windows_spec *const spec = weir_kv_windows_spec_of(windows_);
        EXPECT_LT(spec->n_blocks, TEXTS * weir_kv_windows_most(spec) * 3 / 4);
        const weir_lower_tier_io io = { write_or_fail, read_or_fail, nullptr, nullptr };
        ASSERT_NE(weir_prefix_window_tier(weir_engine_prefix(engine_)), nullptr);
        weir_lower_tier_set_io(weir_prefix_window_tier(weir_engine_prefix(engine_)), &io);
    }
    Ids first(int i) const { return prompt(20 + i, ROWS); }
    Ids second(int i) const
    {
        Ids ids = first(i);
        const Ids &answer = want_[(size_t)i].tokens[0], more = prompt(60 + i, MORE);
        ids.insert(ids.end(), answer.begin(), answer.end());
        ids.insert(ids.end(), more.begin(), more.end());
        return ids;
    }
    std::unique_ptr<support::Call> call_of(const Ids &ids) const
    {
        auto call = std::make_unique<support::Call>(ids, ANSWER);
        call->request.cache_prompt = call->request.want_logprobs = call->request.ignore_eos = true;
        call->request.sampling.temperature = 0;
        return call;
    }
    Answer run(const Ids &ids)
    {
        const auto call = call_of(ids);
        (void)answer(*call);
        return { call->tokens, call->logprobs, call->usage };
    }
    void run_first(int i = 0)
    {
        for (; i < TEXTS; i++) expect_equal({ run(first(i)) }, { want_[(size_t)i] });
    }
    /* Returns whether it was continued from the first turn's end. */
    bool run_second(int i)
    {
        const Answer got = run(second(i));
        expect_equal({ got }, { want_again_[(size_t)i] });
        return got.usage.n_cached >= END;
    }
    int run_all_second()
    {
        int n = 0;
        for (int i = 0; i < TEXTS; i++) n += run_second(i);
        return n;
    }
    void hang(std::atomic<support::Gate *> &gate) { gate = &disk_; }
    void go_on(std::atomic<support::Gate *> &gate)
    {
        EXPECT_FALSE(disk_.was_late) << "the engine's thread waited";
        gate = nullptr;
        disk_.open();
    }
    /* A second turn that waits for the disk. */
    std::unique_ptr<support::Call> ask_second(int i)
    {
        auto call = call_of(second(i));
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        EXPECT_TRUE(disk_.wait_until_reached()) << "its window is in memory";
        return call;
    }
    void expect_done(support::Call *call, int i, int32_t n_cached)
    {
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        expect_equal({ { call->tokens, call->logprobs, {} } }, { want_again_[(size_t)i] });
        EXPECT_EQ(call->usage.n_cached, n_cached) << call->usage.reuse;
        call->release();
    }
    /* On the engine thread, when nothing moves. */
    void expect_right()
    {
        struct What {
            weir_prefix *prefix;
            int n_idle;
        } what = { weir_engine_prefix(engine_), 0 };
        while (what.n_idle < 2) { /* then what the first one saw is published */
            weir_prefix_wait_for_moves(what.prefix);
            weir_service_call(
                service_,
                [](weir_service *, void *user) {
                    What *const all = static_cast<What *>(user);
                    weir_error error = {};
                    all->n_idle += weir_prefix_moves(all->prefix) == 0;
                    EXPECT_TRUE(weir_prefix_is_sound(all->prefix, &error)) << error.text;
                },
                &what
            );
        }
        EXPECT_EQ(pages_used_when_idle(), 0);
        weir_ledger_state state;
        weir_ledger_read(weir_engine_ledger(engine_), &state);
        for (const weir_tier tier : { WEIR_TIER_HOST, WEIR_TIER_DISK })
            EXPECT_LE(state.peak[tier], state.cap[tier]) << weir_tier_name(tier);
    }
    std::vector<Answer> want_, want_again_;
    support::Gate disk_;
};

/* Idle conversations, more than fit in memory, are all continued where they ended. */
TEST_P(WindowDisk, IdleConversationsAreContinued)
{
    open_with("32MiB");
    run_first();
    expect_right();
    EXPECT_GT(stats().window_blocks_out, 0);
    EXPECT_EQ(stats().window_blocks_back, 0);
    EXPECT_GE(run_all_second(), TEXTS * 95 / 100);
    EXPECT_GT(stats().window_blocks_back, 0);
    EXPECT_EQ(stats().window_block_errors, 0);
    expect_right();
    /* Only what is read after the ends is written: of each turn's end, and of each answer's
     * beginning. */
    const int64_t most = weir_kv_windows_most(weir_kv_windows_spec_of(windows_));
    EXPECT_LE(stats().window_blocks_out, 2 * TEXTS * (most + 1));
    /* The ends of the first turns have left. */
    EXPECT_LE(stats().window_blocks_cold, TEXTS * (most + 1));
}

/* Many at once wait for their windows. */
TEST_P(WindowDisk, ManyAreContinuedAtOnce)
{
    enum { AT_ONCE = 12 };
    open_with("32MiB");
    run_first();
    std::vector<std::unique_ptr<support::Call>> calls;
    for (int i = 0; i < AT_ONCE; i++) calls.push_back(call_of(second(i)));
    submit_together(service_, calls, &error_);
    int n = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        calls[(size_t)i]->wait();
        EXPECT_EQ(calls[(size_t)i]->status, WEIR_OK) << calls[(size_t)i]->message;
        EXPECT_EQ(calls[(size_t)i]->tokens, want_again_[(size_t)i].tokens) << i;
        EXPECT_EQ(calls[(size_t)i]->logprobs, want_again_[(size_t)i].logprobs) << i;
        n += calls[(size_t)i]->usage.n_cached == END;
    }
    EXPECT_GT(n, AT_ONCE / 2);
    expect_right();
}

/* The ones that were used first go. */
TEST_P(WindowDisk, AFullDisk)
{
    open_with("32MiB");
    const int64_t block = (int64_t)weir_kv_windows_block_bytes(
                      &weir_kv_store_spec(weir_engine_store(engine_))->windows
                  ),
                  kv = 64 * weir_engine_plan_of(engine_)->facts.kv_bytes_per_token,
                  disk = 24 * (((block + 4095) & ~4095) + ((kv + 4095) & ~4095));
    open_with((std::to_string(disk) + "B").c_str());
    for (int turn = 0; turn < 2; turn++) {
        run_first();
        (void)run_all_second();
    }
    expect_right();
    EXPECT_TRUE(run_second(TEXTS - 1));
    EXPECT_EQ(stats().window_block_errors, 0);
}

TEST_P(WindowDisk, AFailingDisk)
{
    for (const Fault one : { Fault::WRITES, Fault::READS, Fault::BITS }) {
        open_with("32MiB");
        if (one == Fault::WRITES) fault = one;
        run_first();
        expect_right();
        fault = one;
        EXPECT_LT(run_all_second(), TEXTS) << "some are computed";
        EXPECT_GT(stats().window_block_errors, 0);
        EXPECT_EQ(stats().window_blocks_back, 0);
        expect_right();
        if (one == Fault::WRITES) EXPECT_EQ(stats().window_blocks_cold, 0);
        fault = Fault::NONE;
        run_first();
        (void)run_all_second();
        expect_right();
    }
}

TEST_P(WindowDisk, StepsGoOnWhileADiskHangsInWrites)
{
    open_with("32MiB");
    hang(support::write_gate);
    run_first();
    ASSERT_TRUE(disk_.wait_until_reached());
    EXPECT_EQ(stats().window_blocks_out, 0);
    EXPECT_GT(stats().window_blocks_cold, 0) << "which are being written";
    EXPECT_TRUE(run_second(TEXTS - 1)) << "which is in memory";
    go_on(support::write_gate);
    (void)run_all_second();
    expect_right();
    EXPECT_EQ(stats().window_block_errors, 0);
}

TEST_P(WindowDisk, StepsGoOnWhileADiskHangsInReads)
{
    open_with("32MiB");
    run_first();
    expect_right();
    hang(support::all_reads_gate);
    const auto one = ask_second(0), same = call_of(second(0));
    for (const int seed : { 200, 201 }) EXPECT_EQ(run(prompt(seed, 90)).tokens[0].size(), ANSWER);
    EXPECT_TRUE(run_second(TEXTS - 1)) << "which is in memory";
    ASSERT_EQ(same->submit(service_, &error_), WEIR_OK) << error_.text;
    EXPECT_FALSE(one->done || same->done);
    go_on(support::all_reads_gate);
    expect_done(one.get(), 0, END);
    expect_done(same.get(), 0, END);
    (void)run_all_second();
    expect_right();
}

/* A job ends while its window is read, or the read fails. */
TEST_P(WindowDisk, AReadThatIsInVain)
{
    for (const bool fails : { false, true }) {
        open_with("32MiB");
        run_first();
        expect_right();
        hang(support::all_reads_gate);
        const auto one = ask_second(0);
        if (!fails) weir_job_cancel(one->job);
        if (!fails) one->wait();
        if (!fails) EXPECT_EQ(one->status, WEIR_ECANCELED);
        if (fails) fault = Fault::READS;
        go_on(support::all_reads_gate);
        if (fails) one->wait();
        fault = Fault::NONE;
        if (fails) EXPECT_EQ(one->tokens, want_again_[0].tokens);
        if (fails) EXPECT_LT(one->usage.n_cached, ROWS) << one->usage.reuse;
        if (fails) EXPECT_GT(stats().window_block_errors, 0);
        one->release();
        (void)run_all_second();
        expect_right();
        disk_.is_open = disk_.is_reached = false;
    }
}

TEST_P(WindowDisk, TheServiceClosesWhileABlockMoves)
{
    for (std::atomic<support::Gate *> *const gate :
         { &support::write_gate, &support::all_reads_gate }) {
        const bool reads = gate == &support::all_reads_gate;
        open_with("32MiB");
        if (reads) run_first();
        if (reads) expect_right();
        hang(*gate);
        std::unique_ptr<support::Call> one;
        if (reads) one = ask_second(0);
        if (!reads) run_first();
        if (!reads) ASSERT_TRUE(disk_.wait_until_reached());
        if (reads) one->release();
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            go_on(*gate);
        });
        stop();
        other.join();
        disk_.is_open = disk_.is_reached = false;
    }
}

/* A session whose window is on disk is saved with it. */
TEST_P(WindowDisk, ASaveReadsTheWindow)
{
    const support::Folder folder("window-sessions-of-disk");
    const Settings sessions = { "sessions.dir=" + folder.path(), "sessions.autosave=false" };
    open_with("64MiB", sessions);
    run_first();
    expect_right();
    const Ids all = second(0);
    const weir_session_request request = { "first", nullptr, all.data(), END };
    weir_session_result result;
    ASSERT_EQ(
        weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(result.n_tokens, END);
    EXPECT_GT(stats().window_blocks_back, 0);
    expect_right();
    open_with("64MiB", sessions);
    ASSERT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "first", &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_TRUE(run_second(0)) << usage_.reuse;
    stop();
}

/* Without a disk for them, sequences are saved before their windows go, whatever room others have.
 */
TEST_P(WindowDisk, SequencesAreSavedBeforeTheirWindowsGo)
{
    enum { LONG = 700, SEQUENCES = 6 };
    const support::Folder folder("window-sessions-of-disk");
    const Settings more = { "sessions.dir=" + folder.path() };
    start(GetParam(), false, more);
    const size_t few = 80 * 64 * (size_t)weir_engine_plan_of(engine_)->facts.kv_bytes_per_token;
    const std::string memory = std::to_string(least_memory() + few) + "B";
    start(GetParam(), false, more, memory.c_str());
    for (int i = 0; i < SEQUENCES; i++) {
        (void)run(prompt(100 + i, LONG));
        weir_sessions_settle(weir_engine_sessions(engine_));
        weir_sessions_settle(weir_engine_sessions(engine_));
    }
    EXPECT_GE(stats().saved_sequences, 2);
    EXPECT_EQ(stats().save_failures, 0);
    stop();
}

INSTANTIATE_TEST_SUITE_P(
    Models, WindowDisk,
    ::testing::ValuesIn(weir_test::every_nth({ "wo:100", "ww:100", "owwo:70" }, 3)),
    [](const auto &info) {
        std::string name = info.param;
        std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
        return name;
    }
);

} // namespace
