// The emulated GPU itself: what it computes for a warp and a block, and that it does not let
// mistakes pass that a device may punish.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/tensor.h"

namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void reverse(float *out, const float *in, bool has_barrier)
{
    weir_cuda::begin_kernel();
    __shared__ float kept[64];
    kept[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    if (has_barrier) __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = kept[63 - threadIdx.x];
}

TEST(CudaEmulation, BarriersOrderMemoryAndMissingOnesShow)
{
    std::vector<float> in(640), out(640);
    for (size_t i = 0; i < in.size(); i++) in[i] = (float)i;
    WEIR_LAUNCH(reverse, 10, 64, 0, nullptr, out.data(), in.data(), true);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    for (size_t i = 0; i < out.size(); i++) EXPECT_EQ(out[i], in[i / 64 * 64 + 63 - i % 64]);
    WEIR_LAUNCH(reverse, 10, 64, 0, nullptr, out.data(), in.data(), false);
    int n_nan = 0;
    for (const float x : out) n_nan += std::isnan(x);
    EXPECT_GT(n_nan, 100);
}

__global__ void shuffles(int *out)
{
    weir_cuda::begin_kernel();
    const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x * 8;
    out[at] = __shfl_xor_sync(kAll, lane, 5);
    out[at + 1] = __shfl_sync(kAll, lane, 3, 8);
    out[at + 2] = __shfl_up_sync(kAll, lane, 1u, 16);
    out[at + 3] = __shfl_down_sync(kAll, lane, 2u);
    out[at + 4] = (int)__ballot_sync(kAll, lane % 3 == 0);
    out[at + 5] = __reduce_add_sync(kAll, lane);
    out[at + 6] = __any_sync(kAll, lane == 40);
    if (lane < 16) out[at + 7] = __shfl_xor_sync(0xffffu, lane, 1);
    __syncwarp();
}

TEST(CudaEmulation, Shuffles)
{
    std::vector<int> out(64 * 8, -1);
    WEIR_LAUNCH(shuffles, 1, 64, 0, nullptr, out.data());
    for (int t = 0; t < 64; t++) {
        const int lane = t % 32, *const own = &out[(size_t)t * 8];
        EXPECT_EQ(own[0], lane ^ 5);
        EXPECT_EQ(own[1], lane / 8 * 8 + 3);
        EXPECT_EQ(own[2], lane % 16 == 0 ? lane : lane - 1);
        EXPECT_EQ(own[3], lane < 30 ? lane + 2 : lane);
        EXPECT_EQ((unsigned)own[4], 0x49249249u);
        EXPECT_EQ(own[5], 31 * 16);
        EXPECT_EQ(own[6], 0);
        EXPECT_EQ(own[7], lane < 16 ? lane ^ 1 : -1);
    }
}

// D = A B by tensor cores; A [16][16] and B [16][8] lie row by row in shared memory, the rows 16
// bytes longer than they are.
__global__ void product(float *d, const uint16_t *a, const uint16_t *b, bool is_bf16)
{
    weir_cuda::begin_kernel();
    __shared__ __align__(16) uint16_t kept_a[16][24], kept_b[16][16];
    const unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < 32; i += 32)
        weir_cuda::copy_async(&kept_a[i / 2][i % 2 * 8], a + i * 8);
    weir_cuda::copy_commit();
    if (lane < 16) weir_cuda::copy_async(kept_b[lane], b + lane * 8);
    weir_cuda::copy_commit();
    weir_cuda::copy_wait<0>();
    __syncwarp();
    uint32_t fragment_a[4], fragment_b[4];
    weir_cuda::load_matrices(fragment_a, &kept_a[lane % 16][lane / 16 * 8]);
    weir_cuda::load_matrices_transposed(fragment_b, kept_b[lane % 16]);
    float sum[4] = { 1, 1, 1, 1 };
    const uint32_t rows[2] = { fragment_b[0], fragment_b[1] };
    if (is_bf16)
        weir_cuda::mma_bf16(sum, fragment_a, rows);
    else
        weir_cuda::mma_f16(sum, fragment_a, rows);
    for (unsigned i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

TEST(CudaEmulation, TensorCores)
{
    for (const bool is_bf16 : { false, true }) {
        alignas(16) uint16_t a[16 * 16], b[16 * 8];
        float d[16 * 8];
        const auto narrow = [&](int x) {
            return is_bf16 ? __float2bfloat16_rn((float)x).bits : __float2half_rn((float)x).bits;
        };
        for (int i = 0; i < 256; i++) a[i] = narrow(i * 7 % 61 - 30);
        for (int i = 0; i < 128; i++) b[i] = narrow(i * 11 % 53 - 20);
        WEIR_LAUNCH(product, 1, 32, 0, nullptr, d, a, b, is_bf16);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                int sum = 1;
                for (int k = 0; k < 16; k++)
                    sum += ((m * 16 + k) * 7 % 61 - 30) * ((k * 8 + n) * 11 % 53 - 20);
                EXPECT_EQ(d[m * 8 + n], (float)sum);
            }
    }
}

__global__ void bytes_product(int *d, const uint32_t *a, const uint32_t *b)
{
    weir_cuda::begin_kernel();
    const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const uint32_t rows[4] = { a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4],
                               a[(g + 8) * 8 + t + 4] };
    const uint32_t columns[2] = { b[g * 8 + t], b[g * 8 + t + 4] };
    int sum[4] = {};
    weir_cuda::mma_s8(sum, rows, columns);
    for (unsigned i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = sum[i];
}

TEST(CudaEmulation, TensorCoresOfBytes)
{
    alignas(4) int8_t a[16 * 32], b[8 * 32]; // b by columns
    int d[16 * 8];
    for (int i = 0; i < 512; i++) a[i] = (int8_t)(i * 37);
    for (int i = 0; i < 256; i++) b[i] = (int8_t)(i * 91 + 5);
    WEIR_LAUNCH(bytes_product, 1, 32, 0, nullptr, d, (const uint32_t *)a, (const uint32_t *)b);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            int sum = 0;
            for (int k = 0; k < 32; k++) sum += a[m * 32 + k] * b[n * 32 + k];
            EXPECT_EQ(d[m * 8 + n], sum);
        }
}

__global__ void copied(float *out, const float4 *in, int wait)
{
    weir_cuda::begin_kernel();
    WEIR_DYNAMIC_SHARED(float4, kept);
    weir_cuda::copy_async(kept + threadIdx.x, in + threadIdx.x, threadIdx.x < 8);
    weir_cuda::copy_commit();
    if (wait == 0) weir_cuda::copy_wait<0>();
    if (wait == 1) weir_cuda::copy_wait<1>();
    out[threadIdx.x] = kept[threadIdx.x].y;
    weir_cuda::copy_wait<0>();
}

TEST(CudaEmulation, CopiesArriveWhenTheyAreWaitedFor)
{
    std::vector<float4> in(8, { 1, 2, 3, 4 });
    float out[16];
    WEIR_LAUNCH(copied, 1, 16, 256, nullptr, out, in.data(), 0);
    for (int i = 0; i < 16; i++) EXPECT_EQ(out[i], i < 8 ? 2.0f : 0.0f);
    WEIR_LAUNCH(copied, 1, 16, 256, nullptr, out, in.data(), 1);
    for (int i = 0; i < 16; i++) EXPECT_TRUE(std::isnan(out[i]));
}

enum Mistake {
    kTwoBarriers,
    kLeftBarrier,
    kLeftLane,
    kOtherLine,
    kNotInMask,
    kNoWait,
    kPast,
    kMisaligned,
    kNotShared,
    kStarved,
    kOverlap
};
__global__ void mistaken(Mistake mistake, const char *global)
{
    WEIR_DYNAMIC_SHARED(char, kept);
    const int lane = (int)threadIdx.x;
    uint32_t r[4];
    if (mistake != kOverlap) weir_cuda::begin_kernel();
    switch (mistake) {
    case kOverlap: break;
    case kTwoBarriers:
        if (lane < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case kLeftBarrier:
        if (lane == 63) return;
        __syncthreads();
        break;
    case kLeftLane:
        if (lane == 5) return;
        (void)__shfl_xor_sync(kAll, lane, 1);
        break;
    case kOtherLine:
        if (lane % 2)
            (void)__shfl_xor_sync(kAll, lane, 1);
        else
            (void)__shfl_xor_sync(kAll, lane, 1);
        break;
    case kNotInMask: __syncwarp(0x7fffffffu); break;
    case kNoWait:
        weir_cuda::copy_async(kept, global);
        weir_cuda::copy_commit();
        break;
    case kPast: kept[64] = 1; break;
    case kMisaligned: weir_cuda::copy_async(kept, global + 8); break;
    case kNotShared: weir_cuda::load_matrices(r, global); break;
    case kStarved:
        if (lane == 3) __syncthreads();
        __syncwarp();
        break;
    }
}

TEST(CudaEmulation, MistakesEndTheProgram)
{
    alignas(16) static char global[64];
    const auto make = [](Mistake mistake) {
        WEIR_LAUNCH(mistaken, 1, 64, 64, nullptr, mistake, global);
    };
    EXPECT_DEATH(make(kTwoBarriers), "is at the barrier of line");
    EXPECT_DEATH(make(kLeftBarrier), "left the kernel|while others wait at a barrier");
    EXPECT_DEATH(make(kLeftLane), "left the kernel|ends while lane");
    EXPECT_DEATH(make(kOtherLine), "with mask ffffffff, lane");
    EXPECT_DEATH(make(kNotInMask), "lane 31 is not in the mask");
    EXPECT_DEATH(make(kNoWait), "copies that it did not wait for");
    EXPECT_DEATH(make(kPast), "past its dynamic shared memory");
    EXPECT_DEATH(make(kMisaligned), "not 16-byte aligned");
    EXPECT_DEATH(make(kNotShared), "not in shared memory");
    EXPECT_DEATH(make(kOverlap), "has not waited for the kernel before");
    EXPECT_DEATH(
        make(kStarved), "lanes that never come|ends while lane|while others wait at a barrier"
    );
}

TEST(CudaEmulation, LaunchesThatNoDeviceTakes)
{
    WEIR_LAUNCH(mistaken, 1, 2048, 0, nullptr, kPast, nullptr);
    EXPECT_NE(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    WEIR_LAUNCH(mistaken, 1, 32, 64 << 10, nullptr, kTwoBarriers, nullptr);
    EXPECT_NE(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(
        cudaFuncSetAttribute(mistaken, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10),
        cudaSuccess
    );
    WEIR_LAUNCH(mistaken, 1, 32, 64 << 10, nullptr, kTwoBarriers, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_NE(
        cudaFuncSetAttribute(mistaken, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 << 10),
        cudaSuccess
    );
}

} // namespace
