// Sequences that memory has no room for, while the saver's file calls fail: a sequence is on disk
// whole or is dropped, and what is asked again has the same answer.
#include <filesystem>

#include "engine/base/log.h"
#include "engine/session/session_store.h"
#include "tests/fault/calls.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

enum { CONTEXT = 1024, LONG = 700 };

class Saver : public support::SessionService {
  protected:
    Saver() : SessionService("saver", CONTEXT) { weir_log_set_level(WEIR_LOG_ERROR); }
    std::vector<int32_t> run(const std::vector<int32_t> &ids)
    {
        Call call(ids, 12);
        call.request.cache_prompt = true;
        return answer(call);
    }
    int64_t handled() const
    {
        const weir_service_stats s = stats();
        return s.saved_sequences + s.save_failures + s.saves_given_up;
    }
    /* Sequences of which the older ones have to go, until one was saved or not. */
    fault_report press(const fault_plan &plan)
    {
        const int64_t before = handled();
        fault_start_elsewhere(&plan);
        for (int i = 0; i < 20 && handled() == before; i++) {
            (void)run(prompt(seed_++, LONG));
            weir_sessions_settle(sessions_);
        }
        const fault_report report = fault_stop_elsewhere();
        EXPECT_GT(handled(), before) << "nothing was to be saved";
        return report;
    }
    int seed_ = 10;
};

TEST_F(Saver, EveryFileCallFails)
{
    start("tq");
    const auto tokens = prompt(1, LONG);
    const auto first = run(tokens);
    const fault_plan none = { FAULT_NOTHING, FAULT_ONCE, -1 };
    (void)press(none);
    ASSERT_GT(stats().saved_sequences, 0) << "the saver does not save";
    const int64_t n = press(none).n_files;
    ASSERT_GT(n, 5);
    size_t n_hit = 0, n_failures = 0;
    for (const fault_way way : { FAULT_ONCE, FAULT_FROM_THERE, FAULT_INTERRUPT, FAULT_SHORTEN })
        for (int64_t nth = 0; nth < n; nth++) {
            const int64_t failed = stats().save_failures;
            const fault_report report = press({ FAULT_FILES, way, nth });
            SCOPED_TRACE("file call " + std::to_string(nth) + " in way " + std::to_string(way));
            n_hit += report.was_hit;
            n_failures += stats().save_failures > failed;
            if (way == FAULT_INTERRUPT || way == FAULT_SHORTEN)
                EXPECT_EQ(stats().save_failures, failed) << "it was no failure of the disk";
            for (const weir_session_info &info : list()) EXPECT_EQ(info.problem, WEIR_OK);
            ASSERT_FALSE(HasFailure());
        }
    EXPECT_GT(n_hit, 3 * static_cast<size_t>(n));
    EXPECT_GT(n_failures, 0u);
    weir_sessions_recall(sessions_, tokens.data(), LONG, nullptr);
    EXPECT_EQ(run(tokens), first);
    EXPECT_EQ(pages_used_when_idle(), 0);
}

} // namespace
