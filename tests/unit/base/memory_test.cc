// Blocks that know who paid, and what control groups leave.
#include "engine/base/memory.h"

#include <malloc.h>

#include <cstdint>
#include <cstring>
#include <thread>

#include "engine/base/buffer.h"
#include "engine/base/machine_memory.h"
#include "tests/sanitizer.h"
#include "tests/unit/base/machine_root.h"

namespace {

struct Tracker {
    weir_memory_tracker tracker = { charge, refund, nullptr };
    size_t used = 0, limit = SIZE_MAX;
    static bool charge(weir_memory_tracker *tracker, size_t bytes)
    {
        Tracker *const self = reinterpret_cast<Tracker *>(tracker);
        if (bytes > self->limit - self->used) return false;
        self->used += bytes;
        return true;
    }
    static void refund(weir_memory_tracker *tracker, size_t bytes)
    {
        reinterpret_cast<Tracker *>(tracker)->used -= bytes;
    }
};

struct Paying {
    weir_memory_tracker *before;
    explicit Paying(Tracker *tracker) : before(weir_memory_tracker_set(&tracker->tracker)) {}
    ~Paying() { (void)weir_memory_tracker_set(before); }
};

TEST(Memory, WithoutATrackerItIsMalloc)
{
    char *const text = weir_memory_text("abc");
    EXPECT_STREQ(text, "abc");
    weir_memory_give(text);
    weir_memory_give(nullptr);
    EXPECT_EQ(weir_memory_take(SIZE_MAX - 8), nullptr);
    EXPECT_EQ(weir_memory_take_zero(SIZE_MAX / 2, 3), nullptr);
}

TEST(Memory, ChargesWhatMallocTakes)
{
    Tracker tracker;
    Paying paying(&tracker);
    for (const size_t n : { size_t{ 0 }, size_t{ 1 }, size_t{ 24 }, size_t{ 25 }, size_t{ 1000 },
                            size_t{ 1 } << 20 }) {
        char *const memory = static_cast<char *>(weir_memory_take(n));
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 16, 0u);
        EXPECT_GE(tracker.used, n + 16);
        if (n < 100000 && !weir_test::has_sanitizer())
            EXPECT_EQ(tracker.used, malloc_usable_size(memory - 16) + 8) << n;
        weir_memory_give(memory);
        EXPECT_EQ(tracker.used, 0u);
    }
}

TEST(Memory, ARefusalTakesNothingAndKeepsWhatWasThere)
{
    Tracker tracker;
    tracker.limit = 1000;
    Paying paying(&tracker);
    char *const memory = static_cast<char *>(weir_memory_take(100));
    memset(memory, 7, 100);
    const size_t used = tracker.used;
    EXPECT_EQ(weir_memory_take(2000), nullptr);
    EXPECT_EQ(weir_memory_take_zero(1, 2000), nullptr);
    EXPECT_EQ(weir_memory_resize(memory, 900), nullptr) << "old and new are there at the same time";
    EXPECT_EQ(tracker.used, used);
    EXPECT_EQ(memory[99], 7);
    weir_memory_give(memory);
}

TEST(Memory, ABlockStaysWithItsFirstTrackerOnAnyThread)
{
    Tracker first, second;
    void *memory = nullptr;
    {
        Paying paying(&first);
        memory = weir_memory_take(10);
    }
    std::thread other([&] {
        Paying paying(&second);
        memory = weir_memory_resize(memory, 500);
        EXPECT_GE(first.used, 500u);
        EXPECT_EQ(second.used, 0u);
        weir_memory_give(memory);
    });
    other.join();
    EXPECT_EQ(first.used, 0u);
}

TEST(Memory, BuffersPayAndOneLargePieceTakesNoMoreThanItself)
{
    Tracker tracker;
    tracker.limit = (1 << 20) + 4096;
    Paying paying(&tracker);
    weir_buffer buffer = {};
    EXPECT_EQ(weir_buffer_reserve(&buffer, 1 << 20), WEIR_OK);
    EXPECT_EQ(weir_buffer_reserve(&buffer, 2 << 20), WEIR_ENOMEM);
    EXPECT_EQ(weir_buffer_text(&buffer, "still there"), WEIR_OK);
    weir_buffer_free(&buffer);
    EXPECT_EQ(tracker.used, 0u);
}

TEST(Memory, HoldsAreGivenBackOnce)
{
    Tracker tracker;
    tracker.limit = 100;
    Paying paying(&tracker);
    weir_hold hold = {}, refused = {};
    EXPECT_TRUE(weir_hold_take(&hold, 60));
    EXPECT_FALSE(weir_hold_take(&refused, 41));
    weir_hold_give(&refused);
    weir_hold_give(&hold);
    weir_hold_give(&hold);
    EXPECT_EQ(tracker.used, 0u);
}

class Machine : public machine_root::MachineRoot {
  protected:
    void SetUp() override
    {
        MachineRoot::SetUp();
        write("/proc/meminfo", "MemTotal:       9000000 kB\nMemAvailable:    1000000 kB\n");
    }
    void group(const std::string &path, const std::string &limit, const std::string &used) const
    {
        write("/sys/fs/cgroup" + path + "/memory.max", limit + "\n");
        write("/sys/fs/cgroup" + path + "/memory.current", used + "\n");
    }
    size_t left() const { return weir_machine_memory(root_.c_str()); }
    static constexpr size_t machine = size_t{ 1000000 } * 1024;
};

TEST_F(Machine, AvailableMemoryWithoutGroups) { EXPECT_EQ(left(), machine); }

TEST_F(Machine, TheWholeIsTheMachineOrTheSmallestLimitOfAGroup)
{
    const auto whole = [&] { return weir_machine_memory_total(root_.c_str()); };
    EXPECT_EQ(whole(), size_t{ 9000000 } * 1024);
    write("/proc/self/cgroup", "0::/a/b\n");
    group("/a/b", "max", "5000");
    EXPECT_EQ(whole(), size_t{ 9000000 } * 1024);
    group("/a", "700000", "600000");
    EXPECT_EQ(whole(), 700000u) << "what is used counts as well";
    write("/proc/self/cgroup", "");
    write("/proc/meminfo", "");
    EXPECT_EQ(whole(), SIZE_MAX);
}

TEST_F(Machine, NothingKnownIsSmall)
{
    write("/proc/meminfo", "");
    EXPECT_EQ(left(), size_t{ 1 } << 30);
}

TEST_F(Machine, TheSmallestOfGroupAndAncestors)
{
    write("/proc/self/cgroup", "0::/system.slice/weir.service\n");
    group("/system.slice/weir.service", "max", "5000");
    EXPECT_EQ(left(), machine);
    group("/system.slice", "900000", "100000");
    EXPECT_EQ(left(), 800000u);
    group("/system.slice/weir.service", "400000", "5000");
    EXPECT_EQ(left(), 395000u);
    group("", "50000", "20000");
    EXPECT_EQ(left(), 30000u);
}

TEST_F(Machine, PageCacheThatCanGoIsFreeAndHighIsALimit)
{
    write("/proc/self/cgroup", "0::/a\n");
    group("/a", "900000", "800000");
    write("/sys/fs/cgroup/a/memory.stat", "anon 100000\ninactive_file 600000\nactive_file 1\n");
    EXPECT_EQ(left(), 700000u);
    write("/sys/fs/cgroup/a/memory.high", "500000\n");
    EXPECT_EQ(left(), 300000u);
}

TEST_F(Machine, AFullGroupLeavesNothing)
{
    write("/proc/self/cgroup", "0::/a\n");
    group("/a", "1000", "5000");
    EXPECT_EQ(left(), 0u);
}

TEST_F(Machine, VersionOneAndItsNumberForNoLimit)
{
    write(
        "/proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/abc\n1:name=systemd:/y\n0::/\n"
    );
    write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    write("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "1000\n");
    EXPECT_EQ(left(), machine);
    write("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "70000\n");
    write("/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "30000\n");
    write(
        "/sys/fs/cgroup/memory/docker/memory.stat", "inactive_file 1\ntotal_inactive_file 10000\n"
    );
    EXPECT_EQ(left(), 50000u);
}

TEST_F(Machine, AContainerSeesItsGroupAtTheMount)
{
    write("/proc/self/cgroup", "5:memory:/docker/abc\n");
    write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n");
    write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "30000\n");
    EXPECT_EQ(left(), 40000u);
    write("/proc/self/cgroup", "0::/../../outside\n");
    group("", "60000", "30000");
    EXPECT_EQ(left(), 30000u);
}

TEST_F(Machine, NonsenseIsNoLimit)
{
    write("/proc/self/cgroup", "0\n::\n5:memory\n0::\n");
    group("", "-", "what");
    EXPECT_EQ(left(), machine);
}

}  // namespace
