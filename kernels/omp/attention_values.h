/* kernels/omp/attention_values.h - adds the values of a tile, times the weights of its positions,
 * to the sums of register blocks of query rows. */
#pragma once
#include "kernels/omp/attention_tile.h"
#include "kernels/omp/lane_transpose.h"

#pragma omp declare target
/* Expands dims [first, first + CHUNK) of the tokens of a V tile to block [32 tokens][CHUNK];
 * dims past the last are not written. */
WEIR_NOINLINE void expand_values(
    float *block, const char *part, weir_kv_format page_format, int64_t value_dim, int64_t token,
    int64_t first, int tid
){
#define KV_FORMAT_STATEMENT                                                                        \
    for (int64_t item = tid / KV_LANE_THREADS; item < TILE * CHUNK / KV_GROUP;                     \
         item += KV_GROUP_THREADS) {                                                               \
        const int64_t t = item / (CHUNK / KV_GROUP), group = item % (CHUNK / KV_GROUP) * KV_GROUP; \
        kv_expand_v(                                                                               \
            block + t * CHUNK + group, part, format, value_dim, token + t, first + group, tid      \
        );                                                                                         \
    }
    KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
}

#if READS_CODED
/* The same of a K tile [key_dim][32], whose first dims are the values: 32 dims at a time are
 * expanded to `turned` and transposed. A tile is read from memory once for K and V and all rows. */
WEIR_NOINLINE void expand_aliased(
    float *block, float *turned, const char *part, weir_kv_format page_format, int64_t key_dim,
    int64_t tile, int64_t first, int tid
)
{
    for (int64_t group = 0; group < CHUNK && first + group < key_dim; group += KV_GROUP) {
#define KV_FORMAT_STATEMENT kv_expand_k(turned, part, format, key_dim, tile, first + group, tid);
        KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
        TEAM_BARRIER
        lane_transpose(block + group, CHUNK, turned, KV_GROUP, tid);
        TEAM_BARRIER
    }
}
#endif

/* n * LANE_VECTORS vectors of value_dim from dim `first` on: value = value * decay + weights . V
 * weights [rows][32][step], the first of each step for LANE_VECTORS vectors, the one after it for
 * those that follow */
WEIR_INLINE void add_values(
    const float *restrict weights, const int step, const float *restrict decay,
    lane_float (*restrict value)[LANE_ROWS], const value_tile_rows *tile, int64_t first,
    const int n, const weir_kv_format format, const int rows
)
{
    const int bytes = 4 * n * VECTORS_DIMS * weir_kv_bits(format) / 8; /* Of codes, for 4 tokens. */
    lane_float sum[LANE_ROWS][MORE_CHAINS * LANE_VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < n * LANE_VECTORS; v++) sum[r][v] = value[v][r] * decay[r];
    }
    if (weir_kv_scales_of(format, WEIR_KV_V) == WEIR_KV_SCALES_GROUP) {
        UNROLL
        for (int i = 0; i < n; i++) PREFETCH(tile->next_scales + (first / KV_GROUP + i) * 64);
    }
    WEIR_PRAGMA(nounroll)
    for (int t0 = 0; t0 < TILE; t0 += 4) {
        /* The next tile's codes in memory order. */
        UNROLL
        for (int line = 0; line < bytes; line += 64)
            PREFETCH(
                tile->next_codes + first * TILE * weir_kv_bits(format) / 8 + t0 / 4 * bytes + line
            );
        UNROLL
        for (int t = t0; t < t0 + 4; t++) {
            UNROLL
            for (int i = 0; i < n; i++) {
                lane_float x[LANE_VECTORS];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++)
                    x[v] = value_lanes(tile, format, t, first + i * VECTORS_DIMS, v);
                UNROLL
                for (int r = 0; r < rows; r++) {
                    const lane_float weight =
                        (lane_float)weights[(r * TILE + t) * step + (step > 1 ? i : 0)];
                    UNROLL
                    for (int v = 0; v < LANE_VECTORS; v++)
                        sum[r][i * LANE_VECTORS + v] =
                            lane_fma(weight, x[v], sum[r][i * LANE_VECTORS + v]);
                }
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < n * LANE_VECTORS; v++) value[v][r] = sum[r][v];
    }
}

#if READS_CODED
/* scaled[row][token][group] = weight * scale: once per tile and block, instead of once per dim.
 * Groups past the last are undefined. */
WEIR_INLINE void scale_weights(
    team_memory *team, int b, const value_tile_rows *tile, int64_t value_dim, const int rows,
    int tid
)
{
    TEAM_BARRIER
    for (int64_t t = tid; t < TILE; t += LANE_THREADS) {
        const _Float16 *const scales = (const _Float16 *)(tile->scales + t * tile->scales_step);
        for (int64_t g = 0; g < value_dim / KV_GROUP; g += LANE_WIDTH) {
            const lane_float scale = lane_load_half(scales + g);
            UNROLL
            for (int r = 0; r < rows; r++)
                lane_store(&team->scaled[r][t][g], team->weights[b][r][t] * scale);
        }
    }
    TEAM_BARRIER
}

/* value_tile for codes that are read directly and have scales of 32 dims of a token. */
WEIR_INLINE void value_tile_of_groups(
    team_memory *team, row_block *blocks, const value_tile_rows *tile, const weir_kv_format format,
    int64_t value_dim, int n_blocks, const int width, const int rows, int tid
)
{
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        scale_weights(team, b, tile, value_dim, rows, tid);
        const int more = chains_of(rows);
        int n = 0;
        if (more > 1 && VECTORS_DIMS == KV_GROUP)
            for (; (n + more * LANE_VECTORS) * LANE_WIDTH <= value_dim; n += more * LANE_VECTORS)
                add_values(
                    &team->scaled[0][0][n * LANE_WIDTH / KV_GROUP], VALUE_GROUPS, team->decay[b],
                    blocks[b].value + n, tile, n * LANE_WIDTH, more, format, rows
                );
        UNROLL_DEVICE
        for (; n < width / (LANE_THREADS * LANE_WIDTH); n += LANE_VECTORS) {
            const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
            if (first >= value_dim) break;
            add_values(
                &team->scaled[0][0][first / KV_GROUP], VALUE_GROUPS, team->decay[b],
                blocks[b].value + n, tile, first, 1, format, rows
            );
        }
    }
}
#endif

/* Values of all blocks. `width`: value_dim rounded up to what the registers of this variant
 * hold. Lanes past value_dim sum undefined elements and are never stored. aliased: 0, or v is a K
 * tile of that width, whose first dims are the values. */
WEIR_INLINE void value_tile(
    team_memory *team, row_block *blocks, const tile_source *v, const tile_source *next,
    int64_t aliased, int64_t value_dim, int n_blocks, const int width, const int rows, int tid
)
{
    const value_tile_rows lying = value_rows_of(v, next, value_dim);
    const bool direct = !READS_CODED || (aliased == 0 && is_direct_v(v->format, value_dim));
#if READS_CODED
#define GROUPS_EXPANDED(name, scheme)
#define GROUPS_DIRECT(name, scheme)                                                                \
    case WEIR_KV_##name:                                                                           \
        if (WEIR_KV_##scheme##_V_SCALES != (int)WEIR_KV_SCALES_GROUP) break;                       \
        value_tile_of_groups(                                                                      \
            team, blocks, &lying, WEIR_KV_##name, value_dim, n_blocks, width, rows, tid            \
        );                                                                                         \
        return;
#define X(name, text, bits, scheme, coded, attention, ...) GROUPS_##attention(name, scheme)
    switch (aliased == 0 ? v->format : WEIR_KV_FORMAT_COUNT) {
        WEIR_KV_FORMAT_MAP(X)
    default: break;
    }
#undef X
#undef GROUPS_EXPANDED
#undef GROUPS_DIRECT
#endif
    UNROLL_DEVICE
    for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n += LANE_VECTORS) {
        const int64_t chunk = n * LANE_THREADS * LANE_WIDTH / CHUNK * CHUNK,
                      first = (n * LANE_THREADS + tid) * LANE_WIDTH;
        const bool lies = direct && (LANE_WIDTH == 1 || value_dim - chunk >= CHUNK);
        if (n * LANE_THREADS * LANE_WIDTH >= value_dim) break;
        if (!lies && n * LANE_THREADS * LANE_WIDTH == chunk) {
            const int64_t bits = weir_kv_bits(v->format);
            if (aliased == 0)
                prefetch_range(lying.next_codes + chunk * TILE * bits / 8, TILE * CHUNK * bits / 8);
            TEAM_BARRIER
#if READS_CODED
            if (aliased > 0)
                expand_aliased(
                    team->expanded, team->rotated, v->part, v->format, aliased, v->token / TILE,
                    chunk, tid
                );
            else
#endif
                expand_values(team->expanded, v->part, v->format, value_dim, v->token, chunk, tid);
            TEAM_BARRIER
        }
        if (LANE_WIDTH == 1 && first >= value_dim) {
            if (!READS_CODED) break;
            continue; /* goes to the barriers */
        }
        const value_tile_rows expanded = { .codes = (const char *)team->expanded,
                                           .next_codes = (const char *)team->expanded,
                                           .codes_step = CHUNK * 4 };
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
            lane_float(*const value)[LANE_ROWS] = blocks[b].value + n;
#define ADD_EXPANDED(name, bits, scheme, device)
#define ADD_DIRECT(name, bits, scheme, device)                                                     \
    case WEIR_KV_##name:                                                                           \
        if (!READS(device) || (bits) == 32 ||                                                      \
            WEIR_KV_##scheme##_V_SCALES == (int)WEIR_KV_SCALES_GROUP)                              \
            break;                                                                                 \
        add_values(                                                                                \
            team->weights[b][0], 1, team->decay[b], value, &lying, first, 1, WEIR_KV_##name, rows  \
        );                                                                                         \
        continue;
#define X(name, text, bits, scheme, coded, attention, device, cuda)                                \
    ADD_##attention(name, bits, scheme, device)
            switch (lies ? v->format : WEIR_KV_FORMAT_COUNT) {
                WEIR_KV_FORMAT_MAP(X)
            default: break;
            }
            /* f32, in the page or expanded */
            add_values(
                team->weights[b][0], 1, team->decay[b], value, lies ? &lying : &expanded,
                lies ? first : first - chunk, 1, WEIR_KV_F32, rows
            );
#undef X
#undef ADD_EXPANDED
#undef ADD_DIRECT
        }
    }
}
#pragma omp end declare target
