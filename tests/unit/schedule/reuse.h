/* A fixture that runs random conversations in a pool that holds few of them, then each of them
 * cold. */
#pragma once
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

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

  private:
    struct Schedule {
        const char *model;
        std::string format, disk, sinks;
        bool tiered;
        int window, n_sinks;
        size_t block; /* bytes */
        std::mt19937 random;
        std::vector<std::unique_ptr<Call>> calls;
        int pick(int n) { return (int)(random() % (unsigned)n); }
    };
    void close()
    {
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
    void open_planned(const Schedule &s);
    void open_small(Schedule *s);
    std::vector<int32_t> next_prompt(
        Schedule *s, const std::vector<std::vector<int32_t>> &sequences
    );
    void submit(Schedule *s, Call *call);
    void run_all(Schedule *s);
    void check_stats(const Schedule &s);
    void compare_with_cold(const Schedule &s);
};

inline void Reuse::open_planned(const Schedule &s)
{
    open(
        s.model, 4, nullptr, s.window, 0,
        { s.format.c_str(), s.disk.c_str(), "kv.tiers.hot=1", s.sinks.c_str() }
    );
}

/* With memory for a few of the sequences. The disk takes twice what all windows do: its metadata
 * takes memory, so it is planned before the memory is. */
inline void Reuse::open_small(Schedule *s)
{
    open_planned(*s);
    const weir_plan *plan = weir_engine_plan_of(engine_);
    s->block = (size_t)plan->facts.kv_bytes_per_token * 64;
    if (s->tiered) {
        s->disk = "memory.disk=" + std::to_string(2 * 64 * s->block) + "B";
        close();
        open_planned(*s);
        plan = weir_engine_plan_of(engine_);
    }
    const size_t fixed = weir_plan_total(plan) - plan->kv;
    /* The sinks of four sequences and one cached sequence, and some more where little else is
     * left. */
    const size_t first = (size_t)(plan->facts.sink_tokens * plan->facts.kv_bytes_per_sink) * 5,
                 slack = s->n_sinks > 0 ? 64 << 10 : 0,
                 pages = s->tiered ? plan->kv_unsealed + 20 * s->block : (plan->kv - first) / 2;
    const std::string memory = std::to_string(fixed + pages + first + slack) + "B";
    close();
    const char *const snapshots = s->pick(2) ? "memory.snapshots=200KiB" : "memory.snapshots=0B";
    open(
        s->model, 4, memory.c_str(), s->window, 64,
        { s->format.c_str(), snapshots, s->disk.c_str(), "kv.tiers.hot=1", s->sinks.c_str() }
    );
    ASSERT_EQ(weir_engine_plan_of(engine_)->facts.sink_tokens, (s->n_sinks + 63) / 64 * 64);
}

/* A new text or one that was answered, and some more. */
inline std::vector<int32_t> Reuse::next_prompt(
    Schedule *s, const std::vector<std::vector<int32_t>> &sequences
)
{
    const int scale = s->tiered ? 3 : 1;
    const size_t most = (size_t)s->window - 44;
    std::vector<int32_t> ids = sequences.empty() || s->pick(4) == 0
                                   ? prompt(s->pick(3), scale * (40 + s->pick(200)))
                                   : sequences[(size_t)s->pick((int)sequences.size())];
    const auto more = prompt(10 + s->pick(5), 1 + s->pick(40));
    ids.insert(ids.end(), more.begin(), more.end());
    if (ids.size() > most) ids.resize(most);
    return ids;
}

/* What is set aside for requests shrinks with the format: it may wait for all earlier ones. */
inline void Reuse::submit(Schedule *s, Call *call)
{
    if (call->submit(service_, &error_) != WEIR_ENOMEM) return;
    for (auto &earlier : s->calls) {
        if (earlier.get() == call) continue;
        earlier->wait();
        earlier->release();
    }
    ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
}

inline void Reuse::run_all(Schedule *s)
{
    std::vector<std::vector<int32_t>> sequences;
    for (int i = 0; i < 60 && !HasFatalFailure(); i++) {
        std::vector<int32_t> ids = next_prompt(s, sequences);
        s->calls.push_back(std::make_unique<Call>(ids, 4 + s->pick(30)));
        Call &call = *s->calls.back();
        call.request.cache_prompt = s->pick(8) > 0;
        call.request.cache_salt = s->pick(4) == 0 ? "other" : nullptr;
        call.request.turn_starts[0] = s->pick((int)ids.size());
        call.request.n_choices = 1 + s->pick(2);
        submit(s, &call);
        if (s->pick(6) == 0) weir_job_cancel(call.job);
        if (s->pick(3) > 0) continue;
        call.wait();
        if (call.status != WEIR_OK) continue;
        ids.insert(ids.end(), call.tokens[0].begin(), call.tokens[0].end());
        sequences.push_back(ids);
    }
    for (auto &call : s->calls) call->wait();
}

inline void Reuse::check_stats(const Schedule &s)
{
    int64_t cached = 0;
    EXPECT_EQ(pages_used_when_idle(), 0) << "pages leaked";
    for (auto &call : s.calls) {
        cached += call->usage.n_cached;
        call->release();
    }
    EXPECT_GT(cached, 500) << "nothing was tested";
    const weir_service_stats seen = stats();
    EXPECT_EQ(seen.kv_read_errors + seen.kv_write_errors, 0);
    preemptions_ += seen.preemptions;
    if (!s.tiered) return;
    blocks_out_ += seen.kv_bytes_out / (int64_t)s.block;
    blocks_read_ += seen.kv_bytes_read / (int64_t)s.block;
    const weir_ledger *const ledger = weir_engine_ledger(engine_);
    for (const weir_tier tier : { WEIR_TIER_HOST, WEIR_TIER_DISK })
        EXPECT_LE(weir_ledger_peak(ledger, tier), weir_ledger_cap(ledger, tier));
}

inline void Reuse::compare_with_cold(const Schedule &s)
{
    int compared = 0;
    open(s.model, 4, nullptr, s.window, 0, { s.format.c_str(), "kv.reuse=off", s.sinks.c_str() });
    for (auto &call : s.calls) {
        const auto cold = run(call->prompt, nullptr, true, call->request.max_tokens);
        SCOPED_TRACE(
            std::to_string(call->usage.n_cached) + " of " + std::to_string(call->prompt.size())
        );
        for (const auto &tokens : call->tokens) {
            if (call->status != WEIR_OK && tokens.size() < cold.size())
                EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), cold.begin()));
            else
                EXPECT_EQ(tokens, cold);
            compared += call->status == WEIR_OK;
        }
    }
    EXPECT_GT(compared, 30);
}

/* Conversations that share beginnings and grow by their own answers, some cancelled, in a pool that
 * holds few of them. */
inline void Reuse::random_schedule(
    const char *model, unsigned seed, const std::string &format, bool tiered, int n_sinks
)
{
    SCOPED_TRACE(std::string(model) + " " + format + " seed " + std::to_string(seed));
    Schedule s = {};
    s.model = model, s.format = format, s.tiered = tiered, s.n_sinks = n_sinks;
    s.window = tiered ? 1024 : 384;
    s.disk = tiered ? "memory.disk=16MiB" : "memory.disk=0B";
    s.sinks = "kv.wide_sinks=" + std::to_string(n_sinks);
    s.random.seed(seed);
    open_small(&s);
    if (HasFatalFailure()) return;
    run_all(&s);
    if (HasFatalFailure()) return;
    check_stats(s);
    close();
    compare_with_cold(s);
    close();
}

} // namespace support
