// Mixtures whose experts do not fit memory.experts: the same bits as with all in memory, within the
// plan; files that cannot be read.
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "tests/unit/schedule/support.h"

namespace {

std::atomic<bool> reads_fail{ false }, reads_are_short{ false };

} // namespace

/* In front of libc's: threads read experts with it. */
extern "C" ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    if (reads_fail && n > 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, bytes, reads_are_short && n > 7 ? n / 2 : n, at);
}

namespace {

using support::Call;

class Experts : public support::Service {
  protected:
    void TearDown() override
    {
        reads_fail = reads_are_short = false;
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
    void start(const std::string &model, const std::string &experts)
    {
        settings_ = { "memory.experts=" + experts, "kernels.activations=fast" };
        open(model.c_str(), 4, nullptr, 256);
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
    weir_expert_stats seen() const { return stats().experts; }
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
        EXPECT_GT(seen().misses, seen().n_slots);
        EXPECT_GT(seen().bytes_read, 0);
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
    const int64_t slots = seen().n_slots, misses = seen().misses;
    EXPECT_GT(slots, 2);
    EXPECT_GE(misses, slots);
    EXPECT_EQ(run(), want);
    EXPECT_GT(seen().hits, 0);
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
