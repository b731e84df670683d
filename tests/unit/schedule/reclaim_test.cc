/* What is freed when KV memory is short, in which order, and for whom. */
#include "engine/schedule/reclaim.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/schedule/runner.h"
#include "engine/schedule/tiers.h"
#include "tests/unit/kv/prefix_fixture.h"
#include "tests/unit/kv/read_gate.h"

namespace prefix {
namespace {

class Reclaim : public Prefix {
  protected:
    static constexpr int64_t block = layers * heads; /* pages of 64 tokens */

    /* A save that is let go, and sequences that are preempted, as often as these say. */
    static bool release(void *user)
    {
        Reclaim *const self = static_cast<Reclaim *>(user);
        self->asked_.push_back("release");
        if (self->held_.store == nullptr) return false;
        weir_kv_sequence_close(&self->held_);
        self->held_ = {};
        return true;
    }
    static bool release_ended(void *user)
    {
        Reclaim *const self = static_cast<Reclaim *>(user);
        if (self->ended_.store == nullptr) return false;
        weir_kv_sequence_close(&self->ended_);
        self->ended_ = {};
        return true;
    }
    static bool preempt(void *user, const weir_kv_sequence *after)
    {
        Reclaim *const self = static_cast<Reclaim *>(user);
        self->asked_.push_back("preempt");
        self->after_ = after;
        return self->n_preemptible_-- > 0;
    }
    static weir_kv_sequence *running(void *user, int32_t i)
    {
        return i == 0 ? static_cast<Reclaim *>(user)->running_ : nullptr;
    }
    weir_status reclaim(
        weir_reclaim_caller caller, int64_t n_blocks,
        const std::vector<weir_batch_item> &items = {}, const weir_kv_sequence *sequence = nullptr,
        int64_t tables = 0, weir_reclaim_need *need = nullptr
    )
    {
        weir_kv_pages pages = others(n_blocks * block);
        pages.tables = tables;
        const weir_kv_holders holders = { prefix_, running, this,    release_ended,
                                          release, preempt, nullptr, counts_ };
        const weir_reclaim_request request = { .caller = caller,
                                               .store = store_,
                                               .items = items.data(),
                                               .n_items = static_cast<int32_t>(items.size()),
                                               .sequence = sequence,
                                               .pages = pages,
                                               .blocks = n_blocks,
                                               .hot = 1,
                                               .need = need };
        error_ = {};
        const weir_status status = weir_reclaim(&holders, &request, &error_);
        sound();
        return status;
    }
    /* Of all steps, those that freed something: name the ones that may have. */
    void expect_steps(std::vector<weir_reclaim_step> steps)
    {
        for (int i = 0; i < WEIR_RECLAIM_STEPS; i++) {
            const bool is_listed =
                std::find(steps.begin(), steps.end(), static_cast<weir_reclaim_step>(i)) !=
                steps.end();
            EXPECT_EQ(counts_[i].n > 0, is_listed) << "step " << i;
        }
    }
    bool is_cached(const Tokens &t)
    {
        return weir_prefix_match_length(
                   prefix_, t.data(), static_cast<int32_t>(t.size()), nullptr
               ) > 0;
    }
    /* A cached sequence that another one shares. */
    weir_kv_sequence share(const Tokens &t)
    {
        keep(t, nullptr);
        weir_kv_sequence s = sequence(t);
        EXPECT_EQ(weir_prefix_share(prefix_, &s, nullptr), s.n_tokens);
        return s;
    }

    std::vector<std::string> asked_;
    weir_reclaim_count counts_[WEIR_RECLAIM_STEPS] = {};
    weir_kv_sequence held_ = {}, ended_ = {}, *running_ = nullptr;
    const weir_kv_sequence *after_ = nullptr;
    int n_preemptible_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Kinds, Reclaim, ::testing::Values(Kind{ false, false }), kind_name);

/* What a sequence that has ended holds goes first, for every caller, and only if it is needed. */
TEST_P(Reclaim, EndedSequencesGoFirst)
{
    open(4 * block, 40, 0);
    keep(tokens(128, 1), nullptr);
    for (const auto caller : { WEIR_RECLAIM_FOR_STEP, WEIR_RECLAIM_FOR_STEP_FULL,
                               WEIR_RECLAIM_FOR_POLICY, WEIR_RECLAIM_FOR_SESSION }) {
        ended_ = sequence(tokens(128, 2));
        ASSERT_TRUE(compute(&ended_, ended_.n_tokens));
        const bool is_full = caller == WEIR_RECLAIM_FOR_STEP_FULL;
        if (!is_full && caller != WEIR_RECLAIM_FOR_POLICY) EXPECT_EQ(reclaim(caller, 0), WEIR_OK);
        EXPECT_NE(ended_.store, nullptr) << caller;
        EXPECT_EQ(reclaim(caller, 2), WEIR_OK);
        EXPECT_EQ(ended_.store, nullptr) << caller;
    }
    expect_steps({});
    EXPECT_TRUE(asked_.empty());
    EXPECT_TRUE(is_cached(tokens(128, 1)));
}

TEST_P(Reclaim, WhatIsFreeCostsNothing)
{
    open(4 * block, 40, 0);
    keep(tokens(128, 1), nullptr);
    for (const auto caller : { WEIR_RECLAIM_FOR_STEP, WEIR_RECLAIM_FOR_SESSION })
        EXPECT_EQ(reclaim(caller, 2), WEIR_OK);
    expect_steps({});
    EXPECT_TRUE(asked_.empty());
}

TEST_P(Reclaim, APrefixGoesBeforeASaveIsStopped)
{
    open(6 * block, 40, 0);
    held_ = share(tokens(128, 1));
    keep(tokens(128, 2), nullptr);
    keep(tokens(128, 3), nullptr);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP, 2), WEIR_OK);
    EXPECT_FALSE(is_cached(tokens(128, 2))) << "the least recently used one";
    EXPECT_TRUE(is_cached(tokens(128, 3)));
    expect_steps({ WEIR_RECLAIM_CACHED });
    EXPECT_EQ(counts_[WEIR_RECLAIM_CACHED].pages, 2 * block);
    EXPECT_TRUE(asked_.empty());
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP, 6), WEIR_OK) << "all there is";
    EXPECT_EQ(asked_, std::vector<std::string>{ "release" });
    EXPECT_FALSE(is_cached(tokens(128, 1)));
    EXPECT_GT(counts_[WEIR_RECLAIM_SAVED].pages, 0);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP, 7), WEIR_EFULL);
    if (held_.store != nullptr) weir_kv_sequence_close(&held_);
}

TEST_P(Reclaim, ASessionStopsNoSaveAndPreemptsNothing)
{
    open(4 * block, 40, 0);
    held_ = share(tokens(128, 1));
    n_preemptible_ = 1;
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_SESSION, 3), WEIR_EFULL);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_SESSION_FULL, 3), WEIR_EFULL);
    EXPECT_TRUE(asked_.empty());
    weir_kv_sequence_close(&held_);
}

/* Memory for tables is what sequences have: dropping cached ones would not help. */
TEST_P(Reclaim, ATableTakesFromSequencesOnly)
{
    open(8 * block, 40, 0, 0, 0, 2 * WEIR_KV_TABLE_UNIT);
    keep(tokens(128, 2), nullptr);
    held_ = share(tokens(128, 1));
    weir_kv_sequence s = sequence(tokens(64, 3));
    ASSERT_TRUE(compute(&s, 64));
    ASSERT_EQ(weir_kv_store_free(store_).tables, 0);
    n_preemptible_ = 1;
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP, 1, {}, nullptr, 1), WEIR_OK);
    EXPECT_EQ(asked_, std::vector<std::string>{ "release" });
    EXPECT_EQ(weir_kv_store_free(store_).tables, 1);
    asked_.clear();
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP, 1, {}, nullptr, 2), WEIR_EFULL);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 1, {}, nullptr, 2), WEIR_OK);
    EXPECT_EQ(asked_, (std::vector<std::string>{ "release", "release", "preempt" }));
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 1, {}, nullptr, 2), WEIR_EFULL);
    EXPECT_TRUE(is_cached(tokens(128, 1)));
    EXPECT_TRUE(is_cached(tokens(128, 2)));
    weir_kv_sequence_close(&s);
    if (held_.store != nullptr) weir_kv_sequence_close(&held_);
}

/* One step at a time, as the caller tries again after each. */
TEST_P(Reclaim, AStepThatWasRefusedPreemptsLast)
{
    open(4 * block, 40, 0);
    held_ = share(tokens(128, 1));
    n_preemptible_ = 1;
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 3), WEIR_OK);
    EXPECT_EQ(asked_, std::vector<std::string>{ "release" });
    asked_.clear();
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 3), WEIR_OK);
    EXPECT_EQ(asked_, (std::vector<std::string>{ "release", "preempt" }));
    EXPECT_EQ(after_, nullptr);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 3), WEIR_EFULL);
    expect_steps({ WEIR_RECLAIM_SAVED, WEIR_RECLAIM_PREEMPT });
}

TEST_P(Reclaim, TheLastSequenceTakesItsPageBackFromTheCache)
{
    open(2 * block, 40, 0);
    weir_kv_sequence s = share(tokens(100, 1));
    weir_batch_item item = {};
    item.sequence = &s;
    item.n_rows = 1;
    EXPECT_EQ(weir_kv_reserve(&s.table, store_, 1), WEIR_EFULL) << "no page for a copy";
    n_preemptible_ = 1;
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 1, { item }), WEIR_OK) << "preempts";
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 1, { item }), WEIR_OK);
    expect_steps({ WEIR_RECLAIM_PREEMPT, WEIR_RECLAIM_TAIL });
    EXPECT_EQ(weir_kv_reserve(&s.table, store_, 1), WEIR_OK);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP_FULL, 1, { item }), WEIR_EFULL);
    weir_kv_sequence_close(&s);
}

TEST_P(Reclaim, APolicyLeavesSavesAlone)
{
    open(4 * block, 40, 0);
    weir_kv_sequence s = share(tokens(128, 1));
    held_ = share(tokens(128, 2));
    n_preemptible_ = 1;
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_POLICY, 1, {}, &s), WEIR_OK);
    EXPECT_FALSE(is_cached(tokens(128, 1))) << "the copy of the sequence itself";
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_POLICY, 1, {}, &s), WEIR_EFULL);
    EXPECT_TRUE(asked_.empty());
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_POLICY_FULL, 1, {}, &s), WEIR_OK);
    EXPECT_EQ(asked_, std::vector<std::string>{ "preempt" });
    EXPECT_EQ(after_, &s);
    expect_steps({ WEIR_RECLAIM_SHARED, WEIR_RECLAIM_PREEMPT });
    weir_kv_sequence_close(&s);
    weir_kv_sequence_close(&held_);
}

/* Memory of four blocks above a disk of six: what is cached and idle moves first, then what runs,
 * and nothing is dropped while the disk has room. */
TEST_P(Reclaim, MemoryIsFreedByMovingDown)
{
    open(10 * block, 40, 0, 6 * block);
    weir_kv_sequence s = sequence(tokens(192, 1));
    ASSERT_TRUE(compute(&s, 192));
    running_ = &s;
    keep(tokens(64, 2), nullptr);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 1), WEIR_OK);
    expect_steps({ WEIR_RECLAIM_DEMOTE_CACHED });
    EXPECT_EQ(counts_[WEIR_RECLAIM_DEMOTE_CACHED].pages, block);
    EXPECT_TRUE(is_cached(tokens(64, 2)));
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 2), WEIR_OK);
    expect_steps({ WEIR_RECLAIM_DEMOTE_CACHED, WEIR_RECLAIM_DEMOTE_RUNNING });
    EXPECT_TRUE(is_cached(tokens(64, 2)));
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 4), WEIR_EFULL);
    EXPECT_NE(
        std::string(error_.text)
            .find("no memory for 256 more tokens of KV: all that can be "
                  "demoted is in the lower tier; raise memory.host"),
        std::string::npos
    ) << error_.text;
    EXPECT_TRUE(asked_.empty());
    weir_kv_sequence_close(&s);
}

ssize_t refuse_to_write(int, const struct iovec *, int, off_t)
{
    errno = EIO;
    return -1;
}

/* A need is not waited for: blocks begin to leave, and nothing is dropped meanwhile. */
TEST_P(Reclaim, ANeedWaitsForMoves)
{
    support::Gate disk;
    const weir_lower_tier_io slow = { [](int fd, const struct iovec *pieces, int n, off_t at) {
                                         support::pass(support::write_gate);
                                         return pwritev(fd, pieces, n, at);
                                     },
                                      pread, nullptr, nullptr };
    open(10 * block, 40, 0, 6 * block); /* memory of four blocks */
    weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &slow);
    weir_kv_sequence s = sequence(tokens(192, 1));
    ASSERT_TRUE(compute(&s, 192));
    running_ = &s;
    keep(tokens(64, 2), nullptr);
    support::write_gate = &disk;
    weir_reclaim_need need = {};
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 2, {}, nullptr, 0, &need), WEIR_EFULL);
        EXPECT_TRUE(need.waits);
        EXPECT_EQ(weir_kv_blocks_leaving(store_), 2) << "one that is cached, one that runs";
    }
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_STEP, 8, {}, nullptr, 0, &need), WEIR_EFULL);
    EXPECT_TRUE(need.waits) << "the dropped block is held";
    EXPECT_FALSE(is_cached(tokens(64, 2)));
    EXPECT_FALSE(disk.was_late);
    support::write_gate = nullptr;
    disk.open();
    weir_status status;
    while (weir_kv_moves_begun(store_) > 0) (void)weir_kv_moves_end(store_, true, &status, &error_);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 2, {}, nullptr, 0, &need), WEIR_OK);
    EXPECT_FALSE(need.waits);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 4, {}, nullptr, 0, &need), WEIR_EFULL);
    EXPECT_FALSE(need.waits) << "nothing can leave, and nothing moves";
    weir_kv_sequence_close(&s);
}

/* Once a write has failed for it, a need takes what costs more; the next one tries the disk
 * again. */
TEST_P(Reclaim, ANeedTriesADiskOnce)
{
    static int n_writes;
    const weir_lower_tier_io failing = { [](int, const struct iovec *, int, off_t) {
                                            n_writes++;
                                            errno = EIO;
                                            return (ssize_t)-1;
                                        },
                                         pread, nullptr, nullptr };
    open(10 * block, 40, 0, 6 * block);
    weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &failing);
    for (int round = 1; round <= 2; round++) {
        weir_kv_sequence s = sequence(tokens(192, 1));
        weir_reclaim_need need = {};
        weir_status status;
        ASSERT_TRUE(compute(&s, 192));
        running_ = &s;
        keep(tokens(64, 1 + round), nullptr);
        n_writes = 0;
        EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 1, {}, nullptr, 0, &need), WEIR_EFULL);
        ASSERT_TRUE(need.waits);
        EXPECT_EQ(weir_kv_moves_end(store_, true, &status, &error_), 1);
        EXPECT_EQ(status, WEIR_EIO);
        EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 1, {}, nullptr, 0, &need), WEIR_OK);
        EXPECT_FALSE(is_cached(tokens(64, 1 + round))) << "it is dropped";
        EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 2, {}, nullptr, 0, &need), WEIR_EFULL);
        ASSERT_TRUE(need.waits) << "a new need";
        EXPECT_EQ(weir_kv_moves_end(store_, true, &status, &error_), 1);
        EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 2, {}, nullptr, 0, &need), WEIR_EFULL);
        EXPECT_FALSE(need.waits);
        EXPECT_NE(strstr(error_.text, strerror(EIO)), nullptr) << error_.text;
        EXPECT_EQ(n_writes, 2);
        running_ = nullptr;
        weir_kv_sequence_close(&s);
    }
}

/* While the disk takes nothing, what is free there is of no use, nor are cached sequences there:
 * only pages near the kernels count, and a request that finds too few of them is let in when no
 * other one runs. */
TEST_P(Reclaim, AFailingDiskHasNoFreePages)
{
    open(10 * block, 40, 0, 6 * block);
    const weir_kv_holders holders = { prefix_, running, this,    release_ended,
                                      release, preempt, nullptr, counts_ };
    const weir_lower_tier_io failing = { refuse_to_write, pread, nullptr, nullptr };
    const auto free_blocks = [&] {
        const weir_kv_pages free = weir_tiers_free_pages(store_, prefix_);
        EXPECT_EQ(free.sinks, 0);
        return weir_kv_pages_others(free) / block;
    };
    keep(tokens(192, 1), nullptr);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 3), WEIR_OK);
    EXPECT_EQ(weir_prefix_idle_cold(prefix_), 2);
    EXPECT_EQ(free_blocks(), 10);
    EXPECT_FALSE(weir_tiers_may_try(store_, &holders));

    weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &failing);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 4), WEIR_OK) << "by dropping what is in memory";
    EXPECT_TRUE(weir_kv_lower_tier_fails(store_));
    keep(tokens(64, 2), nullptr);
    EXPECT_EQ(free_blocks(), 4) << "three free ones, and one that is cached in memory";
    EXPECT_TRUE(weir_tiers_may_try(store_, &holders));
    weir_kv_sequence s = sequence(tokens(64, 3));
    ASSERT_TRUE(compute(&s, 64));
    running_ = &s;
    EXPECT_EQ(free_blocks(), 3);
    EXPECT_FALSE(weir_tiers_may_try(store_, &holders));

    weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), nullptr);
    EXPECT_EQ(reclaim(WEIR_RECLAIM_FOR_MEMORY, 3), WEIR_OK);
    EXPECT_FALSE(weir_kv_lower_tier_fails(store_));
    EXPECT_EQ(free_blocks(), 9);
    weir_kv_sequence_close(&s);
}

} // namespace
} // namespace prefix
