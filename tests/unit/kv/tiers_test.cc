/* Blocks that leave memory for a file and come back: where they are, what they hold, and what a
 * disk that fails does to them. */
#include <dirent.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "engine/kv/pool/sequence.h"
#include "engine/kv/tiers/residency.h"
#include "offload/ledger.h"
#include "tests/unit/kv/store_fixture.h"

/* offload/device_internal.h */
extern "C" void weir_device_fail(weir_device *device, const char *text);

/* In front of libc's: counts how often memory is returned. */
static std::atomic<int64_t> n_returned;
extern "C" int madvise(void *at, size_t n, int advice) noexcept
{
    n_returned += advice == MADV_DONTNEED;
    return (int)syscall(SYS_madvise, at, n, advice);
}

namespace {

constexpr weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 }, q8 = { WEIR_KV_Q8_0, WEIR_KV_TURBO4 };
constexpr int heads = 6; /* two layers of three */

/* What the file does; -1: as the system does. */
int fail_writes_after = -1, fail_reads_after = -1, error_number = ENOSPC;
bool short_transfers = false;
int file = -1;
/* A read of the thread that sets it waits until it may go on, or for too long. */
thread_local bool is_slow = false;
struct Gate {
    std::mutex lock;
    std::condition_variable changed;
    bool is_reached = false, is_open = false, was_late = false;
    void pass()
    {
        std::unique_lock<std::mutex> hold(lock);
        is_reached = true;
        changed.notify_all();
        was_late = !changed.wait_for(hold, std::chrono::seconds(20), [this] { return is_open; });
    }
    bool wait_until_reached()
    {
        std::unique_lock<std::mutex> hold(lock);
        return changed.wait_for(hold, std::chrono::seconds(20), [this] { return is_reached; });
    }
    void open()
    {
        const std::lock_guard<std::mutex> hold(lock);
        is_open = true;
        changed.notify_all();
    }
} *gate = nullptr;
ssize_t faulty_write(int fd, const struct iovec *pieces, int n, off_t at)
{
    file = fd;
    if (fail_writes_after == 0) {
        errno = error_number;
        return -1;
    }
    if (fail_writes_after > 0) fail_writes_after--;
    return pwritev(fd, pieces, short_transfers ? 1 : n, at);
}
ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    if (is_slow) gate->pass();
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
        static const weir_kv_geometry geometry[] = { { 2, 32, 32, 0, 0 }, { 4, 32, 32, 0, 2 } };
        spec_ = { 2,
                  geometry,
                  formats_,
                  (memory_blocks + disk_blocks) * heads + n_sinks,
                  max_rows,
                  (disk_blocks - host_blocks) * heads,
                  folder_.c_str(),
                  { { WEIR_KV_F32, WEIR_KV_F32 }, sinks },
                  n_sinks,
                  false,
                  device_ != nullptr,
                  host_blocks * heads };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
        fail_writes_after = fail_reads_after = -1;
        short_transfers = false;
        const weir_lower_tier_io io = { faulty_write, faulty_read };
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
        return weir_kv_demote(store_, (void *const *)t.pages + page, t.capacity, &error_);
    }
    weir_status promote(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_promote(store_, (void *const *)t.pages + page, t.capacity, &error_);
    }
    bool is_cold(const weir_kv_table &t, int64_t page)
    {
        return weir_kv_is_cold(store_, t.pages[page]);
    }
    const weir_kv_pair formats_[2] = { f16, q8 };
    std::string folder_;
    weir_device *device_ = nullptr;
};

TEST_F(Tiers, MemoryIsChargedForWhatMayBeInIt)
{
    open(4, 10);
    size_t block = 0;
    for (int h = 0; h < heads; h++) block += (bytes_of(h) + 4095) / 4096 * 4096;
    EXPECT_EQ(weir_kv_block_stride(&spec_), block);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), 4 * block);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_DISK, WEIR_ACCOUNT_KV), 0u);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 14 * heads);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 4 * 64), WEIR_OK);
    for (int p = 0; p < 4; p++) write(t, 1, p);
    commit_to(t, 4 * 64);
    EXPECT_EQ(reserve_to(t, 4 * 64 + 1), WEIR_EFULL) << "places are free, memory is not";
    EXPECT_EQ(weir_kv_free_blocks(store_), 0);
    ASSERT_EQ(demote(t, 1), WEIR_OK) << error_.text;
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_DISK, WEIR_ACCOUNT_KV), block);
    EXPECT_EQ(weir_kv_free_blocks(store_), 1);
    EXPECT_TRUE(is_cold(t, 1) && !is_cold(t, 0));
    for (int64_t p = 0; p < 4; p++)
        for (int h = 0; h < heads; h++) {
            unsigned char is_backed = 2;
            ASSERT_EQ(mincore(t.pages[h * t.capacity + p], 4096, &is_backed), 0);
            EXPECT_EQ(is_backed & 1, p == 1 ? 0 : 1)
                << "the machine's memory is what the metadata says";
        }
    ASSERT_EQ(reserve_to(t, 4 * 64 + 1), WEIR_OK);
    write(t, 1, 4);
    for (int p = 0; p < 5; p++) expect_page(t, 1, p);
    EXPECT_EQ(promote(t, 1), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "memory.host"), nullptr) << error_.text;
    expect_sound();
    const weir_kv_residency all = weir_kv_residency_of(store_);
    EXPECT_EQ(all.pages_in_memory, 4 * heads);
    EXPECT_EQ(all.pages_cold, heads);
    EXPECT_EQ(all.bytes_out, (int64_t)block);
    weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_DISK, WEIR_ACCOUNT_KV), 0u);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 14 * heads);
    EXPECT_EQ(weir_kv_free_blocks(store_), 4);
}

TEST_F(Tiers, PagesThatAreTakenAgainAreZero)
{
    open(2, 2);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 2 * 64), WEIR_OK);
    for (int p = 0; p < 2; p++) write(t, 1, p);
    commit_to(t, 128);
    ASSERT_EQ(demote(t, 0), WEIR_OK);
    weir_kv_truncate(&t, store_, 0);
    ASSERT_EQ(reserve_to(t, 2 * 64), WEIR_OK);
    for (int h = 0; h < heads; h++)
        for (int p = 0; p < 2; p++)
            for (size_t i = 0; i < bytes_of(h); i++)
                ASSERT_EQ(((char *)t.pages[h * t.capacity + p])[i], 0);
    weir_kv_table_close(&t, store_);
}

/* The last page of a text that was taken over may be on disk: who writes to it gets it back, or a
 * copy. */
TEST_F(Tiers, WhatIsWrittenToComesBack)
{
    open(3, 5);
    weir_kv_table a = table(), b = table();
    ASSERT_EQ(reserve_to(a, 100), WEIR_OK);
    for (int p = 0; p < 2; p++) write(a, 1, p);
    commit_to(a, 100);
    weir_kv_share(&b, &a, store_);
    ASSERT_EQ(demote(a, 0), WEIR_OK);
    ASSERT_EQ(demote(a, 1), WEIR_OK);
    ASSERT_EQ(reserve_to(b, 101), WEIR_OK);
    EXPECT_FALSE(is_cold(b, 1));
    EXPECT_NE(a.pages[1], b.pages[1]);
    expect_page(b, 1, 1);
    ASSERT_EQ(demote(a, 1), WEIR_OK) << "it came back to be copied";
    expect_page(a, 1, 1);
    weir_kv_truncate(&b, store_, 0);
    ASSERT_EQ(reserve_to(a, 101), WEIR_OK);
    EXPECT_FALSE(is_cold(a, 1));
    expect_page(a, 1, 1);
    weir_kv_truncate(&a, store_, 100);
    ASSERT_EQ(demote(a, 1), WEIR_OK);
    fail_reads_after = 0;
    EXPECT_EQ(reserve_to(a, 101), WEIR_EIO);
    EXPECT_EQ(a.n_rows, 100);
    EXPECT_TRUE(is_cold(a, 1) && weir_kv_is_unreadable(store_, a.pages[1]));
    expect_sound();
    weir_kv_table_close(&a, store_);
    weir_kv_table_close(&b, store_);
}

TEST_F(Tiers, ADiskThatTakesNothingLeavesBlocksWhereTheyAre)
{
    open(4, 4);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 3 * 64), WEIR_OK);
    for (int p = 0; p < 3; p++) write(t, 1, p);
    commit_to(t, 3 * 64);
    for (int after = 0; after < 2; after++) { /* before and in the middle of a block */
        fail_writes_after = after;
        EXPECT_EQ(demote(t, 0), WEIR_EIO);
        EXPECT_NE(strstr(error_.text, "No space left"), nullptr) << error_.text;
        EXPECT_NE(strstr(error_.text, "memory.disk"), nullptr) << error_.text;
        EXPECT_FALSE(is_cold(t, 0));
        EXPECT_TRUE(weir_kv_lower_tier_fails(store_));
        EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_DISK, WEIR_ACCOUNT_KV), 0u);
        expect_page(t, 1, 0);
        expect_sound();
    }
    fail_writes_after = -1;
    short_transfers = true;
    ASSERT_EQ(demote(t, 0), WEIR_OK) << error_.text;
    EXPECT_FALSE(weir_kv_lower_tier_fails(store_));
    expect_page(t, 1, 0);
    ASSERT_EQ(promote(t, 0), WEIR_OK) << error_.text;
    expect_page(t, 1, 0);
    EXPECT_EQ(weir_kv_residency_of(store_).write_errors, 2);
    weir_kv_table_close(&t, store_);
}

TEST_F(Tiers, AReadThatFailsLosesNothingElse)
{
    open(4, 4);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 3 * 64), WEIR_OK);
    for (int p = 0; p < 3; p++) write(t, 1, p);
    commit_to(t, 3 * 64);
    ASSERT_EQ(demote(t, 0), WEIR_OK);
    ASSERT_EQ(demote(t, 1), WEIR_OK);
    fail_reads_after = 1;
    EXPECT_EQ(promote(t, 0), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "read KV pages back"), nullptr) << error_.text;
    EXPECT_TRUE(is_cold(t, 0) && weir_kv_is_unreadable(store_, t.pages[0]));
    EXPECT_FALSE(weir_kv_is_unreadable(store_, t.pages[1]));
    expect_sound();
    fail_reads_after = -1;
    expect_page(t, 1, 1);
    ASSERT_EQ(promote(t, 1), WEIR_OK);
    weir_kv_table_close(&t, store_);
}

TEST_F(Tiers, AFolderThatIsNotThereIsAnError)
{
    open(1, 1);
    weir_kv_store *store = nullptr;
    weir_kv_spec spec = spec_;
    spec.disk_folder = "/proc/no/such";
    EXPECT_EQ(weir_kv_store_open(&store, &spec, ledger_, &error_), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "memory.disk_dir"), nullptr) << error_.text;
    EXPECT_EQ(
        weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), 1 * weir_kv_block_stride(&spec_)
    );
}

/* The file goes with the process, however it ends. */
TEST_F(Tiers, KilledProcessesLeaveNothing)
{
    open(2, 2);
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        weir_kv_store *store = nullptr;
        const bool ok = weir_kv_store_open(&store, &spec_, ledger_, &error_) == WEIR_OK;
        (void)!::write(ready[1], ok ? "y" : "n", 1);
        pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    (void)close(ready[0]), (void)close(ready[1]);
}

/* A thread waits for the disk, as one does that saves a text: the engine's thread frees, moves and
 * takes pages meanwhile, also the page that is read, and its place in the file is not used before
 * the read has ended. With a device the file has a buffer of its own on the way, which is not
 * needed for that. */
class SlowReads : public Tiers, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Device, SlowReads, ::testing::Bool());

TEST_P(SlowReads, StopNobodyElse)
{
    Gate slow;
    gate = &slow;
    if (GetParam()) use_device();
    open(6, 3);
    weir_kv_table text = table(), other = table();
    ASSERT_EQ(reserve_to(text, 2 * 64), WEIR_OK);
    for (int p = 0; p < 2; p++) write(text, 1, p);
    commit_to(text, 2 * 64);
    ASSERT_EQ(reserve_to(other, 3 * 64), WEIR_OK);
    for (int p = 0; p < 3; p++) write(other, 2, p);
    commit_to(other, 3 * 64);
    ASSERT_EQ(demote(text, 0), WEIR_OK) << error_.text;
    ASSERT_EQ(demote(other, 0), WEIR_OK) << error_.text;
    std::vector<char> memory(4096 + 65536);
    char *const copy = memory.data() + (4096 - (uintptr_t)memory.data() % 4096);
    constexpr int head = 3;
    weir_status status = WEIR_EINVAL;
    std::thread reader([&] {
        weir_error error = {};
        is_slow = true;
        status = weir_kv_page_copy(store_, copy, text.pages[head * text.capacity], head, &error);
    });
    ASSERT_TRUE(slow.wait_until_reached());
    EXPECT_EQ(promote(other, 0), WEIR_OK) << error_.text;
    EXPECT_EQ(demote(other, 1), WEIR_OK) << error_.text;
    weir_kv_truncate(&other, store_, 2 * 64);
    expect_sound();
    EXPECT_EQ(promote(text, 0), WEIR_OK) << error_.text;
    weir_kv_truncate(&text, store_, 0);
    expect_sound();
    ASSERT_EQ(reserve_to(text, 2 * 64), WEIR_OK);
    for (int p = 0; p < 2; p++) write(text, 3, p);
    commit_to(text, 2 * 64);
    EXPECT_EQ(demote(text, 1), WEIR_OK) << error_.text;
    EXPECT_EQ(demote(other, 0), WEIR_EFULL) << "the place of the block that is read is not free";
    slow.open();
    reader.join();
    EXPECT_FALSE(slow.was_late) << "the engine's thread waited for the read";
    EXPECT_EQ(status, WEIR_OK);
    const std::vector<char> want(bytes_of(head, 0), tag(1, head, 0));
    EXPECT_EQ(memcmp(copy, want.data(), want.size()), 0) << "other bytes than when it was asked";
    EXPECT_EQ(demote(other, 0), WEIR_OK) << "its place is free again: " << error_.text;
    for (int p = 0; p < 2; p++) expect_page(other, 2, p);
    for (int p = 0; p < 2; p++) expect_page(text, 3, p);
    expect_sound();
    weir_kv_table_close(&text, store_);
    weir_kv_table_close(&other, store_);
}

/* A thread that saves texts shares a lock with the engine's for what they hold; where pages are
 * changes without it. What it reads is what the pages had when it began. */
TEST_P(SlowReads, AreWhatTheyBeganWith)
{
    enum { TEXTS = 3, BLOCKS = 6, READS = 600 };
    if (GetParam()) use_device();
    open(8, 12);
    std::mutex lock;
    std::vector<weir_kv_table> texts;
    int seeds[TEXTS] = {};
    const auto renew = [&](size_t i, int seed) {
        weir_kv_truncate(&texts[i], store_, 0);
        seeds[i] = seed;
        for (int p = 0; p < BLOCKS; p++) {
            for (size_t k = 0; weir_kv_free_blocks(store_) == 0 && k < texts.size(); k++)
                for (int64_t q = 0; q < texts[k].n_rows / 64; q++)
                    if (!is_cold(texts[k], q)) (void)demote(texts[k], q);
            if (reserve_to(texts[i], (p + 1) * 64) != WEIR_OK) return;
            write(texts[i], seed, p);
            commit_to(texts[i], (p + 1) * 64);
        }
    };
    for (size_t i = 0; i < TEXTS; i++) {
        texts.push_back(table());
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
            const weir_kv_table &t = texts[i];
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
        const int64_t n = texts[i].n_rows / 64,
                      page = n > 0 ? (int64_t)(random() % (uint64_t)n) : 0;
        if (random() % 8 == 0) {
            const std::lock_guard<std::mutex> hold(lock);
            renew(i, step);
        } else if (n > 0) {
            (void)(is_cold(texts[i], page) ? promote(texts[i], page) : demote(texts[i], page));
        }
    }
    reader.join();
    EXPECT_EQ(n_wrong, 0);
    expect_sound();
    for (weir_kv_table &t : texts) weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.n_pages);
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

/* A long text: 36 layers of 8 heads, 100K tokens. Its pages are those of the pool in order, or
 * alternate with those of another text, a piece of 512 tokens at a time. */
TEST_F(Tiers, LongTextsAreReturnedInRanges)
{
    constexpr int layers = 36, layer_heads = 8, n_heads = layers * layer_heads, piece = 512,
                  rows = 100 * 1024;
    const size_t caps[WEIR_TIER_COUNT] = {};
    static weir_kv_geometry geometry[layers]; /* outlive the store */
    static weir_kv_pair formats[layers];
    for (int i = 0; i < layers; i++) geometry[i] = { layer_heads, 32, 32, 0, 0 }, formats[i] = f16;
    weir_kv_number_heads(geometry, layers);
    folder_ = ::testing::TempDir() + "/tiers." + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
    spec_.n_layers = layers;
    spec_.geometry = geometry;
    spec_.formats = formats;
    spec_.n_pages = (2 * rows / 64 + 1) * int64_t{ n_heads };
    spec_.max_rows = rows;
    spec_.n_disk_pages = n_heads;
    spec_.disk_folder = folder_.c_str();
    ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
    weir_kv_table one = table(), two = table();
    const auto grow = [&](weir_kv_table &t) {
        ASSERT_EQ(reserve_to(t, t.n_rows + piece), WEIR_OK);
        for (int h = 0; h < n_heads; h += 64) /* few, for memory */
            *(char *)t.pages[h * t.capacity + t.n_rows / 64] = (char)(1 + h % 7);
        commit_to(t, t.n_rows + piece);
    };
    while (one.n_rows < rows) grow(one);
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.n_pages - rows / 64 * n_heads);
    char *const first = (char *)one.pages[0];
    int64_t before = n_returned;
    weir_kv_truncate(&one, store_, 0);
    EXPECT_EQ(n_returned - before, 1) << "all pages are next to each other";
    unsigned char is_backed = 2;
    ASSERT_EQ(mincore(first, 4096, &is_backed), 0);
    EXPECT_EQ(is_backed & 1, 0);
    while (one.n_rows < rows) grow(one), grow(two);
    before = n_returned;
    weir_kv_truncate(&one, store_, rows / 2);
    EXPECT_LE(n_returned - before, rows / piece / 2);
    before = n_returned;
    weir_kv_table_close(&one, store_);
    EXPECT_LE(n_returned - before, rows / piece / 2);
    for (int64_t at = 0; at < two.n_rows; at += piece)
        for (int h = 0; h < n_heads; h += 64)
            ASSERT_EQ(*(char *)two.pages[h * two.capacity + at / 64], 1 + h % 7)
                << "a page of the other text was returned";
    expect_sound();
    weir_kv_table_close(&two, store_);
}

/* Random growth, forks, rewinds, moves and failures, against what was written by hand. */
struct Below {
    int32_t sinks;
    bool has_device;
    int64_t on_host; /* of 12 blocks */
};
class RandomTiers : public Tiers, public ::testing::WithParamInterface<Below> {};
INSTANTIATE_TEST_SUITE_P(
    Below, RandomTiers,
    ::testing::Values(
        Below{ 0, false, 0 }, Below{ 1, false, 0 }, Below{ 2, false, 0 }, Below{ 0, true, 0 },
        Below{ 1, true, 5 }, Below{ 0, true, 12 }
    )
);

TEST_P(RandomTiers, UseKeepsBytesAndCounts)
{
    const int32_t sinks = GetParam().sinks;
    if (GetParam().has_device) use_device();
    open(8, 12, 64 * 40, sinks, GetParam().on_host);
    std::mt19937 random(7);
    std::vector<weir_kv_table> tables;
    std::vector<std::map<int64_t, int>> seeds(4); /* of the blocks of each table */
    for (int i = 0; i < 4; i++) tables.push_back(table());
    for (int step = 0; step < 4000; step++) {
        const size_t i = random() % 4, k = random() % 4;
        weir_kv_table &t = tables[i];
        fail_writes_after = random() % 16 == 0 ? (int)(random() % 2) : -1;
        fail_reads_after = random() % 16 == 0 ? (int)(random() % 6) : -1;
        const int64_t block = t.n_pages > 0 ? (int64_t)(random() % (uint64_t)t.n_pages) : -1;
        switch (random() % 6) {
        case 0: { /* whole blocks only: what a block holds is one seed */
            const int64_t rows = t.n_rows + 64;
            if (rows > spec_.max_rows || reserve_to(t, rows) != WEIR_OK) break;
            seeds[i][rows / 64 - 1] = step;
            write(t, step, rows / 64 - 1);
            commit_to(t, rows);
            break;
        }
        case 1:
            weir_kv_truncate(&t, store_, block >= 0 && random() % 3 == 0 ? block * 64 : t.n_rows);
            break;
        case 2:
            if (i == k || random() % 4 != 0) break;
            weir_kv_truncate(&t, store_, 0);
            weir_kv_share(&t, &tables[k], store_);
            seeds[i] = seeds[k];
            break;
        case 3:
        case 4:
            if (block >= sinks && !is_cold(t, block)) (void)demote(t, block);
            break;
        case 5:
            if (block >= 0 && is_cold(t, block)) (void)promote(t, block);
            break;
        }
        fail_writes_after = fail_reads_after = -1;
        ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_))
            << error_.text << " after step " << step;
        for (const weir_kv_table &each : tables)
            ASSERT_TRUE(weir_kv_table_is_sound(store_, &each, &error_))
                << error_.text << " after step " << step;
        if (step % 10 != 0) continue;
        for (size_t n = 0; n < 4; n++)
            for (int64_t p = 0; p < tables[n].n_pages; p++) expect_page(tables[n], seeds[n][p], p);
        if (HasFatalFailure()) break;
    }
    EXPECT_GT(weir_kv_residency_of(store_).bytes_out, 100 * (int64_t)weir_kv_block_stride(&spec_));
    EXPECT_GT(weir_kv_residency_of(store_).bytes_back, 20 * (int64_t)weir_kv_block_stride(&spec_));
    for (weir_kv_table &t : tables) weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.n_pages);
    EXPECT_EQ(weir_kv_residency_of(store_).pages_on_host, 0);
}

/* The host's part is taken first and given back like any other; only what is in the file is charged
 * to the disk. */
TEST_F(Tiers, BelowADeviceTheHostComesFirst)
{
    use_device();
    open(4, 4, 64 * 40, 0, 2);
    const size_t block = weir_kv_block_stride(&spec_);
    weir_kv_table t = table();
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_DEVICE, WEIR_ACCOUNT_KV), 4 * block);
    EXPECT_GE(weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), 2 * block);
    for (int p = 0; p < 8; p++) {
        ASSERT_EQ(reserve_to(t, (p + 1) * 64), WEIR_OK) << "block " << p;
        write(t, 3, p);
        commit_to(t, (p + 1) * 64);
        if (p < 4) ASSERT_EQ(demote(t, p), WEIR_OK) << error_.text;
        EXPECT_EQ(weir_kv_residency_of(store_).pages_on_host, std::min(p + 1, 2) * heads);
        EXPECT_EQ(
            weir_ledger_used(ledger_, WEIR_TIER_DISK, WEIR_ACCOUNT_KV),
            (size_t)std::clamp(p - 1, 0, 2) * block
        );
    }
    for (int p = 0; p < 8; p++) expect_page(t, 3, p);
    EXPECT_EQ(demote(t, 4), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "kv.tiers.host"), nullptr) << error_.text;
    EXPECT_EQ(promote(t, 0), WEIR_EFULL);
    EXPECT_NE(strstr(error_.text, "memory.device"), nullptr) << error_.text;
    weir_kv_truncate(&t, store_, 7 * 64);
    ASSERT_EQ(promote(t, 0), WEIR_OK) << error_.text;
    ASSERT_EQ(demote(t, 5), WEIR_OK) << "the host's place is free again: " << error_.text;
    EXPECT_EQ(weir_kv_residency_of(store_).pages_on_host, 2 * heads);
    for (int p = 0; p < 7; p++) expect_page(t, 3, p);
    weir_kv_table_close(&t, store_);
    EXPECT_EQ(weir_ledger_used(ledger_, WEIR_TIER_DISK, WEIR_ACCOUNT_KV), 0u);
}

/* Pages near the device that are free, and whether the tier below can be counted on: it can as long
 * as the host has room, whatever the disk did. */
TEST_F(Tiers, AFailingDiskBelowTheHost)
{
    use_device();
    open(4, 4, 64 * 40, 0, 1);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 3 * 64), WEIR_OK);
    commit_to(t, 3 * 64);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_store_free(store_)), 5 * heads);
    EXPECT_EQ(weir_kv_pages_others(weir_kv_store_free_near(store_)), 1 * heads);
    fail_writes_after = 0;
    ASSERT_EQ(demote(t, 0), WEIR_OK) << "to the host: " << error_.text;
    EXPECT_EQ(weir_kv_pages_others(weir_kv_store_free_near(store_)), 2 * heads);
    ASSERT_EQ(demote(t, 1), WEIR_EIO);
    EXPECT_TRUE(weir_kv_lower_tier_fails(store_));
    ASSERT_EQ(promote(t, 0), WEIR_OK) << error_.text;
    EXPECT_FALSE(weir_kv_lower_tier_fails(store_)) << "the host has room again";
    EXPECT_EQ(weir_kv_pages_others(weir_kv_store_free_near(store_)), 1 * heads);
    weir_kv_table_close(&t, store_);
}

/* What such a device held is not given out as if it were there, nor what was to be copied from the
 * host with its help. */
TEST_F(Tiers, ADeviceThatFailedGivesNoPages)
{
    use_device();
    open(4, 4, 64 * 40, 1, 4);
    weir_kv_table t = table();
    ASSERT_EQ(reserve_to(t, 3 * 64), WEIR_OK);
    for (int p = 0; p < 3; p++) write(t, 3, p);
    commit_to(t, 3 * 64);
    ASSERT_EQ(demote(t, 1), WEIR_OK) << error_.text;
    std::vector<char> memory(2 * weir_kv_block_stride(&spec_));
    char *const copy = memory.data() + 4096 - (uintptr_t)memory.data() % 4096;
    for (int p = 0; p < 3; p++)
        EXPECT_EQ(weir_kv_page_copy(store_, copy, t.pages[p], 0, &error_), WEIR_OK) << error_.text;
    weir_device_fail(device_, "it fell off the bus");
    for (int p = 0; p < 3; p++) {
        EXPECT_EQ(weir_kv_page_copy(store_, copy, t.pages[p], 0, &error_), WEIR_EDEVICE)
            << "block " << p;
        EXPECT_NE(strstr(error_.text, "fell off"), nullptr) << error_.text;
    }
    weir_kv_table_close(&t, store_);
}

} // namespace
