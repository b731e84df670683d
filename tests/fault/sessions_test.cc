// Sessions of an engine: saved, listed, restored and deleted while file calls and allocations of
// the caller's thread fail. The engine's own thread goes on.
#include <filesystem>

#include "engine/base/log.h"
#include "engine/session/session_store.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

class Sessions : public support::SessionService {
  protected:
    Sessions() : SessionService("sessions", 512) { weir_log_set_level(WEIR_LOG_ERROR); }
    std::vector<int32_t> run(const std::vector<int32_t> &ids)
    {
        Call call(ids, 12);
        call.request.cache_prompt = true;
        return answer(call);
    }
    /* A conversation that is kept; its prompt has `n` tokens. */
    std::vector<int32_t> turn(int n)
    {
        std::vector<int32_t> ids = prompt(1, n);
        const std::vector<int32_t> said = run(ids);
        ids.insert(ids.end(), said.begin(), said.end());
        return ids;
    }
    void begin(const char *model)
    {
        start(model);
        first_ = turn(100);
        second_ = turn(200);
        ASSERT_EQ(save("talk", first_), WEIR_OK) << error_.text;
        n_first_ = result_.n_tokens;
        before_ = fault::files_of(folder_);
    }
    /* An engine keeps memory of what it saw. */
    fault::Operation with_folder(std::function<weir_status(weir_error *)> run)
    {
        fault::Operation out;
        out.keeps_memory = true;
        out.prepare = [this] { fault::make_folder(folder_, before_); };
        out.run = run;
        return out;
    }
    void every_call(const fault::Operation &operation)
    {
        fault::every_allocation(operation);
        fault::every_file_call(operation);
    }
    std::vector<int32_t> first_, second_;
    int32_t n_first_ = 0;
    fault::Files before_;
};

TEST_F(Sessions, Save)
{
    begin("tq");
    ASSERT_EQ(save("talk", second_), WEIR_OK) << error_.text;
    const int32_t n_second = result_.n_tokens;
    const weir_session_request request = { "talk", nullptr, second_.data(),
                                           (int32_t)second_.size() };
    fault::Operation operation = with_folder([&](weir_error *error) {
        weir_session_result result = {};
        return weir_sessions_save(sessions_, &request, &result, error);
    });
    operation.check = [&](weir_status status) {
        const std::vector<weir_session_info> all = list();
        ASSERT_EQ(all.size(), 1u);
        EXPECT_EQ(all[0].problem, WEIR_OK);
        EXPECT_TRUE(
            all[0].n_tokens == n_second || (status != WEIR_OK && all[0].n_tokens == n_first_)
        ) << all[0].n_tokens;
    };
    every_call(operation);
}

TEST_F(Sessions, List)
{
    begin("tq");
    ASSERT_EQ(save("more", second_), WEIR_OK) << error_.text;
    before_ = fault::files_of(folder_);
    size_t n = 0, n_good = 0;
    fault::Operation operation = with_folder([&](weir_error *error) {
        weir_session_info *infos = nullptr;
        n = n_good = 0;
        WEIR_TRY(weir_sessions_list(sessions_, &infos, &n, error));
        for (size_t i = 0; i < n; i++) n_good += infos[i].problem == WEIR_OK;
        weir_memory_give(infos);
        return WEIR_OK;
    });
    operation.check = [&](weir_status status) {
        if (status == WEIR_OK) EXPECT_EQ(n, 2u) << "a file was left out";
    };
    every_call(operation);
    EXPECT_EQ(n_good, 2u);
}

TEST_F(Sessions, Restore)
{
    for (const char *const model : { "tq", "qwen3" }) {
        begin(model);
        std::vector<int32_t> more = first_;
        more.resize(130, 5);
        const std::vector<int32_t> uninterrupted = run(more);
        stop();
        start(model);
        every_call(with_folder([&](weir_error *error) {
            weir_session_result result = {};
            return weir_sessions_restore(sessions_, "talk", &result, error);
        }));
        EXPECT_EQ(run(more), uninterrupted);
        EXPECT_EQ(usage_.n_cached, n_first_) << usage_.reuse;
        stop();
    }
}

TEST_F(Sessions, Delete)
{
    begin("tq");
    fault::Operation operation = with_folder([&](weir_error *error) {
        return weir_sessions_delete(sessions_, "talk", error);
    });
    operation.check = [&](weir_status status) {
        const std::vector<weir_session_info> all = list();
        EXPECT_TRUE(all.empty() || status != WEIR_OK);
        if (!all.empty()) EXPECT_EQ(all[0].problem, WEIR_OK);
    };
    every_call(operation);
}

/* What happens unasked at the end and at the start says nothing, and leaves whole files. */
TEST_F(Sessions, SaveAndRestoreTheRecentOnes)
{
    begin("tq");
    fault::Operation saving = with_folder([&](weir_error *) {
        (void)weir_sessions_save_recent(sessions_);
        return WEIR_OK;
    });
    saving.check = [&](weir_status) {
        for (const weir_session_info &info : list()) EXPECT_EQ(info.problem, WEIR_OK) << info.name;
    };
    every_call(saving);
    before_ = fault::files_of(folder_);
    EXPECT_GT(before_.size(), 1u) << "nothing was saved";
    fault::Operation restoring = with_folder([&](weir_error *) {
        (void)weir_sessions_restore_recent(sessions_);
        return WEIR_OK;
    });
    every_call(restoring);
}

/* The only place of the folder: the new sequence takes it when its file is whole, not before. */
TEST_F(Sessions, AnAutomaticFileStaysUntilItsSuccessorIsThere)
{
    start("tq", { "sessions.limit=1" });
    first_ = turn(100);
    ASSERT_EQ(weir_sessions_save_recent(sessions_), 1);
    before_ = fault::files_of(folder_);
    stop();
    start("tq", { "sessions.limit=1" });
    second_ = turn(200);
    fault::Operation operation = with_folder([&](weir_error *) {
        (void)weir_sessions_save_recent(sessions_);
        return WEIR_OK;
    });
    bool is_new = false;
    operation.check = [&](weir_status) {
        const std::vector<weir_session_info> all = list();
        ASSERT_GE(all.size(), 1u) << "both are gone";
        for (const weir_session_info &info : all) {
            EXPECT_EQ(info.problem, WEIR_OK) << info.name;
            is_new = info.n_tokens > 200;
        }
    };
    every_call(operation);
    EXPECT_TRUE(is_new);
    EXPECT_EQ(list().size(), 1u);
}

} // namespace
