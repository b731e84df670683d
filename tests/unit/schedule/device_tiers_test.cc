// KV pages that a device has no room for: on the host and on disk below it, the answers are those
// of memory for all, bit for bit.
#include "engine/base/clock.h"
#include "engine/engine_parts.h"
#include "engine/kv/tiers/residency.h"
#include "tests/every_nth.h"
#include "tests/unit/kv/read_gate.h"
#include "tests/unit/schedule/small_memory.h"

namespace {

using support::Call;

class BelowADevice : public support::SmallMemory {
  protected:
    BelowADevice() : SmallMemory("device-tiers") {}
    /* Blocks of 64 tokens on the device, on the host, on disk. in_memory 0: the CPU, and
     * memory for all. */
    void start(
        const std::string &model, int64_t in_memory, int64_t on_host = 0, int64_t on_disk = 0,
        const std::vector<std::string> &more = {}
    )
    {
        stop();
        std::vector<std::string> settings = settings_of(model);
        settings.push_back("memory.host=256MiB");
        settings.insert(settings.end(), more.begin(), more.end());
        if (in_memory > 0) {
            settings.insert(
                settings.end(),
                { "kernels.device=checked", "memory.disk=16MiB", "memory.device=64MiB" }
            );
            measure_block(settings);
            const bool shares = config_.sessions.dir[0] != '\0';
            settings.push_back(
                "memory.disk=" + std::to_string(on_disk * block_ * (shares ? 2 : 1)) + "B"
            );
            settings.push_back("kv.tiers.host=" + std::to_string(on_host * block_) + "B");
            configure_least(settings, "memory.device", in_memory);
        } else {
            configure(settings);
        }
        open_configured();
        if (in_memory == 0) return;
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        EXPECT_EQ(plan->kv - plan->kv_unsealed, (size_t)(in_memory * block_));
        EXPECT_EQ(plan->facts.kv_pages.n_host > 0, on_host > 0);
        EXPECT_GE(plan->kv_host, (size_t)(on_host * block_));
        EXPECT_EQ(plan->kv_disk, (size_t)(on_disk * block_));
        weir_ledger_state state;
        weir_ledger_read(weir_engine_ledger(engine_), &state);
        EXPECT_EQ(state.used[WEIR_TIER_HOST][WEIR_ACCOUNT_KV], plan->kv_host);
        EXPECT_EQ(state.used[WEIR_TIER_DEVICE][WEIR_ACCOUNT_KV], plan->kv);
    }
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, int max_tokens = 12,
        const weir_policy_options *policy = nullptr, int32_t budget = 0
    )
    {
        Call call(ids, max_tokens);
        call.request.cache_prompt = true;
        call.request.policy = policy;
        call.request.kv_budget = budget;
        return answer(call);
    }
};

TEST_F(BelowADevice, ASequenceLargerThanTheDeviceIsAnswered)
{
    const std::vector<std::pair<const char *, const char *>> all = {
        { "tq", "kv.format=f16" },
        { "tq", "kv.format=int8" },
        { "qwen3", "kv.format=f16" },
        { "qwen3", "kv.format=int8" },
    };
    for (const auto &[model, format] : weir_test::every_nth(all, 3)) {
        const auto tokens = prompt(1, 1900);
        start(model, 0, 0, 0, { format });
        const auto want = run(tokens, 40);
        const struct {
            int64_t on_host, on_disk;
        } cases[] = { { 60, 0 }, { 9, 51 }, { 0, 60 } };
        for (const auto &c : cases) {
            start(model, 12, c.on_host, c.on_disk, { format });
            EXPECT_EQ(run(tokens, 40), want) << model << " " << format << " " << c.on_host;
            const weir_service_stats all = stats();
            EXPECT_GT(all.kv_bytes_out, 15 * block_);
            EXPECT_GT(all.kv_bytes_read, all.kv_bytes_out);
            EXPECT_EQ(all.kv_host_pages_used > 0, c.on_host > 0);
            EXPECT_EQ(all.kv_disk_pages_used > 0, c.on_disk > 0);
            EXPECT_EQ(run(tokens, 40), want) << model << " " << format << " " << c.on_host;
            EXPECT_GE(usage_.n_cached, 1856)
                << "a cached sequence is continued where it is: " << usage_.reuse;
            expect_within();
        }
    }
}

TEST_F(BelowADevice, TwoAtOnceAndThoseThatAreKept)
{
    const auto one = prompt(1, 1500), two = prompt(2, 1300);
    start("qwen3", 0);
    const auto want_one = run(one, 30), want_two = run(two, 30);
    start("qwen3", 16, 30, 60);
    for (int turn = 0; turn < 2; turn++) {
        Call a(one, 30), b(two, 30);
        a.request.cache_prompt = b.request.cache_prompt = true;
        ASSERT_EQ(a.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(b.submit(service_, &error_), WEIR_OK) << error_.text;
        a.wait();
        b.wait();
        EXPECT_EQ(a.tokens[0], want_one);
        EXPECT_EQ(b.tokens[0], want_two);
        for (int i = 0; i < 3; i++) (void)run(prompt(20 + i, 400));
    }
    EXPECT_EQ(run(one, 30), want_one);
    EXPECT_GE(usage_.n_cached, 1400) << usage_.reuse;
    EXPECT_EQ(stats().dropped_tokens, 0);
    expect_within();
}

support::Gate disk;

ssize_t gated_read(int fd, void *bytes, size_t n, off_t at)
{
    support::pass(support::all_reads_gate);
    return pread(fd, bytes, n, at);
}

/* Its step waits for a disk that hangs; on a device no others run within it. */
TEST_F(BelowADevice, ATimeoutReachesAStepThatWaits)
{
    enum { ANSWER = 200 };
    const auto tokens = prompt(1, 1500), other = prompt(2, 20);
    start("qwen3", 0);
    const auto want = run(tokens, ANSWER), want_other = run(other);
    for (const bool is_cancelled : { false, true }) {
        start("qwen3", 12, 0, 60);
        const weir_lower_tier_io io = { nullptr, gated_read, nullptr, nullptr };
        weir_lower_tier_set_io(weir_kv_store_lower_tier(weir_engine_store(engine_)), &io);
        disk.is_open = disk.is_reached = false;
        Call waits(tokens, ANSWER), late(other, 12);
        if (!is_cancelled) waits.request.deadline_ns = weir_clock_ns() + 2000000000;
        ASSERT_EQ(waits.submit(service_, &error_), WEIR_OK) << error_.text;
        support::all_reads_gate = &disk;
        EXPECT_TRUE(disk.wait_until_reached());
        if (is_cancelled) weir_job_cancel(waits.job);
        waits.wait();
        EXPECT_FALSE(disk.was_late) << "it waited for the disk";
        EXPECT_EQ(waits.status, is_cancelled ? WEIR_ECANCELED : WEIR_OK) << waits.message;
        EXPECT_EQ(waits.finish[0], is_cancelled ? WEIR_FINISH_CANCELED : WEIR_FINISH_TIMEOUT);
        ASSERT_EQ(late.submit(service_, &error_), WEIR_OK) << error_.text;
        support::all_reads_gate = nullptr;
        disk.open();
        late.wait();
        EXPECT_EQ(late.tokens[0], want_other);
        EXPECT_EQ(run(tokens, ANSWER), want);
        late.release();
        waits.release();
        EXPECT_EQ(waits.events_after_done, 0);
        expect_within();
    }
}

TEST_F(BelowADevice, PoliciesAndSessions)
{
    const std::string dir = "sessions.dir=" + folder_ + "/sessions";
    for (const char *const model : { "tq", "qwen3" }) {
        weir_policy_options options;
        const auto tokens = prompt(1, 1700);
        ASSERT_EQ(weir_policy_options_default(&options, "snapkv", &error_), WEIR_OK) << error_.text;
        start(model, 0);
        const auto want = run(tokens, 20), want_kept = run(tokens, 20, &options, 96);
        std::filesystem::remove_all(folder_);
        start(model, 24, 20, 60, { dir });
        EXPECT_EQ(run(tokens, 20), want) << model;
        EXPECT_EQ(run(tokens, 20, &options, 96), want_kept) << model;
        EXPECT_GT(usage_.n_evicted, 0);
        weir_session_result result;
        const weir_session_request request = { "large", nullptr, tokens.data(),
                                               (int32_t)tokens.size() };
        ASSERT_EQ(
            weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
        ) << error_.text;
        for (const int64_t in_memory : { 24, 0 }) {
            start(model, in_memory, 20, 60, { dir });
            ASSERT_EQ(
                weir_sessions_restore(weir_engine_sessions(engine_), "large", &result, &error_),
                WEIR_OK
            ) << model
              << error_.text;
            EXPECT_EQ(run(tokens, 20), want) << model << " restored, " << in_memory;
            EXPECT_GE(usage_.n_cached, 1600) << usage_.reuse;
        }
    }
}

/* Formats whose rows wait for their page: those of the sequences that sessions go through are on
 * the device, too. */
TEST_F(BelowADevice, SessionsHaveTheirUnsealedRows)
{
    const std::string dir = "sessions.dir=" + folder_ + "/sessions";
    for (const char *const autosave : { "sessions.autosave=false", "sessions.autosave=true" }) {
        start("qwen3", 24, 20, 60, { dir, autosave, "kv.format=int8" });
        if (HasFatalFailure()) return;
        (void)run(prompt(1, 1500), 10);
        expect_within();
    }
}

/* States are kept in what the pages on the host leave. */
TEST_F(BelowADevice, CachedStatesMakeRoomForTheHostsPages)
{
    const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
    weir_plan all = {}, less = {};
    std::vector<std::string> settings = { "model.path=tests/golden/models/tq",
                                          "kernels.device=checked",
                                          "kv.tiers.host=64MiB",
                                          "batch.max_sequences=16",
                                          "memory.device=64MiB",
                                          "memory.host=1GiB" };
    configure(settings);
    ASSERT_EQ(weir_engine_plan(&all, &options, &error_), WEIR_OK) << error_.text;
    ASSERT_GT(all.n_snapshots, 16);
    ASSERT_LT(2 * all.snapshots, all.kv_host);
    settings.back() =
        "memory.host=" + std::to_string(weir_plan_total(&all) - all.snapshots / 2) + "B";
    configure(settings);
    ASSERT_EQ(weir_engine_plan(&less, &options, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(less.kv_host, all.kv_host);
    EXPECT_LT(less.n_snapshots, all.n_snapshots);
    EXPECT_GT(less.n_snapshots, 0);
}

TEST_F(BelowADevice, WhatDoesNotFitIsRefusedWithTheArithmetic)
{
    weir_engine *engine = nullptr;
    const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
    configure({ "model.path=tests/golden/models/tq", "kernels.device=checked", "memory.host=64MiB",
                "kv.tiers.host=100MiB" });
    EXPECT_EQ(weir_engine_open_with(&engine, &options, &error_), WEIR_EFULL);
    EXPECT_NE(std::string(error_.text).find("kv on the host 100"), std::string::npos)
        << error_.text;
    EXPECT_NE(std::string(error_.text).find("or kv.tiers.host"), std::string::npos) << error_.text;
    configure({ "model.path=tests/golden/models/tq", "kernels.device=checked",
                "kv.tiers.host=100B" });
    EXPECT_EQ(weir_engine_open_with(&engine, &options, &error_), WEIR_EFULL);
    EXPECT_NE(
        std::string(error_.text).find("kv.tiers.host = 100B holds no KV pages"), std::string::npos
    ) << error_.text;
}

} // namespace
