/* Warm answers are cold answers: whatever was kept, dropped, preempted or cancelled before. */
#include <cstring>
#include <random>

#include "tests/unit/schedule/support.h"

namespace {

using support::Call;
using support::Service;

class Reuse : public Service {
  protected:
    std::vector<int32_t> run(const std::vector<int32_t> &ids, const char *salt = nullptr, bool cache = true, int max_tokens = 12)
    {
        Call call(ids, max_tokens);
        call.request.cache_prompt = cache;
        call.request.cache_salt = salt;
        return answer(call);
    }
    void    random_schedule(const char *model, unsigned seed, const std::string &format, bool tiered = false, int n_sinks = 0);
    int64_t blocks_out_ = 0, blocks_read_ = 0; /* of schedules with a disk */
};

TEST_F(Reuse, APromptAndWhatContinuesItAreFoundAgain)
{
    for (const char *const model : { "tq", "qwen3", "mistral" }) {
        open(model, 2);
        const auto text = prompt(1, 200);
        const auto cold = run(text, nullptr, false);
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_EQ(run(text), cold);
        EXPECT_EQ(usage_.n_cached, 0) << "what did not ask for it was not kept";
        EXPECT_EQ(run(text), cold);
        EXPECT_EQ(usage_.n_cached, 199) << model << ": " << usage_.reuse;
        EXPECT_EQ(run(text, nullptr, false), cold);
        EXPECT_EQ(usage_.n_cached, 0);
        auto turn = text;
        turn.insert(turn.end(), cold.begin(), cold.end());
        const auto more = prompt(2, 30);
        turn.insert(turn.end(), more.begin(), more.end());
        const auto warm = run(turn);
        EXPECT_EQ(usage_.n_cached, 200 + 11) << model << ": the last token of an answer is not computed";
        EXPECT_EQ(run(turn, nullptr, false), warm);
        EXPECT_EQ(run(text, "salt"), cold);
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_STREQ(usage_.reuse, "nothing is kept under this salt");
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

// A client that writes the answer anew: the state before the answer's first token serves.
TEST_F(Reuse, StatesAreKeptWhereTurnsBegin)
{
    open("tq", 2);
    auto text = prompt(1, 200);
    Call first(text, 12);
    first.request.cache_prompt = true;
    first.request.turn_starts[0] = 190;
    first.request.turn_starts[1] = 150;
    ASSERT_EQ(first.submit(service_, &error_), WEIR_OK);
    first.wait();
    for (const int differs : { 195, 190, 160 }) {
        auto other = text;
        other[(size_t)differs] += 1;
        other.resize(220, 5);
        const auto warm = run(other);
        EXPECT_EQ(usage_.n_cached, differs >= 190 ? 190 : 150);
        EXPECT_EQ(usage_.n_matched, differs);
        EXPECT_EQ(run(other, nullptr, false), warm);
    }
}

TEST_F(Reuse, OffIsOff)
{
    open("tq", 2, nullptr, 512, 0, { "kv.reuse=off" });
    const auto text = prompt(1, 200);
    const auto cold = run(text);
    EXPECT_EQ(run(text), cold);
    EXPECT_EQ(usage_.n_cached, 0);
}

// Conversations that share beginnings and grow by their own answers, some cancelled, in a pool that holds few of them.
void Reuse::random_schedule(const char *model, unsigned seed, const std::string &format, bool tiered, int n_sinks)
{
    std::mt19937      random(seed);
    const auto        pick = [&](int n) { return (int)(random() % (unsigned)n); };
    const int         window = tiered ? 1024 : 384, scale = tiered ? 3 : 1;
    const char       *disk = tiered ? "memory.disk=16MiB" : "memory.disk=0B";
    const std::string sinks = "kv.wide_sinks=" + std::to_string(n_sinks);
    open(model, 4, nullptr, window, 0, { format.c_str(), disk, "kv.tiers.hot=1", sinks.c_str() });
    const weir_plan *plan = weir_engine_plan_of(engine_);
    const size_t     block = (size_t)plan->kv_bytes_per_token * 64;
    std::string      disk_text;
    if (tiered) { /* twice what all windows take: its books take memory */
        disk_text = "memory.disk=" + std::to_string(2 * 64 * block) + "B";
        disk = disk_text.c_str();
        weir_engine_close(engine_);
        open(model, 4, nullptr, window, 0, { format.c_str(), disk, "kv.tiers.hot=1", sinks.c_str() });
        plan = weir_engine_plan_of(engine_);
    }
    const size_t fixed = weir_plan_total(plan) - plan->kv;
    /* The sinks of four sequences and one kept text, and some more where little else is left. */
    const size_t      first = (size_t)(plan->sink_tokens * plan->kv_bytes_per_sink) * 5, slack = n_sinks > 0 ? 64 << 10 : 0;
    const std::string memory = std::to_string(fixed + (tiered ? plan->kv_open + 20 * block : (plan->kv - first) / 2) + first + slack) + "B";
    weir_engine_close(engine_);
    engine_ = nullptr;
    const int snapshots = pick(2);
    open(model, 4, memory.c_str(), window, 64,
         { format.c_str(), snapshots ? "memory.snapshots=200KiB" : "memory.snapshots=0B", disk, "kv.tiers.hot=1", sinks.c_str() });
    ASSERT_EQ(weir_engine_plan_of(engine_)->sink_tokens, (n_sinks + 63) / 64 * 64);
    std::vector<std::vector<int32_t>>  texts;
    std::vector<std::unique_ptr<Call>> calls;
    int64_t                            cached = 0;
    for (int i = 0; i < 60; i++) {
        std::vector<int32_t> ids =
            texts.empty() || pick(4) == 0 ? prompt(pick(3), scale * (40 + pick(200))) : texts[(size_t)pick((int)texts.size())];
        const auto more = prompt(10 + pick(5), 1 + pick(40));
        ids.insert(ids.end(), more.begin(), more.end());
        if (ids.size() > (size_t)window - 44) ids.resize((size_t)window - 44);
        calls.push_back(std::make_unique<Call>(ids, 4 + pick(30)));
        Call &call = *calls.back();
        call.request.cache_prompt = pick(8) > 0;
        call.request.cache_salt = pick(4) == 0 ? "other" : nullptr;
        call.request.turn_starts[0] = pick((int)ids.size());
        call.request.n_choices = 1 + pick(2);
        if (call.submit(service_, &error_) == WEIR_ENOMEM) { /* what is set aside for requests shrinks with the format */
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
                texts.push_back(ids);
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
    if (tiered) {
        blocks_out_ += stats.kv_bytes_out / (int64_t)block;
        blocks_read_ += stats.kv_bytes_read / (int64_t)block;
        EXPECT_LE(weir_ledger_peak(weir_engine_ledger(engine_), WEIR_TIER_HOST),
                  weir_ledger_cap(weir_engine_ledger(engine_), WEIR_TIER_HOST));
        EXPECT_LE(weir_ledger_peak(weir_engine_ledger(engine_), WEIR_TIER_DISK),
                  weir_ledger_cap(weir_engine_ledger(engine_), WEIR_TIER_DISK));
    }
    weir_engine_close(engine_);
    engine_ = nullptr;
    open(model, 4, nullptr, window, 0, { format.c_str(), "kv.reuse=off", sinks.c_str() });
    int compared = 0;
    for (auto &call : calls) {
        const auto cold = run(call->prompt, nullptr, true, call->request.max_tokens);
        for (const auto &tokens : call->tokens) {
            if (call->status != WEIR_OK && tokens.size() < cold.size())
                EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), cold.begin())) << model << " " << format << " seed " << seed;
            else
                EXPECT_EQ(tokens, cold) << model << " " << format << " seed " << seed << ": " << call->usage.n_cached << " of "
                                        << call->prompt.size();
            compared += call->status == WEIR_OK;
        }
    }
    EXPECT_GT(compared, 30);
    weir_engine_close(engine_);
    engine_ = nullptr;
}

TEST_F(Reuse, RandomSchedulesGiveColdAnswers)
{
    for (const char *const model : { "tq", "qwen3" })
        for (unsigned seed = 1; seed <= 3 && !HasFailure(); seed++) random_schedule(model, seed, "kv.format=f16");
}

TEST_F(Reuse, RandomSchedulesGiveColdAnswersInEveryFormat)
{
    const char *const formats[] = { "f32",      "bf16",  "q8_0",         "q4_0",       "int8",   "fp8_e4m3",
                                    "fp8_e5m2", "kivi2", "kivi4/turbo3", "q8_0/kivi8", "turbo2", "turbo4" };
    unsigned          seed = 1;
    for (const char *const format : formats)
        for (const char *const model : { "tq", "qwen3" })
            if (!HasFailure()) random_schedule(model, seed++, std::string("kv.format=") + format);
}

TEST_F(Reuse, RandomSchedulesWithADiskGiveColdAnswers)
{
    unsigned seed = 1;
    for (const char *const format : { "f16", "q8_0", "int8", "kivi4/turbo3" })
        for (const char *const model : { "tq", "qwen3" })
            if (!HasFailure()) random_schedule(model, seed++, std::string("kv.format=") + format, true);
    EXPECT_GT(blocks_out_, 200);
    EXPECT_GT(blocks_read_, 500);
}

// Few texts find room for their sinks, so kept ones are dropped for them while there is room for all else.
TEST_F(Reuse, RandomSchedulesWithSinksGiveColdAnswers)
{
    unsigned seed = 1;
    for (const char *const format : { "turbo4", "q8_0", "kivi4" }) {
        const std::string setting = std::string("kv.format=") + format;
        random_schedule(seed % 2 ? "tq" : "qwen3", seed, setting, false, seed % 2 ? 64 : 130);
        if (!HasFailure()) random_schedule(seed % 2 ? "qwen3" : "tq", seed, setting, true, seed % 2 ? 130 : 64);
        if (HasFailure()) return;
        seed++;
    }
    EXPECT_GT(blocks_out_, 50);
}

// The state at the last page's end before the end of the turn is kept, and the one before it is not.
TEST_F(Reuse, PagedTextsContinueAtWholePages)
{
    for (const char *const model : { "tq", "qwen3" }) {
        open(model, 2, nullptr, 1024, 0, { "kv.format=int8/kivi4" });
        auto       text = prompt(1, 200);
        const auto cold = run(text, nullptr, true, 300);
        EXPECT_EQ(run(text, nullptr, true, 300), cold);
        EXPECT_EQ(usage_.n_cached, 192) << model << ": " << usage_.reuse;
        text.insert(text.end(), cold.begin(), cold.end());
        text.resize(text.size() + 20, 5);
        const auto warm = run(text);
        EXPECT_EQ(usage_.n_cached, 448) << model << ": 499 rows were computed";
        EXPECT_EQ(run(text, nullptr, false), warm);
        text.resize(400);
        (void)run(text, nullptr, true, 1);
        EXPECT_EQ(usage_.n_cached, strcmp(model, "tq") == 0 ? 192 : 384) << model;
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

} // namespace
