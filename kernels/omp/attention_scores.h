/* kernels/omp/attention_scores.h - computes the scores of register blocks of query rows with the
 * keys of a tile. */
#pragma once
#include "kernels/omp/attention_tile.h"

#pragma omp declare target
/* Loops over registers are spelled out: an array passed to a function inside a loop is an
 * allocation on the device, inlined or not. */
/* The next n sums of SUM_DIMS dimensions, from `first` on, side by side; they join the score one
 * after the other. */
WEIR_INLINE void add_plain_sums(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t first, int64_t n_dims, const int n, const int v0,
    const weir_kv_format format, const int rows, int tid
)
{
    const int dim_bytes = TILE * weir_kv_bits(format) / 8;
    lane_float sum[MORE_CHAINS][THREAD_ROWS][LANE_VECTORS];
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) sum[i][r][v] = (lane_float)0.0f;
        }
    }
    WEIR_PRAGMA(nounroll
    ) /* the accumulators fill the registers: unrolled by 4, some would be spilled */
    for (int64_t d = 0; d < n_dims; d++) {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t at = first + i * SUM_DIMS + d;
            lane_float key[LANE_VECTORS];
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                key[v] = kv_load_plain(format, k.codes, at * TILE + token_of(v0 + v, tid));
            if (v0 == 0) {
                UNROLL
                for (int line = 0; line < dim_bytes; line += 64)
                    PREFETCH(next_k.codes + (first + d * n + i) * dim_bytes + line);
            }
            UNROLL
            for (int r = 0; r < rows / ROW_THREADS; r++) {
                const lane_float query = (lane_float)q[at * rows + row_of(r, tid)];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++)
                    sum[i][r][v] = lane_fma(query, key[v], sum[i][r][v]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) score[r][v0 + v] += sum[i][r][v];
        }
    }
}

/* The same over words of codes, whose scales apply to the sums: of 32 dims of a token, or of the
 * whole token. */
WEIR_INLINE void add_code_sums(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t first, const int n, const int v0, const weir_kv_format format,
    const int rows, int tid
)
{
    const int per = 32 / weir_kv_bits(format); /* dims of a word */
    lane_float sum[MORE_CHAINS][THREAD_ROWS][LANE_VECTORS];
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) sum[i][r][v] = (lane_float)0.0f;
        }
    }
    WEIR_PRAGMA(nounroll)
    for (int64_t step = 0; step < SUM_DIMS / per; step++) {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t w = (first + i * SUM_DIMS) / per + step;
            lane_uint word[LANE_VECTORS];
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                word[v] =
                    lane_load_words((const uint32_t *)k.codes + w * TILE + token_of(v0 + v, tid));
            if (v0 == 0) {
                PREFETCH(next_k.codes + (first / per + step * n + i) * TILE * 4);
                PREFETCH(next_k.codes + (first / per + step * n + i) * TILE * 4 + 64);
            }
            UNROLL
            for (int j = 0; j < per; j++) {
                lane_float key[LANE_VECTORS];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++) key[v] = key_of_word(format, word[v], j);
                UNROLL
                for (int r = 0; r < rows / ROW_THREADS; r++) {
                    const lane_float query = (lane_float)q[(w * per + j) * rows + row_of(r, tid)];
                    UNROLL
                    for (int v = 0; v < LANE_VECTORS; v++)
                        sum[i][r][v] = lane_fma(query, key[v], sum[i][r][v]);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        lane_float scale[LANE_VECTORS];
        const int64_t group = (first + i * SUM_DIMS) / KV_GROUP;
        UNROLL
        for (int v = 0; v < LANE_VECTORS; v++)
            scale[v] = kv_k_scale(format, k.scales, group * KV_GROUP, token_of(v0 + v, tid));
        if (v0 == 0 && weir_kv_scales_of(format, WEIR_KV_K) == WEIR_KV_SCALES_GROUP)
            PREFETCH(next_k.scales + group * TILE * 2);
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                score[r][v0 + v] = lane_fma(sum[i][r][v], scale[v], score[r][v0 + v]);
        }
    }
}

/* score[r][v] += sum over d of q[d][row] * k[d][position]    q [n_dims][rows], k [n_dims][32]
 * Sums of SUM_DIMS dimensions are added to the score: one long sum would lose up to twice the error
 * that steep logits (hundreds) allow. Coded rows have a multiple of SUM_DIMS. */
WEIR_INLINE void score_rows(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t n_dims, const weir_kv_format format, const int rows, int tid
)
{
    const bool is_plain = weir_kv_bits(format) >= 16;
    const int n = chains_of(rows);
    UNROLL
    for (int v0 = 0; v0 < TILE_VECTORS; v0 += LANE_VECTORS) {
        int64_t first = 0;
        WEIR_PRAGMA(nounroll)
        for (; n > 1 && first + n * SUM_DIMS <= n_dims; first += n * SUM_DIMS)
            if (is_plain)
                add_plain_sums(score, q, k, next_k, first, SUM_DIMS, n, v0, format, rows, tid);
            else
                add_code_sums(score, q, k, next_k, first, n, v0, format, rows, tid);
        WEIR_PRAGMA(nounroll)
        for (; first < n_dims; first += SUM_DIMS)
            if (is_plain)
                add_plain_sums(
                    score, q, k, next_k, first,
                    n_dims - first < SUM_DIMS ? n_dims - first : SUM_DIMS, 1, v0, format, rows, tid
                );
            else
                add_code_sums(score, q, k, next_k, first, 1, v0, format, rows, tid);
    }
}

/* Scores of all blocks; q [block][key_dim][rows]. */
WEIR_INLINE void score_tile(
    team_memory *team, row_block *blocks, const tile_source *k, const tile_source *next,
    int64_t key_dim, int n_blocks, const int rows, int tid
)
{
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) blocks[b].score[r][v] = (lane_float)0.0f;
        }
    }
#define SCORE_EXPANDED(name, bits, device)
#define SCORE_DIRECT(name, bits, device)                                                           \
    case WEIR_KV_##name: {                                                                         \
        if (!READS(device) || (bits) == 32) break;                                                 \
        const key_tile at = key_tile_of(k, WEIR_KV_##name, key_dim),                               \
                       ahead = key_tile_of(next, WEIR_KV_##name, key_dim);                         \
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)                                      \
            score_rows(                                                                            \
                blocks[b].score, team->q + b * key_dim * rows, at, ahead, key_dim, WEIR_KV_##name, \
                rows, tid                                                                          \
            );                                                                                     \
        return;                                                                                    \
    }
#define X(name, text, bits, scheme, coded, attention, device, cuda)                                \
    SCORE_##attention(name, bits, device)
    switch (k->format) {
        WEIR_KV_FORMAT_MAP(X)
    default: break;
    }
#undef X
#undef SCORE_EXPANDED
#undef SCORE_DIRECT
    /* f32, in the page or expanded */
    const bool lies = !READS_CODED || k->format == WEIR_KV_F32;
    const int64_t step = lies ? key_dim : KV_GROUP;
    for (int64_t first = 0; first < key_dim; first += step) {
        const int64_t n = key_dim - first < step ? key_dim - first : step;
        if (!lies) {
            const int64_t bytes = weir_kv_words(weir_kv_bits(k->format), KV_GROUP) * 4 * TILE;
            prefetch_range(
                key_tile_of(next, k->format, key_dim).codes + first / KV_GROUP * bytes, bytes
            );
            expand_keys(team->expanded, k->part, k->format, key_dim, k->token / TILE, first, tid);
            TEAM_BARRIER
        }
        const key_tile at = lies ? key_tile_of(k, WEIR_KV_F32, key_dim)
                                 : (key_tile){ .codes = (const char *)team->expanded };
        const key_tile ahead = lies ? key_tile_of(next, WEIR_KV_F32, key_dim) : at;
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            score_rows(
                blocks[b].score, team->q + (b * key_dim + first) * rows, at, ahead, n, WEIR_KV_F32,
                rows, tid
            );
        TEAM_BARRIER
    }
}
#pragma omp end declare target
