// Thousands of random schedules with a forward pass that computes no matrices, each a function of
// its seed (docs/decisions/0050). Variables that choose how many, the seed, the time, the log and
// fewer jobs or features: tests/README.md.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>

#include "engine/base/log.h"
#include "tests/sanitizer.h"
#include "tests/unit/schedule/simulator/schedule.h"

namespace {

const int64_t kSchedules = weir_test::has_sanitizer() ? 200 : 2500;

int64_t from_environment(const char *name, int64_t otherwise)
{
    const char *const text = getenv(name);
    return text != nullptr ? atoll(text) : otherwise;
}

unsigned features_from_environment()
{
    const char *const text = getenv("WEIR_SIMULATOR_FEATURES");
    unsigned features = 0;
    if (text == nullptr) return sim::ALL;
    const std::string list = "," + std::string(text) + ",";
    for (size_t i = 0; i < sim::kFeatures; i++)
        if (list.find("," + std::string(sim::feature_names[i]) + ",") != std::string::npos)
            features |= 1u << i;
    return features;
}

// The seed that runs, for a program that ends in it.
volatile uint64_t running;

void say_seed(int)
{
    char text[100];
    const int n = snprintf(
        text, sizeof text, "the schedule of WEIR_SIMULATOR_SEED=%llu\n",
        static_cast<unsigned long long>(running)
    );
    (void)!write(STDERR_FILENO, text, static_cast<size_t>(n));
    for (const int number : { SIGABRT, SIGSEGV }) (void)signal(number, SIG_DFL);
}

class Simulator : public ::testing::Test {
  protected:
    static void SetUpTestSuite()
    {
        weir_log_set_level(WEIR_LOG_ERROR);
        for (const int signal_number : { SIGABRT, SIGSEGV }) (void)signal(signal_number, say_seed);
        world_ = new sim::World;
        ASSERT_EQ(world_->open(::testing::TempDir() + "/simulator"), "");
    }
    static void TearDownTestSuite()
    {
        delete world_;
        world_ = nullptr;
    }
    // Says how to see it again.
    static std::string explain(uint64_t seed, const std::string &problem, bool prunes = false)
    {
        const sim::Limits least = sim::shrink(*world_, seed, prunes);
        const sim::Result again = sim::run_schedule(*world_, seed, least, true);
        const size_t most = 4000;
        const std::string &log = again.log;
        return "seed " + std::to_string(seed) + ": " + problem +
               "\nbazel test //tests/unit/schedule:simulator_test --test_output=all"
               " --test_env=WEIR_SIMULATOR_SCHEDULES=1 --test_env=WEIR_SIMULATOR_SEED=" +
               std::to_string(seed) + (prunes ? " --test_env=WEIR_SIMULATOR_PRUNES=1" : "") +
               " --test_env=WEIR_SIMULATOR_JOBS=" + std::to_string(least.n_jobs) +
               " --test_env=WEIR_SIMULATOR_FEATURES=" + sim::print_features(least.features) +
               " --test_env=WEIR_SIMULATOR_LOG=1\nthe end of it: " + again.problem + "\n" +
               (log.size() > most ? log.substr(log.size() - most) : log);
    }
    static sim::World *world_;
};
sim::World *Simulator::world_;

TEST_F(Simulator, Schedules)
{
    const int64_t n = from_environment("WEIR_SIMULATOR_SCHEDULES", kSchedules),
                  first = from_environment("WEIR_SIMULATOR_SEED", 1),
                  seconds = from_environment("WEIR_SIMULATOR_SECONDS", 1 << 30);
    const time_t until = time(nullptr) + seconds;
    sim::Limits limits;
    limits.prints = getenv("WEIR_SIMULATOR_LOG") != nullptr;
    limits.prunes = getenv("WEIR_SIMULATOR_PRUNES") != nullptr;
    limits.features = features_from_environment();
    limits.n_jobs = static_cast<int>(from_environment("WEIR_SIMULATOR_JOBS", limits.n_jobs));
    sim::Counts sum = {};
    int64_t n_run = 0;
    for (; n_run < n && time(nullptr) < until && !HasFailure(); n_run++) {
        const uint64_t seed = static_cast<uint64_t>(first + n_run);
        running = seed;
        const sim::Result result = sim::run_schedule(*world_, seed, limits, false);
        sum.add(result.counts);
        EXPECT_TRUE(result.problem.empty()) << explain(seed, result.problem, limits.prunes);
    }
    const auto print = [](const char *name, int64_t count) {
        (void)printf("%s %lld, ", name, static_cast<long long>(count));
    };
    print("schedules", n_run);
    print("of", n);
    print("iterations", sum.iterations);
    print("jobs", sum.jobs);
    print("tokens", sum.tokens);
    print("gaps", sum.gaps);
    print("iterations that one stalls", sum.stalled);
    print("iterations that one waits for its policy", sum.pruning);
    print("refused", sum.refused);
    print("cancelled", sum.cancelled);
    print("late", sum.late);
    print("failed", sum.failed);
    print("preemptions", sum.preemptions);
    print("cached tokens", sum.cached_tokens);
    print("iterations of followers", sum.followed);
    print("faults of the disk", sum.faults);
    print("bytes demoted", sum.demoted_bytes);
    print("promoted", sum.promoted_bytes);
    print("read in place", sum.cold_bytes_read);
    print("parts of files given back", sum.holes);
    print("states written", sum.states_out);
    print("read", sum.states_back);
    print("tokens evicted", sum.evicted_tokens);
    print("steps that wait", sum.step_waits);
    print("steps within them", sum.nested);
    print("clients that left them", sum.left);
    print("iterations that one waits for another client", sum.turns);
    print("iterations that one has ended and has a slot", sum.kept_slots);
    print("iterations that one waits to fork a prompt", sum.unforked);
    print("tokens drafted", sum.drafted);
    print("accepted", sum.accepted);
    (void)printf("seeds %lld ...\n", static_cast<long long>(first));
    if (!HasFailure() && n_run < n)
        EXPECT_NE(getenv("WEIR_SIMULATOR_SECONDS"), nullptr) << "not all schedules ran";
    if (n_run < 2000 || limits.prunes || limits.features != sim::ALL) return;
    // What the schedules are about happened.
    for (const int64_t count : { sum.gaps,           sum.stalled,
                                 sum.pruning,        sum.refused,
                                 sum.cancelled,      sum.late,
                                 sum.failed,         sum.preemptions,
                                 sum.cached_tokens,  sum.followed,
                                 sum.faults,         sum.demoted_bytes,
                                 sum.promoted_bytes, sum.cold_bytes_read,
                                 sum.holes,          sum.states_out,
                                 sum.states_back,    sum.evicted_tokens,
                                 sum.step_waits,     sum.nested,
                                 sum.drafted,        sum.accepted,
                                 sum.left,           sum.kept_slots,
                                 sum.unforked })
        EXPECT_GT(count, 10);
}

// Policies that are due on rows on disk.
TEST_F(Simulator, PoliciesOnDisk)
{
    sim::Limits limits;
    limits.prunes = true;
    const auto n = (uint64_t)kSchedules / 2;
    sim::Counts sum = {};
    for (uint64_t seed = 1; seed <= n && !HasFailure(); seed++) {
        running = seed;
        const sim::Result result = sim::run_schedule(*world_, seed, limits, false);
        sum.add(result.counts);
        EXPECT_TRUE(result.problem.empty()) << explain(seed, result.problem, true);
    }
    EXPECT_GT(sum.pruning, n);
    EXPECT_GT(sum.lack_rows, n / 10);
    (void)printf(
        "iterations that one waits for its policy %lld, that two wait for memory %lld, bytes "
        "demoted %lld, preemptions %lld, failed %lld, iterations %lld\n",
        (long long)sum.pruning, (long long)sum.lack_rows, (long long)sum.demoted_bytes,
        (long long)sum.preemptions, (long long)sum.failed, (long long)sum.iterations
    );
}

// What the first schedules do not have: one takes the page of a cached run that continues on disk;
// a prompt does not fit in a step that begins a block, and lacks one within it; the choice that
// others fork is no prompt, and needs memory when they have; clients share steps that wait; a
// choice finds no memory to fork a prompt, and one behind it runs; a step that fails for lack of
// memory has reserved rows of the last sequence, and as much is preempted as may be.
TEST_F(Simulator, RareCases)
{
    for (const uint64_t seed : { 4724, 115819, 810833, 817827, 902250, 909293, 910586 }) {
        running = seed;
        const sim::Result result = sim::run_schedule(*world_, seed, {}, false);
        EXPECT_TRUE(result.problem.empty()) << explain(seed, result.problem);
    }
}

// Prompts of a client in a step that waits, while those within it compute others; prompts on disk
// that are not in it; prompts that look in the cache in the next iteration; the rows that four
// policies keep wait for the one sequence behind them.
TEST_F(Simulator, RareCasesOfPoliciesOnDisk)
{
    sim::Limits limits;
    limits.prunes = true;
    for (const uint64_t seed : { 300268, 407871, 1200217, 6015501 }) {
        running = seed;
        const sim::Result result = sim::run_schedule(*world_, seed, limits, false);
        EXPECT_TRUE(result.problem.empty()) << explain(seed, result.problem, true);
    }
}

// The same schedule, iteration by iteration.
TEST_F(Simulator, ASeedIsReplayed)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const sim::Result once = sim::run_schedule(*world_, seed, {}, true),
                          again = sim::run_schedule(*world_, seed, {}, true);
        EXPECT_GT(once.counts.iterations, 0);
        EXPECT_EQ(once.log, again.log) << "seed " << seed;
    }
}

} // namespace
