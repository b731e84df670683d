/* A store of two layers whose blocks leave memory for a file, which fails when a test wants. */
#pragma once
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/kv/tiers/residency.h"
#include "offload/ledger.h"
#include "tests/unit/kv/read_gate.h"
#include "tests/unit/kv/store_fixture.h"

namespace tiers {

inline constexpr weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 },
                              q8 = { WEIR_KV_Q8_0, WEIR_KV_TURBO4 };
inline constexpr int heads = 6; /* two layers of three */

/* What the file does; -1: as the system does. */
inline int fail_writes_after = -1, fail_reads_after = -1, error_number = ENOSPC;
inline bool short_transfers = false;
inline int file = -1;
inline ssize_t faulty_write(int fd, const struct iovec *pieces, int n, off_t at)
{
    file = fd;
    support::pass(support::write_gate);
    if (fail_writes_after == 0) {
        errno = error_number;
        return -1;
    }
    if (fail_writes_after > 0) fail_writes_after--;
    return pwritev(fd, pieces, short_transfers ? 1 : n, at);
}
inline ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    support::pass_gate();
    support::pass(support::all_reads_gate);
    if (fail_reads_after == 0) {
        errno = EIO;
        return -1;
    }
    if (fail_reads_after > 0) fail_reads_after--;
    return pread(fd, bytes, short_transfers && n > 4096 ? 4096 : n, at);
}

class Tiers : public StoreFixture {
  protected:
    /* Memory is a device's that the host cannot touch. */
    void use_device()
    {
        char why[320];
        ASSERT_EQ(weir_device_open(&device_, "checked", why, sizeof why, &error_), WEIR_OK)
            << error_.text;
    }
    /* host_blocks: of disk_blocks, on the host below a device. */
    void open(
        int64_t memory_blocks, int64_t disk_blocks, int64_t max_rows = 64 * 40, int32_t sinks = 0,
        int64_t host_blocks = 0
    )
    {
        const size_t caps[WEIR_TIER_COUNT] = {};
        folder_ = ::testing::TempDir() + "/tiers." + std::to_string(getpid());
        std::filesystem::create_directories(folder_);
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        weir_ledger_use_device(ledger_, device_);
        const int64_t n_sinks = sinks > 0 ? 6 * heads : 0;
        static const weir_kv_geometry geometry[] = { { 2, 32, 32, 0, 0, false },
                                                     { 4, 32, 32, 0, 2, false } };
        spec_ = { 2,
                  geometry,
                  formats_,
                  { (memory_blocks + disk_blocks) * heads + n_sinks,
                    (disk_blocks - host_blocks) * heads, host_blocks * heads, n_sinks },
                  max_rows,
                  folder_.c_str(),
                  { { WEIR_KV_F32, WEIR_KV_F32 }, sinks },
                  false,
                  device_ != nullptr,
                  0,
                  {} };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
        fail_writes_after = fail_reads_after = -1;
        short_transfers = false;
        const weir_lower_tier_io io = { faulty_write, faulty_read, nullptr, nullptr };
        weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &io);
    }
    void TearDown() override
    {
        if (store_ != nullptr) expect_sound();
        weir_kv_store_close(store_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_DISK), 0u);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_DEVICE), 0u);
        weir_ledger_close(ledger_);
        weir_device_close(device_);
        EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the file has a name";
        std::filesystem::remove_all(folder_);
    }
    void expect_sound() { EXPECT_TRUE(weir_kv_store_is_sound(store_, &error_)) << error_.text; }
    size_t bytes_of(int h, int64_t page = INT64_MAX) const
    {
        return weir_kv_page_bytes_at(&spec_, weir_kv_layer_of(&spec_, h), page);
    }
    /* Every page gets bytes of its own, which tell where it belongs. */
    static char tag(int seed, int h, int64_t page)
    {
        return (char)(1 + (seed * 37 + h * 11 + page * 5) % 120);
    }
    void write(const weir_kv_table &t, int seed, int64_t page)
    {
        for (int h = 0; h < heads; h++) {
            const std::vector<char> bytes(bytes_of(h, page), tag(seed, h, page));
            weir_ledger_copy(ledger_, t.pages[h * t.capacity + page], bytes.data(), bytes.size());
        }
    }
    void expect_page(const weir_kv_table &t, int seed, int64_t page, int64_t written_as = -1)
    {
        std::vector<char> memory(4096 + 65536);
        char *const copy = memory.data() + (4096 - (uintptr_t)memory.data() % 4096);
        for (int h = 0; h < heads; h++) {
            ASSERT_EQ(
                weir_kv_page_copy(store_, copy, t.pages[h * t.capacity + page], h, &error_), WEIR_OK
            ) << error_.text;
            const std::vector<char> want(
                bytes_of(h, page), tag(seed, h, written_as < 0 ? page : written_as)
            );
            ASSERT_EQ(memcmp(copy, want.data(), want.size()), 0)
                << "head " << h << " page " << page;
        }
    }
    weir_status demote(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_demote(store_, (void *const *)t.pages + page, t.capacity, page, &error_);
    }
    weir_status promote(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_promote(store_, (void *const *)t.pages + page, t.capacity, page, &error_);
    }
    bool is_cold(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_is_cold(store_, t.pages[page]);
    }
    const weir_kv_pair formats_[2] = { f16, q8 };
    std::string folder_;
    weir_device *device_ = nullptr;
};

} // namespace tiers
