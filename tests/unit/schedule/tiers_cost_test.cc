/* What it costs a step to look where blocks are: it grows with the blocks that move, with those
 * that its sequences have in the lower tier, and with sequences, not with all of their blocks. */
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/kv/pool/sequence.h"
#include "engine/kv/tiers/prefetch.h"
#include "engine/schedule/runner.h"
#include "engine/schedule/tiers.h"
#include "offload/ledger.h"

namespace {

constexpr int32_t n_sequences = 256, n_blocks = 500, hot = 1, idle_blocks = 40, spare = 60;

class TiersCost : public ::testing::Test {
  protected:
    void SetUp() override
    {
        static const weir_kv_geometry geometry[] = { { 1, 8, 8, 0, 0, false } };
        static const weir_kv_pair formats[] = { { WEIR_KV_F16, WEIR_KV_F16 } };
        static const weir_kv_reader readers[] = { { 0, true } };
        const size_t caps[WEIR_TIER_COUNT] = {};
        const int64_t near = n_sequences * n_blocks + idle_blocks + spare, below = 4000;
        folder_ = ::testing::TempDir() + "/tiers-cost." + std::to_string(getpid());
        std::filesystem::create_directories(folder_);
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        spec_.n_layers = 1;
        spec_.geometry = geometry;
        spec_.formats = formats;
        spec_.pages.n = near + below;
        spec_.max_rows = (n_blocks + n_sequences) * WEIR_PAGE_TOKENS;
        spec_.pages.n_disk = below;
        spec_.disk_folder = folder_.c_str();
        spec_.table_bytes = 64 << 20;
        ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
        const weir_kv_prefetch_limits limits = { n_sequences, readers, 1 };
        ASSERT_EQ(weir_kv_prefetch_open(&prefetch_, &spec_, &limits, ledger_, &error_), WEIR_OK)
            << error_.text;
        all_.resize(n_sequences + 1);
        for (weir_kv_sequence &s : all_)
            ASSERT_EQ(weir_kv_sequence_open(&s, store_, ledger_, 0, &error_), WEIR_OK);
        items_.resize(n_sequences);
        for (int32_t i = 0; i < n_sequences; i++) {
            grow(&all_[(size_t)i], n_blocks - n_sequences / 2 + i); /* each longer than the last */
            items_[(size_t)i].sequence = &all_[(size_t)i];
            items_[(size_t)i].n_rows = 1;
        }
        holders_.running = [](void *user, int32_t i) -> weir_kv_sequence * {
            return i < n_sequences ? &(*(std::vector<weir_kv_sequence> *)user)[(size_t)i] : nullptr;
        };
        holders_.user = &all_;
        grow(&all_.back(), idle_blocks);
    }
    void TearDown() override
    {
        for (weir_kv_sequence &s : all_) weir_kv_sequence_close(&s);
        weir_kv_prefetch_close(prefetch_);
        weir_kv_store_close(store_);
        weir_ledger_close(ledger_);
        std::filesystem::remove_all(folder_);
    }
    void grow(weir_kv_sequence *s, int64_t blocks)
    {
        ASSERT_EQ(weir_kv_reserve(&s->table, store_, blocks * WEIR_PAGE_TOKENS), WEIR_OK);
        weir_kv_commit(&s->table, blocks * WEIR_PAGE_TOKENS);
        s->n_tokens = s->n_computed = (int32_t)(blocks * WEIR_PAGE_TOKENS);
    }
    void demote(const weir_kv_sequence &s, int64_t block)
    {
        ASSERT_EQ(
            weir_kv_demote(
                store_, (void *const *)s.table.pages + block, s.table.capacity, block, &error_
            ),
            WEIR_OK
        ) << error_.text;
    }
    /* What a step does: demotes n_blocks, promotes, reads. */
    void step(int64_t wanted)
    {
        weir_tiers_move(store_, &holders_, items_.data(), n_sequences, hot, 0);
        (void)weir_tiers_demote_running(
            store_, &holders_, items_.data(), n_sequences, hot, wanted, nullptr
        );
        for (int32_t i = 0; i < n_sequences; i++) {
            weir_kv_table &t = all_[(size_t)i].table;
            const int64_t n_cold = weir_kv_table_cold_blocks(&t, store_);
            weir_kv_prefetch_views(prefetch_
            )[i] = { (void *const *)t.pages, t.capacity,         (int32_t)t.n_rows - 1, 1, false,
                     (int32_t)n_cold,        (int32_t)t.cold.end };
        }
        if (weir_kv_prefetch_begin(prefetch_, store_, n_sequences)) weir_kv_prefetch_end(prefetch_);
    }
    int64_t lookups() const
    {
        return weir_kv_lookups(store_) + weir_kv_prefetch_lookups(prefetch_);
    }
    void expect_sound()
    {
        for (const weir_kv_sequence &s : all_)
            ASSERT_TRUE(weir_kv_table_is_sound(store_, &s.table, &error_)) << error_.text;
    }
    std::string folder_;
    weir_error error_ = {};
    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_kv_prefetch *prefetch_ = nullptr;
    weir_kv_spec spec_ = {};
    weir_kv_holders holders_ = {};
    std::vector<weir_kv_sequence> all_; /* the last one is idle */
    std::vector<weir_batch_item> items_;
};

/* Only text that no sequence of the step has is in the lower tier. */
TEST_F(TiersCost, ColdIdleTextCostsNothing)
{
    for (int64_t block = 1; block < idle_blocks - 1; block++) demote(all_.back(), block);
    step(0); /* tables that have not been asked before */
    for (int i = 0; i < 10; i++) {
        const int64_t before = lookups();
        step(0);
        EXPECT_LE(lookups() - before, 2 * n_sequences);
    }
    EXPECT_EQ(weir_kv_residency_of(store_).pages_cold, idle_blocks - 2);
    expect_sound();
}

/* Memory is short in every step, so blocks leave, of sequences that all have some on disk. */
TEST_F(TiersCost, DemotingLooksAtWhatMoves)
{
    for (int32_t i = 0; i < n_sequences; i++) demote(all_[(size_t)i], 1);
    step(weir_kv_free_blocks(store_) + 1); /* tables that have not been asked before */
    int64_t n_steps = 0, n_moved = 0;
    while (n_moved < 500) {
        const int64_t before = lookups(), cold = weir_kv_residency_of(store_).pages_cold,
                      wanted = weir_kv_free_blocks(store_) + weir_kv_blocks_leaving(store_) + 8;
        step(wanted);
        while (weir_kv_moves_begun(store_) > 0) (void)weir_tiers_settle(store_, true);
        const int64_t moved = weir_kv_residency_of(store_).pages_cold - cold;
        /* A block that moves is passed by the next ones; each step reads what is cold. */
        EXPECT_LE(lookups() - before, 20 * (moved + 1) + 2 * (n_sequences + cold));
        n_moved += moved;
        ASSERT_LT(++n_steps, 1000);
    }
    expect_sound();
}

} // namespace
