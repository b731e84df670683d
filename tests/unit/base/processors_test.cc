// How many threads compute at once: cores, affinity, quotas of control groups.
#include <sched.h>

#include <vector>

#include "engine/base/processors.h"
#include "tests/unit/base/machine_root.h"

namespace {

class Processors : public machine_root::MachineRoot {
  protected:
    void siblings(int processor, const std::string &list) const
    {
        write(
            "/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                "/topology/thread_siblings_list",
            list
        );
    }
    int among(const std::vector<int> &processors) const
    {
        return weir_processors_among(root_.c_str(), processors.data(), processors.size());
    }
};

TEST_F(Processors, EachIsACoreIfNothingIsKnown)
{
    EXPECT_EQ(among({ 0, 1, 2 }), 3);
    EXPECT_EQ(among({}), 1);
    for (const char *const text : { "", "\n", "x", "-1", "0-", "99999999999999999999-0" }) {
        siblings(2, text);
        EXPECT_EQ(among({ 1, 2 }), 2) << text;
    }
}

TEST_F(Processors, ThoseOfOneCoreCountOnce)
{
    for (int i = 0; i < 4; i++) {
        const std::string list = std::to_string(i) + "," + std::to_string(i + 4) + "\n";
        siblings(i, list);
        siblings(i + 4, list);
    }
    EXPECT_EQ(among({ 0, 1, 2, 3, 4, 5, 6, 7 }), 4);
    EXPECT_EQ(among({ 4, 5 }), 2) << "the first of a core may be forbidden";
    EXPECT_EQ(among({ 1, 3, 5 }), 2);
    for (int i = 0; i < 4; i++) siblings(i, i < 2 ? "0-1\n" : "2-3\n");
    EXPECT_EQ(among({ 0, 1, 2, 3 }), 2);
}

TEST_F(Processors, TheSmallestQuotaIsRoundedDown)
{
    const std::vector<int> eight = { 0, 1, 2, 3, 4, 5, 6, 7 };
    write("/proc/self/cgroup", "0::/a/b\n");
    write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    EXPECT_EQ(among(eight), 8);
    write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    EXPECT_EQ(among(eight), 4);
    EXPECT_EQ(among({ 0, 1 }), 2);
    write("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    EXPECT_EQ(among(eight), 2) << "of the group above";
    write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    EXPECT_EQ(among(eight), 1);
    write("/sys/fs/cgroup/a/b/cpu.max", "50000 0\n");
    EXPECT_EQ(among(eight), 2) << "no period";
}

TEST_F(Processors, QuotasOfVersionOne)
{
    write("/proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/a\n1:cpuacct:/b\n");
    write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    write("/sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n");
    write("/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "100000\n");
    write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(among({ 0, 1, 2, 3 }), 4);
    write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
    EXPECT_EQ(among({ 0, 1, 2, 3 }), 3);
}

TEST_F(Processors, AffinityIsRespected)
{
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(weir_processors(root_.c_str()), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_COUNT(&one) == 0 && CPU_ISSET(i, &before)) CPU_SET(i, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(weir_processors(root_.c_str()), 1);
    EXPECT_EQ(weir_request_threads(0), 4) << "the least";
    EXPECT_EQ(weir_request_threads(1), 1) << "as it was asked for";
    EXPECT_EQ(weir_request_threads(5000), 1024);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

} // namespace
