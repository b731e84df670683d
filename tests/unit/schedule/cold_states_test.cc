/* Recurrent states on disk: a text whose state went there is continued as if it had stayed in
 * memory, and computed again if the disk fails. */
#include "engine/kv/prefix/prefix.h"
#include "engine/schedule/job.h"
#include "tests/unit/schedule/tiers_fixture.h"

namespace {

using namespace tiers;

enum class Fault { NONE, WRITES, READS, BITS };
std::atomic<Fault> fault{ Fault::NONE };

ssize_t write_or_fail(int fd, const struct iovec *pieces, int n, off_t at)
{
    if (fault != Fault::WRITES) return pwritev(fd, pieces, n, at);
    errno = ENOSPC;
    return -1;
}

ssize_t read_or_fail(int fd, void *bytes, size_t n, off_t at)
{
    if (fault == Fault::READS) errno = EIO;
    if (fault == Fault::READS) return -1;
    const ssize_t got = pread(fd, bytes, n, at);
    if (fault == Fault::BITS && got > 0) static_cast<char *>(bytes)[0] ^= 1;
    return got;
}

/* Twelve conversations of two turns, and memory for the states of fewer. */
class ColdStates : public Tiers {
  protected:
    enum { TEXTS = 12, ROWS = 250, MORE = 20, ANSWER = 6, STATES = 6 };

    /* The answers of an engine with memory for all. */
    void SetUp() override
    {
        Tiers::SetUp();
        fault = Fault::NONE;
        start("tq", 0);
        /* A state, and its slot. */
        const int64_t each = weir_engine_plan_of(engine_)->facts.recurrent_bytes + 256;
        few_states_ = "memory.snapshots=" + std::to_string(STATES * each) + "B";
        for (int i = 0; i < TEXTS; i++) want_.push_back(run(prompt(20 + i, ROWS), ANSWER));
        for (int i = 0; i < TEXTS; i++) want_again_.push_back(run(second(i), ANSWER));
    }
    void open_with(int64_t on_disk)
    {
        start("tq", 60, on_disk, few_states_);
        const int32_t n = weir_engine_plan_of(engine_)->n_snapshots;
        ASSERT_GE(n, STATES - 1);
        ASSERT_LE(n, STATES + 1);
        weir_lower_tier *const tier = weir_prefix_lower_tier(weir_engine_prefix(engine_));
        ASSERT_NE(tier, nullptr);
        const weir_lower_tier_io io = { write_or_fail, read_or_fail };
        weir_lower_tier_set_io(tier, &io);
    }
    std::vector<int32_t> second(int i) const
    {
        auto ids = prompt(20 + i, ROWS);
        ids.insert(ids.end(), want_[(size_t)i].begin(), want_[(size_t)i].end());
        const auto more = prompt(50 + i, MORE);
        ids.insert(ids.end(), more.begin(), more.end());
        return ids;
    }
    /* Both turns of all; returns the second turns that were continued from the first one's end. */
    int run_both()
    {
        int n = 0;
        for (int i = 0; i < TEXTS; i++)
            EXPECT_EQ(run(prompt(20 + i, ROWS), ANSWER), want_[(size_t)i]);
        for (int i = 0; i < TEXTS; i++) {
            EXPECT_EQ(run(second(i), ANSWER), want_again_[(size_t)i]) << i;
            n += usage_.n_cached == ROWS + ANSWER - 1;
        }
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
        expect_sound();
        return n;
    }
    /* On the engine thread, which may still be ending moves of blocks. */
    void expect_sound()
    {
        const auto check = [](weir_service *, void *prefix) {
            weir_error error = {};
            EXPECT_TRUE(weir_prefix_is_sound((weir_prefix *)prefix, &error)) << error.text;
        };
        weir_service_call(service_, check, weir_engine_prefix(engine_));
    }
    std::string few_states_;
    std::vector<std::vector<int32_t>> want_, want_again_;
};

TEST_F(ColdStates, ComeBackWithTheirBits)
{
    open_with(200);
    EXPECT_EQ(run_both(), TEXTS);
    const weir_service_stats all = stats();
    EXPECT_GE(all.states_out, TEXTS - STATES);
    EXPECT_GE(all.states_back, TEXTS - STATES);
    EXPECT_GT(all.cold_states, 0);
    EXPECT_EQ(all.state_errors, 0);
}

TEST_F(ColdStates, ADiskThatFailsMeansComputing)
{
    for (const Fault one : { Fault::WRITES, Fault::READS, Fault::BITS }) {
        open_with(200);
        fault = one;
        EXPECT_LT(run_both(), TEXTS);
        EXPECT_GT(stats().state_errors, 0);
        if (one == Fault::WRITES) EXPECT_EQ(stats().states_out, 0);
        if (one != Fault::WRITES) EXPECT_EQ(stats().states_back, 0);
        fault = Fault::NONE;
        stop();
    }
}

/* More conversations than memory holds, of which each speaks again. */
TEST_F(ColdStates, IdleConversationsAreContinued)
{
    enum { IDLE = 24 };
    for (const char *const model : { "tq", "qwen3" }) {
        start(model, 20, 170, strcmp(model, "tq") == 0 ? few_states_ : "kv.tiers.hot=1");
        std::vector<std::vector<int32_t>> turns;
        int64_t repeated = 0, reused = 0;
        for (int i = 0; i < IDLE; i++) {
            turns.push_back(prompt(100 + i, ROWS));
            const auto answer = run(turns.back(), ANSWER);
            turns.back().insert(turns.back().end(), answer.begin(), answer.end());
        }
        for (auto &turn : turns) {
            repeated += (int64_t)turn.size();
            const auto more = prompt(7, MORE);
            turn.insert(turn.end(), more.begin(), more.end());
            (void)run(turn, ANSWER);
            reused += usage_.n_cached;
        }
        EXPECT_GE(reused, repeated * 95 / 100) << model;
        EXPECT_GT(stats().kv_bytes_out, 0);
        EXPECT_EQ(stats().dropped_tokens, 0);
        expect_within();
    }
}

/* Space for few states, which blocks of KV take in the end. */
TEST_F(ColdStates, AFullDiskDropsThem)
{
    open_with(4);
    (void)run_both();
    EXPECT_GT(stats().states_out, 0);
    stop();
    start("tq", 0);
    const auto large = prompt(1, 1900);
    const auto want = run(large, 12);
    fault = Fault::NONE;
    start("tq", 20, 24, few_states_);
    for (int i = 0; i < TEXTS; i++) (void)run(prompt(20 + i, ROWS), ANSWER);
    EXPECT_EQ(run(large, 12), want) << "states leave the disk to the blocks of a text";
    EXPECT_EQ(stats().kv_write_errors, 0);
    expect_within();
}

} // namespace
