/* kernels/omp/kv_read.c - reads rows of pages as f32: the values that attention multiplies, with
 * turbo's rotated back in place. Unit: (segment, tile of 32 positions, KV head), 32 dims at a time
 * through team memory. Reads the coded bytes, writes 4 bytes per element. */
#include "kernels/omp/kv_tile.h"

enum { TILE = WEIR_TILE_TOKENS };

#pragma omp declare target
/* One side of a tile: rows of tokens [begin, end) of the tile that starts at `token` of the
 * page. */
typedef struct tile_rows {
    const char *part;
    float *rows; /* of token `begin` */
    int64_t stride, dim, token, begin, end;
    weir_kv_side side;
} tile_rows;

/* block: K [32 dims][32 tokens], V [32 tokens][32 dims] */
WEIR_INLINE void expand_block(
    float *block, const tile_rows *tile, const weir_kv_format format, int64_t first, int tid
)
{
    if (tile->side == WEIR_KV_K) {
        kv_expand_k(block, tile->part, format, tile->dim, tile->token / TILE, first, tid);
        return;
    }
    for (int64_t t = tile->begin + tid / KV_LANE_THREADS; t < tile->end; t += KV_GROUP_THREADS)
        kv_expand_v(
            block + t * KV_GROUP, tile->part, format, tile->dim, tile->token + t, first, tid
        );
}

WEIR_INLINE void read_rows(
    float *block, const tile_rows *tile, const weir_kv_format format, int tid
)
{
    for (int64_t first = 0; first < tile->dim; first += KV_GROUP) {
        const int64_t n = tile->dim - first < KV_GROUP ? tile->dim - first : KV_GROUP;
        expand_block(block, tile, format, first, tid);
        TEAM_BARRIER
        for (int64_t t = tile->begin + tid / KV_LANE_THREADS; t < tile->end; t += KV_GROUP_THREADS)
            for (int64_t d = tid % KV_LANE_THREADS; d < n; d += KV_LANE_THREADS)
                tile->rows[(t - tile->begin) * tile->stride + first + d] =
                    block[tile->side == WEIR_KV_K ? d * TILE + t : t * KV_GROUP + d];
        TEAM_BARRIER
    }
    if (!weir_kv_is_rotated(format)) return;
    for (int64_t t = 0; t < tile->end - tile->begin; t++) {
        float *const row = tile->rows + t * tile->stride;
        kv_hadamard(row, tile->dim, 1, tid);
        for (int64_t d = tid; d < tile->dim; d += LANE_THREADS)
            row[d] *= weir_kv_sign(tile->side, d);
    }
}

WEIR_INLINE void read_part(float *block, const tile_rows *tile, weir_kv_format page_format, int tid)
{
    if (!tile->rows) return;
#define KV_FORMAT_STATEMENT read_rows(block, tile, format, tid);
    KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
}
#pragma omp end declare target

static const char *reject(const weir_caps *caps, const void *op_args)
{
    (void)caps;
    return weir_kv_read_reject(op_args);
}

static weir_status WEIR_K(kv_read)(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_read_args *const args = op_args;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    if (!weir_kv_segments_are_sound(args->segments, args->n_segments, args->n_kv_heads))
        return WEIR_EINVAL;
    float *const k = args->k, *const v = args->v;
    const weir_kv_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_kv_heads = args->n_kv_heads,
                  key_dim = args->key_dim, value_dim = args->value_dim;
    const int64_t k_stride = args->k_stride, v_stride = args->v_stride;
    const weir_kv_format k_others = args->k_format, v_others = args->v_format,
                         k_sinks = args->sinks.pair.k, v_sinks = args->sinks.pair.v;
    const int32_t n_sinks = args->sinks.n_pages;
    int64_t n_units = 0;
    for (int64_t s = 0; s < n_segments; s++)
        n_units += weir_kv_segment_runs(segments + s, TILE) *
                   weir_kv_segment_heads(segments + s, n_kv_heads);
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, k, v, segments)
    {
        float block[KV_GROUP * TILE];
        TEAM_LANES
        {
            const int tid = lane_thread();
            int64_t u = lane_first_unit();
            for (int64_t s = 0; s < n_segments; s++) {
                const weir_kv_segment *const segment = segments + s;
                const int64_t heads = weir_kv_segment_heads(segment, n_kv_heads),
                              units = weir_kv_segment_runs(segment, TILE) * heads;
                for (; u < units; u += lane_unit_step()) {
                    const int64_t table = u % heads, head = segment->first_head + table;
                    const int64_t tile = segment->n_past / TILE + u / heads,
                                  page = tile * TILE / WEIR_PAGE_TOKENS;
                    const int64_t past_end = segment->n_past + segment->n_rows,
                                  tile_begin = tile * TILE;
                    const int64_t begin =
                        tile_begin > segment->n_past ? tile_begin : segment->n_past;
                    const int64_t end = tile_begin + TILE < past_end ? tile_begin + TILE : past_end;
                    const int64_t row = segment->first_row + begin - segment->n_past,
                                  unsealed_page = page - segment->n_past / WEIR_PAGE_TOKENS;
                    const char *const coded =
                        (const char *)segment->pages[table * segment->page_stride + page];
                    const char *const unsealed =
                        segment->unsealed_pages
                            ? (const char *)segment
                                  ->unsealed_pages[table * segment->unsealed_stride + unsealed_page]
                            : NULL;
                    const weir_kv_format k_format = page < n_sinks ? k_sinks : k_others,
                                         v_format = page < n_sinks ? v_sinks : v_others;
                    const bool unsealed_k = unsealed && weir_kv_seals_pages(k_format),
                               unsealed_v = unsealed && weir_kv_seals_pages(v_format);
                    tile_rows rows = { .part = unsealed_k ? unsealed : coded,
                                       .rows = k ? k + row * k_stride + head * key_dim : NULL,
                                       .stride = k_stride,
                                       .dim = key_dim,
                                       .token = tile_begin % WEIR_PAGE_TOKENS,
                                       .begin = begin - tile_begin,
                                       .end = end - tile_begin,
                                       .side = WEIR_KV_K };
                    read_part(block, &rows, unsealed_k ? WEIR_KV_F16 : k_format, tid);
                    rows.part = unsealed_v ? unsealed + weir_kv_unsealed_v_part(k_format, key_dim)
                                           : coded + weir_kv_v_part(k_format, key_dim);
                    rows.rows = v ? v + row * v_stride + head * value_dim : NULL;
                    rows.stride = v_stride;
                    rows.dim = value_dim;
                    rows.side = WEIR_KV_V;
                    read_part(block, &rows, unsealed_v ? WEIR_KV_F16 : v_format, tid);
                }
                u -= units;
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: products are exact or rounded once, and the rotation back has a fixed order. */
extern const weir_kernel WEIR_K_ROW(kv_read);
const weir_kernel WEIR_K_ROW(kv_read) = {
    .op = WEIR_OP_KV_READ,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("kv_read"),
    .atol = 0.0,
    .rtol = 0.0,
    .reject = reject,
    .run = WEIR_K(kv_read),
};
