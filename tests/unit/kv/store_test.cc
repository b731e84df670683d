#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kv/pool/sequence.h"
#include "engine/kv/pool/store.h"
#include "engine/kv/tiers/residency.h"
#include "offload/ledger.h"
#include "tests/unit/kv/store_fixture.h"

namespace {

class Store : public StoreFixture {
  protected:
    using Formats = std::vector<weir_kv_pair>;
    static constexpr weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 };

    void open(
        int64_t n_pages, int64_t max_rows = 640, const Formats &formats = { f16, f16 },
        int64_t dim = 8, weir_kv_sinks sinks = {}, int64_t n_sink_pages = 0
    )
    {
        formats_ = formats;
        const size_t caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        geometry_.assign(formats.size(), { 3, dim, dim, 0, 0, false });
        weir_kv_number_heads(geometry_.data(), (int64_t)geometry_.size());
        spec_ = { (int64_t)formats.size(),
                  geometry_.data(),
                  formats_.data(),
                  { n_pages, 0, 0, n_sink_pages },
                  max_rows,
                  nullptr,
                  sinks,
                  false,
                  false,
                  0,
                  {} };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
    }
    void TearDown() override
    {
        weir_kv_store_close(store_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        weir_ledger_close(ledger_);
    }
    Formats formats_;
    std::vector<weir_kv_geometry> geometry_;
};

TEST_F(Store, ChargesThePoolOnceAndGivesPagesBack)
{
    open(60);
    EXPECT_EQ(
        weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV),
        60 * weir_kv_page_bytes(&spec_, 0)
    );
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 65), WEIR_OK);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60 - 2 * 6);
    commit_to(t, 65);
    weir_kv_truncate(&t, store_, 64);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60 - 6);
    weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60);
}

TEST_F(Store, RefusesWithoutChangingAnything)
{
    open(13);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 128), WEIR_OK);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 1);
    EXPECT_EQ(reserve_to(t, 129), WEIR_EFULL);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 1);
    EXPECT_EQ(t.n_pages, 2);
    weir_kv_table_close(&t, store_);
}

TEST_F(Store, SharesAndCopiesOnWrite)
{
    open(60);
    weir_kv_table a = table(), b = table();
    ASSERT_EQ(reserve_to(a, 100), WEIR_OK);
    for (int h = 0; h < 6; h++)
        memset(a.pages[h * a.capacity + 1], 'a' + h, weir_kv_page_bytes(&spec_, 0));
    commit_to(a, 100);
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_OK);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60 - 12);
    EXPECT_EQ(a.pages[1], b.pages[1]);
    ASSERT_EQ(reserve_to(b, 101), WEIR_OK);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60 - 18);
    EXPECT_EQ(a.pages[0], b.pages[0]) << "the full page stays shared";
    for (int h = 0; h < 6; h++) {
        EXPECT_NE(a.pages[h * a.capacity + 1], b.pages[h * a.capacity + 1]);
        EXPECT_EQ(
            memcmp(
                a.pages[h * a.capacity + 1], b.pages[h * a.capacity + 1],
                weir_kv_page_bytes(&spec_, 0)
            ),
            0
        );
    }
    ASSERT_EQ(reserve_to(a, 101), WEIR_OK);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60 - 18) << "a holds its last page alone by now";
    weir_kv_table_close(&a, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60 - 12);
    weir_kv_table_close(&b, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 60);
}

/* What a step needs is counted by blocks: new ones, those of sinks apart, each size class, and a
 * copy of a shared last page, for which a full pool has no room. */
TEST_F(Store, GrowthIsCountedInBlocks)
{
    const weir_kv_pair f32 = { WEIR_KV_F32, WEIR_KV_F32 };
    open(6 * 6, 640, { f16, f32 }, 8, { f32, 1 }, 2 * 6);
    weir_kv_table a = table(), b = table();
    const auto growth = [this](const weir_kv_table &t, int64_t n) {
        const weir_kv_pages pages = weir_kv_reserve_pages(&t, store_, n);
        return std::vector<int64_t>{ pages.sinks, pages.others[0], pages.others[1] };
    };
    EXPECT_EQ(growth(a, 200), (std::vector<int64_t>{ 6, 9, 9 }));
    ASSERT_EQ(reserve_to(a, 200), WEIR_OK);
    commit_to(a, 200);
    EXPECT_EQ(growth(a, 56), (std::vector<int64_t>{ 0, 0, 0 })) << "its last page has room";
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_OK);
    EXPECT_EQ(growth(b, 1), (std::vector<int64_t>{ 0, 3, 3 })) << "a copy of the last page";
    EXPECT_EQ(growth(b, 57), (std::vector<int64_t>{ 0, 6, 6 }));
    EXPECT_EQ(reserve_to(b, 257), WEIR_EFULL) << "one block past the sinks is left";
    EXPECT_EQ(reserve_to(b, 201), WEIR_OK);
    weir_kv_table_close(&a, store_);
    weir_kv_table_close(&b, store_);
}

TEST_F(Store, RecycledPagesAreZero)
{
    open(6);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 1), WEIR_OK);
    memset(t.pages[0], 0xff, weir_kv_page_bytes(&spec_, 0));
    weir_kv_truncate(&t, store_, 0);
    ASSERT_EQ(reserve_to(t, 1), WEIR_OK);
    const std::vector<char> zero(weir_kv_page_bytes(&spec_, 0));
    for (int h = 0; h < 6; h++)
        EXPECT_EQ(memcmp(t.pages[h * t.capacity], zero.data(), zero.size()), 0);
    weir_kv_table_close(&t, store_);
}

/* Every page of every layer is its own memory, of the size of its layer, in one pool. */
TEST_F(Store, LayersMayDifferInTheirFormats)
{
    const Formats formats = { f16,
                              { WEIR_KV_Q8_0, WEIR_KV_TURBO4 },
                              { WEIR_KV_Q8_0, WEIR_KV_TURBO4 },
                              f16,
                              { WEIR_KV_F16, WEIR_KV_Q4_0 } };
    open(5 * 3 * 6, 640, formats, 64);
    size_t block = 0;
    for (const weir_kv_pair &format : formats)
        block += 3 * (size_t)weir_kv_bytes(format.k, format.v, 64, 64);
    EXPECT_EQ(weir_kv_block_bytes(&spec_), block);
    EXPECT_EQ(weir_kv_pool_bytes(&spec_), 6 * block);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), 6 * block);
    weir_kv_table a = table(), b = table();
    for (int round = 0; round < 2; round++) {
        ASSERT_EQ(reserve_to(a, 64 * 4), WEIR_OK);
        ASSERT_EQ(reserve_to(b, 64 * 2), WEIR_OK);
        EXPECT_EQ(weir_kv_store_free_pages(store_), 0);
        EXPECT_EQ(reserve_to(b, 64 * 2 + 1), WEIR_EFULL);
        int tag = 0;
        const auto each = [&](const auto &use) {
            tag = 0;
            for (const weir_kv_table *t : { &a, &b })
                for (int h = 0; h < 15; h++)
                    for (int64_t p = 0; p < t->n_pages; p++)
                        use((char *)t->pages[h * t->capacity + p],
                            weir_kv_page_bytes(&spec_, h / 3), (char)(1 + tag++));
        };
        each([](char *page, size_t bytes, char) {
            for (size_t i = 0; i < bytes; i++) ASSERT_EQ(page[i], 0);
        });
        each([](char *page, size_t bytes, char value) { memset(page, value, bytes); });
        each([](char *page, size_t bytes, char value) {
            for (size_t i = 0; i < bytes; i++) ASSERT_EQ(page[i], value);
        });
        weir_kv_truncate(&a, store_, 0);
        weir_kv_truncate(&b, store_, 0);
        EXPECT_EQ(weir_kv_store_free_pages(store_), 90);
    }
    weir_kv_table_close(&a, store_);
    weir_kv_table_close(&b, store_);
}

TEST_F(Store, PagesOfUnequalSizeComeInWholeBlocks)
{
    const size_t caps[WEIR_TIER_COUNT] = {};
    const weir_kv_pair formats[] = { f16, { WEIR_KV_Q8_0, WEIR_KV_Q8_0 } };
    const weir_kv_geometry geometry[] = { { 3, 32, 32, 0, 0, false }, { 3, 32, 32, 0, 3, false } };
    const weir_kv_spec spec = { 2,     geometry, formats, { 13, 0, 0, 0 }, 640, nullptr, {}, false,
                                false, 0,        {} };
    ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
    EXPECT_EQ(weir_kv_store_open(&store_, &spec, ledger_, &error_), WEIR_EINVAL);
    EXPECT_NE(strstr(error_.text, "no multiple of the 6"), nullptr) << error_.text;
}

/* Layers of 1, 4 and 2 heads and of unlike widths: pages of two sizes. */
TEST_F(Store, LayersKeepHeadsOfTheirOwn)
{
    const size_t caps[WEIR_TIER_COUNT] = {};
    const weir_kv_pair formats[] = { f16, f16, f16 };
    weir_kv_geometry geometry[] = { { 1, 24, 16, 0, 0, false },
                                    { 4, 32, 32, 0, 0, false },
                                    { 2, 24, 16, 0, 0, false } };
    weir_kv_number_heads(geometry, 3);
    EXPECT_EQ(geometry[1].first_head, 1);
    EXPECT_EQ(geometry[2].first_head, 5);
    spec_ = { 3, geometry, formats, { 70, 0, 0, 0 }, 640, nullptr, {}, false, false, 0, {} };
    EXPECT_EQ(weir_kv_n_heads(&spec_), 7);
    for (int64_t h = 0; h < 7; h++)
        EXPECT_EQ(weir_kv_layer_of(&spec_, h), h < 1 ? 0 : h < 5 ? 1 : 2);
    const size_t narrow = 64 * (24 + 16) * 2, wide = 64 * (32 + 32) * 2;
    EXPECT_EQ(weir_kv_block_bytes(&spec_), 3 * narrow + 4 * wide);
    ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
    ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
    const weir_kv_pages all = weir_kv_store_free(store_);
    EXPECT_EQ(all.others[0], 30);
    EXPECT_EQ(all.others[1], 40);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 65), WEIR_OK);
    commit_to(t, 65);
    const weir_kv_pages left = weir_kv_store_free(store_);
    EXPECT_EQ(left.others[0], 30 - 2 * 3);
    EXPECT_EQ(left.others[1], 40 - 2 * 4);
    for (int64_t h = 0; h < 7; h++) {
        weir_kv_pages page = {};
        weir_kv_pages_add(store_, &page, t.pages[h * t.capacity + 1]);
        EXPECT_EQ(page.others[1], h >= 1 && h < 5 ? 1 : 0) << h;
    }
    EXPECT_EQ(weir_kv_table_held_bytes(&t, store_), 2 * weir_kv_block_bytes(&spec_));
    weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 70);
    weir_kv_store *refused = nullptr;
    geometry[2].first_head = 4; /* a head of the layer before it */
    EXPECT_EQ(weir_kv_store_open(&refused, &spec_, ledger_, &error_), WEIR_EINVAL);
    geometry[2].first_head = 5;
    spec_.sinks = { f16, 1 }; /* their pages are of one size */
    EXPECT_EQ(weir_kv_sink_block_bytes(&spec_), 7 * wide);
}

/* Rows that wait for their page to be full are one table's own, and a fork's copy of them goes its
 * own way. */
TEST_F(Store, UnsealedRowsAreOnesOwn)
{
    open(60, 640, { { WEIR_KV_INT8, WEIR_KV_KIVI2 }, f16 }, 32);
    EXPECT_TRUE(weir_kv_is_paged(&spec_));
    const size_t pool = weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV),
                 unsealed = 2 * 64 * 32 * 2;
    weir_kv_table a = table(), b = table();
    EXPECT_EQ(weir_kv_unsealed_rows_bytes(&spec_), 3 * unsealed);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), pool + 2 * 3 * unsealed);
    for (int h = 0; h < 6; h++) ASSERT_EQ(a.unsealed[h] != nullptr, h < 3) << "f16 has none";
    ASSERT_EQ(reserve_to(a, 100), WEIR_OK);
    for (int h = 0; h < 3; h++) memset(a.unsealed[h], 'a' + h, unsealed);
    commit_to(a, 100);
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_OK);
    for (int h = 0; h < 3; h++) {
        EXPECT_NE(a.unsealed[h], b.unsealed[h]);
        EXPECT_EQ(memcmp(a.unsealed[h], b.unsealed[h], unsealed), 0);
        memset(b.unsealed[h], 'z', unsealed);
        EXPECT_EQ(*(char *)a.unsealed[h], 'a' + h);
    }
    weir_kv_truncate(&a, store_, 70);
    weir_kv_truncate(&a, store_, 64);
    weir_kv_table_close(&a, store_);
    weir_kv_table_close(&b, store_);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), pool);
}

/* Sinks are of their own size in all layers, zero when handed out, copied as what they are; either
 * sort may be the one that is missing. */
TEST_F(Store, SinksHaveTheirPartOfThePool)
{
    const weir_kv_pair q8 = { WEIR_KV_Q8_0, WEIR_KV_Q8_0 }, f32 = { WEIR_KV_F32, WEIR_KV_F32 };
    open(6 * 9, 640, { q8, f16 }, 32, { f32, 2 }, 6 * 3);
    const size_t sink = (size_t)weir_kv_bytes(WEIR_KV_F32, WEIR_KV_F32, 32, 32);
    EXPECT_EQ(weir_kv_sink_block_bytes(&spec_), 6 * sink);
    EXPECT_EQ(weir_kv_blocks_bytes(&spec_, 1), 6 * sink);
    EXPECT_EQ(weir_kv_blocks_bytes(&spec_, 5), 12 * sink + 3 * weir_kv_block_bytes(&spec_));
    EXPECT_EQ(
        weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV),
        18 * sink + 6 * weir_kv_block_bytes(&spec_)
    );
    weir_kv_table a = table(), b = table();
    ASSERT_EQ(reserve_to(a, 90), WEIR_OK);
    EXPECT_EQ(weir_kv_store_free(store_).sinks, 6);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_store_free(store_)), 36);
    for (int h = 0; h < 6; h++)
        for (int64_t p = 0; p < 2; p++)
            memset(a.pages[h * a.capacity + p], 1 + h, sink); /* under ASan: they are that large */
    commit_to(a, 90);
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_OK);
    ASSERT_EQ(reserve_to(b, 64 * 8), WEIR_OK) << "a copy of the second sink, and all others";
    EXPECT_EQ(weir_kv_store_free_pages(store_), 0);
    for (int h = 0; h < 6; h++) {
        EXPECT_NE(a.pages[h * a.capacity + 1], b.pages[h * b.capacity + 1]);
        EXPECT_EQ(memcmp(a.pages[h * a.capacity + 1], b.pages[h * b.capacity + 1], sink), 0);
    }
    EXPECT_EQ(reserve_to(a, 129), WEIR_EFULL) << "no page past the sinks is left";
    weir_kv_truncate(&b, store_, 64);
    weir_kv_table c = table();
    EXPECT_EQ(reserve_to(c, 65), WEIR_EFULL) << "one sink is left";
    EXPECT_EQ(c.n_pages, 0);
    EXPECT_EQ(reserve_to(c, 64), WEIR_OK);
    const std::vector<char> zero(sink);
    for (int h = 0; h < 6; h++) EXPECT_EQ(memcmp(c.pages[h * c.capacity], zero.data(), sink), 0);
    EXPECT_EQ(reserve_to(a, 64 * 8), WEIR_OK) << "what it lacks is past the sinks";
    for (weir_kv_table *t : { &a, &b, &c }) weir_kv_table_close(t, store_);
    EXPECT_EQ(weir_kv_store_free(store_).sinks, 18);
}

/* Random forks, growth, rewinds and ends against a model that counts pages by hand. */
class RandomStore : public Store, public ::testing::WithParamInterface<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Sinks, RandomStore, ::testing::Values(0, 1, 3));

TEST_P(RandomStore, UseKeepsTheCount)
{
    open(
        300, 640, { f16, f16 }, 8, { { WEIR_KV_F32, WEIR_KV_F16 }, GetParam() },
        GetParam() > 0 ? 90 : 0
    );
    std::mt19937 random(1);
    std::vector<weir_kv_table> tables;
    for (int i = 0; i < 5; i++) tables.push_back(table());
    for (int step = 0; step < 3000; step++) {
        weir_kv_table &t = tables[random() % 5], &other = tables[random() % 5];
        switch (random() % 4) {
        case 0: {
            const int64_t rows = t.n_rows + static_cast<int64_t>(random() % 90);
            if (rows <= spec_.max_rows && reserve_to(t, rows) == WEIR_OK) commit_to(t, rows);
            break;
        }
        case 1:
            weir_kv_truncate(
                &t, store_,
                t.n_rows > 0 ? static_cast<int64_t>(random() % static_cast<uint32_t>(t.n_rows + 1))
                             : 0
            );
            break;
        case 2:
            if (&t != &other) {
                weir_kv_truncate(&t, store_, 0);
                EXPECT_EQ(weir_kv_share(&t, &other, store_), WEIR_OK);
            }
            break;
        case 3: weir_kv_truncate(&t, store_, 0); break;
        }
        std::vector<void *> held;
        for (const weir_kv_table &each : tables)
            for (int h = 0; h < 6; h++)
                for (int64_t p = 0; p < each.n_pages; p++)
                    held.push_back(each.pages[h * each.capacity + p]);
        std::sort(held.begin(), held.end());
        held.erase(std::unique(held.begin(), held.end()), held.end());
        ASSERT_EQ(weir_kv_store_free_pages(store_), 300 - static_cast<int64_t>(held.size()))
            << "step " << step;
        std::vector<void *> sinks;
        for (const weir_kv_table &each : tables)
            for (int h = 0; h < 6; h++)
                for (int64_t p = 0; p < std::min<int64_t>(each.n_pages, GetParam()); p++)
                    sinks.push_back(each.pages[h * each.capacity + p]);
        std::sort(sinks.begin(), sinks.end());
        sinks.erase(std::unique(sinks.begin(), sinks.end()), sinks.end());
        ASSERT_EQ(
            weir_kv_store_free(store_).sinks,
            spec_.pages.n_sinks - static_cast<int64_t>(sinks.size())
        ) << "step "
          << step;
    }
    for (weir_kv_table &t : tables) weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 300);
}

TEST_F(Store, SequenceForksAllOrNothing)
{
    open(60);
    weir_kv_sequence a = {}, b = {};
    ASSERT_EQ(weir_kv_sequence_open(&a, store_, ledger_, 256, &error_), WEIR_OK);
    ASSERT_EQ(weir_kv_sequence_open(&b, store_, ledger_, 256, &error_), WEIR_OK);
    a.tokens[0] = 7;
    a.n_tokens = 1;
    ASSERT_EQ(weir_kv_reserve(&a.table, store_, 1), WEIR_OK);
    a.recurrent[3] = 2.5f;
    a.recurrent_dirty = true;
    a.n_computed = 1;
    weir_kv_commit(&a.table, 1);
    EXPECT_EQ(weir_kv_sequence_fork(&b, &a), WEIR_OK);
    EXPECT_EQ(b.tokens[0], 7);
    EXPECT_EQ(b.n_computed, 1);
    EXPECT_EQ(b.recurrent[3], 2.5f);
    EXPECT_EQ(b.table.pages[0], a.table.pages[0]);
    weir_kv_sequence_reset(&b);
    EXPECT_EQ(b.n_tokens, 1) << "a reset keeps the tokens";
    EXPECT_EQ(b.n_computed, 0);
    EXPECT_EQ(b.recurrent[3], 0.0f);
    EXPECT_EQ(a.recurrent[3], 2.5f);
    weir_kv_sequence_close(&a);
    weir_kv_sequence_close(&b);
}

} // namespace
