#include "tests/fault/drive.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fault {
namespace {

/* Calls of long operations that fail without WEIR_FAULT_DEEP: the first, and then a spread. */
constexpr int64_t n_first = 400, n_spread = 300;

const char *const names[] = { "nothing", "allocation", "file call", "charge" };
const char *const ways[] = { "once", "from there on", "interrupted", "shortened" };

int64_t count_of(const fault_report &report, fault_calls calls)
{
    if (calls == FAULT_ALLOCATIONS) return report.n_allocations;
    return calls == FAULT_FILES ? report.n_files : report.n_charges;
}

std::string describe(const fault_plan &plan, const fault_report &report)
{
    return std::string(names[plan.calls]) + " " + std::to_string(plan.nth) + " (" +
           (report.was_hit ? report.call : "not reached") + ") fails " + ways[plan.way];
}

struct Outcome {
    weir_status status;
    fault_report report;
    weir_error error;
};

Outcome run_once(const Operation &operation, const fault_plan &plan)
{
    Outcome out = {};
    operation.prepare();
    fault_start(&plan);
    out.status = operation.run(&out.error);
    out.report = fault_stop();
    return out;
}

void expect_clean(const Operation &operation, const fault_report &report)
{
    if (!operation.keeps_memory) {
        EXPECT_EQ(report.n_blocks, 0) << "blocks of memory are left";
        EXPECT_EQ(report.n_mappings, 0) << "mappings are left";
    }
    EXPECT_EQ(report.n_descriptors, 0) << "descriptors are left open";
}

/* What every run without faults does. */
fault_report run_well(const Operation &operation)
{
    const fault_plan none = { FAULT_NOTHING, FAULT_ONCE, -1 };
    const Outcome out = run_once(operation, none);
    EXPECT_EQ(out.status, WEIR_OK) << out.error.text;
    expect_clean(operation, out.report);
    operation.check(out.status);
    return out.report;
}

/* Also where a call of the system had none. A number of a TOML document is read by a stream of the
 * C++ library, which does not say why it failed. */
bool speaks_of_memory(const weir_error &error)
{
    return error.code == WEIR_ENOMEM || strstr(error.text, strerror(ENOMEM)) != nullptr ||
           strstr(error.text, "Error while parsing floating-point") != nullptr;
}

void run_badly(const Operation &operation, const fault_plan &plan)
{
    const Outcome out = run_once(operation, plan);
    SCOPED_TRACE(describe(plan, out.report));
    expect_clean(operation, out.report);
    if (out.status != WEIR_OK) {
        EXPECT_EQ(out.error.code, out.status) << "the error is of another code";
        EXPECT_NE(out.error.text[0], '\0') << "the error has no text";
    }
    if (plan.calls != FAULT_FILES && out.status != WEIR_OK)
        EXPECT_TRUE(speaks_of_memory(out.error)) << out.status << ": " << out.error.text;
    if (plan.way == FAULT_INTERRUPT || plan.way == FAULT_SHORTEN)
        EXPECT_EQ(out.status, WEIR_OK) << out.error.text;
    operation.check(out.status);
    if (plan.way == FAULT_ONCE && out.report.was_hit) run_well(operation);
}

int64_t step_after(int64_t nth, int64_t n_calls)
{
    static const bool is_deep = getenv("WEIR_FAULT_DEEP") != nullptr;
    if (is_deep || nth < n_first || n_calls <= n_first + n_spread) return 1;
    return (n_calls - n_first + n_spread - 1) / n_spread;
}

void every(const Operation &operation, fault_calls calls, std::initializer_list<fault_way> all)
{
    run_well(operation); /* what libraries keep of their first call */
    if (::testing::Test::HasFailure()) return;
    const int64_t n = count_of(run_well(operation), calls);
    ASSERT_GT(n, 0) << "no " << names[calls] << " was seen: nothing is tested";
    for (const fault_way way : all) {
        for (int64_t nth = 0; nth < n; nth += step_after(nth, n)) {
            run_badly(operation, { calls, way, nth });
            if (::testing::Test::HasFailure()) return; /* the first says enough */
        }
    }
    run_well(operation);
}

} // namespace

void every_allocation(const Operation &operation)
{
    every(operation, FAULT_ALLOCATIONS, { FAULT_ONCE, FAULT_FROM_THERE });
}

void every_charge(const Operation &operation)
{
    every(operation, FAULT_CHARGES, { FAULT_ONCE, FAULT_FROM_THERE });
}

void every_file_call(const Operation &operation)
{
    every(operation, FAULT_FILES, { FAULT_ONCE, FAULT_FROM_THERE, FAULT_INTERRUPT, FAULT_SHORTEN });
}

} // namespace fault
