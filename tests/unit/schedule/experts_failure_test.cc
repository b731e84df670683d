// Experts that cannot be read: requests that need them fail, and no others.
#include <algorithm>
#include <fstream>
#include <limits>
#include <thread>

#include "tests/unit/schedule/experts_support.h"

namespace {

using support::Call;
using support::disk;
using support::Experts;

// A disk that fails fails requests, with the file's name; not the engine.
TEST_F(Experts, ReadErrorsFailTheRequest)
{
    const char *const model = "../families/qwen3-moe";
    start(model, "0B");
    const auto want = run();
    stop();
    start(model, least(model));
    disk.fails = true;
    for (int i = 0; i < 3; i++) {
        Call call(prompt(1, 20), 4);
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK);
        call.wait();
        EXPECT_EQ(call.status, WEIR_EIO);
        EXPECT_NE(call.message.find("model.safetensors: cannot read an expert"), std::string::npos)
            << call.message;
    }
    EXPECT_GT(seen().errors, 0);
    disk.fails = false;
    EXPECT_EQ(run(), want);
}

// Each read may fail, those ahead too: a request ends with an error or with the same bits. Reads of
// the first all fail.
TEST_F(Experts, SomeReadsFail)
{
    const std::string model = "../families/deepseek2-lite/deepseek2-lite-f16.gguf";
    start(model, "0B");
    const auto want = decode(6);
    stop();
    start(model, least(model)); // packed experts differ in size between processors
    int n_failed = 0;
    for (int i = 0; i < 60; i++) {
        Call call(prompt(5, 3), 6);
        for (int32_t &id : call.prompt) id %= 200;
        call.request.want_logprobs = call.request.ignore_eos = true;
        disk.fails_every = i % 2 == 0 ? 1 + i : 0;
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK);
        call.wait();
        disk.fails_every = 0;
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

/* The last expert of the last layer of mixtral: its offsets in the file. */
std::pair<off_t, off_t> last_expert()
{
    std::ifstream file("tests/golden/families/mixtral/model.safetensors", std::ios::binary);
    uint64_t header = 0; /* little-endian, as this machine */
    file.read(reinterpret_cast<char *>(&header), sizeof header);
    const auto begin = static_cast<off_t>(8 + header + 152064);
    return { begin, begin + 6912 };
}

constexpr int kCalls = 16;

std::vector<std::unique_ptr<Call>> short_calls()
{
    std::vector<std::unique_ptr<Call>> out;
    for (int i = 0; i < kCalls; i++) {
        out.push_back(std::make_unique<Call>(std::vector<int32_t>{ 7 + 9 * i }, 2));
        out.back()->request.want_logprobs = out.back()->request.ignore_eos = true;
    }
    return out;
}

/* The disk answers again. Threads that wait for it come back a little later. */
void recover(weir_service *service)
{
    weir_error error;
    disk.hang(0, 0);
    for (int i = 0, n_failed = 1; i < 1000 && n_failed > 0; i++) {
        n_failed = 0;
        for (const auto &call : short_calls()) {
            EXPECT_EQ(call->submit(service, &error), WEIR_OK);
            call->wait();
            n_failed += call->status != WEIR_OK;
        }
        if (n_failed > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

// Of requests in the same steps those fail that need an expert that cannot be read, and no others.
TEST_F(Experts, OthersOfTheStepGoOn)
{
    const std::string model = "../families/mixtral";
    start(
        model, least(model),
        { "batch.max_sequences=8", "memory.expert_prefetch=false", "memory.experts_timeout=300ms" }
    );
    const auto want = short_calls();
    for (const auto &call : want) (void)answer(*call);
    const auto [begin, end] = last_expert();
    disk.bad_begin = begin;
    disk.bad_end = end;
    std::vector<bool> fails;
    for (const auto &call : short_calls()) {
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK);
        call->wait();
        fails.push_back(call->status != WEIR_OK);
    }
    const int64_t n_fail = std::count(fails.begin(), fails.end(), true);
    EXPECT_GT(n_fail, 2);
    EXPECT_LT(n_fail, kCalls - 2);
    const auto check = [&](const char *reason) {
        const auto together = short_calls();
        submit_together(service_, together, &error_);
        for (size_t i = 0; i < kCalls; i++) {
            Call &call = *together[i];
            const bool has_failed = fails[i] && reason != nullptr;
            call.wait();
            EXPECT_EQ(call.status, has_failed ? WEIR_EIO : WEIR_OK) << i << ": " << call.message;
            if (has_failed)
                EXPECT_NE(call.message.find(reason), std::string::npos) << call.message;
            else
                EXPECT_EQ(call.logprobs[0], want[i]->logprobs[0]) << i;
        }
    };
    check("model.safetensors: cannot read an expert of tensor");
    disk.bad_begin = disk.bad_end = 0;
    check(nullptr);
    /* Nor does a disk that hangs fail others. It is waited for once, not by each request. */
    for (size_t i = 0; i < kCalls; i++)
        if (!fails[i]) (void)answer(*short_calls()[i]); /* the last expert leaves memory */
    disk.hang(begin, end);
    const int64_t before = seen().wait_ns;
    check("the disk has not answered for 0.3 s (memory.experts_timeout)");
    const int64_t waited = seen().wait_ns - before;
    EXPECT_GT(waited, 0);
    EXPECT_LT(waited, n_fail * 300000000);
    recover(service_);
    check(nullptr);
}

// No read is answered: what is in memory is enough for some, others do not wait for ever.
TEST_F(Experts, TheDiskHangs)
{
    const std::string model = "../families/mixtral";
    start(model, times(least(model), 2), { "kv.reuse=off", "memory.experts_timeout=200ms" });
    ASSERT_GE(seen().n_entries, 4);
    const auto first = [] {
        auto call = std::make_unique<Call>(std::vector<int32_t>{ 7 }, 1);
        call->request.want_logprobs = call->request.ignore_eos = true;
        return call;
    };
    const auto calls = short_calls();
    for (const auto &call : calls) (void)answer(*call);
    const auto want = first();
    (void)answer(*want);
    disk.hang(0, std::numeric_limits<off_t>::max());
    const auto again = first();
    (void)answer(*again);
    EXPECT_EQ(again->logprobs[0], want->logprobs[0]);
    int n_failed = 0;
    for (const auto &call : short_calls()) {
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK);
        call->wait();
        n_failed += call->status != WEIR_OK;
        if (call->status != WEIR_OK)
            EXPECT_NE(call->message.find("the disk has not answered for 0.2 s"), std::string::npos)
                << call->message;
    }
    EXPECT_GT(n_failed, 2);
    recover(service_);
    const auto after = short_calls();
    for (size_t i = 0; i < kCalls; i++) {
        (void)answer(*after[i]);
        EXPECT_EQ(after[i]->logprobs[0], calls[i]->logprobs[0]) << i;
    }
}

// Closing waits for the disk no longer than requests do.
TEST_F(Experts, AnEngineEndsWithoutTheDisk)
{
    const std::string model = "../families/mixtral";
    start(model, least(model), { "memory.experts_timeout=100ms" });
    disk.hang(0, std::numeric_limits<off_t>::max());
    {
        Call call({ 7 }, 1); /* it goes before the engine */
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK);
        call.wait();
        EXPECT_EQ(call.status, WEIR_EIO) << call.message;
    }
    stop();
}

/* Disks fail in the first layer. Before the second another step, which runs while this one waits
 * for KV pages, takes what the cache has to tell. */
void fail_first_layer(void *user, int64_t layer, const int32_t *experts, int32_t n)
{
    (void)experts, (void)n;
    weir_error told;
    disk.fails = layer == 0;
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

} // namespace
