/* Moves between tiers on the store's thread, while the engine's goes on. */
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <thread>

#include "engine/kv/tiers/prefetch.h"
#include "tests/unit/kv/tiers_fixture.h"

extern "C" {
#include "engine/kv/tiers/residency_internal.h"
}

extern "C" int ftruncate(int fd, off_t n)
{
    support::pass(support::shrink_gate);
    return (int)syscall(SYS_ftruncate, fd, n);
}

namespace {

using namespace tiers;

class Moves : public Tiers, public ::testing::WithParamInterface<bool> {
  protected:
    void start(int64_t memory_blocks, int64_t disk_blocks)
    {
        if (GetParam()) use_device();
        open(memory_blocks, disk_blocks);
    }
    weir_kv_table table_of(int seed, int64_t n_blocks)
    {
        weir_kv_table t = table();
        EXPECT_EQ(reserve_to(t, n_blocks * 64), WEIR_OK);
        for (int64_t p = 0; p < n_blocks; p++) write(t, seed, p);
        commit_to(t, n_blocks * 64);
        return t;
    }
    weir_status begin_down(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_demote_begin(
            store_, (void *const *)t.pages + page, t.capacity, page, &error_
        );
    }
    weir_status begin_up(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_promote_begin(
            store_, (void *const *)t.pages + page, t.capacity, page, &error_
        );
    }
    int64_t end(bool wait) { return weir_kv_moves_end(store_, wait, &status_, &error_); }
    void close(weir_kv_table *t)
    {
        weir_kv_table_close(t, store_);
        EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n);
    }
    weir_status status_ = WEIR_OK;
    support::Gate slow_;
};
INSTANTIATE_TEST_SUITE_P(Device, Moves, ::testing::Bool());

/* The disk takes its time: the block stays where it is, others are taken and freed, and rows that
 * are written to it go to a copy. */
TEST_P(Moves, AWriteThatWaitsStopsNothing)
{
    start(6, 3);
    weir_kv_table own = table_of(1, 3);
    support::write_gate = &slow_;
    ASSERT_EQ(begin_down(own, 0), WEIR_OK) << error_.text;
    ASSERT_EQ(begin_down(own, 1), WEIR_OK) << error_.text;
    ASSERT_TRUE(slow_.wait_until_reached());
    EXPECT_FALSE(weir_kv_lower_tier_fails(store_)) << "it has not ended";
    EXPECT_EQ(end(false), 0);
    EXPECT_EQ(weir_kv_blocks_leaving(store_), 2);
    EXPECT_FALSE(is_cold(own, 0));
    EXPECT_FALSE(weir_kv_may_leave(store_, (void *const *)own.pages, own.capacity));
    expect_page(own, 1, 0);
    weir_kv_table other = table_of(2, 2);
    weir_kv_table_close(&other, store_);
    weir_kv_truncate(&own, store_, 100);
    const void *const before = own.pages[1];
    EXPECT_EQ(reserve_to(own, 101), WEIR_OK);
    EXPECT_NE(own.pages[1], before) << "the page that leaves would change";
    expect_page(own, 1, 1);
    expect_sound();
    support::write_gate = nullptr;
    slow_.open();
    EXPECT_FALSE(slow_.was_late) << "the engine's thread waited";
    while (weir_kv_moves_begun(store_) > 0) (void)end(true);
    EXPECT_EQ(status_, WEIR_OK);
    EXPECT_TRUE(is_cold(own, 0));
    EXPECT_FALSE(is_cold(own, 1)) << "it has a copy of its own";
    EXPECT_EQ(weir_lower_tier_free_blocks(weir_kv_store_lower_tier(store_)), 2)
        << "nothing else holds what has left";
    ASSERT_EQ(promote(own, 0), WEIR_OK);
    for (int64_t p = 0; p < 2; p++) expect_page(own, 1, p);
    close(&own);
}

/* A sequence that ends meanwhile frees its pages when the write has ended. */
TEST_P(Moves, WhatLeavesMayBeDropped)
{
    start(6, 3);
    weir_kv_table own = table_of(1, 2);
    support::write_gate = &slow_;
    ASSERT_EQ(begin_down(own, 0), WEIR_OK) << error_.text;
    weir_kv_truncate(&own, store_, 0);
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n - heads);
    expect_sound();
    support::write_gate = nullptr;
    slow_.open();
    EXPECT_EQ(end(true), 1);
    EXPECT_EQ(weir_lower_tier_free_blocks(weir_kv_store_lower_tier(store_)), 3);
    close(&own);
}

/* While a step waits for a block, moves of those that it attends to do not end, nor later ones. */
TEST_P(Moves, WhatAStepAttendsToStays)
{
    start(6, 3);
    weir_kv_table own = table_of(1, 3), other = table_of(2, 1);
    const weir_kv_view step = { .pages = (void *const *)own.pages,
                                .stride = own.capacity,
                                .n_past = 127,
                                .n_rows = 1,
                                .is_reread = false,
                                .n_cold = 0,
                                .end_cold = 0 };
    ASSERT_EQ(begin_down(own, 1), WEIR_OK) << error_.text;
    ASSERT_EQ(begin_down(other, 0), WEIR_OK) << error_.text;
    kv_attend(store_, &step, 1);
    EXPECT_TRUE(weir_kv_is_attending(store_));
    EXPECT_TRUE(weir_kv_is_attended(store_, own.pages[1], 1));
    EXPECT_FALSE(weir_kv_is_attended(store_, own.pages[2], 2)) << "the step has 128 rows";
    EXPECT_FALSE(weir_kv_is_attended(store_, other.pages[0], 0));
    EXPECT_EQ(end(true), 0);
    EXPECT_FALSE(is_cold(own, 1) || is_cold(other, 0));
    expect_page(own, 1, 1);
    expect_sound();
    kv_attend(store_, nullptr, 0);
    EXPECT_FALSE(weir_kv_is_attending(store_));
    while (weir_kv_moves_begun(store_) > 0) EXPECT_GT(end(true), 0);
    EXPECT_TRUE(is_cold(own, 1) && is_cold(other, 0));
    weir_kv_table_close(&other, store_);
    close(&own);
}

/* The last block is freed: the file is truncated by the thread, which may take its time. */
TEST_P(Moves, AnEmptyFileIsTruncatedMeanwhile)
{
    start(6, 3);
    weir_kv_table own = table_of(1, 2), other = table_of(2, 2);
    for (int64_t p = 0; p < 2; p++) ASSERT_EQ(demote(own, p), WEIR_OK) << error_.text;
    struct stat st = {};
    ASSERT_EQ(fstat(file, &st), 0);
    ASSERT_GT(st.st_size, 0);
    support::shrink_gate = &slow_;
    weir_kv_table_close(&own, store_);
    ASSERT_TRUE(slow_.wait_until_reached());
    ASSERT_EQ(begin_down(other, 0), WEIR_OK) << error_.text;
    EXPECT_EQ(end(false), 0);
    support::shrink_gate = nullptr;
    slow_.open();
    EXPECT_FALSE(slow_.was_late) << "the engine's thread waited";
    EXPECT_EQ(end(true), 1);
    EXPECT_TRUE(is_cold(other, 0));
    ASSERT_EQ(promote(other, 0), WEIR_OK) << error_.text;
    for (int64_t p = 0; p < 2; p++) expect_page(other, 2, p);
    close(&other);
    for (int i = 0; i < 2000 && st.st_size > 0; i++) {
        (void)poll(nullptr, 0, 5);
        ASSERT_EQ(fstat(file, &st), 0);
    }
    EXPECT_EQ(st.st_size, 0);
}

/* A write that fails leaves the block where it is, and its place free. */
TEST_P(Moves, AWriteThatFailsChangesNothing)
{
    start(6, 1);
    weir_kv_table own = table_of(1, 2);
    fail_writes_after = 1;
    ASSERT_EQ(begin_down(own, 0), WEIR_OK);
    EXPECT_EQ(begin_down(own, 1), WEIR_EFULL) << "one place, which is taken";
    EXPECT_EQ(end(true), 1);
    EXPECT_EQ(status_, WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "cannot write KV pages"), nullptr) << error_.text;
    EXPECT_TRUE(weir_kv_lower_tier_fails(store_));
    EXPECT_FALSE(is_cold(own, 0));
    expect_page(own, 1, 0);
    fail_writes_after = -1;
    ASSERT_EQ(begin_down(own, 1), WEIR_OK) << error_.text;
    EXPECT_EQ(end(true), 1);
    EXPECT_EQ(status_, WEIR_OK);
    EXPECT_TRUE(is_cold(own, 1));
    close(&own);
}

/* While a block is read it is below for everybody; one that cannot be read stays there. */
TEST_P(Moves, AReadThatWaitsStopsNothing)
{
    start(6, 3);
    weir_kv_table own = table_of(1, 2);
    for (int64_t p = 0; p < 2; p++) ASSERT_EQ(demote(own, p), WEIR_OK) << error_.text;
    const int64_t free_blocks = weir_kv_free_blocks(store_);
    support::all_reads_gate = &slow_;
    ASSERT_EQ(begin_up(own, 0), WEIR_OK) << error_.text;
    ASSERT_TRUE(slow_.wait_until_reached());
    EXPECT_EQ(weir_kv_free_blocks(store_), free_blocks - 1);
    EXPECT_EQ(weir_kv_residency_of(store_).pages_cold, 2 * heads);
    EXPECT_TRUE(is_cold(own, 0));
    EXPECT_EQ(end(false), 0);
    weir_kv_table other = table_of(2, 2);
    expect_sound();
    weir_kv_table_close(&other, store_);
    support::all_reads_gate = nullptr;
    slow_.open();
    EXPECT_EQ(end(true), 1);
    EXPECT_FALSE(slow_.was_late) << "the engine's thread waited";
    EXPECT_FALSE(is_cold(own, 0));
    expect_page(own, 1, 0);
    fail_reads_after = 0;
    ASSERT_EQ(begin_up(own, 1), WEIR_OK);
    EXPECT_EQ(end(true), 1);
    EXPECT_TRUE(weir_kv_is_unreadable(store_, own.pages[1]));
    EXPECT_EQ(weir_kv_free_blocks(store_), free_blocks - 1);
    fail_reads_after = -1;
    expect_sound();
    close(&own);
}

/* A listener is called once for each move, when that can be ended, and not after it is removed. */
TEST_P(Moves, AreReported)
{
    start(6, 3);
    weir_kv_table own = table_of(1, 3);
    std::atomic<int> n{ 0 };
    const auto count = [](void *user) { ++*static_cast<std::atomic<int> *>(user); };
    weir_kv_listen_to_moves(store_, count, &n);
    for (int64_t p = 0; p < 2; p++) ASSERT_EQ(begin_down(own, p), WEIR_OK) << error_.text;
    while (weir_kv_wait_for_move(store_)) {
    }
    EXPECT_EQ(end(false), 2);
    while (n < 2) std::this_thread::yield();
    ASSERT_EQ(begin_up(own, 0), WEIR_OK) << error_.text;
    while (n < 3) std::this_thread::yield();
    EXPECT_EQ(end(true), 1);
    weir_kv_listen_to_moves(store_, nullptr, nullptr);
    ASSERT_EQ(demote(own, 2), WEIR_OK) << error_.text;
    EXPECT_EQ(n, 3);
    EXPECT_FALSE(weir_kv_wait_for_move(store_));
    close(&own);
}

/* As many as the ring has; the others begin when some have ended. */
TEST_P(Moves, AreLimited)
{
    start(40, 40);
    weir_kv_table own = table_of(1, 36);
    support::write_gate = &slow_;
    int64_t n = 0;
    while (weir_kv_moves_left(store_) > 0) ASSERT_EQ(begin_down(own, n++), WEIR_OK);
    EXPECT_EQ(begin_down(own, n), WEIR_EFULL);
    support::write_gate = nullptr;
    slow_.open();
    EXPECT_EQ(demote(own, n), WEIR_OK) << "waits for the others";
    for (int64_t p = 0; p <= n; p++) EXPECT_TRUE(is_cold(own, p));
    expect_sound();
    close(&own);
}

} // namespace
