// An engine whose experts do not fit in memory, and the disk that they are read from.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "engine/model/expert_cache.h"
#include "engine/model/model_internal.h"
#include "tests/unit/schedule/support.h"

namespace support {

/* What reads of files do (experts_disk.cc). */
struct Disk {
    std::atomic<bool> fails{ false }, is_short{ false }, is_slow{ false };
    /* Reads that were not of whole pages, and all. */
    std::atomic<int64_t> n_unaligned{ 0 }, n_reads{ 0 };
    std::atomic<off_t> bad_begin{ 0 }, bad_end{ 0 }; /* of files: bytes that cannot be read */
    std::atomic<int64_t> fails_every{ 0 }; /* reads; 0: none fails */
    std::atomic<bool> refuses_direct{ false }; /* as some file systems do, which open the file */
    std::atomic<off_t> hung_begin{ 0 }, hung_end{ 0 }; /* their reads wait */
    std::mutex lock;
    std::condition_variable answers;

    /* 0, 0: it answers again. */
    void hang(off_t begin, off_t end)
    {
        const std::lock_guard<std::mutex> guard(lock);
        hung_begin = begin;
        hung_end = end;
        answers.notify_all();
    }
};
extern Disk disk;

class Experts : public Service {
  protected:
    void TearDown() override
    {
        disk.fails = disk.is_short = disk.is_slow = disk.refuses_direct = false;
        disk.bad_begin = disk.bad_end = 0;
        disk.hang(0, 0);
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

} // namespace support
