/* What attention is handed of blocks on disk: every range, in order, with the bytes that were
 * written, whatever is on disk and however far the reader is ahead. */
#include <random>

#include "tests/unit/kv/prefetch_fixture.h"

namespace {

using namespace prefetch_fixture;

TEST_F(Prefetch, NothingOnDiskIsNothingToDo)
{
    open(40, 40);
    add(300, [](int64_t) { return false; });
    view(0, 0, 1);
    EXPECT_FALSE(weir_kv_prefetch_begin(prefetch_, store_, 1));
    add(300, [](int64_t block) { return block < 2; });
    EXPECT_FALSE(weir_kv_prefetch_begin(prefetch_, store_, 1)) << "another sequence's blocks are";
    const char *why;
    EXPECT_FALSE(weir_kv_prefetch_failed(prefetch_, 0, &why));
}

/* Long and short, all on disk, every other block, one block alone: at every step all ranges of all
 * layers. Below the host, and below a device: in the file, on the host, and in runs that go on from
 * one to the other. */
class PrefetchBelow : public Prefetch, public ::testing::WithParamInterface<int64_t> {};
INSTANTIATE_TEST_SUITE_P(HostBlocks, PrefetchBelow, ::testing::Values(-1, 0, 40, 200));

TEST_P(PrefetchBelow, HandsOutWhatWasWritten)
{
    const bool has_device = GetParam() >= 0;
    /* a device's buffers are larger */
    open(120, 200, { 0, 0, 0 }, has_device ? 256 : 64, GetParam());
    add(max_rows - 5, [](int64_t block) { return block > 0 && block < 76; });
    add(2000, [](int64_t block) { return block % 2 == 1 && block < 30; });
    add(700, [](int64_t) { return false; });
    for (int step = 0; step < 5; step++) {
        view(0, 0, step % 2 ? 1 : 130);
        view(1, 2, 5);
        view(2, 1, 1);
        ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 3));
        for (int64_t layer = 0; layer < layers; layer++) {
            ASSERT_TRUE(weir_kv_prefetch_is_cold(prefetch_, layer, 0));
            ASSERT_FALSE(weir_kv_prefetch_is_cold(prefetch_, layer, 1));
            const int n = walk(layer, 0, 0);
            EXPECT_GE(
                n, layer != 1   ? 3
                   : has_device ? 1
                                : 2
            ) << "buffers hold fewer blocks than that";
            (void)walk(layer, 2, 1);
        }
        weir_kv_prefetch_end(prefetch_);
    }
}

/* Where the blocks of a step are does not change before it ends: each up to the last cold one is
 * looked up once, however many layers read it. */
TEST_F(Prefetch, LooksOncePerStep)
{
    open(120, 200, { 0, 900, 0 });
    add(max_rows - 5, [](int64_t block) { return block > 0 && block < 3; });
    add(2000, [](int64_t) { return false; });
    add(700, [](int64_t block) { return block == 9; });
    for (int step = 0; step < 3; step++) {
        const int64_t before = weir_kv_prefetch_lookups(prefetch_);
        for (int32_t i = 0; i < 3; i++) view(i, (size_t)i, 1);
        ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 3));
        for (int64_t layer = 0; layer < layers; layer++)
            for (int32_t i = 0; i < 3; i++) {
                const bool is_cold = i == 2 || (i == 0 && layer != 1);
                for (int again = 0; again < 3; again++)
                    ASSERT_EQ(weir_kv_prefetch_is_cold(prefetch_, layer, i), is_cold);
                if (is_cold) (void)walk(layer, i, (size_t)i);
            }
        weir_kv_prefetch_end(prefetch_);
        EXPECT_EQ(weir_kv_prefetch_lookups(prefetch_) - before, 3 + 10);
    }
}

/* Where mass is to be found, segments come once more after those of their layer; layers with a
 * window do not. */
TEST_F(Prefetch, WhatIsReadAgainComesTwice)
{
    open(20, 200, { 0, 1500, 0 });
    add(max_rows, [](int64_t block) { return block > 0 && block < 78; });
    add(2000, [](int64_t block) { return block > 0 && block < 30; });
    const auto steps = [&](bool first, bool second) {
        const int64_t before = weir_kv_residency_of(store_).bytes_read;
        for (int step = 0; step < 3; step++) {
            view(0, 0, 70, first);
            view(1, 1, 40, second);
            EXPECT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 2));
            for (int64_t layer = 0; layer < layers; layer++) {
                for (int32_t i = 0; i < 2; i++) (void)walk(layer, i, (size_t)i);
                if (first && layer != 1) (void)walk(layer, 0, 0);
                if (second && layer != 1) (void)walk(layer, 1, 1);
            }
            weir_kv_prefetch_end(prefetch_);
        }
        return weir_kv_residency_of(store_).bytes_read - before;
    };
    const int64_t once = steps(false, false),
                  page = (int64_t)(kv_heads * weir_kv_page_stride(&spec_, 0));
    EXPECT_EQ(steps(true, false) - once, int64_t{ 3 * 2 * 77 } * page);
    EXPECT_EQ(steps(false, true) - once, int64_t{ 3 * 2 * 29 } * page);
    EXPECT_EQ(steps(true, true) - once, int64_t{ 3 * 2 * (77 + 29) } * page);
}

/* A step that stops anywhere leaves the next one in order. */
TEST_F(Prefetch, AStepMayStopAnywhere)
{
    open(20, 200);
    add(max_rows, [](int64_t block) { return block > 0 && block < 78; });
    for (const int passes : { 1, 2 })
        for (int stop = 0; stop <= layers * passes; stop++) {
            view(0, 0, 1, passes == 2);
            ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 1));
            for (int64_t pass = 0; pass < stop; pass++) (void)walk(pass / passes, 0, 0);
            if (stop < layers * passes) {
                weir_kv_range range;
                weir_kv_prefetch_take(prefetch_, stop / passes, 0, &range);
                if (stop % 2 == 0) weir_kv_prefetch_give(prefetch_);
            }
            weir_kv_prefetch_end(prefetch_);
        }
}

TEST_F(Prefetch, WindowsReadWhatTheySee)
{
    open(20, 200, { 0, 100, 1500 });
    add(max_rows, [](int64_t block) { return block > 0 && block < 76; });
    view(0, 0, 1);
    ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 1));
    (void)walk(0, 0, 0);
    EXPECT_FALSE(weir_kv_prefetch_is_cold(prefetch_, 1, 0)) << "the window is in memory";
    ASSERT_TRUE(weir_kv_prefetch_is_cold(prefetch_, 2, 0));
    (void)walk(2, 0, 0);
    weir_kv_prefetch_end(prefetch_);
    const int64_t read = weir_kv_residency_of(store_).bytes_read,
                  page = (int64_t)(kv_heads * weir_kv_page_stride(&spec_, 0));
    const int64_t seen = (max_rows - 1 - 1500 + 1) / 64;
    EXPECT_EQ(read, (75 + 76 - seen) * page);
}

/* A layer that shares the rows of an earlier one reads them again. */
TEST_F(Prefetch, ALaterReaderOfALayerReadsItAgain)
{
    open(20, 200, { 0, 0, 0 }, 64, -1, true);
    add(max_rows, [](int64_t block) { return block > 0 && block < 76; });
    for (const bool is_reread : { false, true }) {
        const int64_t before = weir_kv_residency_of(store_).bytes_read;
        view(0, 0, 1, is_reread);
        ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 1));
        int64_t bytes = 0;
        for (const weir_kv_reader &reader : readers_)
            for (int pass = 0; pass < (is_reread && reader.is_watched ? 2 : 1); pass++) {
                (void)walk(reader.layer, 0, 0);
                bytes += 75 * (int64_t)weir_kv_layer_stride(&spec_, reader.layer);
            }
        weir_kv_prefetch_end(prefetch_);
        EXPECT_EQ(weir_kv_residency_of(store_).bytes_read - before, bytes);
    }
}

/* Blocks that cannot be read are zeros and unreadable; the segment is told of, the others are as
 * they were. */
TEST_F(Prefetch, AReadThatFailsFailsItsSegment)
{
    open(20, 200);
    add(2000, [](int64_t block) { return block > 0 && block < 25; });
    add(1500, [](int64_t block) { return block > 0 && block < 18; });
    const char *why;
    for (const int after : { 0, 2 }) {
        view(0, 0, 1);
        view(1, 1, 1);
        reads_until_failure = after;
        ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 2));
        for (int64_t layer = 0; layer < layers; layer++)
            for (int32_t i = 0; i < 2; i++) (void)walk(layer, i, (size_t)i, true);
        weir_kv_prefetch_end(prefetch_);
        reads_until_failure = -1;
        EXPECT_TRUE(
            weir_kv_prefetch_failed(prefetch_, 0, &why) ||
            weir_kv_prefetch_failed(prefetch_, 1, &why)
        );
        EXPECT_NE(strstr(why, "cannot read KV pages back"), nullptr) << why;
    }
    EXPECT_TRUE(weir_kv_is_unreadable(store_, tables_[0].pages[1]));
    view(0, 1, 1);
    ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 1)) << "the next step begins afresh";
    for (int64_t layer = 0; layer < layers; layer++) (void)walk(layer, 0, 1);
    weir_kv_prefetch_end(prefetch_);
    EXPECT_FALSE(weir_kv_prefetch_failed(prefetch_, 0, &why));
}

/* Whichever read it is, the first or the second of a segment: it and no other is told of. */
TEST_F(Prefetch, AnyReadThatFailsIsTold)
{
    open(20, 200);
    add(2000, [](int64_t block) { return block > 0 && block < 25; });
    add(1500, [](int64_t block) { return block > 0 && block < 18; });
    const char *why;
    int n_failed[2] = { 0, 0 };
    for (int failing = 0;; failing++) {
        for (int32_t i = 0; i < 2; i++) view(i, (size_t)i, 30, true);
        fails_once = true;
        reads_until_failure = failing;
        ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 2));
        for (int64_t layer = 0; layer < layers; layer++)
            for (int32_t i = 0; i < 4; i++) (void)walk(layer, i % 2, (size_t)(i % 2), true);
        weir_kv_prefetch_end(prefetch_);
        const bool failed[2] = { weir_kv_prefetch_failed(prefetch_, 0, &why),
                                 weir_kv_prefetch_failed(prefetch_, 1, &why) };
        if (reads_until_failure >= 0) {
            EXPECT_FALSE(failed[0] || failed[1]) << "nothing failed";
            break;
        }
        EXPECT_NE(failed[0], failed[1]) << "read " << failing;
        for (int i = 0; i < 2; i++) n_failed[i] += failed[i];
    }
    EXPECT_GE(n_failed[0], 2 * layers);
    EXPECT_GE(n_failed[1], 2 * layers);
}

} // namespace
