/* Layers with pages of different sizes, and a pruned sequence that holds pages of one size only:
 * free pages of the other sizes are of no use to a sequence that needs all. */
#include <gtest/gtest.h>

#include <cstring>

#include <vector>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"

namespace {

class SizeClass : public ::testing::Test {
  protected:
    static constexpr int64_t layers = 2, kv_heads = 2, blocks = 6, window = 640;

    void SetUp() override
    {
        const size_t caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        weir_kv_spec spec = {};
        spec.n_layers = layers;
        spec.geometry = geometry_;
        spec.formats = formats_;
        spec.pages.n = blocks * layers * kv_heads;
        spec.max_rows = window;
        spec.evicts = true;
        ASSERT_EQ(weir_kv_store_open(&store_, &spec, ledger_, &error_), WEIR_OK) << error_.text;
        const weir_prefix_limits limits = { 40, 0, 0, 0, 0, 0, nullptr, 0, 0 };
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK);
        for (weir_kv_sequence *s : { &pruned_, &whole_ })
            ASSERT_EQ(weir_kv_sequence_open(s, store_, ledger_, 0, &error_), WEIR_OK);
        cache(128);
    }
    void TearDown() override
    {
        for (weir_kv_sequence *s : { &pruned_, &whole_ }) weir_kv_sequence_close(s);
        weir_prefix_close(prefix_);
        EXPECT_EQ(weir_kv_store_free_pages(store_), blocks * layers * kv_heads);
        weir_kv_store_close(store_);
        weir_ledger_close(ledger_);
    }
    void cache(int32_t n)
    {
        weir_kv_sequence *const s = &whole_;
        for (int32_t i = 0; i < n; i++) s->tokens[i] = i;
        s->n_tokens = s->n_computed = n;
        ASSERT_EQ(weir_kv_reserve(&s->table, store_, n), WEIR_OK);
        weir_kv_commit(&s->table, n);
        EXPECT_EQ(weir_prefix_insert(prefix_, s, nullptr, nullptr, 0, false), 0);
        weir_kv_sequence_clear(s);
    }
    /* `n_pages` pages for each head of the first layer, none for the second. */
    void prune_to(int32_t n_pages)
    {
        const int32_t rows[layers * kv_heads] = { n_pages * 64, n_pages * 64, 0, 0 };
        ASSERT_EQ(weir_kv_reserve_pruned(&pruned_.table, store_, rows), WEIR_OK);
    }
    int64_t n_cached() const { return weir_prefix_stats_of(prefix_).n_tokens; }

    const weir_kv_geometry geometry_[layers] = { { kv_heads, 32, 32, 0, 0, false },
                                                 { kv_heads, 32, 32, 0, kv_heads, false } };
    const weir_kv_pair formats_[layers] = { { WEIR_KV_F16, WEIR_KV_F16 },
                                            { WEIR_KV_Q8_0, WEIR_KV_Q8_0 } };
    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_prefix *prefix_ = nullptr;
    weir_kv_sequence pruned_ = {}, whole_ = {};
    weir_error error_ = {};
};

/* However many heads and sizes there are: sharing costs a count for each block. */
TEST_F(SizeClass, ABlockIsCountedOnce)
{
    weir_kv_table *const a = &pruned_.table, *const b = &whole_.table;
    const auto counted = [&](const auto &change) {
        const int64_t before = weir_kv_counted(store_);
        change();
        return weir_kv_counted(store_) - before;
    };
    const int64_t all = weir_kv_store_free_pages(store_), block = layers * kv_heads;
    ASSERT_EQ(weir_kv_reserve(a, store_, 192), WEIR_OK);
    weir_kv_commit(a, 192);
    const auto share = [&] { EXPECT_EQ(weir_kv_share(b, a, store_), WEIR_OK); };
    EXPECT_EQ(counted(share), 3);
    void *const last = a->pages[(block - 1) * a->capacity + 1];
    EXPECT_EQ(weir_kv_page_refs(store_, last), 2) << "the count of its block";
    EXPECT_EQ(counted([&] { weir_kv_truncate(a, store_, 64); }), 2);
    EXPECT_EQ(weir_kv_page_refs(store_, last), 1);
    EXPECT_EQ(weir_kv_store_free_pages(store_), all - 3 * block);
    EXPECT_EQ(a->pages[(block - 1) * a->capacity + 1], nullptr);
    EXPECT_EQ(counted([&] { weir_kv_truncate(b, store_, 0); }), 3);
    EXPECT_EQ(weir_kv_page_refs(store_, last), 0);
    EXPECT_EQ(weir_kv_store_free_pages(store_), all - block);
    EXPECT_TRUE(weir_kv_store_is_sound(store_, &error_)) << error_.text;
}

TEST_F(SizeClass, FreePagesOfAnotherSizeDoNotFit)
{
    prune_to(4); /* all of the first layer's 12 pages, with those of the cache */
    const weir_kv_pages wanted = weir_kv_reserve_pages(&whole_.table, store_, 64);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 8) << "twice what a block has";
    EXPECT_FALSE(weir_kv_pages_fit(wanted, weir_kv_store_free(store_)));
    EXPECT_EQ(weir_kv_reserve(&whole_.table, store_, 64), WEIR_EFULL);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, wanted));
    EXPECT_EQ(n_cached(), 64) << "one block was missing";
    EXPECT_EQ(weir_kv_reserve(&whole_.table, store_, 64), WEIR_OK);
}

TEST_F(SizeClass, NothingIsDroppedForASizeThatCannotBeHad)
{
    weir_prefix_cursor cursor = {};
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    prune_to(4);
    ASSERT_TRUE(weir_prefix_next(prefix_, &cursor, &whole_, salt, name));
    EXPECT_EQ(weir_prefix_share(prefix_, &whole_, nullptr), 128) << "in use";
    const weir_kv_pages one = weir_kv_pages_of(weir_kv_store_spec(store_), 0, 1);
    EXPECT_FALSE(weir_prefix_reclaim(prefix_, one));
    EXPECT_EQ(n_cached(), 128);
}

/* A store counts as its specification does: sinks apart, classes in the same order. */
TEST(SizeClasses, AStoreCountsPagesAsItsSpecificationDoes)
{
    const weir_kv_pair formats[3] = { { WEIR_KV_F16, WEIR_KV_F16 },
                                      { WEIR_KV_Q8_0, WEIR_KV_Q8_0 },
                                      { WEIR_KV_F16, WEIR_KV_F16 } };
    for (const int32_t n_sinks : { 0, 2 }) {
        const size_t caps[WEIR_TIER_COUNT] = {};
        weir_ledger *ledger = nullptr;
        weir_kv_store *store = nullptr;
        weir_error error = {};
        weir_kv_spec spec = {};
        spec.n_layers = 3;
        weir_kv_geometry geometry[3] = {};
        for (weir_kv_geometry &g : geometry) g.n_heads = 2, g.key_dim = g.value_dim = 32;
        weir_kv_number_heads(geometry, 3);
        spec.geometry = geometry;
        spec.formats = formats;
        spec.pages.n = 10 * 6;
        spec.max_rows = 640;
        spec.sinks = { { WEIR_KV_F32, WEIR_KV_F32 }, n_sinks };
        spec.pages.n_sinks = n_sinks * 6;
        ASSERT_EQ(weir_ledger_open(&ledger, caps), WEIR_OK);
        ASSERT_EQ(weir_kv_store_open(&store, &spec, ledger, &error), WEIR_OK) << error.text;
        for (int64_t first = 0; first < 5; first++) {
            for (int64_t end = 0; end < 9; end++) {
                const weir_kv_pages want = weir_kv_pages_of(&spec, first, end),
                                    got = weir_kv_store_pages_of(store, first, end);
                EXPECT_EQ(memcmp(&got, &want, sizeof got), 0) << first << " to " << end;
                const int64_t n = end > first ? (end - first) * 6 : 0;
                EXPECT_EQ(got.sinks + weir_kv_pages_others(got), n);
            }
        }
        weir_kv_store_close(store);
        weir_ledger_close(ledger);
    }
}

/* The table of a sequence has entries for 8 pages of each head at first. While another one is
 * pruned, pages are counted by head: those past the entries are missing, too. */
TEST(SizeClasses, ATableThatOutgrowsItsEntriesCountsAllPages)
{
    const size_t caps[WEIR_TIER_COUNT] = {};
    const weir_kv_geometry geometry = { 2, 32, 32, 0, 0, false };
    const weir_kv_pair format = { WEIR_KV_F16, WEIR_KV_F16 };
    const int32_t one_row[] = { 1, 1 };
    weir_ledger *ledger = nullptr;
    weir_kv_store *store = nullptr;
    weir_kv_table pruned = {}, whole = {};
    weir_error error = {};
    weir_kv_spec spec = {};
    spec.n_layers = 1;
    spec.geometry = &geometry;
    spec.formats = &format;
    spec.pages.n = 10 * 2;
    spec.max_rows = 640;
    spec.evicts = true;
    ASSERT_EQ(weir_ledger_open(&ledger, caps), WEIR_OK);
    ASSERT_EQ(weir_kv_store_open(&store, &spec, ledger, &error), WEIR_OK) << error.text;
    for (weir_kv_table *const table : { &pruned, &whole })
        ASSERT_EQ(weir_kv_table_open(table, store, &error), WEIR_OK) << error.text;
    ASSERT_EQ(weir_kv_reserve_pruned(&pruned, store, one_row), WEIR_OK);
    ASSERT_EQ(weir_kv_reserve(&whole, store, 512), WEIR_OK);
    weir_kv_commit(&whole, 512);
    ASSERT_EQ(whole.capacity, 8);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_reserve_pages(&whole, store, 128)), 4);
    EXPECT_EQ(weir_kv_reserve(&whole, store, 128), WEIR_EFULL) << "2 pages are free";
    EXPECT_EQ(weir_kv_reserve(&whole, store, 64), WEIR_OK);
    for (weir_kv_table *const table : { &pruned, &whole }) weir_kv_table_close(table, store);
    weir_kv_store_close(store);
    weir_ledger_close(ledger);
}

} // namespace
