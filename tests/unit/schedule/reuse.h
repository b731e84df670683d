/* A fixture that runs random conversations in a pool that holds few of them, then each of them
 * cold. */
#pragma once
#include <algorithm>
#include <random>

#include "tests/unit/schedule/support.h"

namespace support {

class Reuse : public Service {
  protected:
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, const char *salt = nullptr, bool cache = true,
        int max_tokens = 12
    )
    {
        Call call(ids, max_tokens);
        call.request.cache_prompt = cache;
        call.request.cache_salt = salt;
        return answer(call);
    }
    void random_schedule(
        const char *model, unsigned seed, const std::string &format, bool tiered = false,
        int n_sinks = 0
    );
    int64_t blocks_out_ = 0, blocks_read_ = 0; /* of schedules with a disk */
    int64_t preemptions_ = 0; /* of all schedules */
};

// Conversations that share beginnings and grow by their own answers, some cancelled, in a pool that
// holds few of them.
inline void Reuse::random_schedule(
    const char *model, unsigned seed, const std::string &format, bool tiered, int n_sinks
)
{
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return (int)(random() % (unsigned)n); };
    const int window = tiered ? 1024 : 384, scale = tiered ? 3 : 1;
    const char *disk = tiered ? "memory.disk=16MiB" : "memory.disk=0B";
    const std::string sinks = "kv.wide_sinks=" + std::to_string(n_sinks);
    open(model, 4, nullptr, window, 0, { format.c_str(), disk, "kv.tiers.hot=1", sinks.c_str() });
    const weir_plan *plan = weir_engine_plan_of(engine_);
    const size_t block = (size_t)plan->facts.kv_bytes_per_token * 64;
    std::string disk_setting;
    if (tiered) { /* twice what all windows take: its metadata takes memory */
        disk_setting = "memory.disk=" + std::to_string(2 * 64 * block) + "B";
        disk = disk_setting.c_str();
        weir_engine_close(engine_);
        open(
            model, 4, nullptr, window, 0, { format.c_str(), disk, "kv.tiers.hot=1", sinks.c_str() }
        );
        plan = weir_engine_plan_of(engine_);
    }
    const size_t fixed = weir_plan_total(plan) - plan->kv;
    /* The sinks of four sequences and one cached sequence, and some more where little else is
     * left. */
    const size_t first = (size_t)(plan->facts.sink_tokens * plan->facts.kv_bytes_per_sink) * 5,
                 slack = n_sinks > 0 ? 64 << 10 : 0;
    const std::string memory =
        std::to_string(
            fixed + (tiered ? plan->kv_unsealed + 20 * block : (plan->kv - first) / 2) + first +
            slack
        ) +
        "B";
    weir_engine_close(engine_);
    engine_ = nullptr;
    const int snapshots = pick(2);
    open(
        model, 4, memory.c_str(), window, 64,
        { format.c_str(), snapshots ? "memory.snapshots=200KiB" : "memory.snapshots=0B", disk,
          "kv.tiers.hot=1", sinks.c_str() }
    );
    ASSERT_EQ(weir_engine_plan_of(engine_)->facts.sink_tokens, (n_sinks + 63) / 64 * 64);
    std::vector<std::vector<int32_t>> sequences;
    std::vector<std::unique_ptr<Call>> calls;
    int64_t cached = 0;
    for (int i = 0; i < 60; i++) {
        std::vector<int32_t> ids = sequences.empty() || pick(4) == 0
                                       ? prompt(pick(3), scale * (40 + pick(200)))
                                       : sequences[(size_t)pick((int)sequences.size())];
        const auto more = prompt(10 + pick(5), 1 + pick(40));
        ids.insert(ids.end(), more.begin(), more.end());
        if (ids.size() > (size_t)window - 44) ids.resize((size_t)window - 44);
        calls.push_back(std::make_unique<Call>(ids, 4 + pick(30)));
        Call &call = *calls.back();
        call.request.cache_prompt = pick(8) > 0;
        call.request.cache_salt = pick(4) == 0 ? "other" : nullptr;
        call.request.turn_starts[0] = pick((int)ids.size());
        call.request.n_choices = 1 + pick(2);
        if (call.submit(service_, &error_) ==
            WEIR_ENOMEM) { /* what is set aside for requests shrinks with the format */
            for (auto &earlier : calls) {
                if (earlier.get() == &call) continue;
                earlier->wait();
                earlier->release();
            }
            ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        }
        if (pick(6) == 0) weir_job_cancel(call.job);
        if (pick(3) == 0) {
            call.wait();
            if (call.status == WEIR_OK) {
                ids.insert(ids.end(), call.tokens[0].begin(), call.tokens[0].end());
                sequences.push_back(ids);
            }
        }
    }
    for (auto &call : calls) call->wait();
    EXPECT_EQ(pages_used_when_idle(), 0) << "pages leaked";
    for (auto &call : calls) {
        cached += call->usage.n_cached;
        call->release();
    }
    EXPECT_GT(cached, 500) << "nothing was tested";
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    EXPECT_EQ(stats.kv_read_errors + stats.kv_write_errors, 0);
    preemptions_ += stats.preemptions;
    if (tiered) {
        blocks_out_ += stats.kv_bytes_out / (int64_t)block;
        blocks_read_ += stats.kv_bytes_read / (int64_t)block;
        EXPECT_LE(
            weir_ledger_peak(weir_engine_ledger(engine_), WEIR_TIER_HOST),
            weir_ledger_cap(weir_engine_ledger(engine_), WEIR_TIER_HOST)
        );
        EXPECT_LE(
            weir_ledger_peak(weir_engine_ledger(engine_), WEIR_TIER_DISK),
            weir_ledger_cap(weir_engine_ledger(engine_), WEIR_TIER_DISK)
        );
    }
    weir_engine_close(engine_);
    engine_ = nullptr;
    open(model, 4, nullptr, window, 0, { format.c_str(), "kv.reuse=off", sinks.c_str() });
    int compared = 0;
    for (auto &call : calls) {
        const auto cold = run(call->prompt, nullptr, true, call->request.max_tokens);
        for (const auto &tokens : call->tokens) {
            if (call->status != WEIR_OK && tokens.size() < cold.size())
                EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), cold.begin()))
                    << model << " " << format << " seed " << seed;
            else
                EXPECT_EQ(tokens, cold) << model << " " << format << " seed " << seed << ": "
                                        << call->usage.n_cached << " of " << call->prompt.size();
            compared += call->status == WEIR_OK;
        }
    }
    EXPECT_GT(compared, 30);
    weir_engine_close(engine_);
    engine_ = nullptr;
}

} // namespace support
