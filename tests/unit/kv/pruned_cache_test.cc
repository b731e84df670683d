/* Entries of the pruned cache: which of a conversation stay, and which go first. */
#include "engine/kv/prefix/pruned_cache.h"

#include "tests/unit/kv/evict_tiers.h"
#include "tests/unit/kv/watched.h"

namespace evict {
namespace {

enum Kind { END, CHECKPOINT };

class PrunedCache : public Tiers {
  protected:
    void start(int32_t n_pruned)
    {
        open_tiers(40, 20);
        const weir_prefix_limits limits = { 40, 0, 0, n_pruned, 256 << 10, 0, nullptr, 0, 0 };
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK)
            << error_.text;
        watched_.open(spec_, store_, ledger_);
    }
    void TearDown() override
    {
        watched_.close();
        weir_prefix_close(prefix_);
        Tiers::TearDown();
    }
    /* talk: of the tokens after the first 64, which all conversations have. */
    weir_kv_sequence *fill(int32_t i, int32_t n, int32_t talk)
    {
        weir_kv_sequence *const s = &watched_.all[i];
        watched_.clear(s);
        for (int32_t k = 0; k < n; k++) s->tokens[k] = k < 64 ? k : k * 10 + talk;
        s->n_tokens = n;
        return s;
    }
    const char *keep(Kind kind, int32_t n, bool is_spare, int32_t talk = 0)
    {
        weir_kv_sequence *const s = fill(0, n, talk);
        EXPECT_EQ(weir_kv_reserve(&s->table, store_, n), WEIR_OK);
        weir_kv_commit(&s->table, n);
        s->n_computed = n;
        weir_policy_run_advance(s->policy_run, n, n);
        if (kind == END) EXPECT_TRUE(weir_policy_run_turn(s->policy_run, n, n));
        const char *const why = weir_pruned_insert(prefix_, s, nullptr, nullptr, is_spare);
        EXPECT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text;
        watched_.clear(s);
        return why;
    }
    /* What a prompt of n tokens continues, which is a use of it. */
    weir_prefix_hit use(int32_t n, int32_t talk = 0)
    {
        weir_kv_sequence *const s = fill(1, n, talk);
        const weir_prefix_hit hit = weir_pruned_match(prefix_, s, nullptr, false);
        EXPECT_EQ(s->n_computed, hit.n_rows);
        watched_.clear(s);
        return hit;
    }
    weir_prefix *prefix_ = nullptr;
    Watched watched_;
};
INSTANTIATE_TEST_SUITE_P(
    Formats, PrunedCache, ::testing::Values(Formats{ "rows", { f16, q8, q8 }, {} })
);

TEST_P(PrunedCache, SpareEntriesGoFirst)
{
    start(5);
    EXPECT_EQ(keep(END, 100, false, 1), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true, 2), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true, 3), nullptr);
    EXPECT_EQ(use(200, 3).n_rows, 128) << "not spare any more";
    EXPECT_TRUE(weir_pruned_drop_oldest(prefix_));
    EXPECT_EQ(use(200, 2).n_rows, 0);
    EXPECT_TRUE(weir_pruned_drop_oldest(prefix_));
    EXPECT_EQ(use(200, 1).n_rows, 0) << "the least recently used one";
    EXPECT_EQ(use(200, 3).n_rows, 128);
    EXPECT_TRUE(weir_pruned_drop_oldest(prefix_));
    EXPECT_FALSE(weir_pruned_drop_oldest(prefix_));
}

TEST_P(PrunedCache, PagesAreOfWhatWasUsedLeastRecently)
{
    start(5);
    weir_kv_sequence *const s = fill(2, 256, 4);
    EXPECT_EQ(weir_kv_reserve(&s->table, store_, 256), WEIR_OK);
    weir_kv_commit(&s->table, 256);
    s->n_computed = 256;
    (void)weir_prefix_insert(prefix_, s, nullptr, nullptr, 0, false);
    watched_.clear(s);
    EXPECT_EQ(keep(END, 100, false, 1), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true, 2), nullptr);
    const auto reclaim_one = [&] {
        weir_kv_pages wanted = weir_kv_store_free(store_);
        wanted.others[0]++;
        EXPECT_TRUE(weir_prefix_reclaim(prefix_, wanted));
    };
    for (int64_t left = 192; left >= 0; left -= 64) {
        reclaim_one();
        EXPECT_EQ(weir_prefix_stats_of(prefix_).n_tokens, left);
    }
    EXPECT_EQ(use(200, 1).n_rows, 100);
    reclaim_one();
    EXPECT_EQ(use(200, 2).n_rows, 0);
    EXPECT_EQ(use(200, 1).n_rows, 100);
}

TEST_P(PrunedCache, SpareEntriesTakeOnlyTheRoomOfSpareOnes)
{
    start(2);
    EXPECT_EQ(keep(CHECKPOINT, 128, false, 1), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true, 2), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true, 3), nullptr) << "in place of the other spare one";
    EXPECT_EQ(use(200, 2).n_rows, 0);
    EXPECT_EQ(use(200, 3).n_rows, 128);
    EXPECT_NE(keep(CHECKPOINT, 128, true, 4), nullptr) << "none is spare";
    EXPECT_EQ(use(200, 1).n_rows, 128);
    EXPECT_EQ(keep(CHECKPOINT, 128, false, 4), nullptr);
    EXPECT_EQ(use(200, 3).n_rows, 0) << "the least recently used one";
    EXPECT_EQ(use(200, 1).n_rows, 128);
    EXPECT_EQ(keep(END, 100, false, 5), nullptr);
    EXPECT_EQ(keep(END, 100, false, 6), nullptr);
    EXPECT_EQ(use(200, 1).n_rows, 128) << "ends have places of their own";
}

TEST_P(PrunedCache, OfTheBeginningsOfASequenceFewStay)
{
    start(8);
    EXPECT_EQ(keep(END, 90, false), nullptr);
    EXPECT_EQ(keep(END, 110, false), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 64, true), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 192, false), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 224, true), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 256, true), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 320, true), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 320, true), nullptr) << "is there";
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_pruned, 2) << "checkpoints drop no ends";
    EXPECT_EQ(keep(END, 330, false), nullptr);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_pruned, 2);
    EXPECT_EQ(use(400).n_rows, 330);
    EXPECT_EQ(use(330).n_rows, 320) << "the last checkpoint";
    EXPECT_EQ(use(320).n_rows, 256) << "the one before";
    EXPECT_EQ(use(256).n_rows, 192) << "the last one that was not spare";
    EXPECT_EQ(use(192).n_rows, 110) << "the end before";
    EXPECT_EQ(use(110).n_rows, 64) << "the first checkpoint";
    EXPECT_EQ(use(100, 7).n_rows, 64) << "also of another conversation";
}

TEST_P(PrunedCache, ATurnThatGoesOnOtherwiseIsLeft)
{
    start(5);
    EXPECT_EQ(keep(CHECKPOINT, 64, true), nullptr);
    EXPECT_EQ(keep(CHECKPOINT, 128, true), nullptr);
    EXPECT_FALSE(use(200).is_left) << "checkpoints are not left";
    EXPECT_FALSE(use(200).is_rewritten);
    EXPECT_EQ(keep(END, 180, false), nullptr);
    EXPECT_FALSE(use(200).is_left);
    EXPECT_FALSE(use(150).is_left) << "the same tokens, fewer of them";
    const weir_prefix_hit hit = use(200, 1);
    EXPECT_TRUE(hit.is_left);
    EXPECT_FALSE(hit.is_rewritten);
    EXPECT_EQ(hit.n_rows, 64);
    EXPECT_EQ(hit.n_matched, 64);
    EXPECT_EQ(keep(CHECKPOINT, 128, false), nullptr);
    EXPECT_TRUE(use(150).is_rewritten) << "in place of an end";
    EXPECT_FALSE(use(200).is_rewritten) << "continues the end";
}

} // namespace
} // namespace evict
