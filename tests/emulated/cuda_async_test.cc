// What goes on while the threads of an emulated block run: bulk copies, phases, products of
// warpgroups; and that mistakes do not pass.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/warpgroup.h"

namespace {

constexpr int kSteps = 7, kStages = 2, kFloats = 64;

// A warp copies, two others add what has come, a ring of two stages between them.
__global__ void added(float *out, const float *in, bool waits)
{
    WEIR_SWIZZLED_SHARED(float, ring);
    uint64_t *const full = reinterpret_cast<uint64_t *>(ring + kStages * kFloats), *const empty =
                                                                                       full +
                                                                                       kStages;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            weir_cuda::begin_phases(full + i, 1);
            weir_cuda::begin_phases(empty + i, 2);
        }
        weir_cuda::phases_begun();
    }
    weir_cuda::begin_kernel();
    __syncthreads();
    float sum = 0;
    for (int step = 0; step < kSteps; step++) {
        const int stage = step % kStages;
        const unsigned parity = (unsigned)(step / kStages % 2);
        if (warp == 0) {
            weir_cuda::wait_for_phase(empty + stage, parity ^ 1);
            if (lane == 0) weir_cuda::arrive_expecting(full + stage, 2 * 32 * sizeof(float));
            if (lane < 2)
                weir_cuda::copy_bulk(
                    ring + stage * kFloats + 32 * lane, in + step * kFloats + 32 * lane,
                    32 * sizeof(float), full + stage
                );
        } else {
            const float *const own = ring + stage * kFloats + (int)threadIdx.x - 32;
            if (!waits) sum += *own;
            weir_cuda::wait_for_phase(full + stage, parity);
            if (waits) sum += *own;
            __syncwarp();
            if (lane == 0) weir_cuda::arrive(empty + stage);
        }
    }
    if (warp > 0) {
        weir_cuda::barrier_of<64>(3);
        out[threadIdx.x - 32] = sum;
    }
}

TEST(CudaAsync, ARingOfBulkCopies)
{
    std::vector<float> in(kSteps * kFloats);
    for (size_t i = 0; i < in.size(); i++) in[i] = (float)(i % 97);
    for (const bool waits : { true, false }) {
        float out[kFloats];
        WEIR_LAUNCH(added, 3, 96, kStages * (kFloats * 4 + 16), nullptr, out, in.data(), waits);
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
        for (int i = 0; i < kFloats; i++) {
            float sum = 0;
            for (int step = 0; step < kSteps; step++) sum += in[(size_t)(step * kFloats + i)];
            if (waits)
                EXPECT_EQ(out[i], sum);
            else
                EXPECT_TRUE(std::isnan(out[i])) << "read before it was waited for";
        }
    }
}

// The place of an element of 16 bits in swizzled rows of 64.
size_t swizzled(int row, int column)
{
    return (size_t)(row * 64 + ((column / 8) ^ (row & 7)) * 8 + column % 8);
}

// Two products of 64 by 64 and 32 columns, from the middle of rows of 64: the second adds.
template <bool IS_F16> __global__ void product(float *d, const uint16_t *a, const uint16_t *b)
{
    WEIR_SWIZZLED_SHARED(uint16_t, kept);
    weir_cuda::begin_kernel();
    for (int i = (int)threadIdx.x; i < 64 * 64; i += 128) kept[i] = a[i], kept[4096 + i] = b[i];
    __syncthreads();
    float sums[32];
    for (float &sum : sums) sum = 1e30f;
    const weir_cuda::matrix of_a = weir_cuda::matrix_of(kept),
                            of_b = weir_cuda::matrix_of(kept + 4096);
    weir_cuda::fence_products();
    for (int k = 1; k < 3; k++)
        weir_cuda::multiply<IS_F16, 64>(
            sums, weir_cuda::inputs_from(of_a, k), weir_cuda::inputs_from(of_b, k), k > 1
        );
    weir_cuda::commit_products();
    weir_cuda::wait_for_products<0>();
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < 32; i++)
        d[(warp * 16 + g + i / 2 % 2 * 8) * 64 + i / 4 * 8 + 2 * t + i % 2] = sums[i];
}

template <bool IS_F16> void check_product()
{
    const auto narrow = [](int x) {
        return IS_F16 ? __float2half_rn((float)x).bits : __float2bfloat16_rn((float)x).bits;
    };
    const auto a_at = [](int row, int k) { return (row * 64 + k) * 7 % 61 - 30; };
    const auto b_at = [](int row, int k) { return (row * 64 + k) * 11 % 53 - 20; };
    std::vector<uint16_t> a(64 * 64), b(64 * 64);
    for (int row = 0; row < 64; row++)
        for (int k = 0; k < 64; k++) {
            a[swizzled(row, k)] = narrow(a_at(row, k));
            b[swizzled(row, k)] = narrow(b_at(row, k));
        }
    std::vector<float> d(64 * 64, NAN);
    WEIR_LAUNCH(product<IS_F16>, 1, 128, 4 * 64 * 64, nullptr, d.data(), a.data(), b.data());
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 64; n++) {
            int sum = 0;
            for (int k = 16; k < 48; k++) sum += a_at(m, k) * b_at(n, k);
            EXPECT_EQ(d[(size_t)(m * 64 + n)], (float)sum) << m << " " << n;
        }
}

TEST(CudaAsync, ProductsOfAWarpgroup)
{
    check_product<false>();
    check_product<true>();
}

enum Mistake {
    kNotBegun,
    kNoEnd,
    kTooMany,
    kUnderWay,
    kMisaligned,
    kNotShared,
    kOtherCount,
    kNoFence,
    kNoWait,
    kNotCopied,
};
__global__ void mistaken(Mistake mistake, const uint16_t *global)
{
    WEIR_SWIZZLED_SHARED(uint16_t, kept);
    uint64_t *const phases = reinterpret_cast<uint64_t *>(kept + 8192);
    weir_cuda::begin_kernel();
    if (mistake != kNotBegun && threadIdx.x == 0) weir_cuda::begin_phases(phases, 1);
    __syncthreads();
    const bool is_first = threadIdx.x == 0;
    float sums[32];
    const weir_cuda::matrix rows = weir_cuda::matrix_of(mistake == kNotShared ? global : kept);
    switch (mistake) {
    case kNotBegun: weir_cuda::arrive(phases); break;
    case kNoEnd: weir_cuda::wait_for_phase(phases, 0); break;
    case kTooMany:
        if (is_first) weir_cuda::arrive_expecting(phases, 16), weir_cuda::arrive(phases);
        break;
    case kUnderWay:
        if (is_first) weir_cuda::copy_bulk(kept, global, 4096, phases);
        break;
    case kMisaligned:
        if (is_first) weir_cuda::copy_bulk(kept, global + 4, 16, phases);
        break;
    case kNotCopied:
        if (is_first) weir_cuda::arrive_expecting(phases, 16);
        break;
    case kOtherCount:
        if (threadIdx.x < 32)
            weir_cuda::barrier_of<64>(1);
        else
            weir_cuda::barrier_of<128>(1);
        break;
    default:
        if (mistake != kNoFence) weir_cuda::fence_products();
        weir_cuda::multiply<false, 64>(sums, rows, rows, false);
        weir_cuda::commit_products();
        if (mistake != kNoWait) weir_cuda::wait_for_products<0>();
    }
}

TEST(CudaAsyncDeathTest, FindsMistakes)
{
    alignas(128) static uint16_t global[4096];
    const auto run = [&](Mistake mistake) {
        WEIR_LAUNCH(mistaken, 1, 128, 16384 + 8, nullptr, mistake, global);
    };
    EXPECT_DEATH(run(kNotBegun), "were not begun");
    EXPECT_DEATH(run(kNoEnd), "for what never comes");
    EXPECT_DEATH(run(kTooMany), "the phase has all its arrivals");
    EXPECT_DEATH(run(kUnderWay), "ends with bulk copies under way");
    EXPECT_DEATH(run(kMisaligned), "not of whole 16 bytes, aligned");
    EXPECT_DEATH(run(kNotShared), "not in shared memory");
    EXPECT_DEATH(run(kOtherCount), "barrier 1 of (64|128) threads is reached as one of");
    EXPECT_DEATH(run(kNoFence), "without a fence before it");
    EXPECT_DEATH(run(kNoWait), "products that it did not wait for");
    EXPECT_DEATH(run(kNotCopied), "waits for bytes that nothing copies");
}

} // namespace
