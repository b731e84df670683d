// tests/unit/kernels/support.h - running rows by hand, random arrays, pages of a sequence, and
// goldens.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/abi/ops.h"

// clang-format off
#define WEIR_EACH_OP(X) \
    X(embed) X(rmsnorm) X(gated_rmsnorm) X(rope) X(glu) \
    X(sigmoid_gate) X(add) X(softcap) X(kv_write) X(kv_read) X(kv_compact) \
    X(attention) X(attention_mass) X(conv1d) X(gated_delta_rule) X(ssm_scan) \
    X(coda_write)
// clang-format on

extern "C" {
#define WEIR_REF(op) extern const weir_kernel weir_kernel_ref_##op;
WEIR_EACH_OP(WEIR_REF)
#undef WEIR_REF
}

namespace weir_test {

using Floats = std::vector<float>;

// The omp rows of an op that this machine can run; the tests link v2, v3 and v4. With a sanitizer
// without v2, which is not instrumented (toolchain/kernels.bzl), unless there is no other.
std::vector<const weir_kernel *> omp_rows(weir_op op);
const weir_kernel *ref_row(weir_op op);

// Runs a row with scratch of exactly the size it asks for, filled with NaN.
weir_status run(const weir_kernel &kernel, const void *args, int n_threads = 2);

Floats random_floats(size_t n, uint32_t seed, float scale = 1);

// |x - want| <= atol + rtol |want|, elementwise.
void expect_close(
    const Floats &x, const Floats &want, double atol, double rtol, const std::string &what
);
bool same_bits(const Floats &a, const Floats &b);

// Rows 0..9 and 10..39 of a recurrent op as two sequences of one call, with an empty one between:
// `call(out, segments, n)` computes them from `start`. `head` and `whole` are of the first 10 rows
// and of all as one sequence; `width`: floats of a row of outputs.
template <typename Result, typename Call>
void expect_two_sequences(
    const Floats &start, const Result &whole, const Result &head, int64_t width, Call call
)
{
    Floats out(whole.out.size(), NAN), first = start, second = start, empty = start;
    const weir_recurrent_segment segments[] = { { nullptr, first.data(), 0, 10 },
                                                { nullptr, empty.data(), 10, 0 },
                                                { nullptr, second.data(), 10, 30 } };
    ASSERT_EQ(call(out.data(), segments, 3), WEIR_OK);
    EXPECT_TRUE(same_bits(first, head.state));
    EXPECT_TRUE(same_bits(empty, start));
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + 10 * width, whole.out.begin()));
    EXPECT_FALSE(same_bits(second, start));
}

// The pages of one sequence and layer, zeroed, each with its unsealed rows if the formats need
// them.
class Pages {
  public:
    Pages(
        weir_kv_format format, int64_t n_kv_heads, int64_t key_dim, int64_t value_dim,
        int64_t n_positions
    )
        : Pages(format, format, n_kv_heads, key_dim, value_dim, n_positions)
    {
    }
    Pages(
        weir_kv_format k_format, weir_kv_format v_format, int64_t n_kv_heads, int64_t key_dim,
        int64_t value_dim, int64_t n_positions
    );
    weir_kv_segment segment(int32_t first_row, int32_t n_rows, int32_t n_past) const;
    void hide_unsealed(int64_t page); // from the segments: it is read sealed
    const std::vector<std::vector<char>> &pages() const { return storage_; }
    const std::vector<std::vector<char>> &unsealed_pages() const { return unsealed_storage_; }

  private:
    std::vector<std::vector<char>> storage_, unsealed_storage_;
    std::vector<void *> table_, unsealed_table_;
    int64_t stride_;
};

// Tensors of tests/golden/models/modules.safetensors.
Floats golden(const std::string &name);
std::vector<int32_t> golden_integers(const std::string &name);

} // namespace weir_test
