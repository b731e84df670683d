/* kernels/omp/gated_delta_rule.c - the gated delta rule (Yang et al. 2024; decays of channels: Kimi
 * Team 2025) as a scan over tokens: every sum over key_dim has a fixed order, so any cut into calls
 * gives the same bits. Unit: (segment, V head, one or two tiles of 16 value dimensions)
 * (docs/kernels.md). */
#include "kernels/omp/delta.h"

enum {
    TILE = WEIR_DELTA_LANES,
    KEY_MAX = 256,
    UNIT_TILES = LANE_WIDTH == TILE ? 2 : 1,
    CHAINS = LANE_WIDTH == TILE
                 ? 2
                 : 1, /* independent sums per lane: even and odd i hide the latency of the adds */
    LANE_GROUP =
        LANE_THREADS < TILE ? LANE_THREADS : TILE, /* threads over the lanes of a tile ... */
    KEY_THREADS = LANE_THREADS / LANE_GROUP, /* ... and over key_dim */
    TILE_VECTORS = TILE / (LANE_GROUP * LANE_WIDTH),
    STATE_FLOATS = LANE_THREADS == 1
                       ? 1
                       : KEY_MAX * TILE, /* state in team memory; the host updates in place */
};
_Static_assert(LANE_GROUP *KEY_THREADS == LANE_THREADS && TILE_VECTORS >= 1, "lane mapping");

typedef struct delta_lanes { /* one value per lane of the unit's tiles */
    lane_float x[UNIT_TILES][TILE_VECTORS];
} delta_lanes;

typedef struct team_memory {
    float state[STATE_FLOATS];
    float sums[2][2][KEY_THREADS][TILE]; /* by parity of the row: out, prediction of the next row */
} team_memory;

typedef struct delta_row {
    const float *q, *k, *v;
    const float *decays, *next_k; /* next_k: times the next decays, if channels have them */
    float *out;
    float decay, beta, k_scale, q_scale;
} delta_row;

#pragma omp declare target
WEIR_INLINE int lane_of(int v, int tid) { return (v * LANE_GROUP + tid % LANE_GROUP) * LANE_WIDTH; }

/* S^T k, this thread's share of key_dim. */
WEIR_INLINE delta_lanes
predict(const float *state, const float *k, int64_t key_dim, const int tiles, int tid)
{
    lane_float sum[UNIT_TILES][TILE_VECTORS][CHAINS];
    delta_lanes total;
    UNROLL
    for (int n = 0; n < tiles * TILE_VECTORS * CHAINS; n++)
        sum[n / CHAINS / TILE_VECTORS][n / CHAINS % TILE_VECTORS][n % CHAINS] = (lane_float)0.0f;
    for (int64_t i = tid / LANE_GROUP; i < key_dim; i += KEY_THREADS * CHAINS) {
        UNROLL
        for (int c = 0; c < CHAINS; c++) {
            const lane_float key = (lane_float)k[i + c];
            UNROLL
            for (int n = 0; n < tiles; n++) {
                UNROLL
                for (int v = 0; v < TILE_VECTORS; v++)
                    sum[n][v][c] = lane_fma(
                        lane_load(state + (n * key_dim + i + c) * TILE + lane_of(v, tid)), key,
                        sum[n][v][c]
                    );
            }
        }
    }
    UNROLL
    for (int n = 0; n < tiles; n++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            total.x[n][v] = CHAINS == 1 ? sum[n][v][0] : sum[n][v][0] + sum[n][v][CHAINS - 1];
    }
    return total;
}

/* S <- decay S + k d^T, the decay of the head or, by_channel, of each row of S; out = S^T q and, if
 * there is a next row, next = S^T next_k: this thread's share of key_dim. The state is loaded and
 * stored once: 4 multiply-adds per element; one row: 8 bytes per element, bound by memory. */
WEIR_INLINE void update(
    float *state, const delta_row *row, const delta_lanes *d, delta_lanes *out, delta_lanes *next,
    int64_t key_dim, const int tiles, const bool by_channel, const bool has_next, int tid
)
{
    lane_float out_sum[UNIT_TILES][TILE_VECTORS][CHAINS],
        next_sum[UNIT_TILES][TILE_VECTORS][CHAINS];
    UNROLL
    for (int n = 0; n < tiles * TILE_VECTORS * CHAINS; n++) {
        out_sum[n / CHAINS / TILE_VECTORS][n / CHAINS % TILE_VECTORS][n % CHAINS] =
            (lane_float)0.0f;
        next_sum[n / CHAINS / TILE_VECTORS][n / CHAINS % TILE_VECTORS][n % CHAINS] =
            (lane_float)0.0f;
    }
    for (int64_t i = tid / LANE_GROUP; i < key_dim; i += KEY_THREADS * CHAINS) {
        UNROLL
        for (int c = 0; c < CHAINS; c++) {
            const lane_float key = (lane_float)row->k[i + c], query = (lane_float)row->q[i + c];
            const lane_float next_key = (lane_float)(has_next ? row->next_k[i + c] : 0.0f),
                             decay = (lane_float)(by_channel ? row->decays[i + c] : row->decay);
            UNROLL
            for (int n = 0; n < tiles; n++) {
                UNROLL
                for (int v = 0; v < TILE_VECTORS; v++) {
                    float *const at = state + (n * key_dim + i + c) * TILE + lane_of(v, tid);
                    const lane_float x = lane_fma(key, d->x[n][v], lane_load(at) * decay);
                    lane_store(at, x);
                    out_sum[n][v][c] = lane_fma(x, query, out_sum[n][v][c]);
                    if (has_next) next_sum[n][v][c] = lane_fma(x, next_key, next_sum[n][v][c]);
                }
            }
        }
    }
    UNROLL
    for (int n = 0; n < tiles; n++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            out->x[n][v] =
                CHAINS == 1 ? out_sum[n][v][0] : out_sum[n][v][0] + out_sum[n][v][CHAINS - 1];
            next->x[n][v] =
                CHAINS == 1 ? next_sum[n][v][0] : next_sum[n][v][0] + next_sum[n][v][CHAINS - 1];
        }
    }
}

/* Adds the shares of the threads over key_dim, in ascending order; on the host there is one. (A
 * team with several has one tile per unit.) */
WEIR_INLINE void add_shares(
    team_memory *team, delta_lanes *out, delta_lanes *next, int parity, int tid
)
{
    if (KEY_THREADS == 1) return;
    UNROLL
    for (int v = 0; v < TILE_VECTORS; v++) {
        lane_store(&team->sums[parity][0][tid / LANE_GROUP][lane_of(v, tid)], out->x[0][v]);
        lane_store(&team->sums[parity][1][tid / LANE_GROUP][lane_of(v, tid)], next->x[0][v]);
    }
    TEAM_BARRIER
    UNROLL
    for (int v = 0; v < TILE_VECTORS; v++) {
        out->x[0][v] = next->x[0][v] = (lane_float)0.0f;
        for (int t = 0; t < KEY_THREADS; t++) {
            out->x[0][v] += lane_load(&team->sums[parity][0][t][lane_of(v, tid)]);
            next->x[0][v] += lane_load(&team->sums[parity][1][t][lane_of(v, tid)]);
        }
    }
}

/* One row: d = beta * (v - decay * k_scale * (S^T k)); S <- decay * S + (k_scale * d) k^T; out =
 * q_scale * (S^T q). `predicted`: S^T k, then S^T next_k; by_channel both k are times their decays
 * there, and decay is 1. `width`: value dimensions that exist in the unit's tiles. */
WEIR_INLINE void step(
    team_memory *team, float *state, const delta_row *row, delta_lanes *predicted, int64_t key_dim,
    int64_t width, int parity, const int tiles, const bool by_channel, const bool has_next, int tid
)
{
    delta_lanes d, out;
    UNROLL
    for (int n = 0; n < tiles; n++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int at = n * TILE + lane_of(v, tid);
            const lane_float error = lane_load_part(row->v + at, width - at) -
                                     predicted->x[n][v] * (row->decay * row->k_scale);
            d.x[n][v] = error * (row->beta * row->k_scale);
        }
    }
    update(state, row, &d, &out, predicted, key_dim, tiles, by_channel, has_next, tid);
    add_shares(team, &out, predicted, parity, tid);
    if (tid >= LANE_GROUP) return;
    UNROLL
    for (int n = 0; n < tiles; n++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int at = n * TILE + lane_of(v, tid);
            lane_store_part(row->out + at, out.x[n][v] * row->q_scale, width - at);
        }
    }
}

/* The rows of a unit; pointers are to the first row of the segment. */
typedef struct delta_unit {
    const float *q, *k, *v;
    const float *decays, *seen_k; /* seen_k: what S is multiplied by before a row; see `step` */
    const delta_factors *factors;
    float *out, *state;
    int64_t n_rows, qkv_stride, seen_stride, out_stride, factor_stride, key_dim, width;
} delta_unit;

WEIR_INLINE void scan(
    team_memory *team, const delta_unit *unit, const int tiles, const bool by_channel, int tid
)
{
    const int64_t key_dim = unit->key_dim;
    float *const state = LANE_THREADS == 1 ? unit->state : team->state;
    if (LANE_THREADS > 1) {
        for (int64_t i = tid / LANE_GROUP; i < key_dim; i += KEY_THREADS)
            for (int v = 0; v < TILE_VECTORS; v++)
                lane_store(
                    state + i * TILE + lane_of(v, tid),
                    lane_load(unit->state + i * TILE + lane_of(v, tid))
                );
    }
    delta_lanes predicted = predict(state, unit->seen_k, key_dim, tiles, tid), none = predicted;
    add_shares(team, &none, &predicted, 1, tid);
    for (int64_t r = 0; r < unit->n_rows; r++) {
        const delta_factors *const f = unit->factors + r * unit->factor_stride;
        const delta_row row = { .q = unit->q + r * unit->qkv_stride,
                                .k = unit->k + r * unit->qkv_stride,
                                .v = unit->v + r * unit->qkv_stride,
                                .decays = by_channel ? unit->decays + r * unit->seen_stride : NULL,
                                .next_k = unit->seen_k + (r + 1) * unit->seen_stride,
                                .out = unit->out + r * unit->out_stride,
                                .decay = f->decay,
                                .beta = f->beta,
                                .k_scale = f->k_scale,
                                .q_scale = f->q_scale };
        if (r + 1 < unit->n_rows)
            step(
                team, state, &row, &predicted, key_dim, unit->width, (int)(r & 1), tiles,
                by_channel, true, tid
            );
        else
            step(
                team, state, &row, &predicted, key_dim, unit->width, (int)(r & 1), tiles,
                by_channel, false, tid
            );
    }
    if (LANE_THREADS > 1) {
        for (int64_t i = tid / LANE_GROUP; i < key_dim; i += KEY_THREADS)
            for (int v = 0; v < TILE_VECTORS; v++)
                lane_store(
                    unit->state + i * TILE + lane_of(v, tid),
                    lane_load(state + i * TILE + lane_of(v, tid))
                );
    }
    TEAM_BARRIER
}
#pragma omp end declare target

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_gated_delta_rule_args *const args = op_args;
    (void)caps;
    if (args->key_dim > KEY_MAX) return "key_dim > 256";
    return args->key_dim % 2 == 0 ? NULL : "key_dim is odd";
}

static size_t scratch(const void *op_args)
{
    return delta_factor_bytes(op_args) + delta_channel_bytes(op_args);
}

static weir_status WEIR_K(gated_delta_rule)(const weir_kernel_context *context, const void *op_args)
{
    const weir_gated_delta_rule_args *const args = op_args;
    if (!delta_shape_ok(args) || context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    const int64_t unit_tiles = lane_on_device(context) ? 1 : UNIT_TILES;
    const int64_t tiles = (args->value_dim + TILE - 1) / TILE,
                  groups = (tiles + unit_tiles - 1) / unit_tiles;
    const int64_t n_v_heads = args->n_v_heads, n_units = args->n_segments * n_v_heads * groups;
    if (n_units <= 0 || delta_rows(args) <= 0) return WEIR_OK;
    delta_factors *const factors = context->scratch;
    delta_compute_factors(context, args, factors);

    float *const out = args->out;
    const float *const q = args->q, *const k = args->k, *const v = args->v;
    const weir_recurrent_segment *const segments = args->segments;
    const int64_t n_k_heads = args->n_k_heads, key_dim = args->key_dim, value_dim = args->value_dim,
                  qkv_stride = args->qkv_stride;
    const bool tiled_heads = args->tiled_heads, by_channel = args->channel_decay;
    const float *const channels = delta_channels(args, factors);

    TEAMS(n_units, out, factors, channels, q, k, v, segments)
    {
        team_memory team;
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const weir_recurrent_segment *const segment = segments + u / (n_v_heads * groups);
            const int64_t h = u / groups % n_v_heads, tile = u % groups * unit_tiles,
                          row = segment->first_row;
            const int64_t m = delta_k_head(h, n_k_heads, n_v_heads, tiled_heads),
                          own = (row * n_v_heads + h) * 2 * key_dim;
            const float *const key = k + row * qkv_stride + m * key_dim;
            const delta_unit unit = { .q = q + row * qkv_stride + m * key_dim,
                                      .k = key,
                                      .v = v + row * qkv_stride + h * value_dim + tile * TILE,
                                      .decays = by_channel ? channels + own : NULL,
                                      .seen_k = by_channel ? channels + own + key_dim : key,
                                      .factors = factors + row * n_v_heads + h,
                                      .out = out + (row * n_v_heads + h) * value_dim + tile * TILE,
                                      .state = segment->state + (h * tiles + tile) * key_dim * TILE,
                                      .n_rows = segment->n_rows,
                                      .qkv_stride = qkv_stride,
                                      .seen_stride =
                                          by_channel ? n_v_heads * 2 * key_dim : qkv_stride,
                                      .out_stride = n_v_heads * value_dim,
                                      .factor_stride = n_v_heads,
                                      .key_dim = key_dim,
                                      .width = value_dim - tile * TILE };
            if (unit.n_rows <= 0) continue;
            const bool is_whole = UNIT_TILES == 2 && tile + 1 < tiles;
            if (is_whole && by_channel)
                scan(&team, &unit, UNIT_TILES, true, lane_thread());
            else if (is_whole)
                scan(&team, &unit, UNIT_TILES, false, lane_thread());
            else if (by_channel)
                scan(&team, &unit, 1, true, lane_thread());
            else
                scan(&team, &unit, 1, false, lane_thread());
        }
    }
    return WEIR_OK;
}

/* Tolerance: the state accumulates rounding of about 1e-7 per token, which the decay and the
 * corrections bound. */
extern const weir_kernel WEIR_K_ROW(gated_delta_rule);
const weir_kernel WEIR_K_ROW(gated_delta_rule) = {
    .op = WEIR_OP_GATED_DELTA_RULE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("gated_delta_rule.scan"),
    .atol = 1e-5,
    .rtol = 2e-5,
    .reject = reject,
    .scratch = scratch,
    .run = WEIR_K(gated_delta_rule),
};
