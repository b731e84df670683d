/* kernels/kv/turbo/layout.h - turbo: an f16 scale per token, codes into a codebook of the row
 * rotated by H D.
 *   K  scales [32]     V  scales [64] */
enum { WEIR_KV_TURBO_DIM_MAX = 512 };

static inline const char *weir_kv_turbo_reject(weir_kv_side side, int64_t dim)
{
    (void)side;
    return (dim & (dim - 1)) != 0 || dim < 16 || dim > WEIR_KV_TURBO_DIM_MAX
               ? "takes head widths that are powers of two from 16 to 512"
               : NULL;
}

/* D of the rotation, +1 or -1: fixed, because pages are saved and shared. K and V differ. */
static inline float weir_kv_sign(weir_kv_side side, int64_t dim)
{
    uint32_t x = ((uint32_t)dim * 2u + (uint32_t)side + 1u) * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return (x ^ x >> 16) & 1u ? -1.0f : 1.0f;
}

/* 1 / sqrt(dim), dim a power of two: the scale of an orthonormal H. */
static inline float weir_kv_orthonormal(int64_t dim)
{
    float scale = 1.0f;
    for (; dim >= 4; dim /= 4) scale *= 0.5f;
    return dim == 2 ? scale * 0.70710678f : scale;
}

/* Lloyd-Max centroids of the standard normal, the positive half; code 2^(bits-1) + i is centroid i,
 * code 2^(bits-1) - 1 - i its negative. */
#define WEIR_KV_CODEBOOK2 0.452780f, 1.510418f
#define WEIR_KV_CODEBOOK3 0.245094f, 0.756005f, 1.343909f, 2.151946f
#define WEIR_KV_CODEBOOK4                                                                          \
    0.128395f, 0.388048f, 0.656759f, 0.942340f, 1.256231f, 1.618046f, 2.069017f, 2.732590f
