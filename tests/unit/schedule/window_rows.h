/* A service with a model of which some layers keep only the rows that their window reads. */
#pragma once
#include <algorithm>

#include "tests/unit/model/windowed.h"
#include "tests/unit/schedule/support.h"

namespace windows {

using Ids = std::vector<int32_t>;
using Settings = std::vector<std::string>;

/* What a request gave. */
struct Answer {
    std::vector<Ids> tokens;
    std::vector<std::vector<float>> logprobs;
    weir_usage usage = {};
};

/* Models: names of golden ones, or "LAYERS:WINDOW" for a checkpoint of layers that see the whole
 * sequence (o) or a window (w). */
class WindowRows : public support::Service {
  protected:
    void start(
        const std::string &model, bool full, Settings more = {}, const char *memory = nullptr
    )
    {
        stop();
        const size_t colon = model.find(':');
        settings_ = { full ? "kv.full_windows=true" : "kv.full_windows=false" };
        std::string name = model;
        if (colon != std::string::npos) {
            folder_ = std::make_unique<support::Folder>();
            std::vector<std::string> pattern;
            for (const char c : model.substr(0, colon))
                pattern.push_back(c == 'w' ? "window" : "whole");
            support::write_windowed(
                *folder_, pattern, std::stoi(model.substr(colon + 1)), &settings_
            );
            settings_.push_back("model.path=" + folder_->path());
            name = "mistral";
        }
        for (const std::string &setting : more) settings_.push_back(setting);
        open(name.c_str(), 4, memory, 1024);
        windows_ = weir_kv_store_windows(weir_engine_store(engine_));
        ASSERT_EQ(windows_ == nullptr, full);
    }
    static void vary(support::Call *call, int i)
    {
        weir_request *const r = &call->request;
        r->ignore_eos = r->want_logprobs = r->cache_prompt = true;
        r->sampling.seed = static_cast<uint64_t>(i);
        r->sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
        if (i == 4) r->n_choices = 3;
    }
    /* Of requests with prompts of many lengths, some with a common beginning. */
    std::vector<Answer> answers(bool together, int n = 8)
    {
        std::vector<std::unique_ptr<support::Call>> calls;
        std::vector<Answer> out;
        for (int i = 0; i < n; i++) {
            Ids ids = prompt(i % 3, 5 + 71 * i);
            const Ids own = prompt(30 + i, 1 + i % 4 * 9);
            ids.insert(ids.end(), own.begin(), own.end());
            calls.push_back(std::make_unique<support::Call>(ids, 40 + 30 * (i % 3)));
            vary(calls.back().get(), i);
            if (!together) (void)answer(*calls.back());
        }
        if (together) submit_together(service_, calls, &error_);
        for (const auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
            out.push_back({ call->tokens, call->logprobs, call->usage });
        }
        return out;
    }
    Ids cached(const Ids &ids, int max_tokens)
    {
        support::Call call(ids, max_tokens);
        call.request.cache_prompt = call.request.ignore_eos = true;
        return answer(call);
    }
    /* Of four requests at once. */
    std::vector<Answer> long_prompts()
    {
        std::vector<std::unique_ptr<support::Call>> calls;
        std::vector<Answer> out;
        for (int i = 0; i < 4; i++) {
            calls.push_back(std::make_unique<support::Call>(prompt(i, 960), 20));
            calls.back()->request.ignore_eos = calls.back()->request.want_logprobs = true;
            calls.back()->request.sampling.temperature = 0;
        }
        submit_together(service_, calls, &error_);
        for (const auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
            out.push_back({ call->tokens, call->logprobs, call->usage });
        }
        return out;
    }
    static void expect_equal(const std::vector<Answer> &a, const std::vector<Answer> &b)
    {
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); i++) {
            EXPECT_EQ(a[i].tokens, b[i].tokens) << "request " << i;
            EXPECT_EQ(a[i].logprobs, b[i].logprobs) << "request " << i;
        }
    }
    /* With which a plan of this configuration fits, with windows or in any way. */
    size_t least_memory(bool with_windows = true)
    {
        size_t least = 0, most = 64 << 20;
        const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
        while (most - least > 4096) {
            weir_plan plan = {};
            const size_t half = (least + most) / 2;
            EXPECT_EQ(
                weir_config_set(
                    &config_, "memory.host", (std::to_string(half) + "B").c_str(), &error_
                ),
                WEIR_OK
            );
            const bool fits = weir_engine_plan(&plan, &options, &error_) == WEIR_OK &&
                              (!with_windows || plan.facts.n_window_blocks > 0);
            (fits ? most : least) = half;
        }
        return most;
    }
    void expect_sound()
    {
        EXPECT_EQ(pages_used_when_idle(), 0);
        EXPECT_TRUE(weir_prefix_is_sound(weir_engine_prefix(engine_), &error_)) << error_.text;
    }
    std::unique_ptr<support::Folder> folder_;
    weir_kv_windows *windows_ = nullptr;
};

} // namespace windows
