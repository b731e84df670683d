/* Pruned tables and the prefix cache, which hold the same pages: what can be reclaimed, and that
 * the cache stays sound. */
#include <string.h>

#include "engine/kv/prefix/pruned_cache.h"
#include "tests/unit/kv/evict_tiers.h"
#include "tests/unit/kv/prefix_reference.h"
#include "tests/unit/kv/watched.h"

namespace evict {
namespace {

/* A cached prefix of which a pruned table holds some pages neither leaves memory nor counts as more
 * than dropping it frees. */
TEST_P(Tiers, CachedPrefixesKnowOfPrunedTables)
{
    open_tiers(20, 20);
    weir_prefix *prefix = nullptr;
    const weir_prefix_limits limits = { 40, 0, 0, 0, 0, 0, nullptr, 0, 0 };
    ASSERT_EQ(weir_prefix_open(&prefix, store_, ledger_, &limits, &error_), WEIR_OK) << error_.text;
    weir_kv_sequence a = {}, b = {};
    ASSERT_EQ(weir_kv_sequence_open(&a, store_, ledger_, 0, &error_), WEIR_OK);
    ASSERT_EQ(weir_kv_sequence_open(&b, store_, ledger_, 0, &error_), WEIR_OK);
    const int32_t n = 8 * 64;
    for (int32_t i = 0; i < n; i++) a.tokens[i] = i;
    a.n_tokens = a.n_computed = n;
    ASSERT_EQ(weir_kv_reserve(&a.table, store_, n), WEIR_OK);
    weir_kv_commit(&a.table, n);
    (void)weir_prefix_insert(prefix, &a, nullptr, nullptr, 0, false);
    const auto all_idle = [&] {
        return weir_kv_pages_others(weir_prefix_reclaimable(prefix)) +
               weir_prefix_reclaimable(prefix).sinks;
    };
    EXPECT_EQ(all_idle(), 0) << "a uses it";
    Lists lists((size_t)heads());
    for (int64_t h = 0; h < heads();
         h++) /* one head moves from its second row on, the others from their fifth page on */
        for (int32_t i = 0; i < 300; i++)
            lists[(size_t)h].push_back(h == 3 && i > 0 ? i + 1 : i < 260 ? i : i + 5);
    const Keep keep = keep_of(all_layers, lists);
    ASSERT_EQ(weir_kv_evict(evictor_, &a.table, &keep.keep, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(all_idle(), 8 * heads() - 4 * (heads() - 1));
    EXPECT_TRUE(weir_prefix_is_sound(prefix, &error_)) << error_.text;
    void *const *oldest[16];
    const int32_t found = weir_prefix_lru_blocks(prefix, oldest, 16);
    EXPECT_EQ(found, 4) << "blocks that a reads something of stay in memory";
    for (int32_t i = 0; i < found; i++)
        EXPECT_EQ(demote_cached(prefix, oldest[i]), WEIR_OK) << error_.text;
    EXPECT_TRUE(weir_kv_table_is_sound(store_, &a.table, &error_)) << error_.text;
    const int64_t n_nodes = weir_prefix_stats_of(prefix).n_nodes;
    EXPECT_EQ(weir_prefix_insert(prefix, &a, nullptr, nullptr, 0, false), 0);
    EXPECT_EQ(weir_prefix_stats_of(prefix).n_nodes, n_nodes) << "a pruned table is not cached";
    memcpy(b.tokens, a.tokens, (size_t)n * sizeof *b.tokens);
    b.n_tokens = n;
    EXPECT_EQ(weir_prefix_match(prefix, &b, nullptr, n).n_rows, n);
    EXPECT_TRUE(weir_kv_table_is_sound(store_, &b.table, &error_)) << error_.text;
    EXPECT_EQ(all_idle(), 0);
    weir_kv_sequence_close(&b);
    EXPECT_GT(all_idle(), 0);
    const weir_kv_pages most =
        weir_kv_pages_plus(weir_kv_store_free(store_), weir_prefix_reclaimable(prefix));
    EXPECT_TRUE(weir_prefix_reclaim(prefix, most)) << "what it says can be had";
    EXPECT_TRUE(weir_kv_store_is_sound(store_, &error_)) << error_.text;
    EXPECT_TRUE(weir_kv_table_is_sound(store_, &a.table, &error_)) << error_.text;
    weir_kv_sequence_close(&a);
    weir_prefix_close(prefix);
}

/* What goes on from the list uses the runs of the tree that hold the same pages. */
TEST_P(Tiers, TheTreeKnowsWhoGoesOnFromTheList)
{
    open_tiers(20, 20);
    weir_prefix *prefix = nullptr;
    const weir_prefix_limits limits = { 40, 0, 0, 4, 64 << 10, 0, nullptr, 0, 0 };
    Watched watched;
    ASSERT_EQ(weir_prefix_open(&prefix, store_, ledger_, &limits, &error_), WEIR_OK) << error_.text;
    watched.open(spec_, store_, ledger_);
    weir_kv_sequence &s = watched.all[0];
    const int32_t n = 4 * 64;
    const auto idle = [&] {
        const weir_kv_pages pages = weir_prefix_reclaimable(prefix);
        EXPECT_TRUE(weir_prefix_is_sound(prefix, &error_)) << error_.text;
        return weir_kv_pages_others(pages) + pages.sinks;
    };
    for (int32_t i = 0; i <= n; i++) s.tokens[i] = i;
    s.n_tokens = n + 1;
    s.n_computed = n;
    ASSERT_EQ(weir_kv_reserve(&s.table, store_, n), WEIR_OK);
    weir_kv_commit(&s.table, n);
    weir_policy_run_advance(s.policy_run, n, n);
    (void)weir_prefix_insert(prefix, &s, nullptr, nullptr, 0, false);
    ASSERT_TRUE(weir_policy_run_turn(s.policy_run, n, n));
    ASSERT_EQ(weir_pruned_insert(prefix, &s, nullptr, nullptr, false), nullptr);
    EXPECT_EQ(idle(), 0);
    watched.clear(&s);
    EXPECT_EQ(idle(), 4 * heads());
    for (int32_t i = 0; i <= n; i++) s.tokens[i] = i;
    s.n_tokens = n + 1;
    EXPECT_EQ(weir_pruned_match(prefix, &s, nullptr, false).n_rows, n);
    EXPECT_EQ(idle(), 0);
    watched.clear(&s);
    EXPECT_EQ(idle(), 4 * heads());
    watched.close();
    weir_prefix_close(prefix);
}

/* Sequences that continue cached and pruned ones, go on, are pruned, forked and cached, while
 * blocks come and go. */
class PrunedTree : public Tiers {
  protected:
    void start()
    {
        const weir_prefix_limits limits = { 60, 0, 0, 5, 64 << 10, 0, nullptr, 0, 0 };
        open_tiers(30, 30);
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK)
            << error_.text;
        watched_.open(spec_, store_, ledger_);
    }
    void end()
    {
        watched_.close();
        const weir_kv_pages most = weir_kv_store_all(store_);
        EXPECT_TRUE(weir_prefix_reclaim(prefix_, most)) << "nothing is in use: all can be had";
        EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n);
        weir_prefix_close(prefix_);
    }
    void begin(weir_kv_sequence &s)
    {
        watched_.clear(&s);
        const int32_t branch = (int32_t)(random_() % 3);
        s.n_tokens = 65 + (int32_t)(random_() % 500);
        for (int32_t i = 0; i < s.n_tokens; i++) s.tokens[i] = i < 150 ? i : i * 10 + branch;
        const bool is_continued =
            random_() % 2 == 0 && weir_pruned_match(prefix_, &s, nullptr, false).n_rows > 0;
        n_continued_ += is_continued;
        n_taken_ +=
            !is_continued && weir_prefix_match(prefix_, &s, nullptr, s.n_tokens - 1).n_rows > 0;
    }
    void go_on(weir_kv_sequence &s)
    {
        const int32_t left = s.n_tokens - s.n_computed,
                      n = left > 0 ? 1 + (int32_t)(random_() % (uint32_t)left) : 0;
        const int64_t page = s.table.n_rows / 64;
        void *const *const end = (void *const *)s.table.pages + page;
        if (weir_kv_cold_end(&s.table, store_) != nullptr &&
            weir_kv_promote(store_, end, s.table.capacity, page, &error_) != WEIR_OK)
            return;
        if (weir_kv_reserve(&s.table, store_, n) != WEIR_OK) {
            (void)weir_prefix_reclaim(prefix_, weir_kv_reserve_pages(&s.table, store_, n));
            return;
        }
        weir_kv_commit(&s.table, n);
        s.n_computed += n;
        if (n > 0) weir_policy_run_advance(s.policy_run, n, s.n_computed);
    }
    void prune(weir_kv_sequence &s)
    {
        Sequence t;
        t.table = s.table;
        for (int64_t h = 0; h < heads(); h++)
            t.heads.emplace_back((size_t)weir_kv_rows_at(&s.table, h));
        if (random_() % 2 == 0) return;
        const Keep keep = keep_of(two_layers, random_lists(t, two_layers));
        if (weir_kv_evict(evictor_, &s.table, &keep.keep, &error_) == WEIR_OK)
            n_pruned_ += s.table.is_pruned;
    }
    void fork(weir_kv_sequence &s, const weir_kv_sequence &other)
    {
        if (&s == &other || random_() % 2 == 0) return;
        watched_.clear(&s);
        EXPECT_EQ(weir_kv_sequence_fork(&s, &other), WEIR_OK);
    }
    /* Ends a turn, or makes a checkpoint, if it has computed more since. */
    void cache_pruned(weir_kv_sequence &s)
    {
        if (s.n_computed == 0 || random_() % 2 == 0) return;
        if (random_() % 2 == 0 && !weir_policy_run_turn(s.policy_run, s.n_computed, s.n_computed))
            return;
        weir_policy_run_advance(s.policy_run, 0, s.n_computed);
        n_kept_ += weir_pruned_insert(prefix_, &s, nullptr, nullptr, random_() % 4 == 0) == nullptr;
        if (random_() % 4 == 0) (void)weir_pruned_drop_oldest(prefix_);
    }
    /* The least recently used of the cache, and some of a sequence. */
    void demote_some(const weir_kv_sequence &s)
    {
        void *const *oldest[4];
        const int32_t n = weir_prefix_lru_blocks(prefix_, oldest, 1 + (int32_t)(random_() % 4));
        for (int32_t i = 0; i < n; i++) n_demoted_ += demote_cached(prefix_, oldest[i]) == WEIR_OK;
        for (int64_t p = 0; p < s.table.n_rows / 64; p++) {
            void *const *const at = (void *const *)s.table.pages + p;
            if (!s.table.is_pruned && weir_kv_may_leave(store_, at, s.table.capacity) &&
                random_() % 2 == 0)
                n_demoted_ += weir_kv_demote(store_, at, s.table.capacity, p, &error_) == WEIR_OK;
        }
    }
    void act()
    {
        weir_kv_sequence &s = watched_.all[random_() % 4], &other = watched_.all[random_() % 4];
        switch (random_() % 9) {
        case 0: begin(s); break;
        case 1:
        case 2: go_on(s); break;
        case 3:
            (void)weir_prefix_insert(prefix_, &s, nullptr, nullptr, 0, random_() % 2 == 0);
            break;
        case 4: prune(s); break;
        case 5: fork(s, other); break;
        case 6:
        case 7: cache_pruned(s); break;
        default: demote_some(s);
        }
    }
    void expect_sound_tree()
    {
        if (random_() % 3 > 0) prefix_reference::expect_same(prefix_);
        ASSERT_FALSE(HasFailure());
        ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text;
        ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_)) << error_.text;
        for (const weir_kv_sequence &each : watched_.all)
            ASSERT_TRUE(weir_kv_table_is_sound(store_, &each.table, &error_)) << error_.text;
    }
    void expect_what_it_says(int size_class)
    {
        weir_kv_pages most =
            weir_kv_pages_plus(weir_kv_store_free(store_), weir_prefix_reclaimable(prefix_));
        ASSERT_TRUE(weir_prefix_reclaim(prefix_, most)) << "what it says can be had";
        most.others[size_class]++;
        ASSERT_FALSE(weir_prefix_reclaim(prefix_, most)) << "and no more";
    }

    weir_prefix *prefix_ = nullptr;
    Watched watched_;
    int n_pruned_ = 0, n_demoted_ = 0, n_taken_ = 0, n_kept_ = 0, n_continued_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Formats, PrunedTree, each_format(), format_name);

TEST_P(PrunedTree, StaysSound)
{
    start();
    for (int step = 0; step < 2500 && !HasFatalFailure(); step++) {
        SCOPED_TRACE("step " + std::to_string(step));
        act();
        expect_sound_tree();
        if (step % 50 == 49) expect_what_it_says(step / 50 % 2);
    }
    if (HasFatalFailure()) return;
    for (const int n : { n_pruned_, n_taken_, n_demoted_, n_kept_, n_continued_ }) EXPECT_GT(n, 20);
    end();
}

} // namespace
} // namespace evict
