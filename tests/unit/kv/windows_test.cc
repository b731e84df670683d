/* Window blocks: a table has those that later rows read, shared ones are copied before they are
 * written to, and none is lost. */
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/kv/pool/windows.h"

namespace {

class Windows : public ::testing::Test {
  protected:
    enum { WINDOW = 100, STEP = 128, ROWS = 1024 };

    void open(int64_t n_blocks)
    {
        const size_t caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        /* The second layer has wider rows and a shorter window. */
        static weir_kv_geometry geometry[] = { { 2, 8, 8, WINDOW, 0, false },
                                               { 1, 16, 8, 40, 2, false } };
        static const weir_kv_pair formats[] = { { WEIR_KV_F16, WEIR_KV_F16 },
                                                { WEIR_KV_F32, WEIR_KV_F16 } };
        spec_ = { 2, geometry, formats, n_blocks, STEP, ROWS };
        ASSERT_EQ(weir_kv_windows_open(&pool_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(
            weir_ledger_total(ledger_, WEIR_TIER_HOST),
            weir_kv_windows_bytes(&spec_) + weir_kv_windows_metadata_bytes(&spec_)
        );
        for (weir_kv_window_table &t : tables_)
            ASSERT_EQ(weir_kv_window_table_open(&t, pool_, &error_), WEIR_OK);
    }
    void TearDown() override
    {
        for (weir_kv_window_table &t : tables_) weir_kv_window_table_close(&t, pool_);
        EXPECT_EQ(weir_kv_windows_free_blocks(pool_), spec_.n_blocks);
        weir_kv_windows_close(pool_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        weir_ledger_close(ledger_);
    }
    /* The first bytes of every head's page say which block of which sequence it is. */
    static int32_t &mark(
        const weir_kv_window_table &t, const weir_kv_windows *pool, int64_t head, int64_t block
    )
    {
        void *const *const pages = weir_kv_window_pages(&t);
        return *static_cast<int32_t *>(pages[head * weir_kv_window_stride(pool) + block]);
    }
    weir_status add(int i, int64_t n)
    {
        weir_kv_window_table *const t = &tables_[i];
        const int64_t first = t->n_rows;
        WEIR_TRY(weir_kv_window_reserve(t, pool_, n));
        for (int64_t b = first / 64; b <= (first + n - 1) / 64; b++)
            for (int64_t h = 0; h < 3; h++)
                mark(*t, pool_, h, b) = static_cast<int32_t>(1000 * (i + 1) + b);
        t->n_rows += n;
        return WEIR_OK;
    }
    weir_ledger *ledger_ = nullptr;
    weir_kv_windows_spec spec_ = {};
    weir_kv_windows *pool_ = nullptr;
    weir_kv_window_table tables_[3] = {};
    weir_error error_ = {};
};

TEST_F(Windows, SizesFollowFromTheLongestWindow)
{
    open(8);
    EXPECT_EQ(weir_kv_windows_length(&spec_), WINDOW);
    EXPECT_EQ(weir_kv_windows_heads(&spec_), 3);
    /* 64 rows of 16 f16 values in two heads, and of 16 f32 and 8 f16 values. */
    EXPECT_EQ(weir_kv_windows_block_bytes(&spec_), 64u * (2 * 32 + 64 + 16));
    EXPECT_EQ(weir_kv_windows_first(&spec_, 0), 0);
    EXPECT_EQ(weir_kv_windows_first(&spec_, 163 - 1), 0) << "row 162 reads row 63";
    EXPECT_EQ(weir_kv_windows_first(&spec_, 163), 1) << "row 163 reads row 64";
    EXPECT_EQ(weir_kv_windows_most(&spec_), 3);
}

TEST_F(Windows, ATableHasWhatLaterRowsRead)
{
    open(16);
    int64_t most = 0;
    for (int64_t row = 0; row < 900; row += 7) {
        ASSERT_EQ(add(0, 7), WEIR_OK);
        const weir_kv_window_table &t = tables_[0];
        EXPECT_EQ(t.first, std::max<int64_t>(row - WINDOW + 1, 0) / 64);
        for (int64_t b = t.first; b < t.end; b++)
            for (int64_t h = 0; h < 3; h++) EXPECT_EQ(mark(t, pool_, h, b), 1000 + b);
        EXPECT_EQ(weir_kv_window_at(&t, t.first - 1), -1);
        EXPECT_EQ(weir_kv_window_at(&t, t.end), -1);
        most = std::max(most, t.end - t.first);
    }
    weir_kv_window_trim(&tables_[0], pool_);
    EXPECT_LE(tables_[0].end - tables_[0].first, weir_kv_windows_most(&spec_));
    EXPECT_LE(most, weir_kv_windows_most(&spec_) + 1);
}

TEST_F(Windows, NewBlocksAreZero)
{
    open(4);
    ASSERT_EQ(add(0, 128), WEIR_OK);
    weir_kv_window_clear(&tables_[0], pool_);
    ASSERT_EQ(weir_kv_window_reserve(&tables_[0], pool_, 100), WEIR_OK);
    const auto *const bytes =
        static_cast<const char *>(weir_kv_window_memory(pool_, tables_[0].blocks[1]));
    for (size_t i = 0; i < weir_kv_windows_block_bytes(&spec_); i++) ASSERT_EQ(bytes[i], 0);
}

TEST_F(Windows, ASharedBlockIsCopiedBeforeItIsWrittenTo)
{
    open(8);
    ASSERT_EQ(add(0, 100), WEIR_OK);
    weir_kv_window_fork(&tables_[1], &tables_[0], pool_);
    EXPECT_EQ(tables_[1].blocks[1], tables_[0].blocks[1]);
    EXPECT_EQ(weir_kv_windows_free_blocks(pool_), 6);
    ASSERT_EQ(add(1, 1), WEIR_OK);
    EXPECT_EQ(tables_[1].blocks[0], tables_[0].blocks[0]) << "it is whole";
    EXPECT_NE(tables_[1].blocks[1], tables_[0].blocks[1]);
    EXPECT_EQ(mark(tables_[0], pool_, 2, 1), 1001);
    EXPECT_EQ(mark(tables_[1], pool_, 2, 1), 2001);
    EXPECT_EQ(weir_kv_windows_free_blocks(pool_), 5);
    /* The other one has it alone now. */
    ASSERT_EQ(add(0, 1), WEIR_OK);
    EXPECT_EQ(weir_kv_windows_free_blocks(pool_), 5);
}

TEST_F(Windows, AreAskedForWhenNoneIsFree)
{
    open(4);
    struct Holder {
        weir_kv_windows *pool;
        int32_t held;
        int64_t asked;
    } holder = { pool_, -1, 0 };
    ASSERT_EQ(add(0, 64), WEIR_OK);
    holder.held = tables_[0].blocks[0];
    weir_kv_window_hold(pool_, holder.held);
    weir_kv_window_clear(&tables_[0], pool_);
    const auto give = [](void *user, int64_t n) {
        Holder *const h = static_cast<Holder *>(user);
        h->asked = n;
        if (h->held >= 0) weir_kv_window_drop(h->pool, h->held);
        h->held = -1;
    };
    weir_kv_windows_reclaim_with(pool_, give, &holder);
    ASSERT_EQ(add(0, 128), WEIR_OK);
    EXPECT_EQ(holder.asked, 0);
    ASSERT_EQ(add(1, 128), WEIR_OK);
    EXPECT_EQ(holder.asked, 2);
    EXPECT_EQ(weir_kv_windows_free_blocks(pool_), 0);
    EXPECT_EQ(weir_kv_window_reserve(&tables_[2], pool_, 1), WEIR_EFULL);
    EXPECT_EQ(tables_[2].end, 0);
    weir_kv_windows_reclaim_with(pool_, nullptr, nullptr);
}

/* Sequences that fork, continue and end at random never lack a block in a pool of the size that
 * the plan gives it. */
TEST_F(Windows, ThePlannedPoolIsEnough)
{
    const int64_t needed = [&] {
        static weir_kv_geometry geometry[] = { { 2, 8, 8, WINDOW, 0, false } };
        spec_ = { 1, geometry, nullptr, 0, STEP, ROWS };
        return weir_kv_windows_needed(&spec_, 3, 0, 1);
    }();
    open(needed);
    std::mt19937 random(7);
    for (int i = 0; i < 3000; i++) {
        int64_t left = STEP;
        for (int k = 0; k < 3 && left > 0; k++) {
            weir_kv_window_table *const t = &tables_[k];
            const int64_t n = std::min<int64_t>(1 + random() % (random() % 2 ? 3 : STEP), left);
            if (t->n_rows + n > ROWS || random() % 50 == 0) weir_kv_window_clear(t, pool_);
            if (t->n_rows == 0 && random() % 2 == 0)
                weir_kv_window_fork(t, &tables_[(k + 1) % 3], pool_);
            if (t->n_rows + n > ROWS) continue;
            ASSERT_EQ(add(k, n), WEIR_OK) << "step " << i;
            left -= n;
        }
        for (weir_kv_window_table &t : tables_) {
            weir_kv_window_trim(&t, pool_);
            EXPECT_LE(t.end - t.first, weir_kv_windows_most(&spec_));
        }
    }
}

TEST_F(Windows, OutOfRange)
{
    open(4);
    weir_kv_windows *other = nullptr;
    for (int i = 0; i < 5; i++) {
        weir_kv_windows_spec bad = spec_;
        if (i == 0) bad.n_layers = 0;
        if (i == 1) bad.n_blocks = 0;
        if (i == 2) bad.n_blocks = INT64_C(1) << 40;
        if (i == 3) bad.step_rows = 0;
        if (i == 4) bad.max_rows = 0;
        EXPECT_EQ(weir_kv_windows_open(&other, &bad, ledger_, &error_), WEIR_EINVAL) << i;
    }
    EXPECT_EQ(other, nullptr);
}

} // namespace
