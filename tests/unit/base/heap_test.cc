// Heaps of requests: blocks of all sizes, what they charge, and that it all goes back.
#include "engine/base/heap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/sanitizer.h"

namespace {

struct Tracker {
    weir_memory_tracker tracker = { charge, refund, nullptr };
    size_t used = 0, limit = SIZE_MAX;
    static bool charge(weir_memory_tracker *tracker, size_t bytes)
    {
        Tracker *const self = reinterpret_cast<Tracker *>(tracker);
        const size_t before = __atomic_fetch_add(&self->used, bytes, __ATOMIC_SEQ_CST);
        if (before + bytes > self->limit) {
            refund(tracker, bytes);
            return false;
        }
        return true;
    }
    static void refund(weir_memory_tracker *tracker, size_t bytes)
    {
        __atomic_fetch_sub(&reinterpret_cast<Tracker *>(tracker)->used, bytes, __ATOMIC_SEQ_CST);
    }
};

class Heap : public testing::Test {
  protected:
    void SetUp() override
    {
        before_ = weir_heap_mapped(nullptr);
        heap_ = weir_heap_open(&tracker_.tracker);
        ASSERT_NE(heap_, nullptr);
        (void)weir_memory_tracker_set(weir_heap_tracker(heap_));
    }
    void TearDown() override
    {
        (void)weir_memory_tracker_set(nullptr);
        weir_heap_close(heap_);
        EXPECT_EQ(tracker_.used, 0u);
        EXPECT_EQ(weir_heap_mapped(nullptr), before_);
    }
    Tracker tracker_;
    weir_heap *heap_ = nullptr;
    size_t before_ = 0;
};

TEST_F(Heap, BlocksOfAllSizesAreAlignedApartAndWhole)
{
    std::vector<std::pair<unsigned char *, size_t>> blocks;
    for (size_t n = 0; n < 70000; n += n < 600 ? 1 : n / 7) {
        auto *const block = static_cast<unsigned char *>(weir_memory_take(n));
        ASSERT_NE(block, nullptr) << n;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u) << n;
        memset(block, static_cast<int>(blocks.size() % 251), n);
        blocks.emplace_back(block, n);
    }
    EXPECT_EQ(tracker_.used, weir_heap_mapped(heap_)) << "what is mapped is what is charged";
    for (size_t i = 0; i < blocks.size(); i++) {
        for (size_t k = 0; k < blocks[i].second; k++) ASSERT_EQ(blocks[i].first[k], i % 251);
        weir_memory_give(blocks[i].first);
    }
    EXPECT_LE(weir_heap_mapped(heap_), size_t{ 2 } << 20) << "the first and the newest chunk";
}

TEST_F(Heap, ZeroedBlocksAreZeroAlsoWhereOthersWereBefore)
{
    for (const size_t n : { 24u, 700u, 20000u, 100000u }) {
        void *const dirty = weir_memory_take(n);
        memset(dirty, 0xff, n);
        weir_memory_give(dirty);
        auto *const block = static_cast<unsigned char *>(weir_memory_take_zero(n, 1));
        for (size_t i = 0; i < n; i++) ASSERT_EQ(block[i], 0) << n;
        weir_memory_give(block);
    }
    EXPECT_EQ(weir_memory_take_zero(SIZE_MAX / 2, 3), nullptr);
    EXPECT_EQ(weir_memory_take(SIZE_MAX - 8), nullptr);
}

TEST_F(Heap, ResizedBlocksKeepWhatTheyHold)
{
    unsigned char *block = nullptr;
    size_t n = 0;
    for (const size_t next : { 10u, 30u, 5000u, 28000u, 60000u, 3000000u, 100000u, 200u, 1u, 0u }) {
        auto *const moved = static_cast<unsigned char *>(weir_memory_resize(block, next));
        ASSERT_NE(moved, nullptr) << next;
        for (size_t i = 0; i < n && i < next; i++) ASSERT_EQ(moved[i], i % 251) << next;
        for (size_t i = 0; i < next; i++) moved[i] = static_cast<unsigned char>(i % 251);
        block = moved;
        n = next;
    }
    weir_memory_give(block);
}

TEST_F(Heap, ALargeBlockGrowsByTheDifference)
{
    char *block = static_cast<char *>(weir_memory_take(1 << 20));
    block[1000] = 7;
    tracker_.limit = tracker_.used + (1 << 20) + 4096;
    block = static_cast<char *>(weir_memory_resize(block, 2 << 20));
    ASSERT_NE(block, nullptr) << "not both sizes at once";
    EXPECT_EQ(block[1000], 7);
    EXPECT_EQ(weir_memory_resize(block, 4 << 20), nullptr);
    EXPECT_EQ(block[1000], 7) << "a refusal leaves it as it was";
    weir_memory_give(block);
}

TEST_F(Heap, ARefusalIsNoMemoryAndChargesNothing)
{
    tracker_.limit = tracker_.used;
    std::vector<void *> blocks;
    for (void *block; (block = weir_memory_take(100)) != nullptr;) {
        blocks.push_back(block);
        ASSERT_LE(tracker_.used, tracker_.limit);
        ASSERT_LT(blocks.size(), 1000u);
    }
    EXPECT_EQ(weir_memory_take(1 << 20), nullptr);
    EXPECT_EQ(tracker_.used, tracker_.limit);
    for (void *const block : blocks) weir_memory_give(block);
}

/* Of a tree that was read and given back nothing stays, though a block that is older does. */
TEST_F(Heap, ChunksWithoutBlocksGoBackAtOnce)
{
    void *const kept = weir_memory_take(40);
    std::vector<void *> blocks;
    for (int i = 0; i < 200000; i++)
        blocks.push_back(weir_memory_take(static_cast<size_t>(i % 120)));
    EXPECT_GT(tracker_.used, size_t{ 10 } << 20);
    for (void *const block : blocks) weir_memory_give(block);
    EXPECT_LE(tracker_.used, (size_t{ 1 } << 20) + (16 << 10)) << "the first chunk and the newest";
    weir_memory_give(kept);
}

TEST_F(Heap, ItEndsWithItsLastBlockOnAnyThread)
{
    void *const small = weir_memory_take(100), *const large = weir_memory_take(100000);
    (void)weir_memory_tracker_set(nullptr);
    weir_heap_close(heap_);
    heap_ = nullptr;
    EXPECT_GT(tracker_.used, 100000u);
    std::thread([&] { weir_memory_give(large); }).join();
    EXPECT_GT(tracker_.used, 0u);
    std::thread([&] { weir_memory_give(small); }).join();
    EXPECT_EQ(tracker_.used, 0u);
}

TEST_F(Heap, ThreadsTakeAndGiveEachOthersBlocks)
{
    enum { THREADS = 4, ROUNDS = 3000, SLOTS = 64 };
    std::atomic<unsigned char *> slots[SLOTS] = {};
    std::vector<std::thread> threads;
    std::atomic<int> broken = 0;
    for (unsigned t = 0; t < THREADS; t++)
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            (void)weir_memory_tracker_set(weir_heap_tracker(heap_));
            for (int i = 0; i < ROUNDS; i++) {
                const size_t n = 2 + (random() % 16 == 0 ? random() % 100000 : random() % 300);
                auto *const block = static_cast<unsigned char *>(weir_memory_take(n));
                memset(block, static_cast<int>(n % 250 + 1), n);
                block[0] = static_cast<unsigned char>(n % 250 + 1);
                unsigned char *const other = slots[random() % SLOTS].exchange(block);
                if (other != nullptr && other[0] != other[1]) broken++;
                weir_memory_give(other);
            }
            (void)weir_memory_tracker_set(nullptr);
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(broken, 0);
    for (auto &slot : slots) weir_memory_give(slot);
}

/* Another account's block inside of a request, and a hold of the request's own. */
TEST_F(Heap, IsATrackerLikeOthers)
{
    Tracker other;
    weir_memory_tracker *const before = weir_memory_tracker_set(&other.tracker);
    EXPECT_EQ(before, weir_heap_tracker(heap_));
    void *const block = weir_memory_take(100);
    EXPECT_GE(other.used, 100u);
    (void)weir_memory_tracker_set(before);
    weir_memory_give(block);
    EXPECT_EQ(other.used, 0u);
    weir_hold hold = {};
    const size_t used = tracker_.used;
    EXPECT_TRUE(weir_hold_take(&hold, 5000));
    EXPECT_EQ(tracker_.used, used + 5000);
    weir_hold_give(&hold);
}

TEST(HeapOpen, IsRefusedWithoutRoomAndNeedsNoTracker)
{
    Tracker tracker;
    tracker.limit = 1000;
    EXPECT_EQ(weir_heap_open(&tracker.tracker), nullptr);
    EXPECT_EQ(tracker.used, 0u);
    weir_heap *const heap = weir_heap_open(nullptr);
    ASSERT_NE(heap, nullptr);
    void *const block = weir_heap_take(heap, 10, true);
    weir_heap_close(heap);
    weir_memory_give(block);
    weir_heap_close(nullptr);
}

TEST_F(Heap, TheSanitizerSeesErrorsInItsBlocks)
{
    if (!weir_test::has_address_sanitizer()) return;
    void *const block = weir_memory_take(100);
    EXPECT_DEATH(memset(block, 1, 101), "heap-buffer-overflow");
    weir_memory_give(block);
    EXPECT_DEATH(memset(block, 1, 1), "heap-use-after-free");
}

} // namespace
