/* Reads of the lower tier while the engine thread runs, and what they return. */
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "tests/unit/kv/tiers_fixture.h"

namespace {

using namespace tiers;

/* A thread waits for the disk, as when it saves a sequence: the engine's thread frees, moves and
 * takes pages meanwhile, also the page that is read, whose place in the file is not used before the
 * read has ended. With a device the file has a buffer of its own, not needed for that. */
class SlowReads : public Tiers, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Device, SlowReads, ::testing::Bool());

TEST_P(SlowReads, StopNoOtherThread)
{
    support::Gate slow;
    if (GetParam()) use_device();
    open(6, 3);
    weir_kv_table own = table(), other = table();
    ASSERT_EQ(reserve_to(own, 2 * 64), WEIR_OK);
    for (int p = 0; p < 2; p++) write(own, 1, p);
    commit_to(own, 2 * 64);
    ASSERT_EQ(reserve_to(other, 3 * 64), WEIR_OK);
    for (int p = 0; p < 3; p++) write(other, 2, p);
    commit_to(other, 3 * 64);
    ASSERT_EQ(demote(own, 0), WEIR_OK) << error_.text;
    ASSERT_EQ(demote(other, 0), WEIR_OK) << error_.text;
    std::vector<char> memory(4096 + 65536);
    char *const copy = memory.data() + (4096 - (uintptr_t)memory.data() % 4096);
    constexpr int head = 3;
    weir_status status = WEIR_EINVAL;
    std::thread reader([&] {
        weir_error error = {};
        support::gate = &slow;
        status = weir_kv_page_copy(store_, copy, own.pages[head * own.capacity], head, &error);
    });
    ASSERT_TRUE(slow.wait_until_reached());
    EXPECT_EQ(promote(other, 0), WEIR_OK) << error_.text;
    EXPECT_EQ(demote(other, 1), WEIR_OK) << error_.text;
    weir_kv_truncate(&other, store_, 2 * 64);
    expect_sound();
    EXPECT_EQ(promote(own, 0), WEIR_OK) << error_.text;
    weir_kv_truncate(&own, store_, 0);
    expect_sound();
    ASSERT_EQ(reserve_to(own, 2 * 64), WEIR_OK);
    for (int p = 0; p < 2; p++) write(own, 3, p);
    commit_to(own, 2 * 64);
    EXPECT_EQ(demote(own, 1), WEIR_OK) << error_.text;
    EXPECT_EQ(demote(other, 0), WEIR_EFULL) << "the place of the block that is read is not free";
    slow.open();
    reader.join();
    EXPECT_FALSE(slow.was_late) << "the engine's thread waited for the read";
    EXPECT_EQ(status, WEIR_OK);
    const std::vector<char> want(bytes_of(head, 0), tag(1, head, 0));
    EXPECT_EQ(memcmp(copy, want.data(), want.size()), 0) << "other bytes than when it was asked";
    EXPECT_EQ(demote(other, 0), WEIR_OK) << "its place is free again: " << error_.text;
    for (int p = 0; p < 2; p++) expect_page(other, 2, p);
    for (int p = 0; p < 2; p++) expect_page(own, 3, p);
    expect_sound();
    weir_kv_table_close(&own, store_);
    weir_kv_table_close(&other, store_);
}

/* A thread that saves sequences shares a lock with the engine's for what they hold; where pages are
 * changes without it. What it reads is what the pages had when it began. */
TEST_P(SlowReads, AreWhatTheyBeganWith)
{
    enum { TEXTS = 3, BLOCKS = 6, READS = 600 };
    if (GetParam()) use_device();
    open(8, 12);
    std::mutex lock;
    std::vector<weir_kv_table> tables;
    int seeds[TEXTS] = {};
    const auto renew = [&](size_t i, int seed) {
        weir_kv_truncate(&tables[i], store_, 0);
        seeds[i] = seed;
        for (int p = 0; p < BLOCKS; p++) {
            for (size_t k = 0; weir_kv_free_blocks(store_) == 0 && k < tables.size(); k++)
                for (int64_t q = 0; q < tables[k].n_rows / 64; q++)
                    if (!is_cold(tables[k], q)) (void)demote(tables[k], q);
            if (reserve_to(tables[i], (p + 1) * 64) != WEIR_OK) return;
            write(tables[i], seed, p);
            commit_to(tables[i], (p + 1) * 64);
        }
    };
    for (size_t i = 0; i < TEXTS; i++) {
        tables.push_back(table());
        renew(i, (int)i);
    }
    std::atomic<int> n_read{ 0 }, n_wrong{ 0 };
    std::thread reader([&] {
        std::mt19937 random(5);
        std::vector<char> memory(4096 + 65536);
        char *const copy = memory.data() + (4096 - (uintptr_t)memory.data() % 4096);
        for (; n_read < READS; n_read++) {
            weir_error error = {};
            weir_kv_page_read read;
            const int h = (int)(random() % heads);
            const size_t i = random() % TEXTS;
            std::unique_lock<std::mutex> hold(lock);
            const weir_kv_table &t = tables[i];
            if (t.n_rows == 0) continue;
            const int64_t page = (int64_t)(random() % (uint64_t)(t.n_rows / 64));
            const char want = tag(seeds[i], h, page);
            weir_kv_page_read_begin(store_, &read, copy, t.pages[h * t.capacity + page], h);
            hold.unlock();
            const bool is_read = weir_kv_page_read_end(store_, &read, &error) == WEIR_OK;
            const size_t n = bytes_of(h, page);
            n_wrong += !is_read || copy[0] != want || copy[n / 2] != want || copy[n - 1] != want;
        }
    });
    std::mt19937 random(6);
    for (int step = TEXTS; n_read < READS; step++) {
        const size_t i = random() % TEXTS;
        const int64_t n = tables[i].n_rows / 64,
                      page = n > 0 ? (int64_t)(random() % (uint64_t)n) : 0;
        if (random() % 8 == 0) {
            const std::lock_guard<std::mutex> hold(lock);
            renew(i, step);
        } else if (n > 0) {
            (void)(is_cold(tables[i], page) ? promote(tables[i], page) : demote(tables[i], page));
        }
    }
    reader.join();
    EXPECT_EQ(n_wrong, 0);
    expect_sound();
    for (weir_kv_table &t : tables) weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n);
}

/* What is read back is what was written, or an error: here the disk changes one bit. */
class GarbledFile : public Tiers, public ::testing::WithParamInterface<bool> {
  protected:
    static void flip(off_t at)
    {
        alignas(4096) static char bytes[4096];
        ASSERT_EQ(pread(file, bytes, sizeof bytes, at), (ssize_t)sizeof bytes);
        bytes[100] ^= 4;
        ASSERT_EQ(pwrite(file, bytes, sizeof bytes, at), (ssize_t)sizeof bytes);
    }
};
INSTANTIATE_TEST_SUITE_P(Device, GarbledFile, ::testing::Bool());

TEST_P(GarbledFile, IsNotTaken)
{
    if (GetParam()) use_device();
    open(4, 4);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 3 * 64), WEIR_OK);
    for (int p = 0; p < 3; p++) write(t, 1, p);
    commit_to(t, 3 * 64);
    for (int p = 0; p < 2; p++) ASSERT_EQ(demote(t, p), WEIR_OK) << error_.text;
    const off_t second_head = (off_t)weir_kv_page_stride(&spec_, 0);
    std::vector<char> memory(4096 + 65536);
    char *const copy = memory.data() + (4096 - (uintptr_t)memory.data() % 4096);
    flip(second_head);
    EXPECT_EQ(weir_kv_page_copy(store_, copy, t.pages[0], 0, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(weir_kv_page_copy(store_, copy, t.pages[t.capacity], 1, &error_), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "checksum"), nullptr) << error_.text;
    EXPECT_NE(strstr(error_.text, "cannot read KV pages back"), nullptr) << error_.text;
    expect_page(t, 1, 1);
    EXPECT_EQ(promote(t, 0), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "checksum"), nullptr) << error_.text;
    EXPECT_TRUE(is_cold(t, 0) && weir_kv_is_unreadable(store_, t.pages[0]));
    EXPECT_EQ(weir_kv_residency_of(store_).read_errors, 2);
    expect_sound();
    flip(second_head);
    EXPECT_EQ(promote(t, 0), WEIR_OK) << error_.text;
    for (int p = 0; p < 3; p++) expect_page(t, 1, p);
    weir_kv_table_close(&t, store_);
}

} // namespace
