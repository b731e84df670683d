/* kernels/omp/attention_rotate.h - rotates a tile that is not turbo's as turbo's are, for sequences
 * with pages of both kinds.
 *
 * The rotation is orthonormal: rotated keys with rotated queries give the plain scores, and sums
 * with rotated values are rotated back at the end. The tile is copied to f32 in team memory, K
 * [key_dim][32], V [32][value_dim], and read like a page. Costs dim * log2(dim) additions per
 * position for every 32 query rows: for the few first pages of a sequence. */
#pragma once
#include "kernels/omp/attention_tile.h"

#pragma omp declare target
#if READS_CODED
WEIR_NOINLINE void rotate_keys(
    float *rows, const char *part, weir_kv_format page_format, int64_t key_dim, int64_t tile,
    int tid
)
{
    for (int64_t first = 0; first < key_dim; first += KV_GROUP) {
#define KV_FORMAT_STATEMENT                                                                        \
    kv_expand_k(rows + first * TILE, part, format, key_dim, tile, first, tid);
        KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
    }
    TEAM_BARRIER
    for (int64_t d = tid; d < key_dim; d += LANE_THREADS) {
        const float sign = weir_kv_sign(WEIR_KV_K, d);
        for (int t = 0; t < TILE; t++) rows[d * TILE + t] *= sign;
    }
    TEAM_BARRIER
    kv_hadamard(rows, key_dim, TILE, tid);
}

WEIR_NOINLINE void rotate_values(
    float *rows, const char *part, weir_kv_format page_format, int64_t value_dim, int64_t token,
    int tid
)
{
    for (int64_t first = 0; first < value_dim; first += KV_GROUP) {
#define KV_FORMAT_STATEMENT                                                                        \
    for (int64_t t = tid / KV_LANE_THREADS; t < TILE; t += KV_GROUP_THREADS)                       \
        kv_expand_v(rows + t * value_dim + first, part, format, value_dim, token + t, first, tid);
        KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
    }
    TEAM_BARRIER
    for (int64_t d = tid; d < value_dim; d += LANE_THREADS) {
        const float sign = weir_kv_sign(WEIR_KV_V, d);
        for (int t = 0; t < TILE; t++) rows[t * value_dim + d] *= sign;
    }
    TEAM_BARRIER
    for (int t = 0; t < TILE; t++) kv_hadamard(rows + t * value_dim, value_dim, 1, tid);
}

/* Replaces the tile by its rotated copy, unless it is turbo's. The previous copy is no longer
 * read. */
WEIR_INLINE void use_rotated_keys(team_memory *team, tile_source *k, int64_t key_dim, int tid)
{
    if (weir_kv_is_rotated(k->format)) return;
    TEAM_BARRIER
    rotate_keys(team->rotated, k->part, k->format, key_dim, k->token / TILE, tid);
    *k = (tile_source){ .part = (const char *)team->rotated, .format = WEIR_KV_F32 };
}

WEIR_INLINE void use_rotated_values(team_memory *team, tile_source *v, int64_t value_dim, int tid)
{
    if (weir_kv_is_rotated(v->format)) return;
    TEAM_BARRIER
    rotate_values(team->rotated, v->part, v->format, value_dim, v->token, tid);
    *v = (tile_source){ .part = (const char *)team->rotated, .format = WEIR_KV_F32 };
}
#else
WEIR_INLINE void use_rotated_keys(team_memory *team, tile_source *k, int64_t key_dim, int tid) {}
WEIR_INLINE void use_rotated_values(team_memory *team, tile_source *v, int64_t value_dim, int tid)
{
}
#endif
#pragma omp end declare target
