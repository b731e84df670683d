/* An engine whose sequences go to files when memory has no room for them. */
#pragma once
#include <filesystem>

#include "engine/session/session_store.h"
#include "tests/unit/schedule/support.h"

namespace pressure {

using support::Call;

enum { CONTEXT = 1024, LONG = 700 };

inline int times(const std::string &text, const std::string &what)
{
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + what.size()))
        n++;
    return n;
}

class Pressure : public support::SessionService {
  protected:
    /* Window blocks are never short of memory (engine/kv/pool/windows.h). */
    Pressure() : SessionService("pressure", CONTEXT) { settings_ = { "kv.full_windows=true" }; }
    // As a server does: looks for a file first.
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, const char *salt = nullptr, bool recall = true
    )
    {
        if (recall)
            weir_sessions_recall(sessions_, ids.data(), static_cast<int32_t>(ids.size()), salt);
        Call call(ids, 12);
        call.request.cache_prompt = recall;
        call.request.cache_salt = salt;
        return answer(call);
    }
    // All that the tree wants to save is saved.
    void settle()
    {
        for (int64_t before = -1; before != handled();) {
            before = handled();
            weir_sessions_settle(sessions_);
        }
    }
    // Other sequences take all the room.
    void fill(int first_seed, int n = 4)
    {
        for (int i = 0; i < n; i++) {
            (void)run(prompt(first_seed + i, LONG));
            settle();
        }
    }
    int64_t handled() const
    {
        const weir_service_stats s = stats();
        return s.saved_sequences + s.save_failures + s.saves_given_up;
    }
    void expect_nothing_leaks()
    {
        settle();
        EXPECT_EQ(pages_used_when_idle(), 0);
        size_t n_parts = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_))
            n_parts += entry.path().string().find(".tmp.") != std::string::npos;
        EXPECT_EQ(n_parts, 0u);
        weir_ledger_state memory;
        weir_ledger_read(weir_engine_ledger(engine_), &memory);
        EXPECT_LE(memory.peak[WEIR_TIER_HOST], memory.cap[WEIR_TIER_HOST]);
    }
};

} // namespace pressure
