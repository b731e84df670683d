/* tests/unit/kv/prefetch_fixture.h - sequences with blocks on a disk that fails or waits as a test
 * says, and a walk over them as attention takes it. */
#pragma once
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <vector>

#include "engine/kv/tiers/prefetch.h"
#include "kernels/abi/ops.h"
#include "offload/ledger.h"
#include "tests/unit/kv/read_gate.h"

namespace prefetch_fixture {

constexpr int layers = 3, kv_heads = 2, heads = layers * kv_heads,
              max_rows = 5 * WEIR_ATTENTION_SPLIT;
constexpr weir_kv_pair wide = { WEIR_KV_F32, WEIR_KV_F32 }, q8 = { WEIR_KV_Q8_0, WEIR_KV_Q8_0 };

inline std::atomic<int> n_reads{ 0 };
inline std::atomic<int> reads_until_failure{ -1 }, reads_until_gate{ -1 }; /* -1: never */
inline std::atomic<bool> fails_once{ false };
inline std::atomic<support::Gate *> disk_gate{ nullptr };

inline ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
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
                  { pages, (disk_blocks - on_host) * heads, on_host * heads, 0 },
                  max_rows,
                  folder_.c_str(),
                  {},
                  false,
                  device_ != nullptr,
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

} // namespace prefetch_fixture
