/* A fixture with a service. */
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
#include "engine/engine_parts.h"
#include "engine/schedule/service.h"
#include "engine/session/sessions.h"
#include "offload/dispatch.h"
#include "offload/ledger.h"
#include "tests/unit/schedule/call.h"

namespace support {

class Service : public ::testing::Test {
  protected:
    void open(
        const char *model, int slots, const char *memory = nullptr, int context = 512,
        int queue = 0, const std::vector<const char *> &more = {}
    )
    {
        weir_config *const config = &config_;
        weir_config_default(config);
        snprintf(config->model.path, sizeof config->model.path, "tests/golden/models/%s", model);
        ASSERT_EQ(weir_config_assign(config, "kernels.activations=f32", &error_), WEIR_OK);
        ASSERT_EQ(
            weir_config_set(config, "batch.max_sequences", std::to_string(slots).c_str(), &error_),
            WEIR_OK
        );
        ASSERT_EQ(weir_config_set(config, "batch.chunk", "64", &error_), WEIR_OK);
        /* Each step gives a token, unless a test is about drafts. */
        ASSERT_EQ(weir_config_set(config, "speculation.method", "off", &error_), WEIR_OK);
        ASSERT_EQ(
            weir_config_set(config, "batch.queue", std::to_string(queue).c_str(), &error_), WEIR_OK
        );
        config->model.context = context;
        if (memory != nullptr)
            ASSERT_EQ(weir_config_set(config, "memory.host", memory, &error_), WEIR_OK)
                << error_.text;
        for (const char *const setting : more)
            ASSERT_EQ(weir_config_assign(config, setting, &error_), WEIR_OK) << error_.text;
        for (const std::string &setting : settings_)
            ASSERT_EQ(weir_config_assign(config, setting.c_str(), &error_), WEIR_OK) << error_.text;
        const weir_engine_options options = {
            config, true, with_server_, nullptr, nullptr, blocks_
        };
        ASSERT_EQ(weir_engine_open_with(&engine_, &options, &error_), WEIR_OK) << error_.text;
        opened();
    }
    /* With the least memory that has pages for this many rows, about. */
    void open_with_rows(const char *model, int slots, int64_t n_rows, int context)
    {
        const std::vector<const char *> more = { "memory.snapshots=1MiB", "kv.policy.kept=0" };
        open(model, slots, nullptr, context, 0, more);
        weir_plan plan = *weir_engine_plan_of(engine_);
        const size_t block = 64 * plan.kv / (size_t)plan.kv_rows;
        size_t memory = (weir_plan_total(&plan) - plan.kv) / 2;
        stop();
        const weir_engine_options options = { &config_, true,    with_server_,
                                              nullptr,  nullptr, nullptr };
        for (bool fits = false; !fits; memory += fits ? 0 : block) {
            const std::string text = std::to_string(memory) + "B";
            ASSERT_EQ(weir_config_set(&config_, "memory.host", text.c_str(), &error_), WEIR_OK);
            fits = weir_engine_plan(&plan, &options, &error_) == WEIR_OK && plan.kv_rows >= n_rows;
        }
        open(model, slots, (std::to_string(memory) + "B").c_str(), context, 0, more);
        ASSERT_GE(weir_engine_plan_of(engine_)->kv_rows, n_rows);
        ASSERT_LT(weir_engine_plan_of(engine_)->kv_rows, n_rows + 256);
    }
    void opened()
    {
        service_ = weir_engine_service(engine_);
        scratch_ = weir_stream_scratch_bytes(weir_engine_stream(engine_));
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
        for (int i = 0; i < 2000 && stats().kv_pages_used != 0; i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return stats().kv_pages_used;
    }
    /* Whatever ran: the kernels' scratch is what was planned for the largest steps. */
    void stop()
    {
        if (engine_ != nullptr)
            EXPECT_EQ(weir_stream_scratch_bytes(weir_engine_stream(engine_)), scratch_);
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
    void TearDown() override { stop(); }
    inline static weir_config config_;
    weir_engine *engine_ = nullptr;
    weir_service *service_ = nullptr;
    weir_error error_ = {};
    weir_usage usage_ = {};
    size_t scratch_ = 0;
    bool with_server_ = false; /* budgets are a server's */
    std::vector<std::string> settings_; /* of every engine that is opened */
    const weir_block *const *blocks_ = nullptr;
};

/* A service with a folder of sessions, which is empty at first. */
class SessionService : public Service {
  protected:
    explicit SessionService(const char *name, int context)
        : context_(context), folder_(std::string(getenv("TEST_TMPDIR")) + "/" + name)
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
        EXPECT_EQ(
            weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENS),
            weir_engine_plan_of(engine_)->tokens
        );
        EXPECT_EQ(
            weir_ledger_used(weir_engine_ledger(engine_), WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES),
            weir_engine_plan_of(engine_)->page_tables
        );
    }
    weir_status save(
        const char *name, const std::vector<int32_t> &ids = {}, const char *salt = nullptr
    )
    {
        const weir_session_request request = { name, salt, ids.empty() ? nullptr : ids.data(),
                                               (int32_t)ids.size() };
        return weir_sessions_save(sessions_, &request, &result_, &error_);
    }
    weir_status restore(const char *name)
    {
        return weir_sessions_restore(sessions_, name, &result_, &error_);
    }
    std::string path(const std::string &name) const { return folder_ + "/" + name + ".session"; }
    std::vector<weir_session_info> list()
    {
        weir_session_info *infos = nullptr;
        size_t n = 0;
        EXPECT_EQ(weir_sessions_list(sessions_, &infos, &n, &error_), WEIR_OK) << error_.text;
        std::vector<weir_session_info> out(infos, infos + n);
        weir_memory_give(infos);
        return out;
    }
    int context_;
    std::string folder_, setting_;
    weir_sessions *sessions_ = nullptr;
    weir_session_result result_ = {};
};

} // namespace support
