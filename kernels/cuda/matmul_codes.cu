/* kernels/cuda/matmul_codes.cu - products of quantised weights with int8 activations: a group of 32
 * inputs is one m16n8k32, exact; sum += (weight scale * activation scale) * integer and, with
 * minima, sum += minimum * (sum of activations), in ascending groups (docs/kernels.md). */
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tensor.h"

namespace weir_cuda_matmul_codes {

using namespace weir_cuda_matmul;

constexpr int kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

__device__ __forceinline__ float half_of(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

template <weir_cuda_codes CODES, bool NESTED, bool MINIMUM, int SPLITS> struct format {
    static constexpr int kLoads = CODES == WEIR_CUDA_S8 ? 2 : 1, kStepCodes = kLoads * 512,
                         kStepScales = (NESTED ? 32 : 64) * SPLITS;
    static constexpr int kManyTiles = MINIMUM && SPLITS == 2 ? 2 : 4; /* what registers hold */
    static constexpr int kScales = 2 * SPLITS; /* of a row in a step */
    static constexpr float kUnit =
        CODES == WEIR_CUDA_S4 ? 0.0625f
                              : 1.0f; /* signed nibbles are multiplied as 16 times their value */

    /* A lane's part of a step of a panel, as in memory: rows g and g + 8. */
    struct step {
        uint4 codes[kLoads];
        uint2 scales, minima;
        uint32_t d, dmin;
    };
    /* The same as operands of the products. */
    struct operands {
        uint32_t a[2][4];
        float scales[kScales][2], minima[MINIMUM ? kScales : 1][2];
    };

    static __device__ __forceinline__ uint2 load_scales(const uint8_t *at)
    {
        if (kStepScales == 64) return *reinterpret_cast<const uint2 *>(at);
        return make_uint2(*reinterpret_cast<const uint32_t *>(at), 0);
    }

    static __device__ __forceinline__ void load(
        step &s, const product &p, int64_t panel, int64_t index
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4;
        const uint8_t *const at = p.weight + panel * (int64_t)p.planes.panel_bytes;
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            s.codes[i] =
                *reinterpret_cast<const uint4 *>(at + index * kStepCodes + i * 512 + lane * 16);
        s.scales = load_scales(at + p.planes.scales + index * kStepScales + g * (kStepScales / 8));
        if (MINIMUM)
            s.minima =
                load_scales(at + p.planes.minima + index * kStepScales + g * (kStepScales / 8));
        if (NESTED)
            s.d = *reinterpret_cast<const uint32_t *>(
                at + p.planes.d + index / kSliceSteps * 32 + g * 4
            );
        if (NESTED && MINIMUM)
            s.dmin = *reinterpret_cast<const uint32_t *>(
                at + p.planes.dmin + index / kSliceSteps * 32 + g * 4
            );
    }

    static __device__ __forceinline__ void unpack(operands &o, const step &s)
    {
        const uint32_t words[4] = { s.codes[0].x, s.codes[0].y, s.codes[0].z, s.codes[0].w };
        const uint32_t more[4] = { s.codes[kLoads - 1].x, s.codes[kLoads - 1].y,
                                   s.codes[kLoads - 1].z, s.codes[kLoads - 1].w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o.a[0][i] = CODES == WEIR_CUDA_S8   ? words[i]
                        : CODES == WEIR_CUDA_U4 ? words[i] & 0x0F0F0F0Fu
                                                : words[i] << 4 & 0xF0F0F0F0u;
            o.a[1][i] = CODES == WEIR_CUDA_S8   ? more[i]
                        : CODES == WEIR_CUDA_U4 ? words[i] >> 4 & 0x0F0F0F0Fu
                                                : words[i] & 0xF0F0F0F0u;
        }
        const uint32_t scales[2] = { s.scales.x, s.scales.y },
                       minima[2] = { s.minima.x, s.minima.y };
#pragma unroll
        for (int i = 0; i < kScales; i++)
#pragma unroll
            for (int row = 0; row < 2; row++) {
                const int at = i * 2 + row;
                if (NESTED) {
                    const float d = half_of(s.d >> 16 * row & 0xFFFFu) * kUnit;
                    o.scales[i][row] = d * (float)(int8_t)(scales[at / 4] >> at % 4 * 8 & 0xFFu);
                    if (MINIMUM)
                        o.minima[i][row] = -half_of(s.dmin >> 16 * row & 0xFFFFu) *
                                           (float)(minima[at / 4] >> at % 4 * 8 & 0xFFu);
                } else {
                    o.scales[i][row] = half_of(scales[at / 2] >> at % 2 * 16 & 0xFFFFu) * kUnit;
                    if (MINIMUM)
                        o.minima[i][row] = half_of(minima[at / 2] >> at % 2 * 16 & 0xFFFFu);
                }
            }
    }

    /* Adds the product of one scale's inputs to sums. The accumulator begins at the bits of
     * 1.5 * 2^23: integers below 2^22 count that float's last place, so no conversion
     * (32 * 127 * 128 < 2^19). With two scales the codes of the other half are masked away. */
    static __device__ __forceinline__ void add(
        float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&scales)[2],
        float2 x_scales
    )
    {
        int d[4] = { kMagicBits, kMagicBits, kMagicBits, kMagicBits };
        weir_cuda::mma_s8(d, a, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[i] = fmaf(
                scales[i / 2] * (i % 2 ? x_scales.y : x_scales.x), __int_as_float(d[i]) - kMagic,
                sums[i]
            );
    }
    static __device__ __forceinline__ void add_minima(
        float (&sums)[4], const float (&minima)[2], float2 x_sums
    )
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[i] = fmaf(minima[i / 2], i % 2 ? x_sums.y : x_sums.x, sums[i]);
    }

    static __device__ __forceinline__ void multiply(
        float (&sums)[4], const operands &o, const product &p, int64_t tile, int64_t index
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), t = lane % 4;
        const auto at = tile * p.steps + index;
        const uint4 codes = *reinterpret_cast<const uint4 *>(p.x.codes + at * 512 + lane * 16);
        const float *const scales = p.x.scales + at * 2 * kTile + 2 * t;
#pragma unroll
        for (int group = 0; group < 2; group++) {
            const uint32_t b[2] = { group ? codes.z : codes.x, group ? codes.w : codes.y };
            const float2 x_scales = *reinterpret_cast<const float2 *>(scales + group * kTile);
#pragma unroll
            for (int split = 0; split < SPLITS; split++) {
                const int scale = group * SPLITS + split;
                const bool low = SPLITS == 1 || split == 0, high = SPLITS == 1 || split == 1;
                const uint32_t a[4] = { low ? o.a[group][0] : 0, low ? o.a[group][1] : 0,
                                        high ? o.a[group][2] : 0, high ? o.a[group][3] : 0 };
                add(sums, a, b, o.scales[scale], x_scales);
                if (!MINIMUM) continue;
                const float *const x_sums =
                    SPLITS == 1 ? p.x.sums + at * 2 * kTile : p.x.half_sums + at * 4 * kTile;
                add_minima(
                    sums, o.minima[MINIMUM ? scale : 0],
                    *reinterpret_cast<const float2 *>(x_sums + scale * kTile + 2 * t)
                );
            }
        }
    }
};

template <class FORMAT, int TILES>
__global__ void __launch_bounds__(kWarp *kWarps, TILES == 1 ? 2 : 1)
    few(const __grid_constant__ group g)
{
    multiply_few<FORMAT, TILES>(g);
}
constexpr int kManyPanels = 2;
template <class FORMAT>
__global__ void __launch_bounds__(kWarp *kWarps, 1) many(const __grid_constant__ product p)
{
    multiply_many<FORMAT, kManyPanels, FORMAT::kManyTiles>(p);
}

template <class FORMAT> void launch(group &g, bool is_many, cudaStream_t stream)
{
    launch_kernels(
        many<FORMAT>, kManyPanels, FORMAT::kManyTiles, few<FORMAT, 1>, few<FORMAT, 4>, g, is_many,
        stream
    );
}

} // namespace weir_cuda_matmul_codes

namespace weir_cuda_matmul {

void multiply_codes(group &g, weir_dtype kept, bool many, cudaStream_t stream)
{
    using namespace weir_cuda_matmul_codes;
    switch ((int)kept) { /* as weir_cuda_format_of */
    case WEIR_Q8_0:
    case WEIR_Q5_0:
    case WEIR_IQ4_NL: return launch<format<WEIR_CUDA_S8, false, false, 1>>(g, many, stream);
    case WEIR_Q4_0: return launch<format<WEIR_CUDA_S4, false, false, 1>>(g, many, stream);
    case WEIR_Q4_1: return launch<format<WEIR_CUDA_U4, false, true, 1>>(g, many, stream);
    case WEIR_Q5_1: return launch<format<WEIR_CUDA_S8, false, true, 1>>(g, many, stream);
    case WEIR_IQ4_XS: return launch<format<WEIR_CUDA_S8, true, false, 1>>(g, many, stream);
    case WEIR_Q2_K: return launch<format<WEIR_CUDA_U4, true, true, 2>>(g, many, stream);
    case WEIR_Q3_K: return launch<format<WEIR_CUDA_S4, true, false, 2>>(g, many, stream);
    case WEIR_Q4_K: return launch<format<WEIR_CUDA_U4, true, true, 1>>(g, many, stream);
    case WEIR_Q5_K: return launch<format<WEIR_CUDA_S8, true, true, 1>>(g, many, stream);
    case WEIR_Q6_K: return launch<format<WEIR_CUDA_S8, true, false, 2>>(g, many, stream);
    default: return;
    }
}

} // namespace weir_cuda_matmul
