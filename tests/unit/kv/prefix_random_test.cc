// Thousands of random operations on the index; after each, what it answers is what walks over the
// tree find (prefix_reference.h).
#include "tests/unit/kv/prefix_fixture.h"
#include "tests/unit/kv/prefix_reference.h"

namespace {

using prefix::Prefix;
using prefix::Tokens;

struct Live {
    weir_kv_sequence sequence;
    std::string salt;
};

class RandomTree : public Prefix {
  protected:
    int32_t pick(int64_t n) { return (int32_t)(random_() % (uint64_t)n); }
    // Few beginnings, many continuations, which differ within a page or many pages on.
    Tokens some_tokens()
    {
        Tokens t = tokens(1 + pick(400), pick(2));
        const size_t at = (size_t)pick((int64_t)t.size());
        for (size_t i = at; i < t.size() && pick(3) > 0; i++) t[i] = 1000 + pick(3);
        if (at < t.size()) t[at] = -pick(40);
        return t;
    }
    std::string some_salt() { return pick(2) ? "s" : "salt"; }
    weir_kv_sequence &some() { return live_[(size_t)pick((int64_t)live_.size())].sequence; }
    const char *salt_of(const weir_kv_sequence &s)
    {
        for (const Live &l : live_)
            if (&l.sequence == &s) return l.salt.c_str();
        return nullptr;
    }

    void begin()
    {
        if (live_.size() == 5) return;
        const Tokens t = some_tokens();
        live_.push_back({ sequence(t), some_salt() });
        Live &l = live_.back();
        if (pick(4) == 0) return;
        const int32_t most = (int32_t)t.size() - pick(2);
        const auto found = prefix_reference::find(
            prefix_, l.sequence.tokens, l.sequence.n_tokens, l.salt.c_str(), most
        );
        unpin();
        const auto hit = match(&l.sequence, l.salt.c_str(), most);
        ASSERT_FALSE(hit.waits);
        if (!found.is_open) ASSERT_EQ(hit.n_rows, found.n_rows);
        if (!found.is_open) ASSERT_EQ(hit.n_matched, found.n_matched);
        n_matches_ += hit.n_rows > 0;
        come_back(l.sequence);
        expect_right(l.sequence);
    }
    // What the sequence reads next is in memory.
    void come_back(weir_kv_sequence &s)
    {
        for (int64_t page = 0; page < s.table.n_pages; page++) {
            if (!weir_kv_is_cold(store_, s.table.pages[page])) continue;
            void *const *const block = (void *const *)s.table.pages + page;
            if (weir_kv_free_blocks(store_) < 1) weir_prefix_reclaim_memory(prefix_, 1);
            if (weir_kv_promote(store_, block, s.table.capacity, page, &error_) == WEIR_OK)
                continue;
            weir_kv_sequence_reset(&s);
            return;
        }
    }
    void go_on(weir_kv_sequence &s)
    {
        const int32_t end = std::min(s.n_tokens, s.n_computed + 1 + pick(130));
        if (end == s.n_computed || compute(&s, end)) return;
        const weir_kv_pages wanted = weir_kv_reserve_pages(&s.table, store_, end - s.n_computed);
        if (!weir_prefix_reclaim(prefix_, wanted)) return;
        weir_prefix_reclaim_memory(prefix_, 4);
        (void)compute(&s, end);
    }
    // States at some places that are computed, in order.
    std::vector<weir_prefix_snapshot> some_states(const weir_kv_sequence &s)
    {
        std::vector<weir_prefix_snapshot> marks;
        for (int32_t at = 1 + pick(90); has_states() && at <= s.n_computed; at += 1 + pick(150)) {
            const int32_t place = pick(2) ? at : at / 64 * 64;
            const weir_state_rank rank = (weir_state_rank)pick(WEIR_STATE_RANKS);
            if (place == 0 || (!marks.empty() && marks.back().at >= place)) continue;
            float *const state = acquire(rank);
            if (state == nullptr) break;
            if (pick(3) == 0) weir_prefix_demote_snapshot(prefix_, state);
            put_state(state, s, place);
            marks.push_back({ place, state });
        }
        return marks;
    }
    // The entry that is taken from a node is the one that goes first.
    float *acquire(weir_state_rank rank)
    {
        const int32_t next = prefix_reference::next_entry(prefix_, rank);
        const int64_t n = weir_prefix_stats_of(prefix_).n_snapshots;
        // The end of a turn that cannot be written now does not go for a checkpoint.
        const bool stays = next != NONE && prefix_->tier != nullptr && rank < WEIR_STATE_PAST &&
                           prefix_->entries[next].rank >= WEIR_STATE_PAST &&
                           !prefix_may_move(prefix_, false);
        float *const state = weir_prefix_acquire_snapshot(prefix_, rank, pick(3));
        if (next == NONE) return state;
        if (stays) {
            EXPECT_EQ(state, nullptr);
            n_refused_++;
            return nullptr;
        }
        const snapshot_entry &taken = prefix_->entries[next];
        if (taken.state == ENTRY_ATTACHED) {
            EXPECT_NE(taken.block, NONE);
            n_cold_states_++;
        } else {
            EXPECT_EQ(state, state_of(prefix_, next));
            EXPECT_EQ(weir_prefix_stats_of(prefix_).n_snapshots, n - 1);
        }
        n_taken_states_++;
        return state;
    }
    void keep_some(weir_kv_sequence &s, bool whole)
    {
        std::vector<weir_prefix_snapshot> marks = some_states(s);
        const int32_t left =
            weir_prefix_insert(prefix_, &s, salt_of(s), marks.data(), (int32_t)marks.size(), whole);
        for (size_t i = marks.size() - (size_t)left; i < marks.size(); i++)
            weir_prefix_release_snapshot(prefix_, marks[i].state);
    }
    void end(size_t at)
    {
        if (pick(4) > 0) keep_some(live_[at].sequence, false);
        weir_kv_sequence_close(&live_[at].sequence);
        live_.erase(live_.begin() + (std::ptrdiff_t)at);
    }
    void fork()
    {
        if (live_.size() == 5) return;
        Live copy = { sequence({}), live_[0].salt };
        EXPECT_EQ(weir_kv_sequence_fork(&copy.sequence, &live_[0].sequence), WEIR_OK);
        live_.push_back(copy);
    }
    void pin(weir_kv_sequence &s)
    {
        weir_prefix_snapshot marks[4];
        unpin();
        if (!has_states() || s.n_computed == 0) return;
        const int32_t n = weir_prefix_pin(prefix_, &s, salt_of(s), marks, 4);
        if (n == WEIR_PREFIX_WAITS) return;
        pinned_.assign(marks, marks + n);
    }
    void unpin()
    {
        if (!pinned_.empty()) weir_prefix_unpin(prefix_, pinned_.data(), (int32_t)pinned_.size());
        pinned_.clear();
    }
    void move_blocks()
    {
        std::vector<void *const *> blocks = prefix_reference::lru_blocks(prefix_, 3);
        for (void *const *const block : blocks) n_demoted_ += demote(block) == WEIR_OK;
        if (!blocks.empty() && pick(12) == 0 && weir_kv_is_cold(store_, blocks[0][0]))
            weir_kv_mark_unreadable(store_, blocks[0][0]);
    }
    // One leaf goes, and it is the one that a scan finds.
    void drop_one()
    {
        const weir_kv_pages free = weir_kv_store_free(store_);
        const bool wants_sinks = pick(3) == 0 && weir_kv_store_spec(store_)->sinks.n_pages > 0;
        const int32_t worst = prefix_reference::worst_leaf(
            prefix_,
            wants_sinks ? prefix_reference::Leaves::any : prefix_reference::Leaves::no_sinks
        );
        const int64_t n = weir_prefix_stats_of(prefix_).n_nodes;
        weir_kv_pages wanted = {};
        if (wants_sinks)
            wanted.sinks = free.sinks + 1;
        else
            wanted.others[0] = free.others[0] + 1;
        (void)weir_prefix_reclaim(prefix_, wanted);
        ASSERT_EQ(weir_prefix_stats_of(prefix_).n_nodes < n, worst != NONE);
        if (worst != NONE) ASSERT_EQ(prefix_->nodes[worst].parent, NONE);
        n_dropped_ += worst != NONE;
    }
    void release(const weir_kv_sequence &s)
    {
        const int64_t n = weir_prefix_stats_of(prefix_).n_nodes;
        const int32_t tail = prefix_reference::tail_of(prefix_, s);
        ASSERT_EQ(weir_prefix_release_tail(prefix_, &s), tail != NONE);
        if (tail != NONE) ASSERT_EQ(prefix_->nodes[tail].parent, NONE);
        const std::vector<int32_t> end = prefix_reference::shared_end_of(prefix_, s);
        ASSERT_EQ(weir_prefix_release_shared(prefix_, &s), !end.empty());
        for (const int32_t run : end) ASSERT_EQ(prefix_->nodes[run].parent, NONE);
        ASSERT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n - (tail != NONE) - (int64_t)end.size());
        n_released_ += !end.empty();
    }
    void step()
    {
        const size_t at = live_.empty() ? 0 : (size_t)pick((int64_t)live_.size());
        const int action = live_.empty() ? 0 : pick(15);
        switch (action) {
        case 0:
        case 1: begin(); break;
        case 2:
        case 3:
        case 4: go_on(some()); break;
        case 5:
        case 6: keep_some(some(), true); break;
        case 7: end(at); break;
        case 8: fork(); break;
        case 9:
            pin(some());
            weir_prefix_end_turn(prefix_, &some(), salt_of(some()));
            break;
        case 10: move_blocks(); break;
        case 11: drop_one(); break;
        case 12:
            if (pick(3) == 0) release(some());
            break;
        case 13: {
            const weir_kv_sequence &s = some();
            const int32_t n_saved = pick(s.n_computed + 1);
            weir_prefix_mark_saved(prefix_, s.tokens, s.n_computed, n_saved, salt_of(s));
            break;
        }
        default:
            weir_prefix_extend(
                prefix_, &live_[at].sequence, live_[at].salt.c_str(),
                live_[at].sequence.n_tokens - 1, 64
            );
            come_back(live_[at].sequence);
        }
    }
    void look_up()
    {
        const Tokens t = some_tokens();
        const std::string salt = some_salt();
        const int32_t n = (int32_t)t.size();
        const auto found = prefix_reference::find(prefix_, t.data(), n, salt.c_str(), n);
        const int32_t rows = weir_prefix_match_length(prefix_, t.data(), n, salt.c_str());
        if (!found.is_open) ASSERT_EQ(rows, found.n_rows);
        const int32_t n_states = pick(4), least = 1 + pick(200);
        const weir_kv_pages wanted = others(pick(4 * 30));
        const int32_t victim = prefix_reference::next_victim(prefix_, wanted, n_states, least);
        char found_salt[WEIR_PREFIX_SALT + 1];
        weir_kv_sequence s = sequence({});
        // The last search may go on; it finds nothing only after one from the beginning.
        const bool is_new = pick(2) == 0;
        if (is_new) prefix_->search.is_begun = false;
        const weir_prefix_wanted all = { wanted, n_states, 0 };
        const auto result = weir_prefix_next_victim(prefix_, &all, least, &s, found_salt);
        ASSERT_NE(result, WEIR_VICTIM_LATER) << "there are few runs";
        if (is_new || result == WEIR_VICTIM_NONE)
            EXPECT_EQ(result == WEIR_VICTIM_FOUND, victim != NONE);
        if (result == WEIR_VICTIM_FOUND) {
            const int32_t found = is_new ? victim : prefix_->search.at;
            ASSERT_NE(found, NONE);
            const node &leaf = prefix_->nodes[found];
            EXPECT_GE(prefix_reference::loss_of(prefix_, found), least);
            EXPECT_EQ(s.n_tokens, leaf.depth * RUN + leaf.n_tokens);
            EXPECT_TRUE(
                std::equal(leaf.tokens, leaf.tokens + leaf.n_tokens, s.tokens + leaf.depth * RUN)
            );
            n_victims_ += is_new;
            if (pick(4) == 0)
                weir_prefix_mark_saved(prefix_, s.tokens, s.n_tokens, pick(64), found_salt);
        }
        weir_kv_sequence_close(&s);
        for (int32_t entry = 0; entry < prefix_->n_entries; entry++)
            if (prefix_->entries[entry].state == ENTRY_ATTACHED &&
                prefix_->entries[entry].rank >= WEIR_STATE_PAST)
                ASSERT_EQ(
                    prefix_has_states_before(prefix_, 3, entry),
                    prefix_reference::has_states_before(prefix_, 3, entry)
                );
    }
    void run(int seed)
    {
        random_.seed((unsigned)seed);
        const bool has_sinks = seed % 2 == 0, has_disk = seed % 3 != 0;
        n_cold_ = has_states() && has_disk ? 5 : 0;
        open(4 * 30, 24, 7, has_disk ? 4 * 14 : 0, has_sinks ? 4 * 12 : 0);
        for (int i = 0; i < 700 && !HasFailure(); i++) {
            SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(i));
            if (pick(4) == 0) end_moves();
            step();
            look_up();
            if (pick(3) == 0) continue; // what changed may wait for some steps
            prefix_reference::expect_same(prefix_);
            sound();
            ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_)) << error_.text;
        }
        unpin();
        for (Live &l : live_) weir_kv_sequence_close(&l.sequence);
        live_.clear();
        prefix_reference::expect_same(prefix_);
        n_states_back_ += weir_prefix_stats_of(prefix_).snapshots_back;
        EXPECT_EQ(weir_prefix_stats_of(prefix_).snapshot_errors, 0);
        TearDown();
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
    }

    std::mt19937 random_;
    int64_t n_states_back_ = 0;
    std::vector<Live> live_;
    std::vector<weir_prefix_snapshot> pinned_;
    int n_matches_ = 0, n_demoted_ = 0, n_dropped_ = 0, n_released_ = 0, n_taken_states_ = 0,
        n_cold_states_ = 0, n_refused_ = 0, n_victims_ = 0;
};

TEST_P(RandomTree, AnswersAsWalksDo)
{
    for (int seed = 1; seed <= 12 && !HasFailure(); seed++) run(seed);
    EXPECT_GT(n_matches_, 20);
    EXPECT_GT(n_demoted_, 100);
    EXPECT_GT(n_dropped_, 100);
    EXPECT_GT(n_released_, 10);
    EXPECT_GT(n_victims_, 100);
    if (has_states()) EXPECT_GT(n_taken_states_, 100);
    if (has_states()) EXPECT_GT(n_cold_states_, 50);
    if (has_states()) EXPECT_GT(n_refused_, 0);
    if (has_states()) EXPECT_GT(n_states_back_, 10);
    n_cold_ = 0;
    open(4, 1, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, RandomTree, PREFIX_KINDS, prefix::kind_name);

} // namespace
