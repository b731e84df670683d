// Mixtures whose experts do not fit memory.experts: the same bits as with all in memory, within the
// plan; reading ahead, pins, direct reads, files that cannot be read.
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "engine/model/expert_cache.h"
#include "engine/model/model_internal.h"
#include "tests/unit/schedule/support.h"

namespace {

std::atomic<bool> reads_fail{ false }, reads_are_short{ false }, reads_are_slow{ false };
/* Reads that were not of whole pages, and all. */
std::atomic<int64_t> n_unaligned{ 0 }, n_reads{ 0 };
std::atomic<off_t> bad_begin{ 0 }, bad_end{ 0 }; /* of files: bytes that cannot be read */
std::atomic<int64_t> fails_every{ 0 }; /* reads; 0: none fails */
std::atomic<bool> refuses_direct{ false }; /* as some file systems do, which open the file so */

} // namespace

/* In front of libc's: threads read experts with it. */
extern "C" ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    const int64_t number = ++n_reads;
    const bool is_bad = at < bad_end && at + static_cast<off_t>(n) > bad_begin;
    if (n > 0 && (reads_fail || is_bad || (fails_every > 0 && number % fails_every == 0))) {
        errno = EIO;
        return -1;
    }
    if (refuses_direct && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
        errno = EINVAL;
        return -1;
    }
    n_unaligned +=
        reinterpret_cast<uintptr_t>(bytes) % 4096 != 0 || n % 4096 != 0 || at % 4096 != 0;
    if (reads_are_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return syscall(SYS_pread64, fd, bytes, reads_are_short && n > 7 ? n / 2 : n, at);
}

namespace {

using support::Call;

void sleep_in_layer(void *user, int64_t layer, const int32_t *experts, int32_t n)
{
    (void)user, (void)layer, (void)experts, (void)n;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}
const weir_expert_watch kSlowLayers = { sleep_in_layer, nullptr };

class Experts : public support::Service {
  protected:
    void TearDown() override
    {
        reads_fail = reads_are_short = reads_are_slow = refuses_direct = false;
        bad_begin = bad_end = 0;
        stop();
    }
    std::string least(const std::string &model)
    {
        weir_plan plan = {};
        weir_config_default(&config_);
        snprintf(
            config_.model.path, sizeof config_.model.path, "tests/golden/models/%s", model.c_str()
        );
        EXPECT_EQ(weir_config_assign(&config_, "kernels.activations=fast", &error_), WEIR_OK);
        config_.memory.experts = 1;
        const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
        EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_ECONFIG);
        const char *const take = strstr(error_.text, " take ");
        EXPECT_NE(take, nullptr) << error_.text;
        return take != nullptr ? std::to_string(atoll(take + 6)) + "B" : "";
    }
    void start(
        const std::string &model, const std::string &experts,
        const std::vector<std::string> &more = {}
    )
    {
        settings_ = { "memory.experts=" + experts, "kernels.activations=fast" };
        settings_.insert(settings_.end(), more.begin(), more.end());
        open(model.c_str(), 4, nullptr, 256);
    }
    /* The answer of a request alone, which is decoded token by token. */
    std::vector<float> decode(int n_tokens)
    {
        Call call(prompt(5, 3), n_tokens);
        for (int32_t &id : call.prompt) id %= 200;
        call.request.want_logprobs = call.request.ignore_eos = true;
        answer(call);
        return call.logprobs[0];
    }
    std::string times(const std::string &size, double factor)
    {
        return std::to_string(static_cast<int64_t>(factor * atof(size.c_str()))) + "B";
    }
    /* The answers of requests that run together, with their log-probabilities. */
    std::vector<std::vector<float>> run()
    {
        std::vector<std::unique_ptr<Call>> calls;
        std::vector<std::vector<float>> out;
        for (const int n : { 3, 100, 40, 17 }) {
            calls.push_back(std::make_unique<Call>(prompt(n, n), 12));
            Call &call = *calls.back();
            for (int32_t &id : call.prompt) id %= 200;
            call.request.want_logprobs = call.request.ignore_eos = true;
        }
        submit_together(service_, calls, &error_);
        for (const auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
            out.push_back(call->logprobs[0]);
            EXPECT_EQ(out.back().size(), 12u);
        }
        return out;
    }
    weir_expert_stats seen() const
    {
        weir_expert_stats out;
        weir_model_expert_stats(weir_engine_model(engine_), &out);
        return out;
    }
};

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
        EXPECT_EQ(seen().n_slots, 0);
        const size_t all = weir_engine_plan_of(engine_)->weights;
        stop();
        const std::string limit = least(model);
        start(model, limit);
        for (int i = 0; i < 3; i++) EXPECT_EQ(run(), want);
        EXPECT_LT(seen().n_slots, seen().n_experts);
        EXPECT_GT(seen().all.misses, seen().n_slots);
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
    reads_are_short = true;
    EXPECT_EQ(run(), want);
    const int64_t slots = seen().n_slots, misses = seen().all.misses;
    EXPECT_GT(slots, 2);
    EXPECT_GE(misses, slots);
    EXPECT_EQ(run(), want);
    EXPECT_GT(seen().all.hits, 0);
    EXPECT_LE(seen().n_slots * seen().slot_bytes, limit);
}

// A disk that fails fails requests, with the file's name; not the engine.
TEST_F(Experts, ReadErrorsFailTheRequest)
{
    const char *const model = "../families/qwen3-moe";
    start(model, "0B");
    const auto want = run();
    stop();
    start(model, least(model));
    reads_fail = true;
    for (int i = 0; i < 3; i++) {
        Call call(prompt(1, 20), 4);
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK);
        call.wait();
        EXPECT_EQ(call.status, WEIR_EIO);
        EXPECT_NE(call.message.find("model.safetensors: cannot read an expert"), std::string::npos)
            << call.message;
    }
    EXPECT_GT(seen().errors, 0);
    reads_fail = false;
    EXPECT_EQ(run(), want);
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
        reads_are_slow = true;
        const auto got = decode(24);
        reads_are_slow = false;
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
        ASSERT_GT(seen().n_slots, 0);
        n_unaligned = n_reads = 0;
        EXPECT_EQ(run(), want);
        EXPECT_EQ(seen().is_direct, direct);
        EXPECT_GT(n_reads, 0);
        EXPECT_EQ(n_unaligned == 0, direct);
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
    refuses_direct = true;
    /* No memory is left for the page cache. */
    start(model, "200KiB", { "memory.host=64TiB" });
    ASSERT_GT(seen().n_slots, 0);
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
    n_reads = 0;
    (void)run();
    EXPECT_GT(n_reads, 0);
    EXPECT_EQ(n_reads, seen().all.misses);
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
        EXPECT_LE(s.all.pinned * 2, s.n_slots);
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

// Each read may fail, those ahead too: a request ends with an error or with the same bits.
TEST_F(Experts, SomeReadsFail)
{
    const std::string model = "../families/deepseek2-lite/deepseek2-lite-f16.gguf";
    start(model, "0B");
    const auto want = decode(6);
    stop();
    start(model, "500KiB");
    int n_failed = 0;
    for (int i = 0; i < 60; i++) {
        Call call(prompt(5, 3), 6);
        for (int32_t &id : call.prompt) id %= 200;
        call.request.want_logprobs = call.request.ignore_eos = true;
        fails_every = i % 2 == 0 ? 10 + i : 0;
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK);
        call.wait();
        fails_every = 0;
        n_failed += call.status != WEIR_OK;
        if (call.status == WEIR_OK)
            EXPECT_EQ(call.logprobs[0], want);
        else
            EXPECT_EQ(call.status, WEIR_EIO) << call.message;
        EXPECT_TRUE(call.status == WEIR_OK || i % 2 == 0);
    }
    EXPECT_GT(n_failed, 0);
    EXPECT_GE(seen().errors, n_failed);
}

// Of requests in the same steps those fail that need an expert that cannot be read, and no others.
TEST_F(Experts, OthersOfTheStepGoOn)
{
    constexpr int kCalls = 16;
    const std::string model = "../families/mixtral";
    start(model, least(model), { "batch.max_sequences=8" });
    std::ifstream file("tests/golden/families/mixtral/model.safetensors", std::ios::binary);
    uint64_t header = 0; /* little-endian, as this machine */
    file.read(reinterpret_cast<char *>(&header), sizeof header);
    const auto calls = [] {
        std::vector<std::unique_ptr<Call>> out;
        for (int i = 0; i < kCalls; i++) {
            out.push_back(std::make_unique<Call>(std::vector<int32_t>{ 7 + 9 * i }, 2));
            out.back()->request.want_logprobs = out.back()->request.ignore_eos = true;
        }
        return out;
    };
    const auto want = calls();
    for (const auto &call : want) (void)answer(*call);
    /* The last expert of the last layer: its offsets in the file's header. */
    bad_begin = static_cast<off_t>(8 + header + 152064);
    bad_end = bad_begin + 6912;
    std::vector<bool> fails;
    for (const auto &call : calls()) {
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK);
        call->wait();
        fails.push_back(call->status != WEIR_OK);
    }
    EXPECT_GT(std::count(fails.begin(), fails.end(), true), 2);
    EXPECT_GT(std::count(fails.begin(), fails.end(), false), 2);
    const auto together = calls();
    submit_together(service_, together, &error_);
    for (size_t i = 0; i < kCalls; i++) {
        Call &call = *together[i];
        call.wait();
        EXPECT_EQ(call.status, fails[i] ? WEIR_EIO : WEIR_OK) << i << ": " << call.message;
        if (fails[i])
            EXPECT_NE(call.message.find("cannot read an expert of tensor"), std::string::npos);
        else
            EXPECT_EQ(call.logprobs[0], want[i]->logprobs[0]) << i;
    }
    bad_begin = bad_end = 0;
    const auto after = calls();
    submit_together(service_, after, &error_);
    for (size_t i = 0; i < kCalls; i++) {
        after[i]->wait();
        EXPECT_EQ(after[i]->logprobs[0], want[i]->logprobs[0]) << i;
    }
}

/* Disks fail in the first layer. Before the second another step, which runs while this one waits
 * for KV pages, takes what the cache has to tell. */
void fail_first_layer(void *user, int64_t layer, const int32_t *experts, int32_t n)
{
    (void)experts, (void)n;
    weir_error told;
    reads_fail = layer == 0;
    if (layer > 0)
        (void)weir_expert_cache_problem(static_cast<const weir_model *>(user)->experts, &told);
}

TEST_F(Experts, AStepKeepsItsReason)
{
    const std::string model = "../families/mixtral";
    start(model, least(model), { "memory.expert_prefetch=false" });
    const weir_expert_watch watch = { fail_first_layer, weir_engine_model(engine_) };
    weir_model_watch_experts(weir_engine_model(engine_), &watch);
    Call call({ 7, 8 }, 2);
    EXPECT_EQ(call.submit(service_, &error_), WEIR_OK);
    call.wait();
    EXPECT_EQ(call.status, WEIR_EIO);
    EXPECT_NE(call.message.find("cannot read an expert of tensor"), std::string::npos)
        << call.message;
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
