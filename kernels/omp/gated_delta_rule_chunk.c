/* kernels/omp/gated_delta_rule_chunk.c - the gated delta rule in chunks of 64 tokens (WY form; Yang
 * et al. 2024): exact, in another order of sums, so bits depend on where a sequence is cut.
 * Formulas and measurements: docs/kernels.md. Only if pinned: the scan is faster on CPUs. */
#include "kernels/abi/minmax.h"
#include "kernels/omp/delta.h"

enum {
    CHUNK = 64,
    TILE = WEIR_DELTA_LANES,
    BLOCK = LANE_ROWS, /* rows that one thread works on at a time             */
    LANE_GROUP =
        LANE_THREADS < TILE ? LANE_THREADS : TILE, /* threads over the lanes of a tile ... */
    ROW_THREADS = LANE_THREADS / LANE_GROUP, /* ... and over blocks of rows */
    TILE_VECTORS = TILE / (LANE_GROUP * LANE_WIDTH),
    PAIR_GROUP = LANE_THREADS < CHUNK ? LANE_THREADS : CHUNK, /* the same for rows of A and P */
    PAIR_THREADS = LANE_THREADS / PAIR_GROUP,
    PAIR_VECTORS = CHUNK / (PAIR_GROUP * LANE_WIDTH),
};

/* Output of the first region for a (chunk, V head); followed by k of the chunk transposed,
 * [key_dim][CHUNK]. */
typedef struct chunk_record {
    float a[CHUNK][CHUNK], p[CHUNK][CHUNK]; /* zero above the diagonal */
    float decay[CHUNK], rest[CHUNK]; /* exp(G_i); exp(G_n - G_i) * k_scale_i */
    float k_scale[CHUNK], q_scale[CHUNK], beta[CHUNK];
} chunk_record;

/* Rows of one head in one chunk; pointers are to the first row. */
typedef struct chunk_rows {
    const float *q, *k, *v;
    const delta_factors *factors;
    float *out;
    int64_t n, qkv_stride, out_stride, factor_stride, key_dim, width;
} chunk_rows;

#pragma omp declare target
WEIR_INLINE int64_t record_floats(int64_t key_dim)
{
    return (int64_t)(sizeof(chunk_record) / sizeof(float)) + key_dim * CHUNK;
}
WEIR_INLINE int64_t chunks_of(const weir_recurrent_segment *segment)
{
    return segment->n_rows > 0 ? (segment->n_rows + CHUNK - 1) / CHUNK : 0;
}

/* A_ij = beta_i (k_i . k_j) exp(G_i - G_j), j < i; P_ij = (q_i . k_j) exp(G_i - G_j), j <= i, with
 * G_i the sum of log decays, in double; only differences <= 0 are exponentiated. One row i of A
 * and P. sums [CHUNK] of log decays. */
WEIR_INLINE void relate_row(
    chunk_record *record, const float *transposed, const chunk_rows *rows, const double *sums,
    int64_t i, int tid
)
{
    const float *const q = rows->q + i * rows->qkv_stride, *const k =
                                                               rows->k + i * rows->qkv_stride;
    lane_float kk[PAIR_VECTORS], qk[PAIR_VECTORS];
    UNROLL
    for (int v = 0; v < PAIR_VECTORS; v++) kk[v] = qk[v] = (lane_float)0.0f;
    for (int64_t d = 0; d < rows->key_dim; d++) {
        UNROLL
        for (int v = 0; v < PAIR_VECTORS; v++) {
            const lane_float x = lane_load(
                transposed + d * CHUNK + (v * PAIR_GROUP + tid % PAIR_GROUP) * LANE_WIDTH
            );
            kk[v] = lane_fma((lane_float)k[d], x, kk[v]);
            qk[v] = lane_fma((lane_float)q[d], x, qk[v]);
        }
    }
    const delta_factors *const f = rows->factors + i * rows->factor_stride;
    UNROLL
    for (int v = 0; v < PAIR_VECTORS; v++) {
        const int first = (v * PAIR_GROUP + tid % PAIR_GROUP) * LANE_WIDTH;
        float key[LANE_WIDTH], query[LANE_WIDTH];
        lane_store(key, kk[v]);
        lane_store(query, qk[v]);
        for (int l = 0; l < LANE_WIDTH; l++) {
            const int j = first + l;
            const float fade =
                j <= i ? lane_exp((float)(sums[i] - sums[j])) * record->k_scale[j] : 0.0f;
            record->a[i][j] = j < i ? f->beta * f->k_scale * key[l] * fade : 0.0f;
            record->p[i][j] = j <= i ? f->q_scale * query[l] * fade : 0.0f;
        }
    }
}

/* All of a record. sums [CHUNK] is team memory. */
WEIR_INLINE void relate_chunk(
    chunk_record *record, float *transposed, const chunk_rows *rows, double *sums, int tid
)
{
    for (int64_t i = tid; i < CHUNK; i += LANE_THREADS) {
        const bool exists = i < rows->n;
        for (int64_t d = 0; d < rows->key_dim; d++)
            transposed[d * CHUNK + i] = exists ? rows->k[i * rows->qkv_stride + d] : 0.0f;
        record->k_scale[i] = exists ? rows->factors[i * rows->factor_stride].k_scale : 0.0f;
        record->q_scale[i] = exists ? rows->factors[i * rows->factor_stride].q_scale : 0.0f;
        record->beta[i] = exists ? rows->factors[i * rows->factor_stride].beta : 0.0f;
    }
    if (tid == 0) {
        double sum = 0.0;
        for (int64_t i = 0; i < CHUNK; i++)
            sums[i] = sum +=
                i < rows->n ? (double)rows->factors[i * rows->factor_stride].log_decay : 0.0;
    }
    TEAM_BARRIER
    for (int64_t i = tid; i < CHUNK; i += LANE_THREADS) {
        record->decay[i] = expf((float)sums[i]);
        record->rest[i] = expf((float)(sums[rows->n - 1] - sums[i])) * record->k_scale[i];
    }
    for (int64_t i = tid / PAIR_GROUP; i < rows->n; i += PAIR_THREADS)
        relate_row(record, transposed, rows, sums, i, tid);
    TEAM_BARRIER
}

WEIR_INLINE int lane_of(int v, int tid) { return (v * LANE_GROUP + tid % LANE_GROUP) * LANE_WIDTH; }

/* K S and Q S of rows [i0, i0 + BLOCK); then the right-hand side to `d` and the first part of the
 * output to `o`, both [CHUNK][TILE]. */
WEIR_INLINE void project(
    const chunk_record *record, const chunk_rows *rows, const float *state, float (*d)[TILE],
    float (*o)[TILE], int64_t i0, int tid
)
{
    lane_float ks[BLOCK][TILE_VECTORS], qs[BLOCK][TILE_VECTORS];
    int64_t at[BLOCK];
    UNROLL
    for (int r = 0; r < BLOCK; r++) {
        at[r] = weir_min(i0 + r, rows->n - 1) * rows->qkv_stride;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) ks[r][v] = qs[r][v] = (lane_float)0.0f;
    }
    for (int64_t i = 0; i < rows->key_dim; i++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_float s = lane_load(state + i * TILE + lane_of(v, tid));
            UNROLL
            for (int r = 0; r < BLOCK; r++) {
                ks[r][v] = lane_fma((lane_float)rows->k[at[r] + i], s, ks[r][v]);
                qs[r][v] = lane_fma((lane_float)rows->q[at[r] + i], s, qs[r][v]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < BLOCK; r++) {
        const int64_t i = i0 + r;
        if (i >= rows->n) break;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_float value = lane_load_part(
                rows->v + i * rows->qkv_stride + lane_of(v, tid), rows->width - lane_of(v, tid)
            );
            lane_store(
                &d[i][lane_of(v, tid)],
                (value - ks[r][v] * (record->decay[i] * record->k_scale[i])) * record->beta[i]
            );
            lane_store(&o[i][lane_of(v, tid)], qs[r][v] * (record->decay[i] * record->q_scale[i]));
        }
    }
}

/* sum[r] += sign * sum over j in [0, end) of m[i0 + r][j] d[j] */
WEIR_INLINE void combine(
    lane_float (*sum)[TILE_VECTORS], const float (*m)[CHUNK], const float (*d)[TILE], int64_t i0,
    int64_t end, const float sign, int tid
)
{
    for (int64_t j = 0; j < end; j++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_float x = lane_load(&d[j][lane_of(v, tid)]) * sign;
            UNROLL
            for (int r = 0; r < BLOCK; r++)
                sum[r][v] = lane_fma((lane_float)m[i0 + r][j], x, sum[r][v]);
        }
    }
}

/* d <- (I + A)^-1 d, lane by lane, by blocks of rows. Rows past n are undefined; no row before them
 * reads them. */
WEIR_INLINE void substitute(const chunk_record *record, float (*d)[TILE], int64_t n, int tid)
{
    for (int64_t i0 = 0; i0 < n; i0 += BLOCK) {
        lane_float x[BLOCK][TILE_VECTORS];
        UNROLL
        for (int r = 0; r < BLOCK; r++) {
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) x[r][v] = lane_load(&d[i0 + r][lane_of(v, tid)]);
        }
        combine(x, record->a, (const float(*)[TILE])d, i0, i0, -1.0f, tid);
        UNROLL
        for (int r = 0; r < BLOCK; r++) {
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) {
                UNROLL
                for (int s = 0; s < r; s++)
                    x[r][v] = lane_fma((lane_float)-record->a[i0 + r][i0 + s], x[s][v], x[r][v]);
                lane_store(&d[i0 + r][lane_of(v, tid)], x[r][v]);
            }
        }
    }
}

/* out of rows [i0, i0 + BLOCK): o + P d */
WEIR_INLINE void write_out(
    const chunk_record *record, const chunk_rows *rows, const float (*d)[TILE], float (*o)[TILE],
    int64_t i0, int tid
)
{
    lane_float x[BLOCK][TILE_VECTORS];
    UNROLL
    for (int r = 0; r < BLOCK; r++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) x[r][v] = lane_load(&o[i0 + r][lane_of(v, tid)]);
    }
    combine(x, record->p, d, i0, weir_min(i0 + BLOCK, rows->n), 1.0f, tid);
    UNROLL
    for (int r = 0; r < BLOCK; r++) {
        if (i0 + r >= rows->n) break;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            lane_store_part(
                rows->out + (i0 + r) * rows->out_stride + lane_of(v, tid), x[r][v],
                rows->width - lane_of(v, tid)
            );
    }
}

/* Rows [i0, i0 + BLOCK) of the state: exp(G_n) S + sum over j of rest_j k_j d_j. */
WEIR_INLINE void move_state(
    const chunk_record *record, const chunk_rows *rows, float *state, const float (*d)[TILE],
    int64_t i0, int tid
)
{
    lane_float x[BLOCK][TILE_VECTORS];
    UNROLL
    for (int r = 0; r < BLOCK; r++) {
        const int64_t i = weir_min(i0 + r, rows->key_dim - 1);
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            x[r][v] = lane_load(state + i * TILE + lane_of(v, tid)) * record->decay[rows->n - 1];
    }
    for (int64_t j = 0; j < rows->n; j++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_float delta = lane_load(&d[j][lane_of(v, tid)]) * record->rest[j];
            UNROLL
            for (int r = 0; r < BLOCK; r++)
                x[r][v] = lane_fma(
                    (lane_float)rows->k[j * rows->qkv_stride + weir_min(i0 + r, rows->key_dim - 1)],
                    delta, x[r][v]
                );
        }
    }
    UNROLL
    for (int r = 0; r < BLOCK; r++) {
        if (i0 + r >= rows->key_dim) break;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            lane_store(state + (i0 + r) * TILE + lane_of(v, tid), x[r][v]);
    }
}

/* D = (I + A)^-1 diag(beta) (V - diag(exp G) K S);  O = diag(exp G) Q S + P D;
 * S <- exp(G_n) S + sum_j exp(G_n - G_j) k_j d_j^T
 * One tile over one chunk. d, o [CHUNK][TILE] are team memory. */
WEIR_INLINE void sweep_chunk(
    const chunk_record *record, const chunk_rows *rows, float *state, float (*d)[TILE],
    float (*o)[TILE], int tid
)
{
    const int64_t start = tid / LANE_GROUP * BLOCK, step = ROW_THREADS * BLOCK;
    for (int64_t i0 = start; i0 < rows->n; i0 += step) project(record, rows, state, d, o, i0, tid);
    TEAM_BARRIER
    if (tid < LANE_GROUP) substitute(record, d, rows->n, tid);
    TEAM_BARRIER
    for (int64_t i0 = start; i0 < rows->n; i0 += step)
        write_out(record, rows, (const float(*)[TILE])d, o, i0, tid);
    for (int64_t i0 = start; i0 < rows->key_dim; i0 += step)
        move_state(record, rows, state, (const float(*)[TILE])d, i0, tid);
    TEAM_BARRIER
}
#pragma omp end declare target

/* The first region: records of all chunks and V heads. */
static void relate(
    const weir_kernel_context *context, const weir_gated_delta_rule_args *args,
    const delta_factors *factors, float *records, int64_t n_units
)
{
    const float *const q = args->q, *const k = args->k;
    const weir_recurrent_segment *const segments = args->segments;
    const int64_t n_k_heads = args->n_k_heads, n_v_heads = args->n_v_heads, key_dim = args->key_dim,
                  qkv_stride = args->qkv_stride;
    const bool tiled_heads = args->tiled_heads;

    TEAMS(n_units, factors, records, q, k, segments)
    {
        double sums[CHUNK];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const weir_recurrent_segment *segment = segments;
            const int64_t h = u % n_v_heads, m = delta_k_head(h, n_k_heads, n_v_heads, tiled_heads);
            int64_t chunk = u / n_v_heads;
            for (; chunk >= chunks_of(segment); segment++) chunk -= chunks_of(segment);
            const int64_t row = segment->first_row + chunk * CHUNK;
            const chunk_rows rows = { .q = q + row * qkv_stride + m * key_dim,
                                      .k = k + row * qkv_stride + m * key_dim,
                                      .factors = factors + row * n_v_heads + h,
                                      .n = weir_min(segment->n_rows - chunk * CHUNK, CHUNK),
                                      .qkv_stride = qkv_stride,
                                      .factor_stride = n_v_heads,
                                      .key_dim = key_dim };
            chunk_record *const record = (chunk_record *)(records + u * record_floats(key_dim));
            relate_chunk(record, (float *)(record + 1), &rows, sums, lane_thread());
        }
    }
}

static int64_t count_records(const weir_gated_delta_rule_args *args)
{
    int64_t n = 0;
    for (int64_t s = 0; s < args->n_segments; s++)
        n += chunks_of(args->segments + s) * args->n_v_heads;
    return n;
}

static size_t factor_bytes_aligned(const weir_gated_delta_rule_args *args)
{
    return (delta_factor_bytes(args) + 63) / 64 * 64;
}

static size_t scratch(const void *op_args)
{
    const weir_gated_delta_rule_args *const args = op_args;
    return factor_bytes_aligned(args) +
           (size_t)(count_records(args) * record_floats(args->key_dim)) * sizeof(float);
}

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_gated_delta_rule_args *const args = op_args;
    (void)caps;
    return args->channel_decay ? "one decay per head" : NULL;
}

static weir_status WEIR_K(gated_delta_rule_chunk)(
    const weir_kernel_context *context, const void *op_args
)
{
    const weir_gated_delta_rule_args *const args = op_args;
    if (!delta_shape_ok(args) || context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    const int64_t n_records = count_records(args);
    if (n_records <= 0) return WEIR_OK;
    delta_factors *const factors = context->scratch;
    float *const records = (float *)((char *)context->scratch + factor_bytes_aligned(args));
    delta_compute_factors(context, args, factors);
    relate(context, args, factors, records, n_records);

    float *const out = args->out;
    const float *const q = args->q, *const k = args->k, *const v = args->v;
    const weir_recurrent_segment *const segments = args->segments;
    const int64_t n_k_heads = args->n_k_heads, n_v_heads = args->n_v_heads, key_dim = args->key_dim,
                  value_dim = args->value_dim;
    const int64_t qkv_stride = args->qkv_stride, tiles = (value_dim + TILE - 1) / TILE,
                  n_units = args->n_segments * n_v_heads * tiles;
    const bool tiled_heads = args->tiled_heads;

    TEAMS(n_units, out, records, q, k, v, segments)
    {
        float d[CHUNK][TILE], o[CHUNK][TILE];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t s = u / (n_v_heads * tiles), h = u / tiles % n_v_heads, tile = u % tiles;
            const int64_t m = delta_k_head(h, n_k_heads, n_v_heads, tiled_heads);
            int64_t first = 0; /* chunks of the segments before */
            for (int64_t before = 0; before < s; before++) first += chunks_of(segments + before);
            for (int64_t chunk = 0; chunk < chunks_of(segments + s); chunk++) {
                const int64_t row = segments[s].first_row + chunk * CHUNK;
                const chunk_rows rows = { .q = q + row * qkv_stride + m * key_dim,
                                          .k = k + row * qkv_stride + m * key_dim,
                                          .v = v + row * qkv_stride + h * value_dim + tile * TILE,
                                          .out =
                                              out + (row * n_v_heads + h) * value_dim + tile * TILE,
                                          .n = weir_min(segments[s].n_rows - chunk * CHUNK, CHUNK),
                                          .qkv_stride = qkv_stride,
                                          .out_stride = n_v_heads * value_dim,
                                          .key_dim = key_dim,
                                          .width = value_dim - tile * TILE };
                const chunk_record *const record =
                    (const chunk_record *)(records + ((first + chunk) * n_v_heads + h) *
                                                         record_floats(key_dim));
                sweep_chunk(
                    record, &rows, segments[s].state + (h * tiles + tile) * key_dim * TILE, d, o,
                    lane_thread()
                );
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: as the scan; products of up to 64 decays are formed at once. */
extern const weir_kernel WEIR_K_ROW(gated_delta_rule_chunk);
const weir_kernel WEIR_K_ROW(gated_delta_rule_chunk) = {
    .op = WEIR_OP_GATED_DELTA_RULE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("gated_delta_rule.chunk"),
    .atol = 1e-5,
    .rtol = 2e-5,
    .reject = reject,
    .scratch = scratch,
    .run = WEIR_K(gated_delta_rule_chunk),
};
