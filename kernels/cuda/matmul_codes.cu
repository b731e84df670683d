/* kernels/cuda/matmul_codes.cu - products of quantised weights with int8 activations: a group of 32
 * inputs is one m16n8k32, exact; sum += (weight scale * activation scale) * integer and, with
 * minima, sum += minimum * (sum of activations), in ascending groups (docs/kernels.md). */
#include "kernels/cuda/matmul_few.h"
#include "kernels/cuda/tensor.h"

namespace weir_cuda_matmul_codes {

using namespace weir_cuda_matmul;

constexpr int kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

__device__ __forceinline__ float half_of(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

constexpr int kAhead = 2;
template <weir_cuda_codes CODES, bool NESTED, bool MINIMUM, int SPLITS> struct format {
    static constexpr int kLoads = CODES == WEIR_CUDA_S8 ? 2 : 1, kStepCodes = kLoads * 512,
                         kStepScales = (NESTED ? 32 : 64) * SPLITS;
    /* What registers hold. */
    static constexpr int kManyTiles = MINIMUM || SPLITS == 2 ? 2 : 4;
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

    static __device__ __forceinline__ void load_parts(
        step &s, const uint8_t *codes, const uint8_t *scales, const uint8_t *minima,
        const uint8_t *d, const uint8_t *dmin
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4;
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            s.codes[i] = *reinterpret_cast<const uint4 *>(codes + i * 512 + lane * 16);
        s.scales = load_scales(scales + g * (kStepScales / 8));
        if (MINIMUM) s.minima = load_scales(minima + g * (kStepScales / 8));
        if (NESTED) s.d = *reinterpret_cast<const uint32_t *>(d + g * 4);
        if (NESTED && MINIMUM) s.dmin = *reinterpret_cast<const uint32_t *>(dmin + g * 4);
    }
    static __device__ __forceinline__ void load(
        step &s, const product &p, int64_t panel, int64_t index
    )
    {
        const uint8_t *const at = p.weight + panel * (int64_t)p.planes.panel_bytes;
        const int64_t super = index / kSliceSteps * 32;
        load_parts(
            s, at + index * kStepCodes, at + p.planes.scales + index * kStepScales,
            at + p.planes.minima + index * kStepScales, at + p.planes.d + super,
            at + p.planes.dmin + super
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

    static constexpr int kParts = 1, kTogether = kAhead;
    /* Codes of row g; scales, and sums where the type has minima, of rows 2t and 2t + 1. */
    struct inputs {
        uint4 codes;
        float2 scales[2], sums[MINIMUM ? kScales : 1];
    };
    static constexpr int kTileScales = 2 * kTile * 4, kTileSums = MINIMUM ? kScales * kTile * 4 : 0;
    static __device__ __forceinline__ void load_tile(
        inputs &x, const uint8_t *codes, const uint8_t *scales, const uint8_t *sums, bool is_row
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), t = lane % 4;
        x.codes =
            is_row ? *reinterpret_cast<const uint4 *>(codes + lane * 16) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int group = 0; group < 2; group++)
            x.scales[group] = *reinterpret_cast<const float2 *>(scales + group * kTile * 4 + t * 8);
        if constexpr (MINIMUM) {
#pragma unroll
            for (int i = 0; i < kScales; i++)
                x.sums[i] = *reinterpret_cast<const float2 *>(sums + i * kTile * 4 + t * 8);
        }
    }
    static __device__ __forceinline__ const uint8_t *codes_of(const product &p, int64_t at)
    {
        return p.x.codes + at * 512;
    }
    static __device__ __forceinline__ const uint8_t *scales_of(const product &p, int64_t at)
    {
        return reinterpret_cast<const uint8_t *>(p.x.scales + at * 2 * kTile);
    }
    static __device__ __forceinline__ const uint8_t *sums_of(const product &p, int64_t at)
    {
        return reinterpret_cast<const uint8_t *>(
            (SPLITS == 1 ? p.x.sums : p.x.half_sums) + at * kScales * kTile
        );
    }
    static __device__ __forceinline__ void load_inputs(
        inputs &x, const product &p, int64_t tile, int64_t index
    )
    {
        const auto at = tile * p.steps + index;
        load_tile(x, codes_of(p, at), scales_of(p, at), sums_of(p, at), has_row(p, tile));
    }

    static __device__ __forceinline__ void multiply(
        float (&sums)[kParts][4], const operands &o, const inputs &x
    )
    {
#pragma unroll
        for (int group = 0; group < 2; group++) {
            const uint32_t b[2] = { group ? x.codes.z : x.codes.x, group ? x.codes.w : x.codes.y };
#pragma unroll
            for (int split = 0; split < SPLITS; split++) {
                const int scale = group * SPLITS + split;
                const bool low = SPLITS == 1 || split == 0, high = SPLITS == 1 || split == 1;
                const uint32_t a[4] = { low ? o.a[group][0] : 0, low ? o.a[group][1] : 0,
                                        high ? o.a[group][2] : 0, high ? o.a[group][3] : 0 };
                add(sums[0], a, b, o.scales[scale], x.scales[group]);
                if (MINIMUM)
                    add_minima(sums[0], o.minima[MINIMUM ? scale : 0], x.sums[MINIMUM ? scale : 0]);
            }
        }
    }

    /* Outputs g and g + 8, rows 2t and 2t + 1. */
    static __device__ __forceinline__ void put(
        const product &p, int64_t panel, int64_t tile, const float (&sums)[kParts][4],
        const float * /* row_scales */
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
        if (tile >= p.n_tiles) return;
#pragma unroll
        for (int i = 0; i < 4; i++)
            weir_cuda_matmul::put(
                p, tile * kTile + 2 * t + i % 2, panel * kPanel + g + i / 2 * 8, sums[0][i]
            );
    }

    /* Staged: a step's codes, scales, minima, d and dmin; of a tile codes, scales and sums. */
    static constexpr int kStepMinima = MINIMUM ? kStepScales : 0, kStepD = NESTED ? 32 : 0,
                         kStepDmin = NESTED && MINIMUM ? 32 : 0,
                         kMinimaAt = kStepCodes + kStepScales, kDAt = kMinimaAt + kStepMinima,
                         kDminAt = kDAt + kStepD, kPanelBytes = kDminAt + kStepDmin,
                         kTileBytes = 512 + kTileScales + kTileSums;
    /* Lanes copy the codes together, then each at most one piece of the rest. */
    struct panel_source {
        const uint8_t *codes, *rest;
        /* The rest is rest_bytes further every rest_steps steps; rest_to < 0: the lane has none. */
        int rest_to, rest_bytes, rest_steps;
        bool is_there;
        __device__ __forceinline__ void open(const product &p, int64_t panel)
        {
            const int lane = (int)(threadIdx.x % kWarp), at = lane * 16;
            is_there = panel < (p.n_out + kPanel - 1) / kPanel;
            const uint8_t *const from =
                p.weight + (is_there ? panel * (int64_t)p.planes.panel_bytes : 0);
            codes = from + at;
            rest_to = kStepCodes + at < kPanelBytes ? kStepCodes + at : -1;
            rest_bytes = kStepScales, rest_steps = 1;
            if (at < kStepScales) {
                rest = from + p.planes.scales + at;
            } else if (at < kStepScales + kStepMinima) {
                rest = from + p.planes.minima + at - kStepScales;
            } else {
                const int of_d = at - kStepScales - kStepMinima;
                rest = from + (of_d < kStepD ? p.planes.d + of_d : p.planes.dmin + of_d - kStepD);
                rest_bytes = 32, rest_steps = kSliceSteps;
            }
        }
        __device__ __forceinline__ void copy(uint8_t *panel, int64_t index) const
        {
            const int lane = (int)(threadIdx.x % kWarp);
#pragma unroll
            for (int i = 0; i < kLoads; i++)
                weir_cuda::copy_async(
                    panel + i * 512 + lane * 16, codes + index * kStepCodes + i * 512, is_there
                );
            if (rest_to < 0) return;
            const int64_t at = rest_steps == 1 ? index : index / kSliceSteps;
            weir_cuda::copy_async(panel + rest_to, rest + at * rest_bytes, is_there);
        }
    };
    struct tile_source {
        const uint8_t *codes, *rest;
        int rest_to, rest_bytes;
        bool is_there;
        __device__ __forceinline__ void open(const product &p, int64_t tile)
        {
            const int lane = (int)(threadIdx.x % kWarp), at = lane * 16;
            is_there = tile < p.n_tiles;
            const int64_t place = (is_there ? tile : 0) * p.steps;
            codes = codes_of(p, place) + at;
            const bool is_scale = at < kTileScales;
            rest = is_scale ? scales_of(p, place) + at : sums_of(p, place) + at - kTileScales;
            rest_to = 512 + at < kTileBytes ? 512 + at : -1;
            rest_bytes = is_scale ? kTileScales : kTileSums;
        }
        __device__ __forceinline__ void copy(uint8_t *tile, int64_t index) const
        {
            const int lane = (int)(threadIdx.x % kWarp);
            weir_cuda::copy_async(tile + lane * 16, codes + index * 512, is_there);
            if (rest_to >= 0)
                weir_cuda::copy_async(tile + rest_to, rest + index * rest_bytes, is_there);
        }
    };
    static __device__ __forceinline__ void load_staged(step &s, const uint8_t *panel)
    {
        load_parts(s, panel, panel + kStepCodes, panel + kMinimaAt, panel + kDAt, panel + kDminAt);
    }
    static __device__ __forceinline__ void load_inputs_staged(inputs &x, const uint8_t *tile)
    {
        load_tile(x, tile, tile + 512, tile + 512 + kTileScales, true);
    }
};

/* Blocks of a multiprocessor, by what registers hold. */
constexpr int kBlocks = 2, kFewTiles = 4, kBlocksOfTiles = 1;
template <class FORMAT, int TILES>
__global__ void __launch_bounds__(kWarp *kWarps, TILES == 1 ? kBlocks : kBlocksOfTiles)
    few(const __grid_constant__ group g, const int64_t n_panels)
{
    multiply_few<FORMAT, kAhead, TILES>(g, n_panels);
}
template <class FORMAT>
__global__ void __launch_bounds__(kWarp *kWarps, 1) many(const __grid_constant__ product p)
{
    multiply_many<FORMAT, FORMAT::kManyTiles>(p);
}

template <class FORMAT> void launch(group &g, cudaStream_t stream)
{
    if (is_many<FORMAT, FORMAT::kManyTiles>(g))
        launch_many<FORMAT, FORMAT::kManyTiles>(many<FORMAT>, g, stream);
    else if (g.p[0].n_tiles == 1)
        launch_few<FORMAT, 1, kBlocks>(few<FORMAT, 1>, g, stream);
    else
        launch_few<FORMAT, kFewTiles, kBlocksOfTiles>(few<FORMAT, kFewTiles>, g, stream);
}

} // namespace weir_cuda_matmul_codes

namespace weir_cuda_matmul {

void multiply_codes(group &g, weir_dtype kept, cudaStream_t stream)
{
    using namespace weir_cuda_matmul_codes;
    switch ((int)kept) { /* as weir_cuda_format_of */
    case WEIR_Q8_0:
    case WEIR_Q5_0:
    case WEIR_IQ4_NL: return launch<format<WEIR_CUDA_S8, false, false, 1>>(g, stream);
    case WEIR_Q4_0: return launch<format<WEIR_CUDA_S4, false, false, 1>>(g, stream);
    case WEIR_Q4_1: return launch<format<WEIR_CUDA_U4, false, true, 1>>(g, stream);
    case WEIR_Q5_1: return launch<format<WEIR_CUDA_S8, false, true, 1>>(g, stream);
    case WEIR_IQ4_XS: return launch<format<WEIR_CUDA_S8, true, false, 1>>(g, stream);
    case WEIR_Q2_K: return launch<format<WEIR_CUDA_U4, true, true, 2>>(g, stream);
    case WEIR_Q3_K: return launch<format<WEIR_CUDA_S4, true, false, 2>>(g, stream);
    case WEIR_Q4_K: return launch<format<WEIR_CUDA_U4, true, true, 1>>(g, stream);
    case WEIR_Q5_K: return launch<format<WEIR_CUDA_S8, true, true, 1>>(g, stream);
    case WEIR_Q6_K: return launch<format<WEIR_CUDA_S8, true, false, 2>>(g, stream);
    default: return;
    }
}

} // namespace weir_cuda_matmul
