// The prefix index against an oracle: every row and state is a digest of the tokens before it, so what is taken over can be checked.
#include "engine/kv/prefix.h"
#include "engine/kv/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using Text = std::vector<int32_t>;

uint64_t digest(const int32_t *tokens, int64_t n)
{
    uint64_t h = 1469598103934665603u;
    for (int64_t i = 0; i < n; i++) h = (h ^ (uint64_t)(uint32_t)tokens[i]) * 1099511628211u;
    return h;
}

struct Kind {
    bool has_states, is_paged;
};

class Prefix : public ::testing::TestWithParam<Kind> {
  protected:
    static bool has_states() { return GetParam().has_states; }
    static bool is_paged() { return GetParam().is_paged; }
    // What can be continued of so many rows.
    static int32_t cut(int32_t rows) { return is_paged() ? rows / 64 * 64 : rows; }
    // The same where the only state is at the end.
    static int32_t at_end(int32_t rows) { return has_states() && cut(rows) != rows ? 0 : cut(rows); }

    static constexpr int64_t layers = 2, heads = 2, window = 640;
    static constexpr size_t  state_bytes = 64;

    static weir_kv_pages others(int64_t n) { return { 0, n }; }
    static bool          same(weir_kv_pages a, weir_kv_pages b) { return a.sinks == b.sinks && a.others == b.others; }

    /* n_sink_pages more are for the first two blocks of texts, where there are any. */
    void open(int64_t n_pages, int64_t n_nodes, int32_t n_snapshots, int64_t n_disk_pages = 0, int64_t n_sink_pages = 0)
    {
        const std::string folder = ::testing::TempDir();
        const size_t      caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        static const weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 }, int8 = { WEIR_KV_INT8, WEIR_KV_F32 };
        static const weir_kv_pair wide[] = { f16, f16 }, narrow[] = { int8, int8 };
        n_pages_ = n_pages + n_sink_pages;
        const weir_kv_sinks sinks = { { WEIR_KV_F32, WEIR_KV_F32 }, n_sink_pages > 0 ? 2 : 0 };
        const weir_kv_spec  spec = { layers,       heads,          8,     8,           is_paged() ? narrow : wide, n_pages_, window,
                                     n_disk_pages, folder.c_str(), sinks, n_sink_pages };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec, ledger_, &error_), WEIR_OK) << error_.text;
        const weir_prefix_limits limits = { n_nodes, has_states() ? n_snapshots : 0, has_states() ? state_bytes : 0 };
        const size_t             before = weir_ledger_total(ledger_, WEIR_TIER_HOST);
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST) - before,
                  weir_prefix_tree_bytes(&limits, &spec) + weir_prefix_state_bytes(&limits));
    }
    void TearDown() override
    {
        weir_prefix_close(prefix_);
        EXPECT_EQ(weir_kv_store_free_pages(store_), n_pages_) << "pages leaked";
        weir_kv_store_close(store_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        weir_ledger_close(ledger_);
    }
    weir_sequence sequence(const Text &text)
    {
        weir_sequence s = {};
        EXPECT_EQ(weir_sequence_open(&s, store_, ledger_, has_states() ? state_bytes : 0, &error_), WEIR_OK) << error_.text;
        std::copy(text.begin(), text.end(), s.tokens);
        s.n_tokens = (int32_t)text.size();
        return s;
    }
    static uint64_t *row(const weir_sequence &s, int64_t h, int64_t r)
    {
        return (uint64_t *)((char *)s.table.pages[h * s.table.capacity + r / 64] + r % 64 * 32);
    }
    // Where rows of the last page wait for it to be full.
    static uint64_t *open_row(const weir_sequence &s, int64_t h, int64_t r) { return (uint64_t *)((char *)s.table.open[h] + r % 64 * 16); }
    static uint64_t  value(const weir_sequence &s, int64_t h, int64_t r)
    {
        return is_paged() && r >= s.n_computed / 64 * 64 ? *open_row(s, h, r) : *row(s, h, r);
    }
    static void put(const weir_sequence &s, int64_t h, int64_t r, uint64_t value)
    {
        if (!is_paged()) *row(s, h, r) = value;
        if (is_paged()) *open_row(s, h, r) = value;
        for (int64_t i = r - 63; is_paged() && r % 64 == 63 && i <= r; i++) *row(s, h, i) = *open_row(s, h, i);
    }
    // "Computes" rows up to `end`; false when there is no room.
    bool compute(weir_sequence *s, int32_t end)
    {
        if (weir_kv_reserve(&s->table, store_, end) != WEIR_OK) return false;
        for (int64_t r = s->n_computed; r < end; r++)
            for (int64_t h = 0; h < layers * heads; h++) put(*s, h, r, digest(s->tokens, r + 1) + (uint64_t)h);
        s->n_computed = end;
        weir_kv_commit(&s->table, end);
        if (has_states()) put_state(s->recurrent, *s, end);
        s->recurrent_dirty = true;
        return true;
    }
    static void put_state(float *state, const weir_sequence &s, int32_t at)
    {
        const uint64_t value = digest(s.tokens, at);
        memcpy(state, &value, sizeof value);
    }
    void expect_right(const weir_sequence &s)
    {
        for (int64_t r = 0; r < s.n_computed; r++)
            for (int64_t h = 0; h < layers * heads; h++) ASSERT_EQ(value(s, h, r), digest(s.tokens, r + 1) + (uint64_t)h) << "row " << r;
        uint64_t state = 0;
        if (has_states() && s.n_computed > 0) memcpy(&state, s.recurrent, sizeof state);
        if (has_states() && s.n_computed > 0) ASSERT_EQ(state, digest(s.tokens, s.n_computed));
    }
    // Keeps a finished text with states after the given numbers of tokens and at its end.
    void keep(const Text &text, const char *salt, std::vector<int32_t> marks = {})
    {
        weir_sequence s = sequence(text);
        ASSERT_TRUE(compute(&s, s.n_tokens));
        marks.push_back(s.n_tokens);
        std::vector<weir_prefix_mark> lent;
        for (const int32_t at : marks) {
            float *const state = has_states() ? weir_prefix_lend(prefix_) : nullptr;
            if (state == nullptr) continue;
            put_state(state, s, at);
            lent.push_back({ at, state });
        }
        EXPECT_EQ(weir_prefix_keep(prefix_, &s, salt, lent.data(), (int32_t)lent.size(), false), 0);
        weir_sequence_close(&s);
        sound();
    }
    weir_prefix_hit take(const Text &text, const char *salt, int32_t most = INT32_MAX)
    {
        weir_sequence         s = sequence(text);
        const weir_prefix_hit hit = weir_prefix_take(prefix_, &s, salt, most);
        EXPECT_EQ(hit.n_rows, s.n_computed);
        EXPECT_LE(hit.n_rows, hit.n_matched);
        expect_right(s);
        weir_sequence_close(&s);
        sound();
        return hit;
    }
    // Where the blocks of a text are, as a sequence that takes it finds them; they come back if asked.
    std::vector<bool> on_disk(const Text &text, bool come_back)
    {
        weir_sequence     s = sequence(text);
        std::vector<bool> is_cold;
        (void)weir_prefix_take(prefix_, &s, nullptr, INT32_MAX);
        for (int64_t p = 0; p < s.table.n_pages; p++) {
            is_cold.push_back(weir_kv_is_cold(store_, s.table.pages[p]));
            if (come_back && is_cold.back())
                EXPECT_EQ(weir_kv_bring_back(store_, (void *const *)s.table.pages + p, s.table.capacity, &error_), WEIR_OK) << error_.text;
        }
        if (come_back) expect_right(s);
        weir_sequence_close(&s);
        sound();
        return is_cold;
    }
    void        sound() { EXPECT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text; }
    static Text text(int32_t n, int32_t seed = 1)
    {
        Text t((size_t)n);
        for (int32_t i = 0; i < n; i++) t[(size_t)i] = i * 7 + seed;
        return t;
    }
    weir_ledger   *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_prefix   *prefix_ = nullptr;
    int64_t        n_pages_ = 0;
    weir_error     error_ = {};
};

TEST_P(Prefix, FindsATextAgainAndWhatContinuesIt)
{
    open(400, 100, 8);
    keep(text(150), nullptr);
    EXPECT_EQ(take(text(150), nullptr).n_rows, at_end(150));
    EXPECT_EQ(take(text(300), nullptr).n_rows, at_end(150));
    EXPECT_EQ(take(text(150), nullptr, 149).n_rows, has_states() ? 0 : cut(149)) << "one token must stay to compute";
    EXPECT_EQ(take(text(150, 2), nullptr).n_rows, 0);
    Text other = text(150);
    other[100] = -5;
    const weir_prefix_hit hit = take(other, nullptr);
    EXPECT_EQ(hit.n_matched, 100);
    EXPECT_EQ(hit.n_rows, has_states() ? 0 : cut(100));
    EXPECT_STRNE(hit.reason, "");
}

TEST_P(Prefix, ContinuesAtTheDeepestState)
{
    open(400, 100, 8);
    keep(text(200), nullptr, { 10, 63, 64, 65, 199 });
    for (const int32_t end : { 9, 10, 62, 63, 64, 65, 66, 198, 199 }) {
        const int32_t paged = end >= 64 ? 64 : 0;
        const int32_t hybrid = is_paged()   ? paged
                               : end >= 199 ? 199
                               : end >= 65  ? 65
                               : end >= 64  ? 64
                               : end >= 63  ? 63
                               : end >= 10  ? 10
                                            : 0;
        EXPECT_EQ(take(text(300), nullptr, end).n_rows, has_states() ? hybrid : cut(end)) << end;
    }
}

TEST_P(Prefix, SaysThatPagesAreContinuedWhole)
{
    open(400, 100, 8);
    if (!is_paged() || has_states()) GTEST_SKIP() << "of paged texts without states";
    keep(text(150), nullptr);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_tokens, 128);
    EXPECT_STREQ(take(text(300), nullptr, 100).reason, "this KV format continues texts at multiples of 64 tokens");
    EXPECT_STREQ(take(text(60), nullptr).reason, "this KV format continues texts at multiples of 64 tokens");
    EXPECT_STREQ(take(text(300), nullptr).reason, "the nearest kept text ends or differs here");
}

TEST_P(Prefix, SaltsSeparate)
{
    open(400, 100, 8);
    keep(text(100), "one");
    EXPECT_EQ(take(text(100), "two").n_rows, 0);
    EXPECT_EQ(take(text(100), nullptr).n_rows, 0);
    EXPECT_EQ(take(text(100), "").n_rows, 0);
    EXPECT_EQ(take(text(100), "one").n_rows, at_end(100));
    keep(text(100), std::string(WEIR_PREFIX_SALT + 1, 'x').c_str());
    EXPECT_EQ(take(text(100), std::string(WEIR_PREFIX_SALT + 1, 'x').c_str()).n_rows, 0) << "too long: not kept";
}

// A sequence that continues a kept text writes into its own copy of the last page.
TEST_P(Prefix, WritersGetTheirOwnPage)
{
    open(400, 100, 8);
    keep(text(100), nullptr);
    weir_sequence a = sequence(text(130)), b = sequence(text(130));
    for (int32_t i = 100; i < 130; i++) b.tokens[i] = -i;
    EXPECT_EQ(weir_prefix_take(prefix_, &a, nullptr, 130).n_rows, at_end(100));
    EXPECT_EQ(weir_prefix_take(prefix_, &b, nullptr, 130).n_rows, at_end(100));
    ASSERT_TRUE(compute(&a, 130));
    ASSERT_TRUE(compute(&b, 130));
    expect_right(a);
    expect_right(b);
    EXPECT_EQ(take(text(100), nullptr).n_rows, at_end(100));
    weir_sequence_close(&a);
    weir_sequence_close(&b);
}

TEST_P(Prefix, RunningSequencesShareWholePagesOnly)
{
    open(400, 100, 8);
    weir_sequence s = sequence(text(200));
    ASSERT_TRUE(compute(&s, 100));
    std::vector<weir_prefix_mark> marks;
    for (const int32_t at : { 30, 64, 90 }) {
        if (!has_states()) continue;
        float *const state = weir_prefix_lend(prefix_);
        put_state(state, s, at);
        marks.push_back({ at, state });
    }
    const int32_t left = weir_prefix_keep(prefix_, &s, nullptr, marks.data(), (int32_t)marks.size(), true);
    EXPECT_EQ(left, has_states() ? 1 : 0) << "the state at 90 stays with the caller";
    EXPECT_EQ(take(text(200), nullptr).n_rows, 64);
    ASSERT_TRUE(compute(&s, 200));
    EXPECT_EQ(weir_prefix_keep(prefix_, &s, nullptr, marks.data() + marks.size() - (size_t)left, left, false), 0);
    weir_sequence_close(&s);
    EXPECT_EQ(take(text(200), nullptr).n_rows, !has_states() ? cut(200) : is_paged() ? 64 : 90);
}

TEST_P(Prefix, ReclaimsTheLeastRecentlyUsed)
{
    open(4 * 10, 100, 8);
    keep(text(320, 1), nullptr); // 5 blocks of 4 pages each
    keep(text(320, 2), nullptr);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 0);
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 40);
    EXPECT_EQ(take(text(320, 1), nullptr).n_rows, 320);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(20)));
    sound();
    EXPECT_EQ(take(text(320, 1), nullptr).n_rows, 320) << "used last";
    EXPECT_EQ(take(text(320, 2), nullptr).n_rows, 0);
    weir_sequence user = sequence(text(320, 1));
    EXPECT_EQ(weir_prefix_take(prefix_, &user, nullptr, 320).n_rows, 320);
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 0);
    EXPECT_FALSE(weir_prefix_reclaim(prefix_, others(21))) << "a sequence uses the rest";
    weir_sequence_close(&user);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).dropped_tokens, 320);
}

TEST_P(Prefix, TellsWhatWillBeDroppedAndIsInNoFile)
{
    open(4 * 20, 100, 8); // a block is 4 pages: 64 tokens in all layers and heads
    keep(text(320, 1), nullptr);
    keep(text(320, 2), "mine");
    keep(text(128, 3), nullptr);
    weir_sequence s = sequence({});
    char          salt[WEIR_PREFIX_SALT + 1];
    ASSERT_EQ(weir_kv_store_free_pages(store_), 4 * 8);
    EXPECT_FALSE(weir_prefix_endangered(prefix_, others(4 * 8), 0, 192, &s, salt)) << "so many are free";
    EXPECT_FALSE(weir_prefix_endangered(prefix_, others(4 * 20), 0, 321, &s, salt)) << "no text is that long";
    ASSERT_TRUE(weir_prefix_endangered(prefix_, others(4 * 9), 0, 192, &s, salt));
    EXPECT_EQ(Text(s.tokens, s.tokens + s.n_tokens), text(320, 1));
    EXPECT_STREQ(salt, WEIR_PREFIX_NO_SALT);
    EXPECT_EQ(weir_prefix_reach(prefix_, s.tokens, s.n_tokens, salt), 320);
    EXPECT_EQ(weir_prefix_reach(prefix_, s.tokens, s.n_tokens, "mine"), 0);
    ASSERT_EQ(weir_prefix_hold(prefix_, &s, salt), 320);
    sound();
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 4 * 7) << "it is held";
    weir_prefix_tried(prefix_, s.tokens, 320, 320, salt);
    weir_sequence_clear(&s);
    sound();
    EXPECT_FALSE(weir_prefix_endangered(prefix_, others(4 * 13), 0, 192, &s, salt)) << "five blocks go before the next text";
    ASSERT_TRUE(weir_prefix_endangered(prefix_, others(4 * 14), 0, 192, &s, salt));
    EXPECT_EQ(Text(s.tokens, s.tokens + s.n_tokens), text(320, 2));
    EXPECT_STREQ(salt, "mine");
    weir_sequence_clear(&s);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(4 * 13))) << "holding was no use of it: it goes first";
    EXPECT_EQ(take(text(320, 1), nullptr).n_rows, 0);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).dropped_tokens, 320);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).unsaved_tokens, 0);

    // What was saved and goes on: the new tokens alone count. What another text shares is not lost with this one.
    keep(text(320, 2), "mine");
    weir_prefix_tried(prefix_, text(320, 2).data(), 320, 320, "mine");
    keep(text(448, 2), "mine");
    EXPECT_FALSE(weir_prefix_endangered(prefix_, others(4 * 20), 0, 129, &s, salt));
    EXPECT_TRUE(weir_prefix_endangered(prefix_, others(4 * 20), 0, 128, &s, salt));
    EXPECT_EQ(s.n_tokens, 128) << "the oldest first";
    weir_sequence_clear(&s);
    weir_prefix_tried(prefix_, text(128, 3).data(), 128, 0, nullptr);
    ASSERT_TRUE(weir_prefix_endangered(prefix_, others(4 * 20), 0, 128, &s, salt));
    EXPECT_EQ(s.n_tokens, 448);
    weir_sequence_clear(&s);
    Text other = text(448, 2);
    for (size_t i = 384; i < other.size(); i++) other[i] = -1;
    keep(other, "mine");
    EXPECT_FALSE(weir_prefix_endangered(prefix_, others(4 * 20), 0, 128, &s, salt));
    weir_sequence_close(&s);
}

TEST_P(Prefix, RandomSchedules)
{
    for (int seed = 1; seed <= 20; seed++) {
        std::mt19937 random((unsigned)seed);
        const auto   pick = [&](int n) { return (int32_t)(random() % (unsigned)n); };
        open(4 * 24, 14, 5, 0, seed % 2 == 0 ? 4 * 9 : 0);
        if (HasFatalFailure()) return;
        for (int step = 0; step < 300; step++) {
            Text t = text(1 + pick(300), pick(3));
            if (pick(2)) t[(size_t)pick((int)t.size())] = -1 - pick(3);
            const std::string salt = std::string("s") + (char)('0' + pick(3));
            weir_sequence     s = sequence(t);
            const auto        hit = weir_prefix_take(prefix_, &s, salt.c_str(), s.n_tokens - pick(2));
            expect_right(s);
            std::vector<weir_prefix_mark> marks;
            bool                          room = true;
            while (room && s.n_computed < s.n_tokens) {
                const int32_t end = std::min(s.n_tokens, s.n_computed + 1 + pick(150));
                room = compute(&s, end) || (weir_prefix_reclaim(prefix_, others(4 * 6)) && compute(&s, end));
                float *const state = room && has_states() && pick(2) ? weir_prefix_lend(prefix_) : nullptr;
                if (state != nullptr) put_state(state, s, end);
                if (state != nullptr) marks.push_back({ end, state });
                if (room && pick(3) == 0)
                    marks.erase(marks.begin(),
                                marks.end() - weir_prefix_keep(prefix_, &s, salt.c_str(), marks.data(), (int32_t)marks.size(), true));
            }
            expect_right(s);
            if (room && pick(4) > 0) {
                weir_prefix_keep(prefix_, &s, salt.c_str(), marks.data(), (int32_t)marks.size(), false);
            } else {
                for (const weir_prefix_mark &mark : marks) weir_prefix_give_back(prefix_, mark.state);
            }
            weir_sequence_close(&s);
            ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_))
                << error_.text << " seed " << seed << " step " << step << " hit " << hit.n_rows;
        }
        TearDown();
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
        if (HasFatalFailure()) return;
    }
    open(4, 1, 1);
}

// Two sequences computed the same text; one is kept and gone, the other goes on below what the first one left.
TEST_P(Prefix, ASequenceGivesItsPagesUpForEqualOnes)
{
    open(40, 100, 8);
    weir_sequence a = sequence(text(150)), b = sequence(text(200));
    ASSERT_TRUE(compute(&a, 150));
    ASSERT_TRUE(compute(&b, 150));
    EXPECT_EQ(weir_kv_store_free_pages(store_), 40 - 4 * 6);
    weir_prefix_keep(prefix_, &a, nullptr, nullptr, 0, true);
    weir_sequence_close(&a);
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 4 * 2);
    weir_prefix_keep(prefix_, &b, nullptr, nullptr, 0, true);
    expect_right(b);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 40 - 4 * 3) << "two pages' worth of tokens are shared now";
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 0);
    ASSERT_TRUE(compute(&b, 200));
    expect_right(b);
    weir_prefix_keep(prefix_, &b, nullptr, nullptr, 0, true);
    sound();
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 0);
    EXPECT_FALSE(weir_prefix_reclaim(prefix_, others(40 - 4 * 4 + 1))) << "a sequence uses all that is kept";
    weir_sequence_close(&b);
    EXPECT_EQ(weir_prefix_reclaimable(prefix_).others, 4 * 3);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(40)));
    sound();
}

// Sequences come, go on, fork, are preempted and end in any order; the count equals the walk after every step, and all that is counted can be had.
TEST_P(Prefix, TheCountOfIdlePagesEqualsTheWalk)
{
    struct Live {
        weir_sequence sequence;
        std::string   salt;
    };
    for (int seed = 1; seed <= 8; seed++) {
        std::mt19937      random((unsigned)seed);
        std::vector<Live> live;
        const auto        pick = [&](int64_t n) { return (int32_t)(random() % (uint64_t)n); };
        const auto        keep_live = [&](Live &l, bool whole) {
            weir_prefix_mark mark = { l.sequence.n_computed / 64 * 64, nullptr };
            if (!whole && !is_paged()) mark.at = l.sequence.n_computed;
            if (has_states() && mark.at > 0) mark.state = weir_prefix_lend(prefix_);
            if (mark.state != nullptr) put_state(mark.state, l.sequence, mark.at);
            const int32_t left = weir_prefix_keep(prefix_, &l.sequence, l.salt.c_str(), &mark, mark.state != nullptr, whole);
            if (left > 0) weir_prefix_give_back(prefix_, mark.state);
        };
        open(4 * 30, 20, 6, 0, seed % 2 == 0 ? 4 * 12 : 0);
        if (HasFatalFailure()) return;
        for (int step = 0; step < 600; step++) {
            const size_t at = live.empty() ? 0 : (size_t)pick((int64_t)live.size());
            const int    action = live.empty() ? 0 : pick(8);
            if (action == 0 && live.size() < 5) {
                Text t = text(1 + pick(400), pick(2));
                if (pick(2)) t[(size_t)pick((int64_t)t.size())] = -1 - pick(2);
                live.push_back({ sequence(t), std::string("s") + (char)('0' + pick(2)) });
                if (pick(3) > 0) weir_prefix_take(prefix_, &live.back().sequence, live.back().salt.c_str(), (int32_t)t.size());
            } else if (action <= 3) {
                weir_sequence &s = live[at].sequence;
                const int32_t  end = std::min(s.n_tokens, s.n_computed + 1 + pick(130));
                if (end > s.n_computed && !compute(&s, end) && weir_prefix_reclaim(prefix_, others(4 * 4))) (void)compute(&s, end);
            } else if (action == 4) {
                keep_live(live[at], true);
            } else if (action == 5) {
                if (pick(3) > 0) keep_live(live[at], false);
                weir_sequence_close(&live[at].sequence);
                live.erase(live.begin() + (std::ptrdiff_t)at);
            } else if (action == 6 && live.size() < 5) {
                Live fork = { sequence({}), live[at].salt };
                weir_sequence_fork(&fork.sequence, &live[at].sequence);
                live.push_back(fork);
            } else {
                weir_sequence_reset(&live[at].sequence);
                if (pick(2)) weir_prefix_take(prefix_, &live[at].sequence, live[at].salt.c_str(), live[at].sequence.n_tokens);
            }
            for (const Live &l : live)
                if (pick(8) == 0) expect_right(l.sequence);
            ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text << " seed " << seed << " step " << step;
            if (pick(3) == 0) continue; // marks may stay for some steps
            const weir_kv_pages idle = weir_prefix_idle_pages(prefix_), free = weir_kv_store_free(store_);
            ASSERT_TRUE(same(weir_prefix_reclaimable(prefix_), idle)) << "seed " << seed << " step " << step;
            ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text << " seed " << seed << " step " << step;
            if (pick(20) == 0)
                ASSERT_TRUE(weir_prefix_reclaim(prefix_, { free.sinks + pick(idle.sinks + 1), free.others + pick(idle.others + 1) }));
        }
        const weir_kv_pages free = weir_kv_store_free(store_), idle = weir_prefix_reclaimable(prefix_);
        ASSERT_FALSE(weir_prefix_reclaim(prefix_, { free.sinks + idle.sinks + 1, 0 }));
        ASSERT_TRUE(same(weir_prefix_reclaimable(prefix_), { 0, 0 })) << "all that is behind sinks was in the way of them";
        for (Live &l : live) weir_sequence_close(&l.sequence);
        EXPECT_TRUE(same(weir_prefix_reclaimable(prefix_), weir_prefix_idle_pages(prefix_)));
        TearDown();
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
        if (HasFatalFailure()) return;
    }
    open(4, 1, 1);
}

TEST_P(Prefix, NamesStandForTextsAndGoWithThem)
{
    open(64, 12, 12);
    if (GetParam().is_paged) GTEST_SKIP() << "its texts end within pages";
    const Text a = text(100, 1), b = text(200, 2);
    const auto name = [&](const Text &of, const char *what) {
        weir_sequence s = sequence(of);
        (void)weir_prefix_take(prefix_, &s, nullptr, s.n_tokens);
        weir_prefix_name(prefix_, &s, nullptr, what);
        weir_sequence_close(&s);
        sound();
    };
    const auto named = [&](const char *what) {
        weir_sequence s = sequence({});
        char          salt[WEIR_PREFIX_SALT + 1] = "";
        const bool    is = weir_prefix_named(prefix_, what, &s, salt);
        EXPECT_EQ(is, weir_prefix_has_name(prefix_, what));
        const Text found(s.tokens, s.tokens + (is ? s.n_tokens : 0));
        if (is) EXPECT_STREQ(salt, WEIR_PREFIX_NO_SALT);
        s.n_tokens = 0;
        weir_sequence_close(&s);
        return found;
    };
    keep(a, nullptr);
    keep(b, nullptr);
    EXPECT_EQ(named("x"), Text());
    name(a, "x");
    EXPECT_EQ(named("x"), a);
    name(b, "y");
    name(b, "x");
    EXPECT_EQ(named("x"), b);
    EXPECT_EQ(named("y"), b) << "a text may have two names";
    Text longer = a;
    name(a, "x");
    for (int i = 0; i < 20; i++) longer.push_back(7);
    keep(longer, nullptr);
    EXPECT_EQ(named("x"), a) << "the run that held its end became longer";
    for (int i = 0; i < WEIR_PREFIX_NAMES; i++) name(b, ("n" + std::to_string(i)).c_str());
    EXPECT_EQ(named("x"), Text()) << "too many names";
    EXPECT_EQ(named("n63"), b);
    name(b, "");
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(n_pages_)));
    EXPECT_EQ(named("n63"), Text());
    sound();
}

TEST_P(Prefix, TextsComeOutMostRecentFirst)
{
    open(64, 12, 12);
    if (GetParam().is_paged) GTEST_SKIP() << "its texts end within pages";
    const Text a = text(100, 1), b = text(130, 2), c = text(64, 3);
    keep(a, "s");
    keep(b, nullptr);
    keep(c, "t");
    (void)take(a, "s");
    const std::vector<std::pair<Text, std::string>> expected = { { a, "s" }, { c, "t" }, { b, WEIR_PREFIX_NO_SALT } };
    weir_prefix_cursor                              cursor = {};
    weir_sequence                                   s = sequence({});
    char                                            salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    for (const auto &one : expected) {
        ASSERT_TRUE(weir_prefix_next(prefix_, &cursor, &s, salt, name));
        EXPECT_EQ(Text(s.tokens, s.tokens + s.n_tokens), one.first);
        EXPECT_EQ(salt, one.second);
        EXPECT_STREQ(name, "");
        EXPECT_EQ(weir_prefix_take(prefix_, &s, salt, s.n_tokens).n_rows, (int32_t)one.first.size()) << "a salt that came out goes in";
        weir_sequence_clear(&s);
    }
    EXPECT_FALSE(weir_prefix_next(prefix_, &cursor, &s, salt, name));
    weir_sequence_close(&s);
}

TEST_P(Prefix, PinnedStatesAreNotLent)
{
    open(64, 12, 4);
    if (GetParam().is_paged) GTEST_SKIP() << "its texts end within pages";
    if (!GetParam().has_states) return;
    const Text a = text(200, 1);
    keep(a, nullptr, { 50, 120 });
    weir_sequence s = sequence(a);
    ASSERT_EQ(weir_prefix_take(prefix_, &s, nullptr, 200).n_rows, 200);
    weir_prefix_mark marks[4];
    ASSERT_EQ(weir_prefix_pin(prefix_, &s, nullptr, marks, 2), 2) << "the last two";
    EXPECT_EQ(marks[0].at, 120);
    EXPECT_EQ(marks[1].at, 200);
    for (const weir_prefix_mark &mark : { marks[0], marks[1] }) {
        uint64_t value;
        memcpy(&value, mark.state, sizeof value);
        EXPECT_EQ(value, digest(a.data(), mark.at));
    }
    float *lent[2];
    for (float *&state : lent) ASSERT_NE(state = weir_prefix_lend(prefix_), nullptr);
    EXPECT_EQ(weir_prefix_lend(prefix_), nullptr) << "the other two are pinned";
    for (float *const state : lent) weir_prefix_give_back(prefix_, state);
    weir_prefix_unpin(prefix_, marks, 2);
    for (float *&state : lent) ASSERT_NE(state = weir_prefix_lend(prefix_), nullptr);
    float *const third = weir_prefix_lend(prefix_);
    EXPECT_NE(third, nullptr);
    weir_prefix_give_back(prefix_, third);
    for (float *const state : lent) weir_prefix_give_back(prefix_, state);
    weir_sequence_close(&s);
    sound();
}

// A pinned state may be on a run of another text, whose pages nobody holds: it goes, the state stays as long as it is pinned.
TEST_P(Prefix, PinnedStatesOutliveTheirText)
{
    open(4 * 8, 20, 4);
    if (GetParam().is_paged) GTEST_SKIP() << "its texts end within pages";
    if (!GetParam().has_states) return;
    const Text a = text(200, 1);
    Text       other = text(128, 2);
    std::copy(a.begin(), a.begin() + 30, other.begin());
    keep(other, nullptr, { 30 });
    keep(a, nullptr, {});
    weir_sequence s = sequence(a);
    ASSERT_EQ(weir_prefix_take(prefix_, &s, nullptr, 200).n_rows, 200);
    weir_prefix_mark marks[4];
    ASSERT_EQ(weir_prefix_pin(prefix_, &s, nullptr, marks, 4), 2);
    ASSERT_EQ(marks[0].at, 30);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(4 * 4)));
    sound();
    std::vector<float *> lent;
    for (float *state = weir_prefix_lend(prefix_); state != nullptr; state = weir_prefix_lend(prefix_)) lent.push_back(state);
    EXPECT_EQ(lent.size(), 2u) << "two are pinned";
    for (float *const state : lent) memset(state, 0, state_bytes);
    uint64_t value;
    memcpy(&value, marks[0].state, sizeof value);
    EXPECT_EQ(value, digest(a.data(), 30));
    weir_prefix_unpin(prefix_, marks, 2);
    float *const freed = weir_prefix_lend(prefix_);
    EXPECT_EQ(freed, marks[0].state);
    lent.push_back(freed);
    for (float *const state : lent) weir_prefix_give_back(prefix_, state);
    weir_sequence_close(&s);
    sound();
}

INSTANTIATE_TEST_SUITE_P(Models, Prefix,
                         ::testing::Values(Kind{ false, false }, Kind{ true, false }, Kind{ false, true }, Kind{ true, true }),
                         [](const auto &info) {
                             return std::string(info.param.has_states ? "Recurrent" : "Dense") + (info.param.is_paged ? "Paged" : "");
                         });

// With a disk: who leaves memory first, what was lost is not continued but kept anew, and who is dropped when nothing can leave.
TEST_P(Prefix, BlocksOnDisk)
{
    open(40 * 4, 40, 16, 30 * 4); /* memory for ten blocks */
    const Text a = text(128, 1), b = text(128, 2), c = text(128, 3);
    for (const Text &each : { a, b, c }) keep(each, nullptr);
    (void)take(a, nullptr);
    void *const  *blocks[8];
    weir_sequence user = sequence(c);
    ASSERT_EQ(weir_prefix_take(prefix_, &user, nullptr, INT32_MAX).n_rows, 128);
    ASSERT_EQ(weir_prefix_oldest(prefix_, blocks, 8), 4) << "what is used stays";
    weir_sequence_close(&user);
    (void)take(a, nullptr);
    ASSERT_EQ(weir_prefix_oldest(prefix_, blocks, 8), 6);
    for (int i = 0; i < 2; i++) ASSERT_EQ(weir_kv_demote(store_, blocks[i], 1, &error_), WEIR_OK) << error_.text;
    ASSERT_EQ(weir_prefix_oldest(prefix_, blocks, 3), 3);
    EXPECT_EQ(on_disk(b, false), (std::vector<bool>{ true, true })) << "the least recently used";
    EXPECT_EQ(on_disk(a, false), (std::vector<bool>{ false, false }));
    EXPECT_EQ(on_disk(b, true), (std::vector<bool>{ true, true }));
    EXPECT_EQ(on_disk(b, false), (std::vector<bool>{ false, false }));

    ASSERT_EQ(weir_prefix_oldest(prefix_, blocks, 2), 2);
    for (int i = 0; i < 2; i++) ASSERT_EQ(weir_kv_demote(store_, blocks[i], 1, &error_), WEIR_OK) << error_.text;
    ASSERT_EQ(on_disk(c, false), (std::vector<bool>{ true, true }));
    weir_kv_lose(store_, blocks[0][0]);
    weir_kv_lose(store_, blocks[1][0]);
    EXPECT_EQ(take(c, nullptr).n_rows, 0);
    keep(c, nullptr);
    EXPECT_EQ(take(c, nullptr).n_rows, 128) << "what was computed again is kept again";
    EXPECT_EQ(on_disk(c, true), (std::vector<bool>{ false, false }));

    EXPECT_EQ(weir_kv_store_room(store_), 4);
    weir_prefix_reclaim_memory(prefix_, 6);
    sound();
    EXPECT_EQ(weir_kv_store_room(store_), 6);
    EXPECT_EQ(take(a, nullptr).n_rows, 0) << "it was used longest ago";
    EXPECT_EQ(take(b, nullptr).n_rows, 128);
    weir_prefix_reclaim_memory(prefix_, 20);
    EXPECT_EQ(weir_kv_store_room(store_), 10) << "no more than there is";
}

} // namespace
