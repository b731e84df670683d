/* Blocks that leave memory for a file and come back: where they are, what they hold, and what a
 * disk that fails does to them. */
#include <sys/mman.h>
#include <sys/wait.h>

#include <map>
#include <random>

#include "tests/every_nth.h"
#include "tests/unit/kv/tiers_fixture.h"

/* offload/device_internal.h */
extern "C" void weir_device_fail(weir_device *device, const char *own);

namespace {

using namespace tiers;

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

/* The last page of a sequence that was taken over may be on disk: it is promoted before rows are
 * written to it, or to a copy. */
TEST_F(Tiers, WhatIsWrittenToComesBack)
{
    open(3, 5);
    weir_kv_table a = table(), b = table();
    ASSERT_EQ(reserve_to(a, 100), WEIR_OK);
    for (int p = 0; p < 2; p++) write(a, 1, p);
    commit_to(a, 100);
    EXPECT_EQ(weir_kv_share(&b, &a, store_), WEIR_OK);
    ASSERT_EQ(demote(a, 0), WEIR_OK);
    ASSERT_EQ(demote(a, 1), WEIR_OK);
    EXPECT_EQ(weir_kv_cold_end(&b, store_), b.pages[1]);
    ASSERT_EQ(promote(b, 1), WEIR_OK);
    EXPECT_EQ(weir_kv_cold_end(&b, store_), nullptr);
    ASSERT_EQ(reserve_to(b, 101), WEIR_OK);
    EXPECT_NE(a.pages[1], b.pages[1]);
    expect_page(b, 1, 1);
    ASSERT_EQ(demote(a, 1), WEIR_OK) << "it came back to be copied";
    expect_page(a, 1, 1);
    weir_kv_truncate(&b, store_, 0);
    ASSERT_EQ(promote(a, 1), WEIR_OK);
    ASSERT_EQ(reserve_to(a, 101), WEIR_OK);
    expect_page(a, 1, 1);
    weir_kv_truncate(&a, store_, 100);
    ASSERT_EQ(demote(a, 1), WEIR_OK);
    fail_reads_after = 0;
    EXPECT_EQ(promote(a, 1), WEIR_EIO);
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
    weir_kv_store_close(store_); /* a process that forks has no other threads */
    store_ = nullptr;
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

/* Random growth, forks, rewinds, moves and failures, against what was written by hand. */
struct Below {
    int32_t sinks;
    bool has_device;
    int64_t on_host; /* of 12 blocks */
};
class RandomTiers : public Tiers, public ::testing::WithParamInterface<Below> {};
INSTANTIATE_TEST_SUITE_P(
    Below, RandomTiers,
    ::testing::ValuesIn(weir_test::every_nth(
        { Below{ 2, false, 0 }, Below{ 0, false, 0 }, Below{ 1, false, 0 }, Below{ 1, true, 5 },
          Below{ 0, true, 0 }, Below{ 0, true, 12 } },
        3
    ))
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
            EXPECT_EQ(weir_kv_share(&t, &tables[k], store_), WEIR_OK);
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
    EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n);
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
