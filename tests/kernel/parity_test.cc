// Every row of the kernel table against ref, on every case of its op, with the row's own tolerance.
//
// Rows that this machine cannot run are skipped with the reason. A row that accepts no case at all is a failure: it is untested.
#include <gtest/gtest.h>

#include <map>

#include "offload/dispatch.h"
#include "tests/kernel/cases.h"

namespace weir_test {
namespace {

struct Stream {
    weir_stream *stream = nullptr;
    explicit Stream(int32_t n_threads, const char *isa = nullptr)
    {
        weir_stream_options options = {};
        options.n_threads           = n_threads;
        options.isa                 = isa;
        weir_error error            = {};
        if (weir_stream_open(&stream, &options, &error) != WEIR_OK) why = error.text;
    }
    ~Stream() { weir_stream_close(stream); }
    std::string why;
};

std::vector<const weir_kernel *> all_rows()
{
    std::vector<const weir_kernel *> rows;
    for (size_t i = 0; i < weir_kernel_count(); i++) rows.push_back(weir_kernel_at(i));
    return rows;
}

const weir_kernel *reference_of(weir_op op)
{
    for (const weir_kernel *row : all_rows())
        if (row->op == op && row->backend == WEIR_BACKEND_REF) return row;
    return nullptr;
}

// No arguments can make a row run below its level; asked with the first case of its op.
std::string barred(const weir_stream *stream, const weir_kernel *row)
{
    const auto  cases = parity_cases(row->op);
    Builder     b(cases[0].name);
    const char *why = weir_kernel_reject(stream, row, cases[0].build(b, false));
    return why && (std::string(why).rfind("needs x86-64", 0) == 0 || std::string(why).rfind("isa ", 0) == 0) ? why : "";
}

// What ref makes of a case; computed once for all rows of an op.
const Builder &expected(const Case &test_case, weir_op op)
{
    static std::map<std::string, std::unique_ptr<Builder>> done;
    auto                                                  &slot = done[test_case.name];
    if (!slot) {
        slot = std::make_unique<Builder>(test_case.name);
        Stream      stream(1);
        const auto *reference = reference_of(op);
        const void *args      = test_case.build(*slot, true);
        const char *reject    = weir_kernel_reject(stream.stream, reference, args);
        EXPECT_EQ(reject, nullptr) << reference->name << " must accept everything: " << reject;
        EXPECT_EQ(weir_kernel_run(stream.stream, reference, args), WEIR_OK) << test_case.name;
        EXPECT_TRUE(slot->guards_intact()) << reference->name << " wrote outside, " << test_case.name;
    }
    return *slot;
}

class Parity : public testing::TestWithParam<const weir_kernel *> {};

TEST_P(Parity, EveryCaseAgreesWithRef)
{
    const weir_kernel *row = GetParam();
    Stream             stream(2);
    if (const std::string why = barred(stream.stream, row); !why.empty()) GTEST_SKIP() << row->name << ": " << why;
    int ran = 0;
    for (const Case &test_case : parity_cases(row->op)) {
        Builder     b(test_case.name);
        const void *args = test_case.build(b, false);
        if (weir_kernel_reject(stream.stream, row, args)) continue;
        ASSERT_EQ(weir_kernel_run(stream.stream, row, args), WEIR_OK) << test_case.name;
        EXPECT_EQ(difference(expected(test_case, row->op), b, row->atol, row->rtol), "") << row->name << ", " << test_case.name;
        EXPECT_TRUE(b.guards_intact()) << row->name << " wrote outside its arrays, " << test_case.name;
        ran++;
    }
    EXPECT_GT(ran, 0) << row->name << " accepts none of the cases of its op: add one";
}

TEST_P(Parity, TheNumberOfThreadsDoesNotChangeBits)
{
    const weir_kernel *row = GetParam();
    Stream             one(1), three(3);
    if (const std::string why = barred(one.stream, row); !why.empty()) GTEST_SKIP() << row->name << ": " << why;
    for (const Case &test_case : parity_cases(row->op)) {
        Builder     a(test_case.name), b(test_case.name);
        const void *args_a = test_case.build(a, false), *args_b = test_case.build(b, false);
        if (weir_kernel_reject(one.stream, row, args_a)) continue;
        ASSERT_EQ(weir_kernel_run(one.stream, row, args_a), WEIR_OK);
        ASSERT_EQ(weir_kernel_run(three.stream, row, args_b), WEIR_OK);
        EXPECT_EQ(difference(a, b, 0, 0), "") << row->name << ", " << test_case.name;
    }
}

std::string test_name(const testing::TestParamInfo<const weir_kernel *> &info)
{
    std::string name = info.param->name;
    for (char &c : name)
        if (c == '.') c = '_';
    return name;
}
INSTANTIATE_TEST_SUITE_P(Table, Parity, testing::ValuesIn(all_rows()), test_name);

TEST(Table, EveryOpEndsWithARefThatHasCases)
{
    for (int op = 0; op < WEIR_OP_COUNT; op++) {
        EXPECT_NE(reference_of((weir_op)op), nullptr) << weir_op_name((weir_op)op);
        EXPECT_FALSE(parity_cases((weir_op)op).empty()) << weir_op_name((weir_op)op);
    }
    std::map<weir_op, bool> ended;
    std::map<std::string, int> names;
    for (const weir_kernel *row : all_rows()) {
        EXPECT_FALSE(ended[row->op]) << row->name << " stands behind ref: it could never run";
        ended[row->op] = row->backend == WEIR_BACKEND_REF;
        EXPECT_EQ(names[row->name]++, 0) << row->name << " is there twice";
    }
}

class ForcedIsa : public testing::TestWithParam<const char *> {};

// What dispatch chooses on a machine of this level: every case of every op runs and agrees with ref.
TEST_P(ForcedIsa, DispatchRunsEveryCase)
{
    Stream stream(2, GetParam());
    if (!stream.stream) GTEST_SKIP() << stream.why;
    for (int op = 0; op < WEIR_OP_COUNT; op++)
        for (const Case &test_case : parity_cases((weir_op)op)) {
            Builder            b(test_case.name);
            const void        *args = test_case.build(b, false);
            const weir_kernel *row  = weir_kernel_pick(stream.stream, (weir_op)op, args, nullptr, nullptr);
            ASSERT_NE(row, nullptr) << test_case.name;
            ASSERT_EQ(weir_kernel_run(stream.stream, row, args), WEIR_OK) << test_case.name;
            EXPECT_EQ(difference(expected(test_case, (weir_op)op), b, row->atol, row->rtol), "") << row->name << ", " << test_case.name;
        }
}
INSTANTIATE_TEST_SUITE_P(Levels, ForcedIsa, testing::Values("v2", "v3", "v4"), [](const auto &info) { return std::string(info.param); });

}  // namespace
}  // namespace weir_test
