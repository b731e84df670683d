// Products in groups of rows, each with a matrix of its own: the bits are those of a call for each
// group, with any number of threads.
#include <gtest/gtest.h>

#include "kernels/x86/tiles.h"
#include "offload/caps.h"
#include "tests/unit/matmul/fixture.h"

extern "C" const weir_kernel weir_kernel_x86_matmul_bf16_amx_emulated;

namespace weir_test {
namespace {

// The rows that this machine can run.
std::vector<const weir_kernel *> tile_kernels()
{
    const weir_caps caps = weir_caps_detect();
    std::vector<const weir_kernel *> kernels = { &weir_kernel_x86_matmul_tiles_v2,
                                                 &weir_kernel_ref_matmul };
    if (caps.amx_int8) kernels.push_back(&weir_kernel_x86_matmul_tiles_amx);
    if (caps.x86_v4 && caps.avx512_vnni) kernels.push_back(&weir_kernel_x86_matmul_tiles_vnni);
    if (caps.avx_vnni) kernels.push_back(&weir_kernel_x86_matmul_tiles_avxvnni);
    if (caps.x86_v3) kernels.push_back(&weir_kernel_x86_matmul_tiles_v3);
    return kernels;
}

std::vector<const weir_kernel *> dense_kernels()
{
    std::vector<const weir_kernel *> kernels = { &weir_kernel_x86_matmul_dense_v2,
                                                 &weir_kernel_ref_matmul };
    if (weir_caps_detect().x86_v3) kernels.push_back(&weir_kernel_x86_matmul_dense_v3);
    return kernels;
}

std::vector<const weir_kernel *> amx_kernels()
{
    std::vector<const weir_kernel *> kernels = { &weir_kernel_x86_matmul_bf16_amx_emulated,
                                                 &weir_kernel_ref_matmul };
    if (weir_caps_detect().amx_bf16) kernels.push_back(&weir_kernel_x86_matmul_bf16_amx);
    return kernels;
}

struct Sizes {
    int64_t n_rows;
    int32_t matrix;
};

// Matrices of one type, as a block holds them: one array.
struct Matrices {
    std::vector<std::unique_ptr<Weight>> owned;
    std::vector<weir_weight> weights;

    Matrices(weir_stream *stream, weir_dtype dtype, int64_t n_out, int64_t n_in, uint32_t seed)
    {
        for (uint32_t i = 0; i < 7; i++) {
            owned.push_back(std::make_unique<Weight>(stream, dtype, n_out, n_in, seed + i));
            weights.push_back(owned.back()->weight);
        }
    }
    Matrices(ForAmx amx, weir_dtype dtype, int64_t n_out, int64_t n_in, uint32_t seed)
    {
        for (uint32_t i = 0; i < 7; i++) {
            owned.push_back(std::make_unique<Weight>(amx, dtype, n_out, n_in, seed + i));
            weights.push_back(owned.back()->weight);
        }
    }
};

// Two outputs: one plain, one with bias and other rows' width that is added to.
struct Call {
    int64_t n_rows, n_in, x_stride;
    const Matrices *a, *b;
    std::vector<float> x, bias;

    std::vector<float> before(int o) const
    {
        return random_rows(n_rows * stride(o), 20 + (uint32_t)o);
    }
    int64_t stride(int o) const { return (o == 0 ? a : b)->weights[0].n_out + 3 * o; }
    weir_matmul_args args(std::vector<float> *got) const
    {
        weir_matmul_args args = {};
        args.x = x.data(), args.n_rows = n_rows, args.n_in = n_in, args.x_stride = x_stride;
        args.n_outputs = 2;
        args.outputs[0] = { a->weights.data(), got[0].data(), nullptr, stride(0), false };
        args.outputs[1] = { b->weights.data(), got[1].data(), bias.data(), stride(1), true };
        return args;
    }
};

// False if the kernel leaves groups of so few rows to another one.
bool compare(const weir_kernel &kernel, const Call &call, const std::vector<Sizes> &sizes)
{
    std::vector<weir_matmul_group> groups;
    std::vector<float> want[2] = { call.before(0), call.before(1) };
    int64_t first = 0;
    for (const Sizes &s : sizes) {
        groups.push_back({ first, s.n_rows, s.matrix });
        weir_matmul_args one = call.args(want);
        one.x += first * one.x_stride, one.n_rows = s.n_rows;
        for (int o = 0; o < 2; o++) {
            one.outputs[o].weight += s.matrix;
            one.outputs[o].dst += first * one.outputs[o].dst_stride;
        }
        one.outputs[1].bias += s.matrix * one.outputs[1].weight->n_out;
        EXPECT_TRUE(run(kernel, one, 1));
        first += s.n_rows;
    }
    EXPECT_EQ(first, call.n_rows);
    for (const int threads : { 1, 2, 3 }) {
        std::vector<float> got[2] = { call.before(0), call.before(1) };
        weir_matmul_args args = call.args(got);
        args.n_groups = (int32_t)groups.size(), args.groups = groups.data();
        EXPECT_TRUE(weir_matmul_is_valid(&args));
        const weir_caps caps = weir_caps_detect();
        if (const char *const why = kernel.reject(&caps, &args)) {
            EXPECT_NE(std::strstr(why, "few rows"), nullptr) << kernel.name << ": " << why;
            return false;
        }
        EXPECT_TRUE(run(kernel, args, threads));
        for (int o = 0; o < 2; o++)
            EXPECT_EQ(std::memcmp(got[o].data(), want[o].data(), want[o].size() * 4), 0)
                << kernel.name << ", output " << o << ", " << threads << " threads, "
                << groups.size() << " groups of " << call.n_rows << " rows";
    }
    return true;
}

const std::vector<std::vector<Sizes>> kSizes = {
    { { 1, 3 } },
    { { 1, 0 }, { 1, 2 }, { 1, 5 }, { 1, 6 } },
    { { 2, 1 }, { 9, 4 }, { 1, 5 } },
    { { 40, 6 }, { 1, 0 }, { 17, 3 }, { 6, 2 }, { 130, 1 }, { 5, 4 }, { 3, 5 } },
    { { 33, 2 }, { 120, 5 } },
};

template <typename Packing>
void compare_all(
    const std::vector<const weir_kernel *> &kernels, Packing packing, weir_dtype first,
    weir_dtype second
)
{
    const int64_t n_in = 512;
    const Matrices a(packing, first, 70, n_in, 1), b(packing, second, 33, n_in, 9);
    std::vector<int> taken(kernels.size());
    for (const auto &sizes : kSizes) {
        Call call = { 0, n_in, n_in + 4, &a, &b, {}, random_rows(7 * 33, 5) };
        for (const Sizes &s : sizes) call.n_rows += s.n_rows;
        call.x = random_rows(call.n_rows * call.x_stride, 3);
        for (size_t k = 0; k < kernels.size(); k++) taken[k] += compare(*kernels[k], call, sizes);
    }
    for (size_t k = 0; k < kernels.size(); k++) EXPECT_GT(taken[k], 0) << kernels[k]->name;
}

TEST(Groups, TilesHaveTheBitsOfACallForEach)
{
    Stream stream;
    compare_all(tile_kernels(), stream.stream, WEIR_Q8_0, WEIR_Q4_K);
    compare_all(tile_kernels(), stream.stream, WEIR_Q6_K, WEIR_Q4_0);
}

TEST(Groups, DensePanelsHaveTheBitsOfACallForEach)
{
    Stream stream(2, "v2");
    compare_all(dense_kernels(), stream.stream, WEIR_F32, WEIR_BF16);
}

TEST(Groups, AmxHasTheBitsOfACallForEach)
{
    compare_all(amx_kernels(), ForAmx(), WEIR_BF16, WEIR_F16);
}

TEST(Groups, MustCoverTheRowsInOrder)
{
    Stream stream;
    const Matrices a(stream.stream, WEIR_Q8_0, 32, 64, 1);
    const auto x = random_rows(4 * 64, 3);
    std::vector<float> dst(4 * 32);
    weir_matmul_args args = arguments(a.weights.data(), dst.data(), x.data(), 4);
    const auto is_valid = [&](std::vector<weir_matmul_group> groups) {
        args.n_groups = (int32_t)groups.size(), args.groups = groups.data();
        return weir_matmul_is_valid(&args);
    };
    EXPECT_TRUE(is_valid({ { 0, 1, 6 }, { 1, 3, 0 } }));
    EXPECT_FALSE(is_valid({ { 0, 1, 6 }, { 2, 2, 0 } })) << "a gap";
    EXPECT_FALSE(is_valid({ { 0, 3, 6 }, { 2, 2, 0 } })) << "an overlap";
    EXPECT_FALSE(is_valid({ { 0, 3, 6 } })) << "a row is left";
    EXPECT_FALSE(is_valid({ { 0, 4, 6 }, { 4, 0, 0 } })) << "an empty group";
}

} // namespace
} // namespace weir_test
