/* Evictions from sequences of which most is on disk: the same rows, all or nothing, and nothing of
 * a pruned table leaves memory again. */
#include <string.h>

#include "engine/kv/tiers/prefetch.h"
#include "tests/unit/kv/evict_tiers.h"

namespace evict {
namespace {

INSTANTIATE_TEST_SUITE_P(Formats, Tiers, each_format(), format_name);

TEST_P(Tiers, WhatStaysComesToMemory)
{
    open_tiers(12, 20);
    for (int round = 0; round < 2; round++) {
        Sequence t = sequence();
        append_cold(&t, 15 * 64 + 20);
        ASSERT_TRUE(is_cold(t, 5));
        expect_rows(t);
        n_rotated_ = round * 70;
        Lists lists = random_lists(t, all_layers);
        for (auto &list : lists) /* at most five pages each */
            while (list.size() > 300)
                list.erase(
                    list.begin() + n_rotated_ +
                    (int64_t)(random_() % (list.size() - (size_t)n_rotated_))
                );
        evict(&t, all_layers, lists);
        expect_sound({ &t });
        expect_in_memory(t);
        expect_rows(t);
        ASSERT_FALSE(HasFatalFailure());
        for (int more = 0; more < 3; more++) {
            ASSERT_TRUE(append(&t, 50));
            for (int64_t p = 0; p < t.table.n_pages; p++)
                EXPECT_FALSE(weir_kv_may_leave(store_, block(t, p), t.table.capacity));
            lists = random_lists(t, all_layers);
            evict(&t, all_layers, lists);
            expect_sound({ &t });
            expect_rows(t);
            ASSERT_FALSE(HasFatalFailure());
        }
        close(&t);
    }
    EXPECT_EQ(weir_kv_residency_of(store_).pages_cold, 0);
}

/* Rows from memory to the places of blocks that are on disk, of which nothing stays. */
TEST_P(Tiers, RowsMoveToWhereBlocksOnDiskWere)
{
    open_tiers(14, 20);
    for (const int64_t n_rotated : { 0, 20 }) {
        Sequence t = sequence();
        n_rotated_ = n_rotated;
        append_cold(&t, 10 * 64 + 20);
        demote(t, 1, 8);
        for (const int64_t p : { 0, 8, 9 })
            if (is_cold(t, p))
                ASSERT_EQ(
                    weir_kv_promote(store_, block(t, p), t.table.capacity, p, &error_), WEIR_OK
                ) << error_.text;
        Lists lists((size_t)heads());
        for (auto &list : lists) {
            for (int32_t i = 0; i < 20; i++) list.push_back(i);
            for (int32_t i = 8 * 64 + 5; i < 10 * 64 + 20; i++) list.push_back(i);
        }
        evict(&t, all_layers, lists);
        ASSERT_FALSE(HasFatalFailure());
        expect_sound({ &t });
        expect_in_memory(t);
        expect_rows(t);
        ASSERT_FALSE(HasFatalFailure());
        close(&t);
    }
    EXPECT_EQ(weir_kv_residency_of(store_).pages_cold, 0);
}

/* A layer that is not listed keeps its rows in pages of memory, and blocks that stay as they are
 * come back as they are. */
TEST_P(Tiers, UnlistedLayersComeToo)
{
    open_tiers(16, 20);
    Sequence t = sequence(), fork = sequence();
    append_cold(&t, 9 * 64 + 7);
    demote(t, 0, 9);
    EXPECT_EQ(weir_kv_share(&fork.table, &t.table, store_), WEIR_OK);
    fork.heads = t.heads;
    Lists lists((size_t)heads());
    for (int64_t h = 0; h < heads(); h++)
        for (int32_t i = 0; i < 9 * 64 + 7; i++)
            if (i < 64 * 4 || (i % 3 == 0 && i < 500))
                lists[(size_t)h].push_back(i); /* four blocks stay as they are */
    const Keep keep = keep_of(two_layers, lists);
    const weir_kv_pages wanted = weir_kv_evict_pages(evictor_, &t.table, &keep.keep);
    const int64_t before = weir_kv_residency_of(store_).pages_in_memory;
    const std::string picture_of_fork = picture(fork);
    evict(&t, two_layers, lists);
    expect_in_memory(t);
    EXPECT_EQ(
        weir_kv_residency_of(store_).pages_in_memory - before,
        weir_kv_pages_others(wanted) + wanted.sinks
    );
    for (int64_t p = GetParam().sinks.n_pages; p < 4; p++)
        for (int64_t h = 0; h < heads(); h++)
            EXPECT_EQ(
                t.table.pages[h * t.table.capacity + p],
                fork.table.pages[h * fork.table.capacity + p]
            ) << "still shared";
    EXPECT_TRUE(is_cold(fork, 6)) << "no table needs its place";
    expect_sound({ &t, &fork });
    expect_rows(t);
    expect_rows(fork);
    EXPECT_FALSE(weir_kv_may_leave(store_, block(fork, 3), fork.table.capacity))
        << "the pruned table reads it";
    close(&t);
    EXPECT_TRUE(weir_kv_may_leave(store_, block(fork, 3), fork.table.capacity));
    demote(fork, 3, 4);
    expect_rows(fork);
    close(&fork);
}

/* Whichever read fails, the sequence is as it was; and the next time it goes. */
TEST_P(Tiers, AReadThatFailsChangesNothing)
{
    open_tiers(14, 20);
    Sequence t = sequence();
    append_cold(&t, 10 * 64 + 30);
    Lists lists((size_t)heads());
    for (int64_t h = 0; h < heads(); h++)
        for (int32_t i = 0; i < 10 * 64 + 30; i++)
            if (i < 64 * 3 || random_() % 4 == 0) lists[(size_t)h].push_back(i);
    const Keep keep = keep_of(all_layers, lists);
    for (int failing = 0;; failing += failing < 12 ? 1 : 9) {
        const int64_t free = weir_kv_store_free_pages(store_);
        std::vector<char> unsealed_rows(weir_kv_unsealed_rows_bytes(&spec_));
        if (!unsealed_rows.empty())
            memcpy(unsealed_rows.data(), t.table.unsealed_memory, unsealed_rows.size());
        const std::vector<void *> pages(t.table.pages, t.table.pages + heads() * t.table.capacity);
        reads_until_failure = failing;
        const weir_status status = weir_kv_evict(evictor_, &t.table, &keep.keep, &error_);
        reads_until_failure = -1;
        if (status == WEIR_OK) {
            EXPECT_GT(failing, 12) << "it reads more than that";
            break;
        }
        ASSERT_EQ(status, WEIR_EIO);
        EXPECT_NE(strstr(error_.text, "cannot read KV pages back"), nullptr) << error_.text;
        EXPECT_FALSE(t.table.is_pruned);
        EXPECT_EQ(weir_kv_store_free_pages(store_), free);
        EXPECT_EQ(
            std::vector<void *>(t.table.pages, t.table.pages + heads() * t.table.capacity), pages
        );
        if (!unsealed_rows.empty())
            EXPECT_EQ(
                memcmp(unsealed_rows.data(), t.table.unsealed_memory, unsealed_rows.size()), 0
            );
        expect_sound({ &t });
        if (failing < 12) expect_rows(t);
        ASSERT_FALSE(HasFatalFailure()) << "read " << failing;
    }
    keep_rows(&t, all_layers, lists);
    expect_sound({ &t });
    expect_rows(t);
    close(&t);
}

/* Places are free, memory is not. */
TEST_P(Tiers, MemoryIsALimit)
{
    open_tiers(6, 20);
    Sequence t = sequence(), other = sequence();
    append_cold(&t, 12 * 64);
    Lists lists((size_t)heads());
    for (int64_t h = 0; h < heads(); h++)
        for (int32_t i = 10; i < 12 * 64; i += 3)
            lists[(size_t)h].push_back(i); /* 253 rows: four pages */
    demote(t, 0, 12);
    while (fill(&other, 64) && weir_kv_free_blocks(store_) > 1) continue;
    const Keep keep = keep_of(all_layers, lists);
    const weir_kv_pages wanted = weir_kv_evict_pages(evictor_, &t.table, &keep.keep);
    EXPECT_EQ(weir_kv_pages_others(wanted) + wanted.sinks, 4 * heads());
    const std::string before = picture(t);
    EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &keep.keep, &error_), WEIR_EFULL);
    EXPECT_EQ(picture(t), before);
    EXPECT_FALSE(t.table.is_pruned);
    expect_sound({ &t, &other });
    close(&other);
    evict(&t, all_layers, lists);
    expect_sound({ &t });
    expect_rows(t);
    close(&t);
}

/* Blocks that would stay as they are do not come back for an eviction that has no room: who made it
 * might be the same text. */
TEST_P(Tiers, NothingComesBackInVain)
{
    open_tiers(6, 20);
    Sequence t = sequence();
    append_cold(&t, 12 * 64);
    demote(t, 1, 11);
    Lists lists((size_t)heads());
    for (auto &list : lists)
        for (int32_t i = 0; i < 12 * 64; i++)
            if (i < 9 * 64 || i % 3 == 0) list.push_back(i);
    const Keep keep = keep_of(all_layers, lists);
    const weir_kv_residency before = weir_kv_residency_of(store_);
    const std::string rows = picture(t);
    EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &keep.keep, &error_), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "rows that the KV policy keeps"), nullptr) << error_.text;
    EXPECT_EQ(weir_kv_residency_of(store_).bytes_back, before.bytes_back);
    EXPECT_EQ(weir_kv_residency_of(store_).pages_cold, before.pages_cold);
    EXPECT_EQ(picture(t), rows);
    expect_sound({ &t });
    close(&t);
}

/* A step over a pruned table, whose first head may have no page at all, and a sequence on disk:
 * only the latter is read ahead. */
TEST_P(Tiers, PrefetchPassesPrunedTables)
{
    open_tiers(14, 20);
    Sequence a = sequence(), b = sequence();
    ASSERT_TRUE(append(&a, 6 * 64));
    Lists lists((size_t)heads());
    for (int64_t h = 1; h < heads(); h++)
        for (int32_t i = 64; i < 6 * 64; i += 2) lists[(size_t)h].push_back(i);
    evict(&a, all_layers, lists);
    ASSERT_EQ(a.table.pages[0], nullptr);
    append_cold(&b, 8 * 64 + 1);
    ASSERT_TRUE(is_cold(b, 4));
    weir_kv_prefetch *prefetch = nullptr;
    std::vector<weir_kv_reader> readers;
    for (int32_t i = 0; i < spec_.n_layers; i++) readers.push_back({ i, true });
    const weir_kv_prefetch_limits step = { 2, readers.data(), spec_.n_layers };
    ASSERT_EQ(weir_kv_prefetch_open(&prefetch, &spec_, &step, ledger_, &error_), WEIR_OK)
        << error_.text;
    weir_kv_view *const views = weir_kv_prefetch_views(prefetch);
    const auto view_of = [&](Sequence &s, int32_t n_past) {
        const int64_t n_cold = weir_kv_table_cold_blocks(&s.table, store_);
        return weir_kv_view{
            (void *const *)s.table.pages, s.table.capacity, n_past, 1, false, (int32_t)n_cold,
            (int32_t)s.table.cold.end
        };
    };
    views[0] = view_of(a, 6 * 64);
    EXPECT_FALSE(weir_kv_prefetch_begin(prefetch, store_, 1));
    views[1] = view_of(b, 8 * 64);
    ASSERT_TRUE(weir_kv_prefetch_begin(prefetch, store_, 2));
    for (int64_t layer = 0; layer < spec_.n_layers; layer++) {
        weir_kv_range range = {};
        EXPECT_FALSE(weir_kv_prefetch_is_cold(prefetch, layer, 0));
        ASSERT_TRUE(weir_kv_prefetch_is_cold(prefetch, layer, 1));
        while (!range.is_last) {
            weir_kv_prefetch_take(prefetch, layer, 1, &range);
            EXPECT_NE(range.pages[4], b.table.pages[layer * kv_heads * b.table.capacity + 4])
                << "it was read to a buffer";
            weir_kv_prefetch_give(prefetch);
        }
    }
    weir_kv_prefetch_end(prefetch);
    weir_kv_prefetch_close(prefetch);
    close(&a);
    close(&b);
}

/* Random growth, demotion, forks and evictions, some of which fail. */
TEST_P(Tiers, UseKeepsBytesAndCounts)
{
    open_tiers(14, 20);
    Sequence sequences[3] = { sequence(), sequence(), sequence() };
    int n_pruned = 0;
    for (int step = 0; step < 120; step++) {
        Sequence &t = sequences[random_() % 3], &other = sequences[random_() % 3];
        reads_until_failure = random_() % 12 == 0 ? (int)(random_() % 20) : -1;
        switch (random_() % 6) {
        case 0:
        case 1:
            if (append(&t, 1 + (int64_t)(random_() % 150)) && !t.table.is_pruned) {
                const int64_t end = t.table.n_rows / 64;
                for (int64_t p = spec_.sinks.n_pages; p < end; p++)
                    if (weir_kv_may_leave(store_, block(t, p), t.table.capacity) &&
                        random_() % 4 != 0)
                        (void)weir_kv_demote(store_, block(t, p), t.table.capacity, p, &error_);
            }
            break;
        case 2: {
            const Lists lists = random_lists(t, two_layers);
            const Keep keep = keep_of(two_layers, lists);
            const bool fits = weir_kv_pages_fit(
                weir_kv_evict_pages(evictor_, &t.table, &keep.keep), weir_kv_store_free(store_)
            );
            if (weir_kv_evict(evictor_, &t.table, &keep.keep, &error_) != WEIR_OK) break;
            EXPECT_TRUE(fits);
            keep_rows(&t, two_layers, lists);
            n_pruned += t.table.is_pruned;
            break;
        }
        case 3:
            if (&t == &other) break;
            weir_kv_truncate(&t.table, store_, 0);
            EXPECT_EQ(weir_kv_share(&t.table, &other.table, store_), WEIR_OK);
            t.heads = other.heads;
            break;
        case 4:
            if (random_() % 3 != 0) break;
            weir_kv_truncate(&t.table, store_, 0);
            t.heads.assign((size_t)heads(), {});
            break;
        default:
            for (int64_t p = 0; p < t.table.n_pages; p++)
                if (is_cold(t, p) && random_() % 2 == 0)
                    (void)weir_kv_promote(store_, block(t, p), t.table.capacity, p, &error_);
            break;
        }
        reads_until_failure = -1;
        ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_))
            << error_.text << " after step " << step;
        for (const Sequence &each : sequences)
            ASSERT_TRUE(weir_kv_table_is_sound(store_, &each.table, &error_))
                << error_.text << " after " << step;
        if (step % 8 == 0)
            for (const Sequence &each : sequences) expect_rows(each);
        ASSERT_FALSE(HasFatalFailure()) << "step " << step;
    }
    EXPECT_GT(n_pruned, 4);
    EXPECT_GT(weir_kv_residency_of(store_).bytes_out, 0);
    for (Sequence &t : sequences) close(&t);
}

} // namespace
} // namespace evict
