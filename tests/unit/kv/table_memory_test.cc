/* The memory of page tables: what they take, keep and give back. */
#include <sys/mman.h>

#include <algorithm>

#include "engine/kv/tiers/residency.h"
#include "tests/unit/kv/store_fixture.h"

namespace {

/* Two layers of three heads, with a window of 4096 blocks. */
class Tables : public StoreFixture {
  protected:
    void open(int64_t n_blocks)
    {
        const size_t caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        for (weir_kv_geometry &g : geometry_) g = { 3, 8, 8, 0, 0, false };
        weir_kv_number_heads(geometry_, 2);
        spec_.n_layers = 2;
        spec_.geometry = geometry_;
        spec_.formats = formats_;
        spec_.pages.n = 6 * n_blocks;
        spec_.max_rows = int64_t{ 64 } * 4096;
        spec_.table_bytes = table_bytes_;
        ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
    }
    void TearDown() override
    {
        weir_kv_store_close(store_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        weir_ledger_close(ledger_);
    }
    weir_kv_geometry geometry_[2];
    const weir_kv_pair formats_[2] = { { WEIR_KV_F16, WEIR_KV_F16 }, { WEIR_KV_F16, WEIR_KV_F16 } };
    size_t table_bytes_ = 0;
};

/* A table takes memory as its sequence grows, keeps its entries when they move, and gives back what
 * it does not need. */
TEST_F(Tables, TablesGrowWithTheirSequences)
{
    open(300);
    const int64_t all = weir_kv_store_free(store_).tables;
    weir_kv_table t = table();
    const auto number_at = [&t](int64_t h, int64_t block) {
        return static_cast<int64_t *>(t.pages[h * t.capacity + block]);
    };
    const auto expect_numbers = [&](int64_t n) {
        for (int64_t block = 0; block < n; block++)
            for (int64_t h = 0; h < 6; h++) ASSERT_EQ(*number_at(h, block), block * 6 + h);
        EXPECT_TRUE(weir_kv_table_is_sound(store_, &t, &error_)) << error_.text;
        EXPECT_EQ(weir_kv_store_free(store_).tables, all - t.n_units);
        EXPECT_LE(6 * t.capacity * 8, t.n_units * WEIR_KV_TABLE_UNIT);
    };
    for (int64_t block = 0; block < 300; block++) {
        const int64_t wanted = weir_kv_reserve_pages(&t, store_, 64).tables, before = t.n_units;
        ASSERT_EQ(reserve_to(t, 64 * (block + 1)), WEIR_OK);
        EXPECT_EQ(t.n_units - before, wanted);
        for (int64_t h = 0; h < 6; h++) *number_at(h, block) = block * 6 + h;
        commit_to(t, 64 * (block + 1));
        EXPECT_LE(t.capacity, block + 1 + std::max<int64_t>(7, (block + 1) / 4));
    }
    expect_numbers(300);
    EXPECT_EQ(t.n_units, 4) << "of 48 for the window";
    weir_kv_truncate(&t, store_, 64 * 290);
    EXPECT_EQ(t.n_units, 4) << "it will mostly grow again";
    weir_kv_truncate(&t, store_, 64 * 20);
    EXPECT_EQ(t.n_units, 1);
    expect_numbers(20);
    unsigned char is_backed = 1;
    ASSERT_EQ(mincore((char *)t.pages + WEIR_KV_TABLE_UNIT, 4096, &is_backed), 0);
    EXPECT_FALSE(is_backed & 1);
    ASSERT_EQ(reserve_to(t, 64 * 300), WEIR_OK);
    commit_to(t, 64 * 300);
    EXPECT_TRUE(weir_kv_table_is_sound(store_, &t, &error_)) << error_.text;
    weir_kv_truncate(&t, store_, 0);
    EXPECT_EQ(t.n_units, 0);
    EXPECT_EQ(weir_kv_store_free(store_).tables, all);
    weir_kv_table_close(&t, store_);
}

/* An empty table keeps its memory for its next sequence, as long as no other table needs the
 * units. */
TEST_F(Tables, EmptyTablesKeepTheirMemory)
{
    table_bytes_ = 8 * WEIR_KV_TABLE_UNIT;
    open(400);
    weir_kv_table a = table(), b = table();
    const auto n_backed = [](const weir_kv_table &t) {
        unsigned char is_backed[8];
        int n = 0;
        EXPECT_EQ(mincore(t.pages, sizeof is_backed * WEIR_KV_TABLE_UNIT, is_backed), 0);
        for (const unsigned char unit : is_backed) n += unit & 1;
        return n;
    };
    const auto fill = [&](weir_kv_table &t, int64_t n_blocks) {
        ASSERT_EQ(reserve_to(t, 64 * n_blocks), WEIR_OK);
        commit_to(t, 64 * n_blocks);
        ASSERT_TRUE(weir_kv_table_is_sound(store_, &t, &error_)) << error_.text;
    };
    fill(a, 300);
    weir_kv_truncate(&a, store_, 0);
    EXPECT_EQ(weir_kv_store_free(store_).tables, 8);
    EXPECT_EQ(n_backed(a), 4);
    fill(a, 10); /* entries of other numbers of pages */
    EXPECT_EQ(n_backed(a), a.n_units);
    fill(a, 200);
    weir_kv_truncate(&a, store_, 0);
    const int n_kept = n_backed(a);
    EXPECT_GT(n_kept, 1);
    fill(b, 100);
    EXPECT_EQ(n_backed(a), n_kept) << "there are others";
    fill(b, 400);
    EXPECT_GT(b.n_units + n_kept, 8);
    EXPECT_EQ(n_backed(a), 0);
    weir_kv_truncate(&b, store_, 0);
    fill(a, 300);
    weir_kv_table_close(&b, store_);
    weir_kv_table_close(&a, store_);
    EXPECT_EQ(weir_kv_store_free(store_).tables, 8);
}

/* Memory for tables is a limit as the pool is: rows and forks that lack it change nothing. */
TEST_F(Tables, TablesHaveALimit)
{
    table_bytes_ = 4 * WEIR_KV_TABLE_UNIT;
    open(400);
    EXPECT_EQ(weir_kv_store_free(store_).tables, 4);
    weir_kv_table a = table(), b = table();
    ASSERT_EQ(reserve_to(a, 64 * 300), WEIR_OK);
    commit_to(a, 64 * 300);
    EXPECT_EQ(weir_kv_store_free(store_).tables, 0);
    EXPECT_EQ(reserve_to(b, 1), WEIR_EFULL);
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_EFULL);
    EXPECT_EQ(b.n_pages, 0);
    EXPECT_EQ(b.n_rows, 0);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 6 * 100);
    EXPECT_EQ(weir_kv_reserve_pages(&b, store_, 1).tables, 1);
    weir_kv_truncate(&a, store_, 64 * 100);
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_OK);
    EXPECT_EQ(b.pages[0], a.pages[0]);
    weir_kv_table_close(&a, store_);
    weir_kv_table_close(&b, store_);
}

} // namespace
