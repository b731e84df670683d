/* kernels/kv/turbo/tile.h - codes of turbo to f32, in the rotated domain, and the rotation.
 * Included by kernels/omp/kv_tile.h. */
WEIR_INLINE lane_float kv_centroid(const int bits, lane_uint code)
{
    static const float codebook[3][16] = {
        { -1.510418f, -0.452780f, WEIR_KV_CODEBOOK2 },
        { -2.151946f, -1.343909f, -0.756005f, -0.245094f, WEIR_KV_CODEBOOK3 },
        { -2.732590f, -2.069017f, -1.618046f, -1.256231f, -0.942340f, -0.656759f, -0.388048f,
          -0.128395f, WEIR_KV_CODEBOOK4 },
    };
    return lane_lookup(codebook[bits - 2], code);
}

WEIR_INLINE lane_float
kv_turbo_value(const weir_kv_format format, lane_uint code, lane_float scale, lane_float min)
{
    (void)min;
    return kv_centroid(weir_kv_bits(format), code) * scale;
}

/* Replaces every column of rows [dim][columns] by H column, by all threads. Needs a barrier before;
 * ends with one. */
WEIR_INLINE void kv_hadamard(float *rows, int64_t dim, int64_t columns, int tid)
{
    const float scale = weir_kv_orthonormal(dim);
    const int64_t n = dim * columns;
    for (int64_t h = columns; h < n; h *= 2) {
        if (LANE_THREADS == 1) {
            for (int64_t base = 0; base < n; base += 2 * h) {
                LANES
                for (int64_t i = base; i < base + h; i++) {
                    const float a = rows[i], b = rows[i + h];
                    rows[i] = a + b;
                    rows[i + h] = a - b;
                }
            }
        } else {
            for (int64_t pair = tid; pair < n / 2; pair += LANE_THREADS) {
                const int64_t i = pair / h * 2 * h + pair % h;
                const float a = rows[i], b = rows[i + h];
                rows[i] = a + b;
                rows[i + h] = a - b;
            }
        }
        TEAM_BARRIER
    }
    LANES
    for (int64_t i = tid; i < n; i += LANE_THREADS) rows[i] *= scale;
    TEAM_BARRIER
}
