/* Rows that an eviction keeps, in every format, against a plain list of them: where they are, their
 * bytes, and the pages that they take. */
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/kv/pool/table_snapshot.h"
#include "engine/kv/tiers/page_counts.h"
#include "tests/every_nth.h"
#include "tests/unit/kv/evict_model.h"

namespace evict {
namespace {

constexpr weir_kv_pair f32 = { WEIR_KV_F32, WEIR_KV_F32 }, f16 = { WEIR_KV_F16, WEIR_KV_F16 },
                       q8 = { WEIR_KV_Q8_0, WEIR_KV_Q8_0 },
                       turbo = { WEIR_KV_TURBO4, WEIR_KV_TURBO4 },
                       int8 = { WEIR_KV_INT8, WEIR_KV_INT8 },
                       kivi = { WEIR_KV_KIVI4, WEIR_KV_KIVI2 };

const std::vector<int32_t> two_of_three = { 0, 2 }; /* layer 1 sees a window: it keeps its rows */

struct Formats {
    const char *name;
    std::vector<weir_kv_pair> layers;
    weir_kv_sinks sinks;
};

class EveryFormat : public Evict, public ::testing::WithParamInterface<Formats> {
  protected:
    /* Sinks for `n_sequences` sequences. */
    void open_for(
        int n_sequences, int64_t n_blocks = Options().n_blocks,
        int64_t max_rows = Options().max_rows
    )
    {
        Options options;
        options.formats = GetParam().layers;
        options.sinks = GetParam().sinks;
        options.n_sink_blocks = GetParam().sinks.n_pages * n_sequences;
        options.n_blocks = n_blocks;
        options.max_rows = max_rows;
        open(options);
    }
};
INSTANTIATE_TEST_SUITE_P(
    Formats, EveryFormat,
    ::testing::ValuesIn(weir_test::every_nth(
        { Formats{ "f32", { f32, f32, f32 }, {} }, Formats{ "f16", { f16, q8, f16 }, {} },
          Formats{ "q8_0", { q8, f16, { WEIR_KV_Q8_0, WEIR_KV_Q4_0 } }, {} },
          Formats{ "turbo", { turbo, f16, { WEIR_KV_Q8_0, WEIR_KV_TURBO3 } }, {} },
          Formats{ "fp8", { { WEIR_KV_FP8_E4M3, WEIR_KV_BF16 }, f16, f16 }, {} },
          Formats{ "int8", { int8, f16, { WEIR_KV_INT8, WEIR_KV_TURBO4 } }, {} },
          Formats{ "kivi", { kivi, int8, { WEIR_KV_F16, WEIR_KV_KIVI4 } }, {} },
          Formats{ "sinks", { turbo, q8, q8 }, { f16, 1 } },
          Formats{ "wide_sinks", { q8, q8, turbo }, { f32, 3 } },
          Formats{ "coded_sinks", { q8, f16, f16 }, { int8, 1 } },
          Formats{ "sinks_of_int8", { int8, f16, kivi }, { f16, 2 } } },
        3
    )),
    [](const auto &info) { return info.param.name; }
);

/* Rounds of growth and eviction; heads become ragged, empty, full again. */
TEST_P(EveryFormat, KeepsTheRowsItWasToldTo)
{
    open_for(2, 40);
    Sequence t = sequence();
    for (int round = 0; round < 10; round++) {
        ASSERT_TRUE(append(&t, round == 0 ? 300 : 1 + (int64_t)(random_() % 70)));
        expect_sound({ &t });
        evict(&t, two_of_three, random_lists(t, two_of_three));
        ASSERT_FALSE(HasFatalFailure()) << "round " << round;
        expect_sound({ &t });
        expect_rows(t);
        ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    }
    close(&t);
}

/* Of rows that are rotated the keys are new each time, coded once, and the values as they were;
 * forks have theirs. */
TEST_P(EveryFormat, TurnsTheFirstRows)
{
    open_for(2, 60);
    for (const int64_t n : { 1, 5, 64, 70, 130 }) {
        Sequence t = sequence(), fork = sequence();
        ASSERT_TRUE(append(&t, 300));
        n_rotated_ = n;
        for (int round = 0; round < 5; round++) {
            const Sequence before = t;
            EXPECT_EQ(weir_kv_share(&fork.table, &t.table, store_), WEIR_OK);
            fork.heads = before.heads;
            const std::string as_it_was = picture(fork);
            const Lists lists = random_lists(t, two_of_three);
            const Keep keep = keep_of(two_of_three, lists);
            const auto wanted = weir_kv_evict_pages(evictor_, &t.table, &keep.keep),
                       free = weir_kv_store_free(store_);
            evict(&t, two_of_three, lists);
            ASSERT_FALSE(HasFatalFailure()) << n << " round " << round;
            const auto left = weir_kv_store_free(store_);
            EXPECT_EQ(
                weir_kv_pages_others(weir_kv_pages_minus(free, left)), weir_kv_pages_others(wanted)
            );
            EXPECT_EQ(free.sinks - left.sinks, wanted.sinks);
            EXPECT_EQ(picture(fork), as_it_was);
            expect_sound({ &t, &fork });
            expect_rows(t);
            ASSERT_FALSE(HasFatalFailure()) << n << " round " << round;
            weir_kv_truncate(&fork.table, store_, 0);
            ASSERT_TRUE(append(&t, 1 + (int64_t)(random_() % 70)));
        }
        close(&fork);
        close(&t);
    }
}

/* A fork's rows stay to the byte, whichever of the two is cut, and what was not moved is still one
 * page. */
TEST_P(EveryFormat, LeavesForksAlone)
{
    open_for(3, 60);
    Sequence a = sequence(), b = sequence(), c = sequence();
    ASSERT_TRUE(append(&a, 230));
    const auto fork = [&](Sequence *to, const Sequence &from) {
        weir_kv_truncate(&to->table, store_, 0);
        EXPECT_EQ(weir_kv_share(&to->table, &from.table, store_), WEIR_OK);
        to->heads = from.heads;
    };
    fork(&b, a);
    for (int round = 0; round < 4; round++) {
        const Sequence kept = b;
        Lists lists = random_lists(a, two_of_three);
        for (size_t h = 0; h < lists.size();
             h++) { /* the first page stays in place in all heads, the second one in some */
            const size_t n = std::min(a.heads[h].size(), (size_t)(h % 2 == 0 ? 128 : 64));
            lists[h].erase(
                lists[h].begin(), std::lower_bound(lists[h].begin(), lists[h].end(), (int32_t)n)
            );
            for (size_t i = n; i-- > 0;) lists[h].insert(lists[h].begin(), (int32_t)i);
        }
        const std::string before = picture(b);
        evict(&a, two_of_three, lists);
        ASSERT_EQ(picture(b), before);
        for (int64_t h = 0; h < heads() && round == 0; h++)
            if (!a.heads[(size_t)h].empty())
                ASSERT_EQ(a.table.pages[h * a.table.capacity], b.table.pages[h * b.table.capacity]);
        fork(&c, a); /* of a cut one */
        EXPECT_TRUE(c.table.is_pruned || !a.table.is_pruned);
        expect_sound({ &a, &b, &c });
        ASSERT_TRUE(append(&c, 20));
        ASSERT_TRUE(append(&a, 40));
        ASSERT_TRUE(append(&b, 3));
        expect_sound({ &a, &b, &c });
        for (const Sequence *t : { &a, &b, &c }) expect_rows(*t);
        ASSERT_FALSE(HasFatalFailure()) << "round " << round;
        if (round % 2 == 1) std::swap(a, c);
    }
    for (Sequence *t : { &a, &b, &c }) close(t);
}

/* The longest head ends with a page, others have unsealed rows: a fork has them, too. */
TEST_P(EveryFormat, ForksOfRaggedSequencesHaveTheirUnsealedRows)
{
    open_for(2);
    Sequence a = sequence(), b = sequence();
    ASSERT_TRUE(append(&a, 200));
    Lists lists((size_t)heads());
    for (size_t h = 0; h < lists.size(); h++)
        for (int32_t i = h % 2 == 0 ? 0 : 3; i < (h % 2 == 0 ? 128 : 40 + 9 * (int32_t)h); i++)
            lists[h].push_back(i);
    evict(&a, { 0, 1, 2 }, lists);
    ASSERT_EQ(a.table.n_rows, 128);
    EXPECT_EQ(weir_kv_share(&b.table, &a.table, store_), WEIR_OK);
    b.heads = a.heads;
    ASSERT_TRUE(append(&b, 45));
    ASSERT_TRUE(append(&a, 30));
    expect_sound({ &a, &b });
    expect_rows(a);
    expect_rows(b);
    close(&a);
    close(&b);
}

/* Whatever is missing, nothing has changed; and what weir_kv_evict_pages asks for is what it
 * takes. */
TEST_P(EveryFormat, FullChangesNothing)
{
    open_for(2, 16, 64 * 24);
    Sequence a = sequence(), b = sequence(), filler = sequence();
    ASSERT_TRUE(append(&a, 250));
    EXPECT_EQ(weir_kv_share(&b.table, &a.table, store_), WEIR_OK);
    b.heads = a.heads;
    Lists lists = random_lists(a, two_of_three);
    for (const int h : { 0, 1, 4, 5 }) {
        lists[(size_t)h].clear();
        for (int32_t i = h * 20; i < 250; i += 1 + h % 2) lists[(size_t)h].push_back(i);
    }
    const Keep keep = keep_of(two_of_three, lists);
    while (fill(&filler, 64)) continue;
    const weir_kv_pages wanted = weir_kv_evict_pages(evictor_, &a.table, &keep.keep),
                        free = weir_kv_store_free(store_);
    ASSERT_GT(weir_kv_pages_others(wanted) + wanted.sinks, 0);
    const std::string before = picture(a);
    if (!weir_kv_pages_fit(wanted, free)) {
        EXPECT_EQ(weir_kv_evict(evictor_, &a.table, &keep.keep, &error_), WEIR_EFULL);
        EXPECT_NE(strstr(error_.text, "memory.host"), nullptr) << error_.text;
        EXPECT_EQ(picture(a), before);
        expect_sound({ &a, &b, &filler });
    } else {
        ADD_FAILURE() << "the pool is not full";
    }
    close(&filler);
    filler = sequence();
    const weir_kv_pages room = weir_kv_store_free(store_);
    evict(&a, two_of_three, lists);
    const weir_kv_pages left = weir_kv_store_free(store_);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_pages_minus(room, left)), weir_kv_pages_others(wanted))
        << "b holds all that a let go";
    EXPECT_EQ(room.sinks - left.sinks, wanted.sinks);
    expect_sound({ &a, &b });
    expect_rows(a);
    expect_rows(b);
    for (Sequence *t : { &a, &b, &filler }) close(t);
}

class EvictOnce : public Evict {
  protected:
    void SetUp() override
    {
        Options options;
        options.formats = { f16, f16 };
        options.n_blocks = 20;
        open(options);
    }
    static std::vector<int32_t> range(int32_t first, int32_t end)
    {
        std::vector<int32_t> list;
        for (int32_t i = first; i < end; i++) list.push_back(i);
        return list;
    }
};

/* Another table has page 1 of one head, and page 0 of all: pages of a block are shared unlike. */
TEST_F(EvictOnce, UnsharesOnlyWhatItWritesInto)
{
    Sequence t = sequence(), holder = sequence();
    ASSERT_TRUE(append(&t, 200));
    EXPECT_EQ(weir_kv_share(&holder.table, &t.table, store_), WEIR_OK);
    holder.heads = t.heads;
    evict(&holder, { 0, 1 }, { range(0, 64), range(0, 128), range(0, 64), range(0, 64) });
    void *const held = t.table.pages[1 * t.table.capacity + 1],
                *const other = t.table.pages[2 * t.table.capacity + 1];
    EXPECT_EQ(holder.table.pages[1 * holder.table.capacity + 1], held);
    EXPECT_EQ(weir_kv_page_refs(store_, held), 2);
    EXPECT_EQ(weir_kv_page_refs(store_, other), 1);
    const std::string before((const char *)held, weir_kv_page_bytes(&spec_, 0));
    Lists lists(4, range(0, 128));
    for (int32_t h = 0; h < 4; h++)
        for (int32_t i = 130; i < 170; i++)
            lists[(size_t)h].push_back(i); /* all of two pages stays in place */
    const Keep keep = keep_of({ 0, 1 }, lists);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_evict_pages(evictor_, &t.table, &keep.keep)), 0);
    evict(&t, { 0, 1 }, lists);
    EXPECT_EQ(t.table.pages[1 * t.table.capacity + 1], held) << "still shared";
    EXPECT_EQ(weir_kv_page_refs(store_, held), 2);
    lists.assign(4, range(0, 100));
    for (int32_t h = 0; h < 4; h++)
        for (int32_t i = 101; i < 168; i++) lists[(size_t)h].push_back(i);
    const Keep again = keep_of({ 0, 1 }, lists);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_evict_pages(evictor_, &t.table, &again.keep)), 1);
    evict(&t, { 0, 1 }, lists);
    EXPECT_NE(t.table.pages[1 * t.table.capacity + 1], held);
    EXPECT_EQ(t.table.pages[2 * t.table.capacity + 1], other) << "the table's own: moved in place";
    EXPECT_EQ(weir_kv_page_refs(store_, held), 1);
    EXPECT_EQ(memcmp(held, before.data(), before.size()), 0);
    expect_rows(t);
    expect_rows(holder);
    expect_sound({ &t, &holder });
    close(&t);
    close(&holder);
}

/* What another table that was pruned shares with this one differs by head. */
TEST_F(EvictOnce, PagesAreCountedByHead)
{
    Sequence t = sequence(), holder = sequence();
    weir_kv_page_counts counts[4] = {};
    const auto shared = [&] {
        std::vector<int32_t> list;
        for (const weir_kv_page_counts &one : counts) {
            EXPECT_EQ(one.pages, 4);
            EXPECT_EQ(one.cold, 0);
            list.push_back(one.shared);
        }
        return list;
    };
    ASSERT_TRUE(append(&t, 200));
    EXPECT_EQ(weir_kv_count_pages(counts, &t.table, store_, 4), 4) << "one page of each block";
    EXPECT_EQ(shared(), (std::vector<int32_t>{ 0, 0, 0, 0 }));
    EXPECT_EQ(weir_kv_share(&holder.table, &t.table, store_), WEIR_OK);
    holder.heads = t.heads;
    EXPECT_EQ(weir_kv_count_pages(counts, &t.table, store_, 4), 4);
    EXPECT_EQ(shared(), (std::vector<int32_t>{ 4, 4, 4, 4 }));
    evict(&holder, { 0, 1 }, { range(0, 64), range(0, 128), {}, range(0, 192) });
    const int64_t looks = weir_kv_count_pages(counts, &t.table, store_, 3);
    EXPECT_GT(looks, 4);
    EXPECT_EQ(shared(), (std::vector<int32_t>{ 4, 4, 4, 4 })) << "too many to look at";
    EXPECT_EQ(weir_kv_count_pages(counts, &t.table, store_, looks), looks);
    EXPECT_EQ(shared(), (std::vector<int32_t>{ 1, 2, 0, 3 }));
    EXPECT_EQ(weir_kv_count_pages(counts, &holder.table, store_, 64), 4 * holder.table.n_pages);
    for (int h = 0; h < 4; h++) EXPECT_EQ(counts[h].shared, counts[h].pages) << h;
    close(&t);
    close(&holder);
}

/* A snapshot holds one head's page, and no table is pruned. */
TEST_F(EvictOnce, WritesIntoNoPageOfASnapshot)
{
    Sequence t = sequence(), other = sequence();
    ASSERT_TRUE(append(&t, 100));
    EXPECT_EQ(weir_kv_share(&other.table, &t.table, store_), WEIR_OK);
    other.heads = t.heads;
    evict(&t, { 0 }, { range(10, 74), range(0, 100), {}, {} });
    std::vector<uint64_t> memory(weir_table_snapshot_bytes(&t.table, store_) / 8 + 1);
    weir_table_snapshot_take(memory.data(), &t.table, store_);
    const void *const held = t.table.pages[t.table.capacity + 1];
    ASSERT_EQ(other.table.pages[other.table.capacity + 1], held);
    weir_kv_truncate(&t.table, store_, 0);
    ASSERT_FALSE(weir_kv_store_has_pruned(store_));
    ASSERT_TRUE(append(&other, 3));
    EXPECT_NE(other.table.pages[other.table.capacity + 1], held);
    expect_rows(other);
    weir_table_snapshot_release(memory.data(), store_);
    close(&t);
    close(&other);
}

/* A short head takes no memory for what others hold, and grows from where it is. */
TEST_F(EvictOnce, HeadsAreRagged)
{
    Sequence t = sequence();
    ASSERT_TRUE(append(&t, 300));
    EXPECT_EQ(weir_kv_store_free_pages(store_), 80 - 4 * 5);
    evict(&t, { 0, 1 }, { range(0, 300), range(10, 74), range(250, 300), {} });
    EXPECT_EQ(weir_kv_store_free_pages(store_), 80 - (5 + 1 + 1 + 0));
    EXPECT_EQ(t.table.n_rows, 300);
    EXPECT_EQ(t.table.n_pages, 5);
    const weir_kv_pages grow = weir_kv_reserve_pages(&t.table, store_, 64);
    EXPECT_EQ(weir_kv_pages_others(grow), 1 + 1 + 1 + 1);
    ASSERT_TRUE(append(&t, 64));
    EXPECT_EQ(weir_kv_store_free_pages(store_), 80 - (6 + 2 + 2 + 1));
    expect_sound({ &t });
    expect_rows(t);
    evict(&t, { 0 }, { range(0, 64), range(0, 64), {}, {} });
    EXPECT_EQ(t.table.n_rows, 114) << "of the longest head";
    EXPECT_EQ(t.table.n_pages, 2);
    expect_sound({ &t });
    weir_kv_truncate(&t.table, store_, 0);
    EXPECT_FALSE(t.table.is_pruned);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 80);
    t.heads.assign(4, {});
    ASSERT_TRUE(append(&t, 70));
    expect_sound({ &t });
    expect_rows(t);
    close(&t);
}

/* Room for one more row of each head, but not for the copies that shared last pages take: all heads
 * or none. */
TEST_F(EvictOnce, ReserveIsAllOrNothing)
{
    Sequence t = sequence(), b = sequence(), filler = sequence();
    ASSERT_TRUE(append(&t, 200));
    evict(&t, { 0, 1 }, { range(0, 200), range(0, 64), range(3, 99), range(0, 10) });
    EXPECT_EQ(weir_kv_share(&b.table, &t.table, store_), WEIR_OK);
    b.heads = t.heads;
    EXPECT_EQ(weir_kv_pages_others(weir_kv_reserve_pages(&b.table, store_, 1)), 4)
        << "three copies and a new page";
    while (fill(&filler, 64)) continue;
    Sequence last = sequence();
    ASSERT_TRUE(append(&last, 1));
    evict(&last, { 0, 1 }, { range(0, 1), {}, {}, {} });
    ASSERT_TRUE(append(&last, 64));
    const int64_t free = weir_kv_store_free_pages(store_);
    ASSERT_EQ(free, 3);
    const std::string before = picture(b);
    EXPECT_EQ(weir_kv_reserve(&b.table, store_, 1), WEIR_EFULL);
    EXPECT_EQ(picture(b), before);
    EXPECT_EQ(weir_kv_store_free_pages(store_), free);
    close(&filler);
    close(&last);
    ASSERT_TRUE(append(&b, 1));
    expect_sound({ &t, &b });
    expect_rows(t);
    expect_rows(b);
    close(&t);
    close(&b);
}

TEST_F(EvictOnce, RefusesListsThatAreNone)
{
    Sequence t = sequence();
    ASSERT_TRUE(append(&t, 100));
    const std::string before = picture(t);
    for (const std::vector<int32_t> &bad :
         { std::vector<int32_t>{ 0, 0 }, { 5, 3 }, { -1, 2 }, { 0, 100 } }) {
        const Keep keep = keep_of({ 0 }, { range(0, 10), bad, {}, {} });
        EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &keep.keep, &error_), WEIR_EINVAL);
        EXPECT_EQ(weir_kv_pages_others(weir_kv_evict_pages(evictor_, &t.table, &keep.keep)), 0);
    }
    for (const std::vector<int32_t> &bad : { std::vector<int32_t>{ 2 }, { -1 }, { 1, 1 } }) {
        Keep keep = keep_of({ 0, 1 }, { range(0, 10), {}, {}, {} });
        keep.keep.layers = bad.data();
        keep.keep.n = (int64_t)bad.size();
        EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &keep.keep, &error_), WEIR_EINVAL);
    }
    n_rotated_ = 11; /* of ten that stay where they are */
    const Keep rotated = keep_of({ 0 }, { range(0, 10), range(0, 10), {}, {} });
    EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &rotated.keep, &error_), WEIR_EINVAL);
    n_rotated_ = -1;
    const Keep negative = keep_of({ 0 }, { range(0, 10), range(0, 10), {}, {} });
    EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &negative.keep, &error_), WEIR_EINVAL);
    n_rotated_ = 0;
    Keep longer = keep_of({ 0 }, { range(0, 10), range(0, 10), {}, {} });
    longer.counts[1] = 101;
    EXPECT_EQ(weir_kv_evict(evictor_, &t.table, &longer.keep, &error_), WEIR_EINVAL);
    EXPECT_EQ(picture(t), before);
    evict(&t, { 0, 1 }, Lists(4, range(0, 100)));
    EXPECT_EQ(picture(t), before) << "nothing to drop is nothing to do";
    close(&t);
}

/* What a sequence says of itself when it is cut, forked and reset. */
TEST_F(EvictOnce, SequencesCountTheirPages)
{
    weir_kv_sequence a = {}, b = {};
    ASSERT_EQ(weir_kv_sequence_open(&a, store_, ledger_, 0, &error_), WEIR_OK);
    ASSERT_EQ(weir_kv_sequence_open(&b, store_, ledger_, 0, &error_), WEIR_OK);
    ASSERT_EQ(weir_kv_reserve(&a.table, store_, 200), WEIR_OK);
    weir_kv_commit(&a.table, 200);
    a.n_tokens = a.n_computed = 200;
    const size_t page = weir_kv_page_bytes(&spec_, 0);
    EXPECT_EQ(weir_kv_sequence_kv_bytes(&a), 16 * page);
    const Keep keep = keep_of({ 0, 1 }, { range(0, 70), range(0, 64), range(0, 1), range(0, 200) });
    ASSERT_EQ(weir_kv_evict(evictor_, &a.table, &keep.keep, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(weir_kv_sequence_kv_bytes(&a), (2 + 1 + 1 + 4) * page);
    EXPECT_EQ(weir_kv_sequence_fork(&b, &a), WEIR_OK);
    EXPECT_TRUE(b.table.is_pruned);
    EXPECT_EQ(b.n_computed, 200);
    EXPECT_EQ(weir_kv_sequence_kv_bytes(&b), 8 * page);
    weir_kv_sequence_reset(&a);
    EXPECT_FALSE(a.table.is_pruned);
    EXPECT_EQ(weir_kv_rows_at(&a.table, 3), 0);
    EXPECT_EQ(weir_kv_rows_at(&b.table, 3), 200);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 80 - 8);
    weir_kv_sequence_close(&a);
    weir_kv_sequence_close(&b);
}

TEST(EvictSizes, OnlyWhereRowsAreEvicted)
{
    const weir_kv_pair formats[] = { f16, q8 };
    weir_kv_spec spec = {};
    spec.n_layers = 2;
    const weir_kv_geometry geometry[] = { { 3, 64, 64, 0, 0, false }, { 3, 64, 64, 0, 3, false } };
    spec.geometry = geometry;
    spec.formats = formats;
    spec.pages.n = 60;
    spec.max_rows = 640;
    spec.pages.n_disk = 30;
    const size_t table = weir_kv_table_metadata_bytes(&spec),
                 disk = weir_kv_lower_tier_metadata_bytes(&spec), pool = weir_kv_pool_bytes(&spec);
    EXPECT_EQ(weir_kv_evictor_bytes(&spec), 0u);
    spec.evicts = true;
    EXPECT_EQ(weir_kv_table_metadata_bytes(&spec), table + 6 * sizeof(int32_t));
    EXPECT_EQ(weir_kv_lower_tier_metadata_bytes(&spec), disk + 60 * sizeof(int32_t));
    EXPECT_EQ(weir_kv_pool_bytes(&spec), pool);
    EXPECT_GT(weir_kv_evictor_bytes(&spec), 0u);
}

} // namespace
} // namespace evict
