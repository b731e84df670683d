/* Two tiers that share the disk: what their files hold there, of freed blocks too, stays within the
 * limit, and what is allocated keeps its bytes. */
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv/tiers/lower_tier.h"
#include "offload/ledger.h"

static std::atomic<bool> is_old_file_system{ false };

extern "C" int fallocate(int fd, int mode, off_t at, off_t n)
{
    if (!is_old_file_system) return (int)syscall(SYS_fallocate, fd, mode, at, n);
    errno = EOPNOTSUPP;
    return -1;
}

namespace {

constexpr int64_t pages = 4096, blocks = 20, states = 46;

std::atomic<int> holes_fail{ 0 };
std::atomic<int64_t> n_holes{ 0 };
int make_hole(int fd, off_t at, off_t n)
{
    n_holes++;
    errno = holes_fail > 0 ? EIO : EINTR;
    if (holes_fail > 0 || n_holes % 3 == 0) return -1; /* interrupted now and then */
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n);
}

/* A tier with the bytes that its allocated blocks should have. */
struct Tier {
    weir_lower_tier *tier = nullptr;
    std::vector<weir_lower_tier_part> parts;
    std::vector<int> seeds; /* of each block; -1: free */
    std::atomic<int> file{ -1 };
};
Tier *written; /* for the hook, which is told of no tier */

class DiskSpace : public ::testing::Test {
  protected:
    void SetUp() override
    {
        const size_t caps[WEIR_TIER_COUNT] = {};
        is_old_file_system = false;
        holes_fail = 0;
        n_holes = 0;
        folder_ = ::testing::TempDir() + "/space." + std::to_string(getpid());
        std::filesystem::create_directories(folder_);
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
    }
    void TearDown() override
    {
        weir_lower_tier_close(states_.tier);
        weir_lower_tier_close(blocks_.tier);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_DISK), 0u);
        weir_ledger_close(ledger_);
        std::filesystem::remove_all(folder_);
    }
    void open_one(Tier *out, int64_t n, const Tier *other)
    {
        const weir_lower_tier_layout layout = { folder_.c_str(),
                                                n,
                                                0,
                                                (int64_t)out->parts.size(),
                                                out->parts.data(),
                                                other != nullptr ? other->tier : nullptr };
        ASSERT_EQ(weir_lower_tier_open(&out->tier, &layout, ledger_, &error_), WEIR_OK)
            << error_.text;
        const weir_lower_tier_io io = { [](int fd, const struct iovec *pieces, int k, off_t at) {
                                           written->file = fd;
                                           return pwritev(fd, pieces, k, at);
                                       },
                                        nullptr, make_hole, nullptr };
        weir_lower_tier_set_io(out->tier, &io);
        out->seeds.assign((size_t)n, -1);
    }
    void open()
    {
        blocks_.parts = { { 2, pages }, { 1, 2 * pages }, { 3, pages } };
        states_.parts = { { 1, 3 * pages } };
        open_one(&blocks_, blocks, nullptr);
        open_one(&states_, states, &blocks_);
    }
    static int64_t bytes_of(const Tier &t)
    {
        int64_t bytes = 0;
        for (const auto &part : t.parts) bytes += part.n_pages * (int64_t)part.page_bytes;
        return bytes;
    }
    int64_t limit() const { return blocks * bytes_of(blocks_); }
    static int64_t held_by(const Tier &t)
    {
        struct stat st = {};
        if (t.file >= 0) EXPECT_EQ(fstat(t.file, &st), 0);
        return 512 * (int64_t)st.st_blocks;
    }
    /* A file system with fragments counts a block of its own for each file. */
    void expect_within()
    {
        const int64_t now = held_by(blocks_) + held_by(states_);
        EXPECT_LE(now, limit() + 2 * pages);
        most_ = std::max(most_, now);
    }
    static std::vector<char> bytes_for(const Tier &t, int seed, size_t part, void **aligned)
    {
        const size_t n = (size_t)t.parts[part].n_pages * t.parts[part].page_bytes;
        std::vector<char> memory(n + pages);
        *aligned = memory.data() + (pages - (int64_t)((uintptr_t)memory.data() % pages));
        for (size_t i = 0; i < n; i += 8)
            ((char *)*aligned)[i] = (char)(seed * 31 + (int)part * 7 + (int)(i / 512) + 1);
        return memory;
    }
    weir_status write(Tier *t, int32_t block, int seed)
    {
        weir_status status = WEIR_OK;
        for (size_t i = 0; status == WEIR_OK && i < t->parts.size(); i++) {
            void *at;
            const std::vector<char> memory = bytes_for(*t, seed, i, &at);
            const struct iovec piece = { at, (size_t)t->parts[i].n_pages * t->parts[i].page_bytes };
            weir_error error;
            status = weir_lower_tier_write(t->tier, block, (int64_t)i, &piece, 1, &error);
            if (status != WEIR_OK) message_ = error.text;
        }
        return status;
    }
    /* Of one thread. */
    weir_status add(Tier *t, int seed)
    {
        int32_t block;
        WEIR_TRY(weir_lower_tier_alloc(t->tier, &block, &error_));
        t->seeds[(size_t)block] = seed;
        written = t;
        const weir_status status = write(t, block, seed);
        if (status != WEIR_OK) drop(t, block);
        return status;
    }
    void drop(Tier *t, int64_t block)
    {
        t->seeds[(size_t)block] = -1;
        if (weir_lower_tier_free(t->tier, (int32_t)block) && shrinks_)
            while (weir_lower_tier_may_shrink(t->tier)) weir_lower_tier_shrink(t->tier);
    }
    void drop_all_but(Tier *t, int64_t kept)
    {
        for (int64_t i = 0; i < (int64_t)t->seeds.size(); i++)
            if (i != kept && t->seeds[(size_t)i] >= 0) drop(t, i);
    }
    void expect_bytes(const Tier &t)
    {
        for (size_t b = 0; b < t.seeds.size(); b++)
            for (size_t i = 0; t.seeds[b] >= 0 && i < t.parts.size(); i++) {
                void *want, *got;
                const std::vector<char> a = bytes_for(t, t.seeds[b], i, &want),
                                        c = bytes_for(t, 0, i, &got);
                const size_t n = (size_t)t.parts[i].n_pages * t.parts[i].page_bytes;
                ASSERT_EQ(
                    weir_lower_tier_read(t.tier, (int32_t)b, (int64_t)i, 0, got, n, &error_),
                    WEIR_OK
                ) << error_.text;
                ASSERT_EQ(memcmp(got, want, n), 0) << "block " << b << " part " << i;
            }
    }
    std::string folder_, message_;
    weir_ledger *ledger_ = nullptr;
    weir_error error_ = {};
    Tier blocks_, states_;
    int64_t most_ = 0;
    bool shrinks_ = true;
};

TEST_F(DiskSpace, WhatWasFreedLeavesTheDisk)
{
    open();
    ASSERT_TRUE(weir_lower_tier_gives_back(states_.tier)) << "use a file system that has holes";
    for (int round = 0; round < 2; round++) {
        while (add(&blocks_, round + 1) == WEIR_OK) expect_within();
        EXPECT_EQ(error_.code, WEIR_EFULL);
        EXPECT_GE(held_by(blocks_), limit() - (round > 0 ? bytes_of(states_) * 3 : 0));
        drop_all_but(&blocks_, 7);
        int64_t n = 0;
        while (add(&states_, 50 + round) == WEIR_OK) {
            expect_within();
            n++;
        }
        EXPECT_EQ(n, (limit() - bytes_of(blocks_)) / bytes_of(states_) - round);
        EXPECT_EQ(error_.code, WEIR_EFULL);
        expect_bytes(blocks_);
        expect_bytes(states_);
        drop_all_but(&states_, 3);
        EXPECT_GT(n_holes, 0);
    }
    EXPECT_GE(most_, limit() - bytes_of(blocks_)) << "the disk was full";
}

/* Blocks that the file holds are taken before others are given back for new ones. */
TEST_F(DiskSpace, FreedBlocksAreTakenFirst)
{
    open();
    while (add(&blocks_, 1) == WEIR_OK) {
    }
    for (const int i : { 3, 4, 11 }) drop(&blocks_, i);
    for (int i = 0; i < 2; i++) ASSERT_EQ(add(&states_, 2), WEIR_OK) << error_.text;
    const int64_t before = n_holes;
    EXPECT_GT(before, 0);
    ASSERT_EQ(add(&blocks_, 3), WEIR_OK);
    ASSERT_EQ(add(&blocks_, 3), WEIR_OK);
    EXPECT_EQ(n_holes, before);
    expect_within();
    expect_bytes(blocks_);
    expect_bytes(states_);
}

/* A file that is empty is truncated, which takes no holes. */
TEST_F(DiskSpace, AnEmptyFileGivesAllBack)
{
    open();
    for (int round = 0; round < 2; round++) {
        while (add(&blocks_, 1) == WEIR_OK) expect_within();
        drop_all_but(&blocks_, -1);
        EXPECT_EQ(held_by(blocks_), 0);
        while (add(&states_, 2) == WEIR_OK) expect_within();
        expect_bytes(states_);
        drop_all_but(&states_, -1);
        EXPECT_EQ(held_by(states_), 0);
    }
    EXPECT_EQ(n_holes, 0);
}

/* Nothing is written beyond the limit if no space is given back. */
TEST_F(DiskSpace, AHoleThatFailsFailsTheWrite)
{
    open();
    while (add(&blocks_, 1) == WEIR_OK) {
    }
    drop_all_but(&blocks_, 7);
    holes_fail = 1;
    EXPECT_EQ(add(&states_, 2), WEIR_EIO);
    EXPECT_NE(message_.find("freed KV pages cannot be used again"), std::string::npos) << message_;
    EXPECT_TRUE(weir_lower_tier_fails(states_.tier));
    EXPECT_EQ(weir_lower_tier_stats_of(states_.tier).write_errors, 1);
    expect_within();
    holes_fail = 0;
    EXPECT_EQ(add(&states_, 2), WEIR_OK);
    EXPECT_FALSE(weir_lower_tier_fails(states_.tier));
    expect_within();
    expect_bytes(states_);
    expect_bytes(blocks_);
}

TEST_F(DiskSpace, AFileSystemWithoutHolesSaysSo)
{
    is_old_file_system = true;
    open();
    EXPECT_FALSE(weir_lower_tier_gives_back(states_.tier));
    while (add(&blocks_, 1) == WEIR_OK) expect_within();
    expect_bytes(blocks_);
}

/* A thread writes blocks, another one states, while the engine's allocates and frees. */
TEST_F(DiskSpace, ThreadsShareIt)
{
    open();
    std::mt19937 random(5);
    Tier *const all[] = { &blocks_, &states_ };
    shrinks_ = false;
    written = &blocks_;
    for (Tier *const t : all) { /* the hook tells the files apart from now on */
        ASSERT_EQ(add(t, 0), WEIR_OK);
    }
    const int files[] = { blocks_.file, states_.file };
    Tier other;
    written = &other;
    int64_t n_written = 0;
    for (int round = 0; round < 160; round++) {
        const bool fills[] = { round / 40 % 2 == 0, round / 40 % 2 == 1 };
        std::vector<std::pair<int32_t, int>> work[2];
        for (int k = 0; k < 2; k++) {
            int32_t block;
            for (int i = 0; i < (fills[k] ? 4 : 1); i++) {
                if (weir_lower_tier_alloc(all[k]->tier, &block, &error_) != WEIR_OK) continue;
                work[k].emplace_back(block, round);
                all[k]->seeds[(size_t)block] = round;
            }
        }
        std::vector<std::thread> threads;
        std::atomic<int> n_failed{ 0 };
        for (int k = 0; k < 2; k++)
            threads.emplace_back([&, k] {
                for (const auto &[block, seed] : work[k])
                    n_failed += write(all[k], block, seed) != WEIR_OK;
            });
        /* Meanwhile others are freed and taken: not those that are written. */
        for (int k = 0; k < 2; k++)
            for (int64_t b = 0; b < (int64_t)all[k]->seeds.size(); b++)
                if (all[k]->seeds[(size_t)b] >= 0 && all[k]->seeds[(size_t)b] < round &&
                    random() % 8 < (fills[k] ? 1u : 5u))
                    drop(all[k], b);
        for (std::thread &t : threads) t.join();
        EXPECT_EQ(n_failed, 0) << message_;
        n_written += (int64_t)(work[0].size() + work[1].size());
        for (int k = 0; k < 2; k++) {
            all[k]->file = files[k];
            expect_bytes(*all[k]);
            for (int64_t b = 0; b < (int64_t)all[k]->seeds.size(); b++) { /* the other half */
                const bool goes = !fills[k] && random() % 2 == 0;
                if (goes && all[k]->seeds[(size_t)b] >= 0) drop(all[k], b);
            }
        }
        expect_within();
        if (HasFailure()) break;
    }
    EXPECT_GT(n_written, 500);
    EXPECT_GT(n_holes, 100);
}

} // namespace
