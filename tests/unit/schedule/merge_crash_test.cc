// kill -9 while states are merged: what was acknowledged is there, whole; at most the one in flight
// is not. The parent has no engine, so that it can fork.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <set>

#include "engine/base/log.h"
#include "engine/session/session_store.h"
#include "engine/session/state_service.h"
#include "tests/unit/model/coda_text.h"

namespace {

class MergeCrash : public ::testing::Test {
  protected:
    void SetUp() override
    {
        weir_log_set_level(WEIR_LOG_ERROR);
        support::write_coda_text(folder_, "\"coda\"", &settings_);
    }
    weir_states *open(const uint64_t *model)
    {
        weir_states *states = nullptr;
        const std::string base = folder_ / "base";
        const weir_states_options options = { base.c_str(), model, true, nullptr, 0 };
        return weir_states_open(&states, &options, &error_) == WEIR_OK ? states : nullptr;
    }
    weir_engine *open_engine()
    {
        static weir_config config;
        weir_engine *engine = nullptr;
        weir_config_default(&config);
        snprintf(config.model.path, sizeof config.model.path, "%s", folder_.path().c_str());
        support::Settings settings = settings_;
        settings.insert(
            settings.end(),
            { "kernels.activations=f32", "model.context=512", "batch.max_sequences=2",
              "sessions.autosave=false", "sessions.dir=" + (folder_ / "base") }
        );
        for (const std::string &setting : settings)
            if (weir_config_assign(&config, setting.c_str(), &error_) != WEIR_OK) return nullptr;
        const weir_engine_options options = { &config, true, false, nullptr, nullptr, nullptr };
        return weir_engine_open_with(&engine, &options, &error_) == WEIR_OK ? engine : nullptr;
    }
    /* A database of two documents, if there is none. */
    weir_states *fill(weir_engine *engine)
    {
        weir_sessions *const sessions = weir_engine_sessions(engine);
        const uint64_t *const model = weir_sessions_identity_of(sessions)->model;
        weir_states *states = open(model);
        if (states != nullptr) return states;
        const std::string base = folder_ / "base";
        const weir_states_kind kind = { { model[0], model[1] }, 0, "", 8 };
        if (weir_states_create(base.c_str(), &kind, &error_) != WEIR_OK) return nullptr;
        states = open(model);
        for (const int seed : { 1, 2 }) {
            const auto tokens = support::some_tokens(150, seed, 250);
            const weir_state_service documents = { states, weir_engine_service(engine), sessions,
                                                   nullptr, nullptr };
            weir_document document = {};
            weir_state_info info = {};
            bool is_new = false;
            document.tokens = tokens.data(), document.n_tokens = 150, document.label = "document";
            if (weir_state_service_ingest(&documents, &document, &info, &is_new, &error_) !=
                WEIR_OK)
                return nullptr;
        }
        return states;
    }
    [[noreturn]] void child(int out)
    {
        weir_engine *const engine = open_engine();
        if (engine == nullptr) _exit(2);
        weir_states *const states = fill(engine);
        weir_state_info sources[2] = {}, info = {};
        if (states == nullptr ||
            weir_states_find(states, "document", &sources[0], &error_) != WEIR_OK ||
            weir_states_find(states, "document-2", &sources[1], &error_) != WEIR_OK)
            _exit(3);
        const weir_state_service documents = { states, weir_engine_service(engine),
                                               weir_engine_sessions(engine), nullptr, nullptr };
        const weir_merge merge = { &sources[0], &sources[1], "merged", nullptr, nullptr };
        weir_state_merged merged = {};
        for (;;) {
            if (weir_state_service_merge(&documents, &merge, &info, &merged, &error_) != WEIR_OK)
                _exit(4);
            if (write(out, &info.serial, sizeof info.serial) != sizeof info.serial) _exit(5);
        }
    }
    void run(size_t n_said, useconds_t longer)
    {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) child(ends[1]);
        (void)::close(ends[1]);
        int64_t serial;
        for (size_t i = 0; i < n_said && read(ends[0], &serial, sizeof serial) == sizeof serial;
             i++)
            there_.insert(serial);
        (void)usleep(longer);
        (void)kill(pid, SIGKILL);
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_TRUE(WIFSIGNALED(status)) << "the child failed: " << WEXITSTATUS(status);
        while (read(ends[0], &serial, sizeof serial) == sizeof serial) there_.insert(serial);
        (void)::close(ends[0]);
    }
    support::Folder folder_;
    support::Settings settings_;
    weir_error error_ = {};
    std::set<int64_t> there_;
};

TEST_F(MergeCrash, AtMostTheOneInFlightIsLost)
{
    std::mt19937 random(7);
    for (int round = 0; round < 12; round++) {
        run(1 + random() % 4, static_cast<useconds_t>(random() % 4000));
        weir_states *states = open(nullptr);
        weir_state_info *list = nullptr;
        size_t n = 0, total = 0, n_unheard = 0, n_files = 0;
        ASSERT_NE(states, nullptr) << error_.text;
        const weir_states_page all = { 0, SIZE_MAX, nullptr, nullptr };
        ASSERT_EQ(weir_states_list(states, &all, &list, &n, &total, &error_), WEIR_OK)
            << error_.text;
        std::set<int64_t> found;
        for (size_t i = 0; i < n; i++) {
            char path[PATH_MAX];
            EXPECT_EQ(weir_states_payload(states, &list[i], path, &error_), WEIR_OK) << error_.text;
            if (!list[i].is_merged) continue;
            EXPECT_EQ(list[i].state_bits, 8);
            found.insert(list[i].serial);
            n_unheard += there_.count(list[i].serial) == 0;
        }
        for (const int64_t serial : there_) EXPECT_EQ(found.count(serial), 1u) << "round " << round;
        EXPECT_LE(n_unheard, 1u);
        for (const auto &entry : std::filesystem::directory_iterator(folder_ / "base"))
            n_files += entry.path().string().find(".session") != std::string::npos;
        EXPECT_EQ(n_files, n);
        weir_memory_give(list);
        weir_states_close(states);
        there_ = found;
    }
    EXPECT_GT(there_.size(), 12u);
}

} // namespace
