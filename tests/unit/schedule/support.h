/* Jobs that remember what they reported, and a fixture with a service. */
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/schedule/service.h"
#include "engine/schedule/sessions.h"
#include "engine/weir.h"
#include "offload/dispatch.h"
#include "offload/ledger.h"

namespace support {

/* A job and what it reported. */
struct Call {
    weir_request                      request = {};
    std::vector<int32_t>              prompt;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<weir_finish>          finish;
    std::vector<std::vector<float>>   logprobs; /* of the tokens, if they were asked for */
    std::vector<float>                prompt_logprobs;
    std::mutex                        lock;
    std::condition_variable           changed;
    bool                              done = false;
    weir_status                       status = WEIR_OK;
    std::string                       message; /* of a job that failed */
    weir_usage                        usage = {};
    weir_job                         *job = nullptr;
    int                               stop_after = 0; /* the callback ends the choice after so many tokens */
    int                               events_after_done = 0;

    explicit Call(std::vector<int32_t> ids, int max_tokens = 24) : prompt(std::move(ids))
    {
        request.prompt = prompt.data();
        request.n_prompt = static_cast<int32_t>(prompt.size());
        request.max_tokens = max_tokens;
        request.n_choices = 1;
        request.sampling = weir_sampling_default();
        request.callback = on_event;
        request.user = this;
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Call *const                       call = static_cast<Call *>(user);
        const std::lock_guard<std::mutex> hold(call->lock);
        call->events_after_done += call->done;
        switch (event->type) {
        case WEIR_EVENT_TOKEN: {
            auto &list = call->tokens[static_cast<size_t>(event->choice)];
            list.push_back(event->token);
            if (call->request.want_logprobs) call->logprobs[static_cast<size_t>(event->choice)].push_back(event->logprob.logprob);
            return call->stop_after == 0 || static_cast<int>(list.size()) < call->stop_after;
        }
        case WEIR_EVENT_CHOICE: call->finish[static_cast<size_t>(event->choice)] = event->finish; break;
        case WEIR_EVENT_PROMPT: call->prompt_logprobs.push_back(event->logprob.logprob); break;
        case WEIR_EVENT_DONE:
            call->done = true;
            call->status = event->status;
            call->message = event->message != nullptr ? event->message : "";
            call->usage = event->usage;
            call->changed.notify_all();
            break;
        case WEIR_EVENT_ADMITTED: break;
        }
        return true;
    }
    weir_status submit(weir_service *service, weir_error *error)
    {
        tokens.resize(static_cast<size_t>(request.n_choices));
        logprobs.resize(static_cast<size_t>(request.n_choices));
        finish.resize(static_cast<size_t>(request.n_choices), WEIR_FINISH_NONE);
        const weir_status refused = weir_service_submit(service, &job, &request, error);
        if (refused != WEIR_OK) status = refused, done = true; /* nothing will come */
        return refused;
    }
    void wait()
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [this] { return done; });
    }
    void release() /* before its service closes */
    {
        weir_job_release(job);
        job = nullptr;
    }
    ~Call() { release(); }
};

class Service : public ::testing::Test {
  protected:
    void open(const char *model, int slots, const char *memory = nullptr, int context = 512, int queue = 0,
              const std::vector<const char *> &more = {})
    {
        weir_config *const config = &config_;
        weir_config_default(config);
        snprintf(config->model.path, sizeof config->model.path, "tests/golden/models/%s", model);
        ASSERT_EQ(weir_config_set(config, "kernels.activations=f32", &error_), WEIR_OK);
        ASSERT_EQ(weir_config_set_key(config, "batch.max_sequences", std::to_string(slots).c_str(), &error_), WEIR_OK);
        ASSERT_EQ(weir_config_set_key(config, "batch.chunk", "64", &error_), WEIR_OK);
        ASSERT_EQ(weir_config_set_key(config, "batch.queue", std::to_string(queue).c_str(), &error_), WEIR_OK);
        config->model.context = context;
        if (memory != nullptr) ASSERT_EQ(weir_config_set_key(config, "memory.host", memory, &error_), WEIR_OK) << error_.text;
        for (const char *const setting : more) ASSERT_EQ(weir_config_set(config, setting, &error_), WEIR_OK) << error_.text;
        const weir_engine_options options = { config, true, with_server_, nullptr, nullptr };
        ASSERT_EQ(weir_engine_open(&engine_, &options, &error_), WEIR_OK) << error_.text;
        service_ = weir_engine_service(engine_);
    }
    std::vector<int32_t> prompt(int seed, int n) const
    {
        std::vector<int32_t> ids;
        for (int i = 0; i < n; i++) ids.push_back((seed * 97 + i * 31 + i * i) % 300);
        return ids;
    }
    /* Runs a call and keeps its usage. */
    std::vector<int32_t> answer(Call &call)
    {
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.status, WEIR_OK) << call.message << " after " << call.usage.n_cached;
        usage_ = call.usage;
        return call.tokens[0];
    }
    std::vector<int32_t> alone(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        Call call(ids, max_tokens);
        return answer(call);
    }
    weir_service_stats stats() const
    {
        weir_service_stats out;
        weir_service_stats_of(service_, &out);
        return out;
    }
    /* Counts are published after the events of a step. */
    int64_t pages_used_when_idle() const
    {
        for (int i = 0; i < 2000 && stats().kv_pages_used != 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return stats().kv_pages_used;
    }
    void stop()
    {
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
    void                      TearDown() override { stop(); }
    inline static weir_config config_;
    weir_engine              *engine_ = nullptr;
    weir_service             *service_ = nullptr;
    weir_error                error_ = {};
    weir_usage                usage_ = {};
    bool                      with_server_ = false; /* budgets are a server's */
};

/* A service with a folder of sessions, which is empty at first. */
class Folder : public Service {
  protected:
    explicit Folder(const char *name, int context) : context_(context), folder_(std::string(getenv("TEST_TMPDIR")) + "/" + name)
    {
        std::filesystem::remove_all(folder_);
        setting_ = "sessions.dir=" + folder_;
    }
    void start(const char *model, std::vector<const char *> more = {}, const char *memory = nullptr)
    {
        more.push_back(setting_.c_str());
        open(model, 2, memory, context_, 0, more);
        sessions_ = weir_engine_sessions(engine_);
        ASSERT_NE(sessions_, nullptr);
        EXPECT_EQ(weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENS), weir_engine_plan_of(engine_)->tokens);
        EXPECT_EQ(weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES),
                  weir_engine_plan_of(engine_)->page_tables);
    }
    weir_status save(const char *name, const std::vector<int32_t> &ids = {}, const char *salt = nullptr)
    {
        const weir_session_wish wish = { name, salt, ids.empty() ? nullptr : ids.data(), (int32_t)ids.size() };
        return weir_sessions_save(sessions_, &wish, &result_, &error_);
    }
    weir_status                    restore(const char *name) { return weir_sessions_restore(sessions_, name, &result_, &error_); }
    std::string                    path(const std::string &name) const { return folder_ + "/" + name + ".session"; }
    std::vector<weir_session_info> list()
    {
        weir_session_info *infos = nullptr;
        size_t             n = 0;
        EXPECT_EQ(weir_sessions_list(sessions_, &infos, &n, &error_), WEIR_OK) << error_.text;
        std::vector<weir_session_info> out(infos, infos + n);
        weir_memory_give(infos);
        return out;
    }
    int                 context_;
    std::string         folder_, setting_;
    weir_sessions      *sessions_ = nullptr;
    weir_session_result result_ = {};
};

} // namespace support
