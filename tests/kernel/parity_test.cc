// Every row of the kernel table against ref, on every case of its op, with the row's own tolerance.
// Rows that this machine cannot run are skipped with the reason. A row that accepts no case at all
// is a failure: it is untested.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "offload/dispatch.h"
#include "offload/table.h"
#include "tests/kernel/matmul_cases.h"

namespace weir_test {
namespace {

struct Stream {
    weir_stream *stream = nullptr;
    explicit Stream(int32_t n_threads, const char *isa = nullptr)
    {
        weir_stream_options options = {};
        options.n_threads = n_threads;
        options.isa = isa;
        weir_error error = {};
        if (weir_stream_open(&stream, &options, &error) != WEIR_OK) why = error.text;
    }
    ~Stream() { weir_stream_close(stream); }
    std::string why;
};

bool is_reference(const weir_kernel *row) { return row->backend == WEIR_BACKEND_REF; }

std::vector<const weir_kernel *> all_rows()
{
    size_t n;
    const weir_table_row *const table = weir_table_rows(&n);
    std::vector<const weir_kernel *> rows;
    for (size_t i = 0; i < n; i++) rows.push_back(table[i].kernel);
    return rows;
}

std::vector<const weir_kernel *> checked_rows()
{
    std::vector<const weir_kernel *> rows = all_rows();
    rows.erase(std::remove_if(rows.begin(), rows.end(), is_reference), rows.end());
    return rows;
}

const weir_kernel *reference_of(weir_op op)
{
    for (const weir_kernel *row : all_rows())
        if (row->op == op && is_reference(row)) return row;
    return nullptr;
}

// What ref makes of a case; computed once for all rows of an op. Forced levels pack the weights of
// matmul in their own ways.
const Builder &expected(const Case &test_case, weir_op op, const std::string &level = "")
{
    static std::map<std::string, std::unique_ptr<Builder>> done;
    auto &slot = done[test_case.name + (op == WEIR_OP_MATMUL ? level : "")];
    if (!slot) {
        slot = std::make_unique<Builder>(test_case.name);
        Stream stream(1);
        const auto *reference = reference_of(op);
        const void *args = test_case.build(*slot, true);
        const char *reject = weir_kernel_reject(stream.stream, reference, args);
        EXPECT_EQ(reject, nullptr) << reference->name << " must accept everything: " << reject;
        EXPECT_EQ(weir_kernel_run(stream.stream, reference, args), WEIR_OK) << test_case.name;
        EXPECT_TRUE(slot->guards_intact())
            << reference->name << " wrote outside, " << test_case.name;
    }
    return *slot;
}

// The reason is the machine's, not the arguments': with all capabilities it would be another, or
// none.
bool needs_another_machine(const weir_kernel *row, const void *args, const std::string &why)
{
    const weir_caps all = { true, true, true, true, true, true, true, true, 90 };
    const char *const still = row->reject ? row->reject(&all, args) : nullptr;
    return !still || why != still;
}

class Parity : public testing::TestWithParam<const weir_kernel *> {};

// With one thread; and three, and memory that lies elsewhere, do not change a bit. Arrays end at a
// page that cannot be read.
TEST_P(Parity, EveryCaseAgreesWithRef)
{
    const weir_kernel *row = GetParam();
    Stream one(1), three(3);
    int ran = 0;
    std::string lacking;
    for (const Case &test_case : parity_cases(row->op, one.stream)) {
        Builder a(test_case.name, fenced_allocator()), b(test_case.name, fenced_allocator());
        const void *const args_a = test_case.build(a, false);
        if (const char *why = weir_kernel_reject(one.stream, row, args_a)) {
            if (needs_another_machine(row, args_a, why)) lacking = why;
            continue;
        }
        ASSERT_EQ(weir_kernel_run(one.stream, row, args_a), WEIR_OK) << test_case.name;
        EXPECT_EQ(difference(expected(test_case, row->op), a, row->atol, row->rtol), "")
            << row->name << ", " << test_case.name;
        const void *const args_b = test_case.build(b, false);
        ASSERT_EQ(weir_kernel_run(three.stream, row, args_b), WEIR_OK) << test_case.name;
        EXPECT_EQ(difference(a, b, 0, 0), "")
            << row->name << " with another number of threads, " << test_case.name;
        EXPECT_TRUE(a.guards_intact() && b.guards_intact())
            << row->name << " wrote outside its arrays, " << test_case.name;
        ran++;
    }
    if (ran == 0 && !lacking.empty()) GTEST_SKIP() << row->name << ": " << lacking;
    EXPECT_GT(ran, 0) << row->name << " accepts none of the cases of its op: add one";
}

std::string test_name(const testing::TestParamInfo<const weir_kernel *> &info)
{
    std::string name = info.param->name;
    for (char &c : name)
        if (c == '.') c = '_';
    return name;
}
INSTANTIATE_TEST_SUITE_P(Table, Parity, testing::ValuesIn(checked_rows()), test_name);

TEST(Fence, NothingIsReadPastAnArray)
{
    Builder b("fence", fenced_allocator());
    const volatile char *const array = b.array<char>(100);
    EXPECT_DEATH((void)array[100], "");
}

TEST(Table, EveryOpEndsWithARefThatHasCases)
{
    Stream stream(1);
    for (int op = 0; op < WEIR_OP_COUNT; op++) {
        EXPECT_NE(reference_of((weir_op)op), nullptr) << weir_op_name((weir_op)op);
        EXPECT_FALSE(parity_cases((weir_op)op, stream.stream).empty()) << weir_op_name((weir_op)op);
    }
    std::map<weir_op, bool> ended;
    std::map<std::string, int> names;
    for (const weir_kernel *row : all_rows()) {
        EXPECT_FALSE(ended[row->op]) << row->name << " comes after ref: it could never run";
        ended[row->op] = is_reference(row);
        EXPECT_EQ(names[row->name]++, 0) << row->name << " is there twice";
    }
}

class ForcedIsa : public testing::TestWithParam<const char *> {};

// What dispatch chooses on a machine of this level: every case of every op runs and agrees with
// ref.
TEST_P(ForcedIsa, DispatchRunsEveryCase)
{
    Stream stream(2, GetParam());
    if (!stream.stream) GTEST_SKIP() << stream.why;
    for (int op = 0; op < WEIR_OP_COUNT; op++)
        for (const Case &test_case : parity_cases((weir_op)op, stream.stream)) {
            Builder b(test_case.name, fenced_allocator());
            const void *args = test_case.build(b, false);
            const weir_kernel *row =
                weir_kernel_pick(stream.stream, (weir_op)op, args, nullptr, nullptr);
            ASSERT_NE(row, nullptr) << test_case.name;
            ASSERT_EQ(weir_kernel_run(stream.stream, row, args), WEIR_OK) << test_case.name;
            EXPECT_EQ(
                difference(expected(test_case, (weir_op)op, GetParam()), b, row->atol, row->rtol),
                ""
            ) << row->name
              << ", " << test_case.name;
        }
}
INSTANTIATE_TEST_SUITE_P(
    Levels, ForcedIsa, testing::Values("v2", "v3", "v4"),
    [](const auto &info) { return std::string(info.param); }
);

} // namespace
} // namespace weir_test
