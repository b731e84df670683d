// The prefix index over an oracle: every row and state is a digest of the tokens before it, so what
// is taken over can be checked.
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace prefix {

using Tokens = std::vector<int32_t>;

inline uint64_t digest(const int32_t *tokens, int64_t n)
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
    // What can be continued of `rows` rows.
    static int32_t cut(int32_t rows) { return is_paged() ? rows / 64 * 64 : rows; }
    // The same where the only state is at the end.
    static int32_t at_end(int32_t rows)
    {
        return has_states() && cut(rows) != rows ? 0 : cut(rows);
    }

    static constexpr int64_t layers = 2, heads = 2, window = 640;
    static constexpr size_t state_bytes = 64;

    static weir_kv_pages others(int64_t n) { return { 0, { n }, 0 }; }
    static bool same(weir_kv_pages a, weir_kv_pages b)
    {
        return weir_kv_pages_fit(a, b) && weir_kv_pages_fit(b, a);
    }

    /* n_sink_pages more are for the first two blocks of sequences, where there are any. */
    void open(
        int64_t n_pages, int64_t n_nodes, int32_t n_snapshots, int64_t n_disk_pages = 0,
        int64_t n_sink_pages = 0, size_t table_bytes = 0
    )
    {
        const std::string folder = ::testing::TempDir();
        const size_t caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        static const weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 },
                                  int8 = { WEIR_KV_INT8, WEIR_KV_F32 };
        static const weir_kv_pair wide[] = { f16, f16 }, narrow[] = { int8, int8 };
        /* One head in the first layer, three in the second */
        static const weir_kv_geometry geometry[] = { { 1, 8, 8, 0, 0, false },
                                                     { 3, 8, 8, 0, 1, false } };
        n_pages_ = n_pages + n_sink_pages;
        const weir_kv_sinks sinks = { { WEIR_KV_F32, WEIR_KV_F32 }, n_sink_pages > 0 ? 2 : 0 };
        const weir_kv_spec spec = { layers,
                                    geometry,
                                    is_paged() ? narrow : wide,
                                    { n_pages_, n_disk_pages, 0, n_sink_pages },
                                    window,
                                    folder.c_str(),
                                    sinks,
                                    false,
                                    false,
                                    table_bytes,
                                    {} };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec, ledger_, &error_), WEIR_OK) << error_.text;
        const weir_prefix_limits limits = { n_nodes,
                                            has_states() ? n_snapshots : 0,
                                            has_states() ? state_bytes : 0,
                                            0,
                                            0,
                                            n_cold_,
                                            folder.c_str(),
                                            0,
                                            0 };
        const size_t before = weir_ledger_total(ledger_, WEIR_TIER_HOST);
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK)
            << error_.text;
        EXPECT_EQ(
            weir_ledger_total(ledger_, WEIR_TIER_HOST) - before,
            weir_prefix_tree_bytes(&limits, &spec) + weir_prefix_state_bytes(&limits)
        );
    }
    void TearDown() override
    {
        weir_prefix_close(prefix_);
        EXPECT_EQ(weir_kv_store_free_pages(store_), n_pages_) << "pages leaked";
        weir_kv_store_close(store_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        weir_ledger_close(ledger_);
    }
    weir_kv_sequence sequence(const Tokens &tokens)
    {
        weir_kv_sequence s = {};
        EXPECT_EQ(
            weir_kv_sequence_open(&s, store_, ledger_, has_states() ? state_bytes : 0, &error_),
            WEIR_OK
        ) << error_.text;
        std::copy(tokens.begin(), tokens.end(), s.tokens);
        s.n_tokens = (int32_t)tokens.size();
        return s;
    }
    static uint64_t *row(const weir_kv_sequence &s, int64_t h, int64_t r)
    {
        return (uint64_t *)((char *)s.table.pages[h * s.table.capacity + r / 64] + r % 64 * 32);
    }
    // Where rows of the last page wait for it to be full.
    static uint64_t *unsealed_row(const weir_kv_sequence &s, int64_t h, int64_t r)
    {
        return (uint64_t *)((char *)s.table.unsealed[h] + r % 64 * 16);
    }
    static uint64_t value(const weir_kv_sequence &s, int64_t h, int64_t r)
    {
        return is_paged() && r >= s.n_computed / 64 * 64 ? *unsealed_row(s, h, r) : *row(s, h, r);
    }
    static void put(const weir_kv_sequence &s, int64_t h, int64_t r, uint64_t value)
    {
        if (!is_paged()) *row(s, h, r) = value;
        if (is_paged()) *unsealed_row(s, h, r) = value;
        for (int64_t i = r - 63; is_paged() && r % 64 == 63 && i <= r; i++)
            *row(s, h, i) = *unsealed_row(s, h, i);
    }
    // "Computes" rows up to `end`; false when there is no room.
    bool compute(weir_kv_sequence *s, int32_t end)
    {
        if (weir_kv_reserve(&s->table, store_, end - s->n_computed) != WEIR_OK) return false;
        for (int64_t r = s->n_computed; r < end; r++)
            for (int64_t h = 0; h < layers * heads; h++)
                put(*s, h, r, digest(s->tokens, r + 1) + (uint64_t)h);
        weir_kv_commit(&s->table, end - s->n_computed);
        s->n_computed = end;
        if (has_states()) put_state(s->recurrent, *s, end);
        s->recurrent_dirty = true;
        return true;
    }
    static void put_state(float *state, const weir_kv_sequence &s, int32_t at)
    {
        const uint64_t value = digest(s.tokens, at);
        memcpy(state, &value, sizeof value);
    }
    void expect_right(const weir_kv_sequence &s)
    {
        for (int64_t r = 0; r < s.n_computed; r++)
            for (int64_t h = 0; h < layers * heads; h++)
                ASSERT_EQ(value(s, h, r), digest(s.tokens, r + 1) + (uint64_t)h) << "row " << r;
        uint64_t state = 0;
        if (has_states() && s.n_computed > 0) memcpy(&state, s.recurrent, sizeof state);
        if (has_states() && s.n_computed > 0) ASSERT_EQ(state, digest(s.tokens, s.n_computed));
    }
    // Keeps a finished sequence with states after the given numbers of tokens and at its end.
    void keep(const Tokens &tokens, const char *salt, std::vector<int32_t> marks = {})
    {
        weir_kv_sequence s = sequence(tokens);
        ASSERT_TRUE(compute(&s, s.n_tokens));
        marks.push_back(s.n_tokens);
        std::vector<weir_prefix_snapshot> lent;
        for (const int32_t at : marks) {
            float *const state =
                has_states() ? weir_prefix_acquire_snapshot(prefix_, rank_, turn_) : nullptr;
            if (state == nullptr) continue;
            if (demotes_) weir_prefix_demote_snapshot(prefix_, state);
            put_state(state, s, at);
            lent.push_back({ at, state });
        }
        EXPECT_EQ(
            weir_prefix_insert(prefix_, &s, salt, lent.data(), (int32_t)lent.size(), false), 0
        );
        weir_kv_sequence_close(&s);
        sound();
    }
    // States that are written or read are there.
    void end_moves()
    {
        weir_prefix_wait_for_moves(prefix_);
        (void)weir_prefix_end_moves(prefix_);
        sound();
    }
    // Waits for a state on disk.
    weir_prefix_hit match(weir_kv_sequence *s, const char *salt, int32_t most)
    {
        weir_prefix_hit hit = weir_prefix_match(prefix_, s, salt, most);
        for (int i = 0; i < 4 && hit.waits; i++) {
            EXPECT_EQ(hit.n_rows, 0);
            end_moves();
            hit = weir_prefix_match(prefix_, s, salt, most);
        }
        return hit;
    }
    weir_prefix_hit take(const Tokens &tokens, const char *salt, int32_t most = INT32_MAX)
    {
        weir_kv_sequence s = sequence(tokens);
        const weir_prefix_hit hit = match(&s, salt, most);
        EXPECT_EQ(hit.n_rows, s.n_computed);
        EXPECT_LE(hit.n_rows, hit.n_matched);
        expect_right(s);
        weir_kv_sequence_close(&s);
        sound();
        return hit;
    }
    // A block of weir_prefix_lru_blocks.
    weir_status demote(void *const *block)
    {
        return weir_kv_demote(store_, block, 1, weir_prefix_block_index(prefix_, block), &error_);
    }
    // Where the blocks of a sequence are, as one that continues it finds them; they come back if
    // asked.
    std::vector<bool> on_disk(const Tokens &tokens, bool come_back)
    {
        weir_kv_sequence s = sequence(tokens);
        std::vector<bool> is_cold;
        (void)weir_prefix_match(prefix_, &s, nullptr, INT32_MAX);
        for (int64_t p = 0; p < s.table.n_pages; p++) {
            is_cold.push_back(weir_kv_is_cold(store_, s.table.pages[p]));
            if (come_back && is_cold.back())
                EXPECT_EQ(
                    weir_kv_promote(
                        store_, (void *const *)s.table.pages + p, s.table.capacity, p, &error_
                    ),
                    WEIR_OK
                ) << error_.text;
        }
        if (come_back) expect_right(s);
        weir_kv_sequence_close(&s);
        sound();
        return is_cold;
    }
    void sound() { EXPECT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text; }
    static Tokens tokens(int32_t n, int32_t seed = 1)
    {
        Tokens t((size_t)n);
        for (int32_t i = 0; i < n; i++) t[(size_t)i] = i * 7 + seed;
        return t;
    }
    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_prefix *prefix_ = nullptr;
    int64_t n_pages_ = 0;
    int32_t n_cold_ = 0; // states on disk
    weir_state_rank rank_ = WEIR_STATE_CHECKPOINT; // of kept states
    bool demotes_ = false; // they do
    int64_t turn_ = 0;
    weir_error error_ = {};
};

inline std::string kind_name(const ::testing::TestParamInfo<Kind> &info)
{
    return std::string(info.param.has_states ? "Recurrent" : "Dense") +
           (info.param.is_paged ? "Paged" : "");
}
#define PREFIX_KINDS                                                                               \
    ::testing::Values(                                                                             \
        prefix::Kind{ false, false }, prefix::Kind{ true, false }, prefix::Kind{ false, true },    \
        prefix::Kind{ true, true }                                                                 \
    )

} // namespace prefix
