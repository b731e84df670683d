/* kernels/omp/kv_write.c - new K and V rows into their pages (kernels/abi/kv_page.h), f16 rounded to nearest even.
 *
 * A unit is (segment, tile of 32 positions, KV head). K is transposed on the way: an element of each of key_dim lines of 64 bytes per token.
 * Moves 4 + 2 bytes per element; nothing beside what attention reads. */
#include "kernels/omp/lanes.h"

enum { TILE = WEIR_TILE_TOKENS };

#pragma omp declare target
WEIR_INLINE void store_element(void *base, int64_t index, float x, const bool half)
{
    if (half)
        ((_Float16 *)base)[index] = (_Float16)x;
    else
        ((float *)base)[index] = x;
}

/* One token of one head; thread `tid` writes dimensions tid, tid + LANE_THREADS, ... */
WEIR_INLINE void write_token(void *page, const float *k, const float *v, int64_t token, int64_t key_dim, int64_t value_dim, const bool half,
                             int tid)
{
    const int64_t k_at = weir_page_k(token, 0, key_dim), v_at = weir_page_v(token, key_dim, value_dim);
    for (int64_t d = tid; d < key_dim; d += LANE_THREADS) store_element(page, k_at + d * TILE, k[d], half);
    LANES
    for (int64_t d = tid; d < value_dim; d += LANE_THREADS) store_element(page, v_at + d, v[d], half);
}

WEIR_INLINE int64_t tiles_of(const weir_kv_segment *segment)
{
    return segment->n_rows > 0 ? (segment->n_past + segment->n_rows - 1) / TILE - segment->n_past / TILE + 1 : 0;
}
#pragma omp end declare target

static weir_status WEIR_K(kv_write)(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_write_args *const args = op_args;
    if (args->dtype != WEIR_F16 && args->dtype != WEIR_F32) return WEIR_EUNSUPPORTED;
    const float *const k = args->k, *const v = args->v;
    const weir_kv_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_kv_heads = args->n_kv_heads, key_dim = args->key_dim, value_dim = args->value_dim;
    const int64_t k_stride = args->k_stride, v_stride = args->v_stride;
    const bool    half = args->dtype == WEIR_F16;
    int64_t       n_units = 0;
    for (int64_t s = 0; s < n_segments; s++) n_units += tiles_of(segments + s) * n_kv_heads;
    if (n_units <= 0) return WEIR_OK;

#pragma omp target teams is_device_ptr(k, v, segments) device(context -> omp_device) num_teams(lane_teams(context, n_units))               \
    thread_limit(lane_threads(context))
    {
#pragma omp parallel num_threads(LANE_THREADS)
        {
            int64_t u = lane_first_unit();
            for (int64_t s = 0; s < n_segments; s++) {
                const weir_kv_segment *const segment = segments + s;
                const int64_t                units = tiles_of(segment) * n_kv_heads;
                for (; u < units; u += lane_unit_step()) {
                    const int64_t head = u % n_kv_heads, tile = segment->n_past / TILE + u / n_kv_heads;
                    const int64_t begin = tile * TILE > segment->n_past ? tile * TILE : segment->n_past;
                    const int64_t past_end = segment->n_past + segment->n_rows,
                                  end = tile * TILE + TILE < past_end ? tile * TILE + TILE : past_end;
                    void *const page = segment->pages[head * segment->page_stride + tile * TILE / WEIR_PAGE_TOKENS];
                    for (int64_t p = begin; p < end; p++) {
                        const int64_t      t = segment->first_row + p - segment->n_past, token = p % WEIR_PAGE_TOKENS;
                        const float *const key = k + t * k_stride + head * key_dim, *const value = v + t * v_stride + head * value_dim;
                        if (half)
                            write_token(page, key, value, token, key_dim, value_dim, true, lane_thread());
                        else
                            write_token(page, key, value, token, key_dim, value_dim, false, lane_thread());
                    }
                }
                u -= units;
            }
        }
    }
    return WEIR_OK;
}

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_kv_write_args *const args = op_args;
    (void)caps;
    return args->dtype == WEIR_F16 || args->dtype == WEIR_F32 ? NULL : "pages are neither f16 nor f32";
}

/* Tolerance: the rounding is the definition: exact. */
extern const weir_kernel WEIR_K_ROW(kv_write);
const weir_kernel        WEIR_K_ROW(kv_write) = {
           .op = WEIR_OP_KV_WRITE,
           .backend = WEIR_BACKEND_OMP,
           .name = WEIR_K_NAME("kv_write"),
           .atol = 0.0,
           .rtol = 0.0,
           .reject = reject,
           .run = WEIR_K(kv_write),
};
