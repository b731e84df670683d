/* What attention is handed of blocks on disk: every range, in order, with the bytes that were
 * written, whatever is on disk and however far the reader is ahead. */
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <random>
#include <vector>

#include "engine/kv/tiers/prefetch.h"
#include "kernels/abi/ops.h"
#include "offload/ledger.h"
#include "tests/unit/kv/read_gate.h"

namespace {

std::atomic<int64_t> clock_ns{ 0 }; /* of tests with a clock of their own; 0: the system's */
std::atomic<int> n_reads{ 0 }, reads_until_gate{ -1 };
std::atomic<support::Gate *> disk_gate{ nullptr };

} // namespace

/* For the libraries, too. */
extern "C" int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int64_t now = clock_ns;
    if (clock != CLOCK_MONOTONIC || now == 0)
        return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
    *out = { now / 1000000000, now % 1000000000 };
    return 0;
}

namespace {

constexpr int layers = 3, kv_heads = 2, heads = layers * kv_heads,
              max_rows = 5 * WEIR_ATTENTION_SPLIT;
constexpr weir_kv_pair wide = { WEIR_KV_F32, WEIR_KV_F32 }, q8 = { WEIR_KV_Q8_0, WEIR_KV_Q8_0 };

std::atomic<int> reads_until_failure{ -1 };
std::atomic<bool> fails_once{ false };
ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    const int left = reads_until_failure;
    if (left == 0) {
        if (fails_once) reads_until_failure = -1;
        errno = EIO;
        return -1;
    }
    if (left > 0) reads_until_failure--;
    if (reads_until_gate >= 0 && reads_until_gate-- == 0) support::pass(disk_gate);
    const ssize_t got = pread(fd, bytes, n, at);
    n_reads++;
    return got;
}

class Prefetch : public ::testing::Test {
  protected:
    /* host_blocks: of disk_blocks, on the host below a device whose memory the host cannot touch;
     * -1: there is none. reads_again: a fourth reader reads the first layer's rows. */
    void open(
        int64_t memory_blocks, int64_t disk_blocks,
        const std::vector<int32_t> &windows = { 0, 0, 0 }, int64_t dim = 64,
        int64_t host_blocks = -1, bool reads_again = false
    )
    {
        const size_t caps[WEIR_TIER_COUNT] = {};
        char why[320];
        if (host_blocks >= 0)
            ASSERT_EQ(weir_device_open(&device_, "checked", why, sizeof why, &error_), WEIR_OK)
                << error_.text;
        folder_ = ::testing::TempDir() + "/prefetch." + std::to_string(getpid());
        std::filesystem::create_directories(folder_);
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        weir_ledger_use_device(ledger_, device_);
        const int64_t on_host = std::max<int64_t>(host_blocks, 0),
                      pages = (memory_blocks + disk_blocks) * heads;
        for (int i = 0; i < layers; i++)
            geometry_[i] = { kv_heads, dim, dim, windows[(size_t)i], 0, false };
        weir_kv_number_heads(geometry_, layers);
        spec_ = { layers,
                  geometry_,
                  formats_,
                  pages,
                  max_rows,
                  (disk_blocks - on_host) * heads,
                  folder_.c_str(),
                  {},
                  0,
                  false,
                  device_ != nullptr,
                  on_host * heads,
                  0,
                  {} };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
        reads_until_failure = -1;
        fails_once = false;
        const weir_lower_tier_io io = { pwritev, faulty_read, nullptr, nullptr };
        weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &io);
        windows_ = windows;
        readers_.clear();
        for (int32_t i = 0; i < layers; i++) readers_.push_back({ i, windows[(size_t)i] == 0 });
        if (reads_again) readers_.push_back({ 0, false });
        const weir_kv_prefetch_limits limits = { 3, readers_.data(), (int64_t)readers_.size() };
        const size_t before = total();
        ASSERT_EQ(weir_kv_prefetch_open(&prefetch_, &spec_, &limits, ledger_, &error_), WEIR_OK)
            << error_.text;
        EXPECT_EQ(
            total() - before,
            weir_kv_prefetch_bytes(&spec_, 3) + weir_kv_prefetch_device_bytes(&spec_)
        );
    }
    size_t total() const
    {
        return weir_ledger_total(ledger_, WEIR_TIER_HOST) +
               weir_ledger_total(ledger_, WEIR_TIER_DEVICE);
    }
    void TearDown() override { close(); }
    void close()
    {
        for (weir_kv_table &t : tables_) weir_kv_table_close(&t, store_);
        weir_kv_prefetch_close(prefetch_);
        weir_kv_store_close(store_);
        tables_.clear();
        prefetch_ = nullptr;
        store_ = nullptr;
        EXPECT_EQ(total(), 0u);
        weir_ledger_close(ledger_);
        weir_device_close(device_);
        ledger_ = nullptr;
        device_ = nullptr;
        std::filesystem::remove_all(folder_);
    }
    static char tag(size_t own, int h, int64_t block)
    {
        return (char)(1 + (own * 41 + (size_t)h * 13 + (size_t)block * 7) % 120);
    }
    /* A sequence whose blocks go to disk where `cold` says so. */
    template <class Cold> void add(int64_t rows, const Cold &cold)
    {
        weir_kv_table t = {};
        ASSERT_EQ(weir_kv_table_open(&t, store_, &error_), WEIR_OK) << error_.text;
        for (int64_t block = 0; block * 64 < rows; block++) {
            ASSERT_EQ(
                weir_kv_reserve(&t, store_, std::min<int64_t>(rows - block * 64, 64)), WEIR_OK
            ) << "block "
              << block;
            for (int h = 0; h < heads; h++) {
                const std::vector<char> bytes(
                    weir_kv_page_bytes(&spec_, h / kv_heads), tag(tables_.size(), h, block)
                );
                weir_ledger_copy(
                    ledger_, t.pages[h * t.capacity + block], bytes.data(), bytes.size()
                );
            }
            weir_kv_commit(&t, std::min<int64_t>(rows - block * 64, 64));
            if (cold(block))
                ASSERT_EQ(
                    weir_kv_demote(
                        store_, (void *const *)t.pages + block, t.capacity, block, &error_
                    ),
                    WEIR_OK
                ) << error_.text;
        }
        tables_.push_back(t);
    }
    void view(int32_t i, size_t own, int32_t n_rows, bool is_reread = false)
    {
        weir_kv_table &t = tables_[own];
        const int64_t n_cold = weir_kv_table_cold_blocks(&t, store_);
        weir_kv_prefetch_views(prefetch_)[i] = { (void *const *)t.pages,
                                                 t.capacity,
                                                 (int32_t)t.n_rows - n_rows,
                                                 n_rows,
                                                 is_reread,
                                                 (int32_t)n_cold,
                                                 (int32_t)t.cold.end };
    }
    /* Walks a segment of a layer as attention does; returns the number of ranges. `zeros`: what
     * could not be read is. */
    int walk(int64_t layer, int32_t segment, size_t own, bool zeros = false)
    {
        const weir_kv_view &v = weir_kv_prefetch_views(prefetch_)[segment];
        const int32_t window = windows_[(size_t)layer],
                      seen = window > 0 && v.n_past >= window ? v.n_past - window + 1 : 0;
        int32_t split = 0;
        int n = 0;
        for (bool is_last = false; !is_last; n++) {
            weir_kv_range range;
            weir_kv_prefetch_take(prefetch_, layer, segment, &range);
            EXPECT_EQ(range.first_split, split);
            EXPECT_GT(range.end_split, split);
            const int64_t first = std::max<int64_t>(range.first_split * 16, seen / 64),
                          end = std::min<int64_t>(
                              range.end_split * 16, (v.n_past + v.n_rows + 63) / 64
                          );
            for (int64_t block = first; block < end; block++)
                for (int h = 0; h < kv_heads; h++) {
                    std::vector<char> page(weir_kv_page_bytes(&spec_, layer));
                    const size_t bytes = page.size();
                    weir_ledger_copy(
                        ledger_, page.data(), range.pages[h * range.page_stride + block], bytes
                    );
                    const char want = tag(own, (int)layer * kv_heads + h, block);
                    const bool right =
                        page[0] == want && page[bytes / 2] == want && page[bytes - 1] == want;
                    EXPECT_TRUE(right || (zeros && page[0] == 0 && page[bytes - 1] == 0))
                        << "layer " << layer << " block " << block << " head " << h;
                }
            split = range.end_split;
            is_last = range.is_last;
            EXPECT_EQ(is_last, split * WEIR_ATTENTION_SPLIT >= v.n_past + v.n_rows);
            weir_kv_prefetch_give(prefetch_);
        }
        return n;
    }
    const weir_kv_pair formats_[layers] = { wide, q8, wide };
    std::vector<int32_t> windows_;
    std::vector<weir_kv_reader> readers_;
    std::vector<weir_kv_table> tables_;
    std::string folder_;
    weir_device *device_ = nullptr;
    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_kv_prefetch *prefetch_ = nullptr;
    weir_kv_geometry geometry_[layers];
    weir_kv_spec spec_ = {};
    weir_error error_ = {};
};

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

/* What runs while a step waits for the disk, 20 ms each time by the test's clock. */
struct Others {
    int n_runs = 0;
    std::function<void(int n)> meanwhile;
    static bool run(void *user)
    {
        auto *const self = static_cast<Others *>(user);
        self->meanwhile(++self->n_runs);
        clock_ns += 20000000;
        return true;
    }
};

/* Others that run while all buffers are full, so that the disk stands still, run again only when
 * the step has had as long for itself; here time stands still then. */
TEST_F(Prefetch, TheStepHasTheTimeThatTheDiskWaited)
{
    Others others;
    open(40, 200);
    add(max_rows, [](int64_t block) { return block > 0; });
    weir_kv_prefetch_run_others(prefetch_, Others::run, nullptr, &others);
    int n_ranges = 0;
    for (int step = 0; step < 5; step++) {
        const int before = n_reads;
        others.meanwhile = [&](int) {
            for (int i = 0; i < 30000 && n_reads < before + 4; i++) (void)usleep(1000);
            (void)usleep(20000); /* the last buffer is passed on */
        };
        clock_ns = 1000000000;
        view(0, 0, 1);
        ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 1));
        for (int64_t layer = 0; layer < layers; layer++) n_ranges += walk(layer, 0, 0);
        weir_kv_prefetch_end(prefetch_);
        clock_ns = 0;
    }
    EXPECT_GE(n_ranges, 5 * 12) << "of four buffers three times a step";
    EXPECT_LE(others.n_runs, 5 + 2) << "once a step; sometimes the last buffer comes late";
}

/* A disk that hangs leaves buffers empty: others go on. */
TEST_F(Prefetch, OthersRunWhileTheDiskHangs)
{
    Others others;
    support::Gate disk;
    open(40, 200);
    add(max_rows, [](int64_t block) { return block > 0; });
    weir_kv_prefetch_run_others(prefetch_, Others::run, nullptr, &others);
    others.meanwhile = [&](int n) {
        if (n == 50) disk.open();
    };
    clock_ns = 1000000000;
    reads_until_gate = 2;
    disk_gate = &disk;
    view(0, 0, 1);
    ASSERT_TRUE(weir_kv_prefetch_begin(prefetch_, store_, 1));
    for (int64_t layer = 0; layer < layers; layer++) (void)walk(layer, 0, 0);
    weir_kv_prefetch_end(prefetch_);
    clock_ns = 0;
    disk_gate = nullptr;
    reads_until_gate = -1;
    EXPECT_GE(others.n_runs, 50);
    EXPECT_FALSE(disk.was_late) << "they waited for the disk";
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
