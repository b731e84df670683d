/* Evictions from texts of which most is on disk: the same rows, all or nothing, and nothing of a
 * cut table leaves memory again. */
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/tiers/lower_tier.h"
#include "engine/kv/tiers/prefetch.h"
#include "tests/unit/kv/evict_model.h"

namespace evict {
namespace {

int reads_until_failure = -1;
ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    if (reads_until_failure == 0) {
        errno = EIO;
        return -1;
    }
    if (reads_until_failure > 0) reads_until_failure--;
    return pread(fd, bytes, n, at);
}

constexpr weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 }, q8 = { WEIR_KV_Q8_0, WEIR_KV_TURBO4 },
                       int8 = { WEIR_KV_INT8, WEIR_KV_KIVI4 };

struct Formats {
    const char *name;
    std::vector<weir_kv_pair> layers;
    weir_kv_sinks sinks;
};

class Tiers : public Evict, public ::testing::WithParamInterface<Formats> {
  protected:
    void open_tiers(int64_t memory, int64_t disk)
    {
        Options options;
        options.formats = GetParam().layers;
        options.sinks = GetParam().sinks;
        options.n_sink_blocks = GetParam().sinks.n_pages * 3;
        options.n_blocks = memory;
        options.n_disk_blocks = disk;
        open(options);
        reads_until_failure = -1;
        const weir_lower_tier_io io = { pwritev, faulty_read };
        weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &io);
    }
    void *const *block(const Text &t, int64_t p) const { return (void *const *)t.table.pages + p; }
    bool is_cold(const Text &t, int64_t p) const
    {
        return weir_kv_is_cold(store_, t.table.pages[p]);
    }
    void demote(const Text &t, int64_t first, int64_t end)
    {
        for (int64_t p = std::max<int64_t>(first, spec_.sinks.n_pages); p < end; p++)
            if (!is_cold(t, p))
                ASSERT_EQ(weir_kv_demote(store_, block(t, p), t.table.capacity, &error_), WEIR_OK)
                    << error_.text;
    }
    /* As the engine does: whole blocks leave as the text grows. */
    void append_cold(Text *t, int64_t n)
    {
        for (int64_t i = 0; i < n; i += 64) {
            ASSERT_TRUE(append(t, std::min<int64_t>(64, n - i)));
            demote(*t, 0, t->table.n_rows / 64 - 1);
        }
    }
    void expect_in_memory(const Text &t)
    {
        for (int64_t i = 0; i < heads() * t.table.capacity; i++)
            ASSERT_FALSE(weir_kv_is_cold(store_, t.table.pages[i])) << i;
    }
};
INSTANTIATE_TEST_SUITE_P(
    Formats, Tiers,
    ::testing::Values(
        Formats{ "rows", { f16, q8, q8 }, {} }, Formats{ "pages", { int8, f16, int8 }, {} },
        Formats{ "sinks", { q8, f16, q8 }, { f16, 2 } },
        Formats{ "sinks_of_pages", { int8, f16, q8 }, { f16, 1 } }
    ),
    [](const auto &info) { return info.param.name; }
);

const std::vector<int32_t> all_layers = { 0, 1, 2 }, two_layers = { 0, 2 };

TEST_P(Tiers, WhatStaysComesToMemory)
{
    open_tiers(12, 20);
    for (int round = 0; round < 2; round++) {
        Text t = text();
        append_cold(&t, 15 * 64 + 20);
        ASSERT_TRUE(is_cold(t, 5));
        expect_rows(t);
        n_turned_ = round * 70;
        Lists lists = random_lists(t, all_layers);
        for (auto &list : lists) /* at most five pages each */
            while (list.size() > 300)
                list.erase(
                    list.begin() + n_turned_ +
                    (int64_t)(random_() % (list.size() - (size_t)n_turned_))
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
    for (const int64_t n_turned : { 0, 20 }) {
        Text t = text();
        n_turned_ = n_turned;
        append_cold(&t, 10 * 64 + 20);
        demote(t, 1, 8);
        for (const int64_t p : { 0, 8, 9 })
            if (is_cold(t, p))
                ASSERT_EQ(weir_kv_promote(store_, block(t, p), t.table.capacity, &error_), WEIR_OK)
                    << error_.text;
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
    Text t = text(), fork = text();
    append_cold(&t, 9 * 64 + 7);
    demote(t, 0, 9);
    weir_kv_share(&fork.table, &t.table, store_);
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
    EXPECT_TRUE(is_cold(fork, 6)) << "it is in nobody's way there";
    expect_sound({ &t, &fork });
    expect_rows(t);
    expect_rows(fork);
    EXPECT_FALSE(weir_kv_may_leave(store_, block(fork, 3), fork.table.capacity))
        << "the cut table reads it";
    close(&t);
    EXPECT_TRUE(weir_kv_may_leave(store_, block(fork, 3), fork.table.capacity));
    demote(fork, 3, 4);
    expect_rows(fork);
    close(&fork);
}

/* Whichever read fails, the text is as it was; and the next time it goes. */
TEST_P(Tiers, AReadThatFailsChangesNothing)
{
    open_tiers(14, 20);
    Text t = text();
    append_cold(&t, 10 * 64 + 30);
    Lists lists((size_t)heads());
    for (int64_t h = 0; h < heads(); h++)
        for (int32_t i = 0; i < 10 * 64 + 30; i++)
            if (i < 64 * 3 || random_() % 4 == 0) lists[(size_t)h].push_back(i);
    const Keep keep = keep_of(all_layers, lists);
    for (int failing = 0;; failing += failing < 12 ? 1 : 9) {
        const int64_t free = weir_kv_store_free_pages(store_);
        std::vector<char> open_rows(weir_kv_open_rows_bytes(&spec_));
        if (!open_rows.empty()) memcpy(open_rows.data(), t.table.open_memory, open_rows.size());
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
        if (!open_rows.empty())
            EXPECT_EQ(memcmp(open_rows.data(), t.table.open_memory, open_rows.size()), 0);
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
    Text t = text(), other = text();
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
    Text t = text();
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

/* A kept text of which a cut table holds some pages neither leaves memory nor counts as more than
 * dropping it frees. */
TEST_P(Tiers, KeptTextsKnowOfCutTables)
{
    open_tiers(20, 20);
    weir_prefix *prefix = nullptr;
    const weir_prefix_limits limits = { 40, 0, 0, 0, 0 };
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
        EXPECT_EQ(weir_kv_demote(store_, oldest[i], 1, &error_), WEIR_OK) << error_.text;
    EXPECT_TRUE(weir_kv_table_is_sound(store_, &a.table, &error_)) << error_.text;
    const int64_t n_nodes = weir_prefix_stats_of(prefix).n_nodes;
    EXPECT_EQ(weir_prefix_insert(prefix, &a, nullptr, nullptr, 0, false), 0);
    EXPECT_EQ(weir_prefix_stats_of(prefix).n_nodes, n_nodes) << "a cut table is no text";
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

/* Four sequences under a policy that keeps nothing in mind: what is done with their texts is up to
 * the test. */
struct Watched {
    weir_policy_options options = {};
    std::vector<int32_t> layers;
    std::vector<double> frequencies = std::vector<double>(64, 1.0);
    weir_policy_run *policy_run = nullptr;
    weir_kv_sequence all[4] = {};
    weir_error error = {};
    void open(const weir_kv_spec &spec, weir_kv_store *store, weir_ledger *ledger)
    {
        for (int32_t i = 0; i < spec.n_layers; i++) layers.push_back(i);
        ASSERT_EQ(weir_policy_options_default(&options, "sinks", &error), WEIR_OK);
        weir_policy_run_options wish = {};
        wish.policy = &options;
        wish.budget = 600;
        wish.shape = { spec.n_layers,
                       spec.n_kv_heads,
                       spec.n_kv_heads,
                       spec.key_dim,
                       spec.value_dim,
                       spec.key_dim,
                       false,
                       frequencies.data(),
                       1,
                       1,
                       spec.max_rows,
                       { 1, 2 },
                       0,
                       false };
        wish.layers = layers.data();
        wish.n_texts = 4;
        wish.n_new = (int32_t)spec.max_rows;
        ASSERT_EQ(weir_policy_run_open(&policy_run, &wish, ledger, &error), WEIR_OK) << error.text;
        for (weir_kv_sequence &s : all)
            ASSERT_EQ(weir_kv_sequence_open(&s, store, ledger, 0, &error), WEIR_OK);
        for (weir_kv_sequence &s : all) clear(&s);
    }
    void clear(weir_kv_sequence *s)
    {
        weir_kv_sequence_clear(s);
        s->policy_run = weir_policy_run_begin(policy_run, (int32_t)(s - all), 0, 0);
    }
    void close()
    {
        for (weir_kv_sequence &s : all) weir_kv_sequence_close(&s);
        weir_policy_run_close(policy_run);
    }
};

/* What goes on from the list uses the runs of the tree that hold the same pages. */
TEST_P(Tiers, TheTreeKnowsWhoGoesOnFromTheList)
{
    open_tiers(20, 20);
    weir_prefix *prefix = nullptr;
    const weir_prefix_limits limits = { 40, 0, 0, 4, 64 << 10 };
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
    ASSERT_EQ(weir_pruned_insert(prefix, &s, nullptr, nullptr), nullptr);
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

/* Sequences that take texts from the tree and from the list of cut ones, go on, are cut, forked and
 * give texts back, beside blocks that come and go. */
TEST_P(Tiers, TheTreeStaysSoundBesideCutTables)
{
    open_tiers(30, 30);
    weir_prefix *prefix = nullptr;
    const weir_prefix_limits limits = { 60, 0, 0, 5, 64 << 10 };
    Watched watched;
    weir_kv_sequence(&all)[4] = watched.all;
    int n_pruned = 0, n_demoted = 0, n_taken = 0, n_kept = 0, n_continued = 0;
    ASSERT_EQ(weir_prefix_open(&prefix, store_, ledger_, &limits, &error_), WEIR_OK) << error_.text;
    watched.open(spec_, store_, ledger_);
    for (int step = 0; step < 2500; step++) {
        weir_kv_sequence &s = all[random_() % 4], &other = all[random_() % 4];
        switch (random_() % 9) {
        case 0: {
            watched.clear(&s);
            const int32_t branch = (int32_t)(random_() % 3);
            s.n_tokens = 65 + (int32_t)(random_() % 500);
            for (int32_t i = 0; i < s.n_tokens; i++) s.tokens[i] = i < 150 ? i : i * 10 + branch;
            const bool is_continued =
                random_() % 2 == 0 && weir_pruned_match(prefix, &s, nullptr, false).n_rows > 0;
            n_continued += is_continued;
            n_taken +=
                !is_continued && weir_prefix_match(prefix, &s, nullptr, s.n_tokens - 1).n_rows > 0;
            break;
        }
        case 1:
        case 2: {
            const int32_t left = s.n_tokens - s.n_computed,
                          n = left > 0 ? 1 + (int32_t)(random_() % (uint32_t)left) : 0;
            if (weir_kv_reserve(&s.table, store_, n) != WEIR_OK) {
                (void)weir_prefix_reclaim(prefix, weir_kv_reserve_pages(&s.table, store_, n));
                break;
            }
            weir_kv_commit(&s.table, n);
            s.n_computed += n;
            if (n > 0) weir_policy_run_advance(s.policy_run, n, s.n_computed);
            break;
        }
        case 3:
            (void)weir_prefix_insert(prefix, &s, nullptr, nullptr, 0, random_() % 2 == 0);
            break;
        case 4: {
            Text t;
            t.table = s.table;
            for (int64_t h = 0; h < heads(); h++)
                t.heads.emplace_back((size_t)weir_kv_rows_at(&s.table, h));
            if (random_() % 2 == 0) break;
            const Keep keep = keep_of(two_layers, random_lists(t, two_layers));
            if (weir_kv_evict(evictor_, &s.table, &keep.keep, &error_) == WEIR_OK)
                n_pruned += s.table.is_pruned;
            break;
        }
        case 5:
            if (&s == &other || random_() % 2 == 0) break;
            watched.clear(&s);
            weir_kv_sequence_fork(&s, &other);
            break;
        case 6:
        case 7:
            if (s.n_computed == 0 || random_() % 2 == 0) break;
            if (!weir_policy_run_turn(s.policy_run, s.n_computed, s.n_computed)) break;
            weir_policy_run_advance(s.policy_run, 0, s.n_computed);
            EXPECT_EQ(weir_pruned_insert(prefix, &s, nullptr, nullptr), nullptr);
            n_kept++;
            if (random_() % 4 == 0) (void)weir_pruned_drop_oldest(prefix);
            break;
        default: {
            void *const *oldest[4];
            const int32_t n = weir_prefix_lru_blocks(prefix, oldest, 1 + (int32_t)(random_() % 4));
            for (int32_t i = 0; i < n; i++)
                n_demoted += weir_kv_demote(store_, oldest[i], 1, &error_) == WEIR_OK;
            for (int64_t p = 0; p < s.table.n_rows / 64; p++)
                if (!s.table.is_pruned &&
                    weir_kv_may_leave(store_, (void *const *)s.table.pages + p, s.table.capacity) &&
                    random_() % 2 == 0)
                    n_demoted +=
                        weir_kv_demote(
                            store_, (void *const *)s.table.pages + p, s.table.capacity, &error_
                        ) == WEIR_OK;
            break;
        }
        }
        ASSERT_TRUE(weir_prefix_is_sound(prefix, &error_)) << error_.text << " after step " << step;
        ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_))
            << error_.text << " after step " << step;
        for (const weir_kv_sequence &each : all)
            ASSERT_TRUE(weir_kv_table_is_sound(store_, &each.table, &error_))
                << error_.text << " after step " << step;
        if (step % 50 != 49) continue;
        weir_kv_pages most =
            weir_kv_pages_plus(weir_kv_store_free(store_), weir_prefix_reclaimable(prefix));
        ASSERT_TRUE(weir_prefix_reclaim(prefix, most))
            << "what it says can be had, after step " << step;
        most.others[step / 50 % 2]++;
        ASSERT_FALSE(weir_prefix_reclaim(prefix, most)) << "and no more";
    }
    EXPECT_GT(n_pruned, 20);
    EXPECT_GT(n_taken, 20);
    EXPECT_GT(n_demoted, 20);
    EXPECT_GT(n_kept, 20);
    EXPECT_GT(n_continued, 20);
    watched.close();
    const weir_kv_pages most = weir_kv_store_all(store_);
    EXPECT_TRUE(weir_prefix_reclaim(prefix, most)) << "nobody uses anything: all of it can be had";
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.n_pages);
    weir_prefix_close(prefix);
}

/* A step over a cut table, whose first head may have no page at all, and a text on disk: only the
 * latter is read ahead. */
TEST_P(Tiers, StagingPassesCutTables)
{
    open_tiers(14, 20);
    Text a = text(), b = text();
    ASSERT_TRUE(append(&a, 6 * 64));
    Lists lists((size_t)heads());
    for (int64_t h = 1; h < heads(); h++)
        for (int32_t i = 64; i < 6 * 64; i += 2) lists[(size_t)h].push_back(i);
    evict(&a, all_layers, lists);
    ASSERT_EQ(a.table.pages[0], nullptr);
    append_cold(&b, 8 * 64 + 1);
    ASSERT_TRUE(is_cold(b, 4));
    weir_kv_prefetch *prefetch = nullptr;
    const weir_kv_prefetch_limits step = { 2, nullptr };
    ASSERT_EQ(weir_kv_prefetch_open(&prefetch, &spec_, &step, ledger_, &error_), WEIR_OK)
        << error_.text;
    weir_kv_view *const views = weir_kv_prefetch_views(prefetch);
    views[0] = { (void *const *)a.table.pages, a.table.capacity, 6 * 64, 1, false };
    EXPECT_FALSE(weir_kv_prefetch_begin(prefetch, store_, 1));
    views[1] = { (void *const *)b.table.pages, b.table.capacity, 8 * 64, 1, false };
    ASSERT_TRUE(weir_kv_prefetch_begin(prefetch, store_, 2));
    for (int64_t layer = 0; layer < spec_.n_layers; layer++) {
        weir_kv_range_pages range = {};
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
    Text texts[3] = { text(), text(), text() };
    int n_pruned = 0;
    for (int step = 0; step < 120; step++) {
        Text &t = texts[random_() % 3], &other = texts[random_() % 3];
        reads_until_failure = random_() % 12 == 0 ? (int)(random_() % 20) : -1;
        switch (random_() % 6) {
        case 0:
        case 1:
            if (append(&t, 1 + (int64_t)(random_() % 150)) && !t.table.is_pruned) {
                const int64_t end = t.table.n_rows / 64;
                for (int64_t p = spec_.sinks.n_pages; p < end; p++)
                    if (weir_kv_may_leave(store_, block(t, p), t.table.capacity) &&
                        random_() % 4 != 0)
                        (void)weir_kv_demote(store_, block(t, p), t.table.capacity, &error_);
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
            weir_kv_share(&t.table, &other.table, store_);
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
                    (void)weir_kv_promote(store_, block(t, p), t.table.capacity, &error_);
            break;
        }
        reads_until_failure = -1;
        ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_))
            << error_.text << " after step " << step;
        for (const Text &each : texts)
            ASSERT_TRUE(weir_kv_table_is_sound(store_, &each.table, &error_))
                << error_.text << " after " << step;
        if (step % 8 == 0)
            for (const Text &each : texts) expect_rows(each);
        ASSERT_FALSE(HasFatalFailure()) << "step " << step;
    }
    EXPECT_GT(n_pruned, 4);
    EXPECT_GT(weir_kv_residency_of(store_).bytes_out, 0);
    for (Text &t : texts) close(&t);
}

} // namespace
} // namespace evict
