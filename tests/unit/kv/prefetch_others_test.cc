/* What runs while a step waits for blocks on disk: steps of other sequences, as often as the disk
 * leaves the time. */
#include <sys/syscall.h>
#include <time.h>

#include <functional>

#include "tests/unit/kv/prefetch_fixture.h"

namespace {

std::atomic<int64_t> clock_ns{ 0 }; /* of a test; 0: the system's */

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

using namespace prefetch_fixture;

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

} // namespace
