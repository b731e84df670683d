/* kernels/omp/embed.c - rows of the embedding table as f32: plain types and Q8_0; other block types
 * are left to ref. The table is unaligned file bytes, so elements are assembled from bytes. One
 * team per row. */
#include "kernels/omp/lanes.h"

#pragma omp declare target
WEIR_INLINE uint16_t bits16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
WEIR_INLINE uint32_t bits32(const uint8_t *p)
{
    return (uint32_t)bits16(p) | (uint32_t)bits16(p + 2) << 16;
}

WEIR_INLINE float float_of(uint32_t bits)
{
    const union {
        uint32_t u;
        float f;
    } x = { .u = bits };
    return x.f;
}

/* binary16 to f32: rebias by a product (exact, subnormals too), restore infinities and NaN. */
WEIR_INLINE float half_of(uint16_t bits)
{
    const uint32_t magnitude = bits & 0x7fffu, sign = (uint32_t)(bits & 0x8000u) << 16;
    const union {
        float f;
        uint32_t u;
    } x = { .f = float_of(magnitude << 13) * 0x1p112f };
    return float_of(x.u | sign | (magnitude >= 0x7c00u ? 0x7f800000u : 0u));
}

WEIR_INLINE float element(const uint8_t *row, int64_t i, const weir_dtype dtype)
{
    if (dtype == WEIR_F32) return float_of(bits32(row + 4 * i));
    if (dtype == WEIR_F16) return half_of(bits16(row + 2 * i));
    if (dtype == WEIR_BF16) return float_of((uint32_t)bits16(row + 2 * i) << 16);
    const uint8_t *const block = row + i / 32 * 34; /* Q8_0: scale, 32 int8 */
    return half_of(bits16(block)) * (float)(int8_t)block[2 + i % 32];
}

WEIR_INLINE void copy_row(
    float *restrict dst, const uint8_t *restrict row, int64_t dim, const weir_dtype dtype, int tid
)
{
    LANES
    for (int64_t i = tid; i < dim; i += LANE_THREADS) dst[i] = element(row, i, dtype);
}
#pragma omp end declare target

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_embed_args *const args = op_args;
    (void)caps;
    const bool plain =
        args->dtype == WEIR_F32 || args->dtype == WEIR_F16 || args->dtype == WEIR_BF16;
    return plain || args->dtype == WEIR_Q8_0 ? NULL
                                             : "the table is neither f32, f16, bf16 nor q8_0";
}

static weir_status WEIR_K(embed)(const weir_kernel_context *context, const void *op_args)
{
    const weir_embed_args *const args = op_args;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    float *const dst = args->dst;
    const uint8_t *const table = args->table;
    const int32_t *const ids = args->ids;
    const int64_t n_rows = args->n_rows, dim = args->dim,
                  row_bytes = (int64_t)weir_row_bytes(args->dtype, dim);
    const weir_dtype dtype = args->dtype;
    if (n_rows <= 0) return WEIR_OK;

    TEAMS(n_rows, dst, table, ids)
    {
        TEAM_LANES
        for (int64_t r = lane_first_unit(); r < n_rows; r += lane_unit_step()) {
            const uint8_t *const row = table + ids[r] * row_bytes;
            if (dtype == WEIR_F32) copy_row(dst + r * dim, row, dim, WEIR_F32, lane_thread());
            if (dtype == WEIR_F16) copy_row(dst + r * dim, row, dim, WEIR_F16, lane_thread());
            if (dtype == WEIR_BF16) copy_row(dst + r * dim, row, dim, WEIR_BF16, lane_thread());
            if (dtype == WEIR_Q8_0) copy_row(dst + r * dim, row, dim, WEIR_Q8_0, lane_thread());
        }
    }
    return WEIR_OK;
}

/* Tolerance: exact. */
extern const weir_kernel WEIR_K_ROW(embed);
const weir_kernel WEIR_K_ROW(embed) = {
    .op = WEIR_OP_EMBED,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("embed"),
    .atol = 0.0,
    .rtol = 0.0,
    .reject = reject,
    .run = WEIR_K(embed),
};
