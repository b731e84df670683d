// Mixtures whose experts do not fit memory.experts: the same bits as with all in memory, within the
// plan; reading ahead, pins, direct reads. experts_failure_test.cc: disks that fail or hang.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/unit/schedule/experts_support.h"

namespace {

using support::Call;
using support::disk;
using support::Experts;

void sleep_in_layer(void *user, int64_t layer, const int32_t *experts, int32_t n)
{
    (void)user, (void)layer, (void)experts, (void)n;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}
const weir_expert_watch kSlowLayers = { sleep_in_layer, nullptr };

const char *const kModels[] = { "../families/mixtral",
                                "../families/mixtral/mixtral-f16.gguf",
                                "../families/qwen3-moe/qwen3-moe-f16.gguf",
                                "../families/gpt-oss",
                                "../families/gpt-oss/gpt-oss-f16.gguf",
                                "../families/gemma4-moe/gemma4-moe-f16.gguf",
                                "../families/lfm2-moe" };

TEST_F(Experts, AnswersHaveTheSameBits)
{
    for (const char *const model : kModels) {
        SCOPED_TRACE(model);
        start(model, "0B");
        const auto want = run();
        EXPECT_EQ(seen().n_entries, 0);
        const size_t all = weir_engine_plan_of(engine_)->weights;
        stop();
        const std::string limit = least(model);
        start(model, limit);
        for (int i = 0; i < 3; i++) EXPECT_EQ(run(), want);
        EXPECT_LT(seen().n_entries, seen().n_experts);
        EXPECT_GT(seen().all.misses, seen().n_entries);
        EXPECT_GT(seen().all.bytes_read, 0);
        EXPECT_EQ(seen().errors, 0);
        const size_t weights = weir_engine_plan_of(engine_)->weights;
        EXPECT_LT(weights, all);
        EXPECT_EQ(
            weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_WEIGHTS),
            weights
        );
        stop();
    }
}

TEST_F(Experts, ManySlotsAreHits)
{
    const char *const model = "../families/mixtral";
    start(model, "0B");
    const auto want = run();
    stop();
    const int64_t limit = 3 * atoll(least(model).c_str());
    start(model, std::to_string(limit) + "B");
    disk.is_short = true;
    EXPECT_EQ(run(), want);
    const int64_t entries = seen().n_entries, misses = seen().all.misses;
    EXPECT_GT(entries, 2);
    EXPECT_GE(misses, entries);
    EXPECT_EQ(run(), want);
    EXPECT_GT(seen().all.hits, 0);
    EXPECT_LE(seen().n_entries * seen().entry_bytes, limit);
}

// Layers take longer than reads. Without reading ahead every read is waited for.
TEST_F(Experts, ReadingAheadSavesWaits)
{
    const std::string model = "../families/lfm2-moe", limit = times(least(model), 2);
    std::vector<float> want;
    int64_t waits[2];
    for (const bool ahead : { false, true }) {
        start(
            model, limit,
            { ahead ? "memory.expert_prefetch=true" : "memory.expert_prefetch=false",
              "memory.expert_pins=0" }
        );
        weir_model_watch_experts(weir_engine_model(engine_), &kSlowLayers);
        disk.is_slow = true;
        const auto got = decode(24);
        disk.is_slow = false;
        if (!ahead) want = got;
        EXPECT_EQ(got, want);
        const weir_expert_stats s = seen();
        waits[ahead] = s.waits;
        EXPECT_EQ(s.all.prefetched > 0, ahead);
        EXPECT_LE(s.all.prefetch_used, s.all.hits);
        EXPECT_LE(s.all.prefetch_used + s.all.prefetch_unused, s.all.prefetched);
        EXPECT_GE(s.all.prefetch_used * 2, s.all.prefetched) << "most guesses are right";
        stop();
    }
    EXPECT_LT(waits[1] * 3, waits[0] * 2);
}

// Every read is of whole pages in memory and file.
TEST_F(Experts, DirectReadsAreAligned)
{
    const std::string model = "../families/deepseek2-lite/deepseek2-lite-f16.gguf";
    start(model, "0B");
    const auto want = run();
    stop();
    const int fd = ::open(config_.model.path, O_RDONLY | O_DIRECT);
    if (fd < 0) GTEST_SKIP() << "no direct reads here: " << strerror(errno);
    (void)close(fd);
    for (const bool direct : { false, true }) {
        start(
            model, "200KiB",
            { direct ? "memory.expert_reads=direct" : "memory.expert_reads=cached" }
        );
        ASSERT_GT(seen().n_entries, 0);
        disk.n_unaligned = disk.n_reads = 0;
        EXPECT_EQ(run(), want);
        EXPECT_EQ(seen().is_direct, direct);
        EXPECT_GT(disk.n_reads, 0);
        EXPECT_EQ(disk.n_unaligned == 0, direct);
        stop();
    }
}

// With `auto` they go through the page cache where the file system refuses direct ones.
TEST_F(Experts, RefusedDirectReads)
{
    const std::string model = "../families/deepseek2-lite/deepseek2-lite-f16.gguf";
    start(model, "0B");
    const auto want = run();
    stop();
    disk.refuses_direct = true;
    /* No memory is left for the page cache. */
    start(model, "200KiB", { "memory.host=64TiB" });
    ASSERT_GT(seen().n_entries, 0);
    EXPECT_EQ(run(), want);
    EXPECT_FALSE(seen().is_direct);
    stop();
    weir_engine *engine = nullptr;
    EXPECT_EQ(weir_config_assign(&config_, "memory.expert_reads=direct", &error_), WEIR_OK);
    const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
    EXPECT_EQ(weir_engine_open_with(&engine, &options, &error_), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "memory.expert_reads"), nullptr) << error_.text;
    weir_engine_close(engine);
}

// The matrices of an expert lie next to each other in this file.
TEST_F(Experts, AnExpertIsOneRead)
{
    const std::string model = "../families/mixtral";
    start(model, least(model), { "memory.expert_prefetch=false" });
    disk.n_reads = 0;
    (void)run();
    EXPECT_GT(disk.n_reads, 0);
    EXPECT_EQ(disk.n_reads, seen().all.misses);
}

// An answer's experts that most steps used are there after prompts that used all others.
TEST_F(Experts, PinnedExpertsStay)
{
    const std::string model = "../families/deepseek2-lite/deepseek2-lite-f16.gguf";
    std::vector<float> want;
    int64_t misses[2];
    for (const bool pins : { false, true }) {
        start(
            model, "200KiB",
            { pins ? "memory.expert_pins=0.5" : "memory.expert_pins=0",
              "memory.expert_prefetch=false", "kv.reuse=off" }
        );
        const auto first = decode(200);
        if (!pins) want = first;
        EXPECT_EQ(first, want);
        const int64_t before = seen().all.misses;
        for (int i = 0; i < 8; i++) {
            alone(prompt(i, 60), 1);
            const auto again = decode(8);
            EXPECT_TRUE(std::equal(again.begin(), again.end(), want.begin()));
        }
        const weir_expert_stats s = seen();
        misses[pins] = s.all.misses - before;
        EXPECT_EQ(s.all.pinned > 0, pins);
        EXPECT_LE(s.all.pinned * 2, s.n_entries);
        weir_expert_counts sum = {};
        for (int64_t i = 0; i < weir_model_shape(weir_engine_model(engine_))->n_layers; i++) {
            weir_expert_counts layer;
            if (!weir_model_expert_counts(weir_engine_model(engine_), i, &layer)) continue;
            sum.hits += layer.hits;
            sum.misses += layer.misses;
            sum.pinned += layer.pinned;
        }
        EXPECT_EQ(sum.hits, s.all.hits);
        EXPECT_EQ(sum.misses, s.all.misses);
        EXPECT_EQ(sum.pinned, s.all.pinned);
        stop();
    }
    EXPECT_LT(misses[1] * 10, misses[0] * 9);
}

TEST_F(Experts, TooLittleIsRefused)
{
    const std::string model = "../families/mixtral";
    const int64_t limit = atoll(least(model).c_str());
    weir_plan plan = {};
    const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
    config_.memory.experts = limit - 1;
    EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_ECONFIG);
    EXPECT_NE(strstr(error_.text, "memory.experts"), nullptr) << error_.text;
    config_.memory.experts = limit;
    EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_OK) << error_.text;
}

} // namespace
