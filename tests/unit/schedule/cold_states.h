/* Twelve conversations of a model with recurrent states, memory for the states of fewer, and a disk
 * for the others that waits at gates or fails when a test wants. */
#pragma once
#include <sys/stat.h>

#include "engine/kv/prefix/prefix.h"
#include "engine/schedule/job.h"
#include "tests/unit/schedule/tiers_fixture.h"

namespace cold_states {

using namespace tiers;

enum class Fault { NONE, WRITES, READS, BITS };
inline std::atomic<Fault> fault{ Fault::NONE };
/* Where writes of states wait, and reads; NULL: they do not. */
inline std::atomic<support::Gate *> state_writes{ nullptr }, state_reads{ nullptr };

inline std::atomic<int> n_state_reads{ 0 }; /* that passed it */

/* The file of states, once one was written. */
inline std::atomic<int> state_file{ -1 };

inline ssize_t write_or_fail(int fd, const struct iovec *pieces, int n, off_t at)
{
    state_file = fd;
    support::pass(state_writes);
    if (fault != Fault::WRITES) return pwritev(fd, pieces, n, at);
    errno = ENOSPC;
    return -1;
}

inline ssize_t read_or_fail(int fd, void *bytes, size_t n, off_t at)
{
    support::pass(state_reads);
    n_state_reads++;
    if (fault == Fault::READS) errno = EIO;
    if (fault == Fault::READS) return -1;
    const ssize_t got = pread(fd, bytes, n, at);
    if (fault == Fault::BITS && got > 0) static_cast<char *>(bytes)[0] ^= 1;
    return got;
}

class ColdStates : public Tiers {
  protected:
    enum { TEXTS = 12, ROWS = 250, MORE = 20, ANSWER = 6, STATES = 6 };

    /* The answers of an engine with memory for all. */
    void SetUp() override
    {
        Tiers::SetUp();
        fault = Fault::NONE;
        state_writes = state_reads = nullptr;
        state_file = -1;
        start("tq", 0);
        /* A state, and its entry; three more for what moves. */
        const int64_t each = weir_engine_plan_of(engine_)->facts.recurrent_bytes + 256;
        few_states_ = "memory.snapshots=" + std::to_string((STATES + 3) * each) + "B";
        for (int i = 0; i < TEXTS; i++) want_.push_back(run(prompt(20 + i, ROWS), ANSWER));
        for (int i = 0; i < TEXTS; i++) want_again_.push_back(run(second(i), ANSWER));
    }
    void TearDown() override
    {
        state_writes = state_reads = nullptr;
        Tiers::TearDown();
    }
    void open_with(int64_t on_disk, const std::vector<std::string> &more = {})
    {
        start("tq", 60, on_disk, few_states_, more);
        const int32_t n = weir_engine_plan_of(engine_)->n_snapshots;
        ASSERT_GE(n, STATES - 1);
        ASSERT_LE(n, STATES + 1);
        weir_lower_tier *const tier = weir_prefix_lower_tier(weir_engine_prefix(engine_));
        ASSERT_NE(tier, nullptr);
        const weir_lower_tier_io io = { write_or_fail, read_or_fail, nullptr, nullptr };
        weir_lower_tier_set_io(tier, &io);
    }
    std::vector<int32_t> second(int i) const
    {
        auto ids = prompt(20 + i, ROWS);
        ids.insert(ids.end(), want_[(size_t)i].begin(), want_[(size_t)i].end());
        const auto more = prompt(50 + i, MORE);
        ids.insert(ids.end(), more.begin(), more.end());
        return ids;
    }
    /* First turns of the conversations from i on; what they write has been written. */
    void run_first(int i = 0)
    {
        for (; i < TEXTS; i++) {
            EXPECT_EQ(run(prompt(20 + i, ROWS), ANSWER), want_[(size_t)i]);
            end_moves();
        }
    }
    void run_second(int i) { EXPECT_EQ(run(second(i), ANSWER), want_again_[(size_t)i]) << i; }
    /* Both turns of all; returns the second turns that were continued from the first one's end. */
    int run_both()
    {
        int n = 0;
        run_first();
        for (int i = 0; i < TEXTS; i++) {
            run_second(i);
            n += usage_.n_cached == ROWS + ANSWER - 1;
            end_moves();
        }
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
        expect_sound();
        return n;
    }
    /* No state is written or read any more. */
    void end_moves()
    {
        weir_prefix *const prefix = weir_engine_prefix(engine_);
        std::pair<weir_prefix *, int32_t> left = { prefix, 1 };
        while (left.second > 0) {
            weir_prefix_wait_for_moves(prefix);
            weir_service_call(
                service_,
                [](weir_service *, void *user) {
                    auto *const all = (std::pair<weir_prefix *, int32_t> *)user;
                    all->second = weir_prefix_moves(all->first);
                },
                &left
            );
        }
    }
    /* On the engine thread, which may still be ending moves of blocks. */
    void expect_sound()
    {
        const auto check = [](weir_service *, void *prefix) {
            weir_error error = {};
            EXPECT_TRUE(weir_prefix_is_sound((weir_prefix *)prefix, &error)) << error.text;
        };
        weir_service_call(service_, check, weir_engine_prefix(engine_));
    }
    /* Drops what no sequence uses, but for n_blocks that were used last. */
    void drop_cached(int64_t n_blocks)
    {
        struct What {
            weir_prefix *prefix;
            weir_kv_pages pages;
        } what = { weir_engine_prefix(engine_), {} };
        const int64_t all =
            weir_kv_store_spec(store_)->pages.n / weir_kv_n_heads(weir_kv_store_spec(store_));
        what.pages = weir_kv_store_pages_of(store_, 0, all - n_blocks);
        weir_service_call(
            service_,
            [](weir_service *, void *user) {
                auto *const all = (What *)user;
                EXPECT_TRUE(weir_prefix_reclaim(all->prefix, all->pages));
            },
            &what
        );
    }
    /* What both files hold on disk, in bytes. */
    static int64_t bytes_on_disk()
    {
        int64_t bytes = 0;
        for (const int file : { state_file.load(), block_file.load() }) {
            struct stat st = {};
            if (file >= 0) EXPECT_EQ(fstat(file, &st), 0);
            bytes += 512 * (int64_t)st.st_blocks;
        }
        return bytes;
    }
    std::string few_states_;
    std::vector<std::vector<int32_t>> want_, want_again_;
};

} // namespace cold_states
