// tests/unit/kernels/attention_window_test.cc - attention with a window begins in the page of the
// first row that it sees: pages before that one need not be there.
#include "tests/every_nth.h"
#include "tests/unit/kernels/attention_support.h"

namespace weir_test {
namespace {

// The first row that is seen begins a page, ends one, is within; in one split and several.
std::vector<Shape> windowed_shapes()
{
    const std::pair<int32_t, int32_t> windows[] = { { 1, 64 },    { 64, 127 },   { 64, 1024 },
                                                    { 70, 1023 }, { 1100, 192 }, { 1100, 2048 } };
    std::vector<Shape> shapes;
    for (const weir_kv_format format :
         { WEIR_KV_F16, WEIR_KV_F32, WEIR_KV_Q8_0, WEIR_KV_INT8, WEIR_KV_KIVI4, WEIR_KV_TURBO4 })
        for (const auto &[window, first_seen] : windows)
            for (const int32_t n_rows : { 1, window > 100 ? 20 : 70 })
                shapes.push_back({ 2, 1, 32, 32, first_seen + window - 1, n_rows, window, format,
                                   format });
    return shapes;
}

TEST(AttentionWindow, PagesBeforeItAreNotRead)
{
    for (const Shape &shape : every_nth(windowed_shapes(), 5)) {
        const Sequence sequence(shape, 53);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION))
            EXPECT_TRUE(same_bits(
                attend(*kernel, sequence, 0, shape.n_rows), attend_window(*kernel, { &sequence })
            )) << text(*kernel, shape);
    }
}

// While the last tile of a sequence is used, the first one of the next is prefetched.
TEST(AttentionWindow, NorWithOtherSequences)
{
    const Shape shape = { 4, 2, 32, 32, 1663, 1, 64, WEIR_KV_F16, WEIR_KV_F16 };
    Shape longer = shape;
    longer.n_past = 3199, longer.n_rows = 40;
    const Sequence one(shape, 59), other(longer, 61);
    for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION)) {
        Floats want = attend(*kernel, one, 0, 1);
        const Floats rest = attend(*kernel, other, 0, longer.n_rows);
        want.insert(want.end(), rest.begin(), rest.end());
        EXPECT_TRUE(same_bits(want, attend_window(*kernel, { &one, &other }))) << kernel->name;
    }
}

} // namespace
} // namespace weir_test
