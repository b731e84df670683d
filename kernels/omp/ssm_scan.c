/* kernels/omp/ssm_scan.c - the selective state space of Mamba-2 (Dao & Gu 2024) as a scan over
 * tokens: an element of the state has one chain of operations, whatever the cut into calls. Unit:
 * (segment, head, lanes of head_dim), each lane a row of the state: no barrier, no sum over lanes
 * (docs/kernels.md). */
#include "kernels/omp/lanes.h"

enum {
    TILE = WEIR_SSM_LANES,
    /* VECTORS of lanes and ROWS of tokens that are in registers while the state passes. */
    VECTORS = LANE_WIDTH == 1 ? 1 : 2,
    ROWS = LANE_WIDTH == 1    ? 1
           : LANE_WIDTH == 16 ? 4
                              : 2,
    UNIT_LANES = VECTORS * LANE_WIDTH * LANE_THREADS
};

/* Factors of (row, head) in the scratch, [T, H]. */
typedef struct ssm_factors {
    float step, decay;
} ssm_factors;

/* The rows of a unit; pointers are to the first row of the segment. */
typedef struct ssm_unit {
    const float *x, *b, *c; /* x from the unit's first lane */
    const ssm_factors *factors;
    float *out, *state; /* state of the head */
    float skip;
    int64_t n_rows, xbc_stride, out_stride, factor_stride, n_state;
    int64_t first, width; /* first lane; head_dim - first */
} ssm_unit;

#pragma omp declare target
WEIR_INLINE void factor_row(
    ssm_factors *factors, const float *dt, const float *dt_bias, const float *a_neg,
    int64_t n_heads, float dt_min, float dt_max, int tid
)
{
    LANES
    for (int64_t h = tid; h < n_heads; h += LANE_THREADS) {
        const float x = lane_softplus(dt[h] + dt_bias[h]), least = x < dt_min ? dt_min : x,
                    step = least > dt_max ? dt_max : least;
        factors[h].step = step;
        factors[h].decay = lane_exp(a_neg[h] * step);
    }
}

WEIR_INLINE int lane_of(int v, int tid) { return (v * LANE_THREADS + tid) * LANE_WIDTH; }

/* Rows [row, row + rows): S <- decay S + (step x) B^T, out = skip x + S C. An element of the state
 * is loaded and stored once: 3 operations for each row. One row: 8 bytes per element, bound by
 * memory. */
WEIR_INLINE void scan_rows(
    const ssm_unit *unit, int64_t row, const int rows, const int vectors, int tid
)
{
    const int64_t n_state = unit->n_state, stride = unit->xbc_stride;
    lane_float input[ROWS][VECTORS], sum[ROWS][VECTORS], decay[ROWS];
    const float *b[ROWS], *c[ROWS];
    float *state[VECTORS];
    UNROLL
    for (int v = 0; v < vectors; v++) {
        const int64_t lane = unit->first + lane_of(v, tid);
        state[v] = unit->state + lane / TILE * n_state * TILE + lane % TILE;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const ssm_factors *const f = unit->factors + (row + r) * unit->factor_stride;
        decay[r] = (lane_float)f->decay;
        b[r] = unit->b + (row + r) * stride;
        c[r] = unit->c + (row + r) * stride;
        UNROLL
        for (int v = 0; v < vectors; v++) {
            const int at = lane_of(v, tid);
            const lane_float x =
                lane_load_part(unit->x + (row + r) * stride + at, unit->width - at);
            input[r][v] = x * f->step;
            sum[r][v] = x * unit->skip;
        }
    }
    for (int64_t n = 0; n < n_state; n++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            lane_float s = lane_load(state[v] + n * TILE);
            UNROLL
            for (int r = 0; r < rows; r++) {
                s = lane_fma(decay[r], s, input[r][v] * (lane_float)b[r][n]);
                sum[r][v] = lane_fma(s, (lane_float)c[r][n], sum[r][v]);
            }
            lane_store(state[v] + n * TILE, s);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            const int at = lane_of(v, tid);
            lane_store_part(
                unit->out + (row + r) * unit->out_stride + at, sum[r][v], unit->width - at
            );
        }
    }
}

WEIR_INLINE void scan(const ssm_unit *unit, const int vectors, int tid)
{
    int64_t row = 0;
    for (; row + ROWS <= unit->n_rows; row += ROWS) scan_rows(unit, row, ROWS, vectors, tid);
    for (; row < unit->n_rows; row++) scan_rows(unit, row, 1, vectors, tid);
}
#pragma omp end declare target

static int64_t rows_of(const weir_ssm_scan_args *args)
{
    int64_t end = 0;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const int64_t last = (int64_t)args->segments[s].first_row + args->segments[s].n_rows;
        end = last > end ? last : end;
    }
    return end;
}

static size_t scratch(const void *op_args)
{
    const weir_ssm_scan_args *const args = op_args;
    return (size_t)(rows_of(args) * args->n_heads) * sizeof(ssm_factors);
}

/* The factors of all rows: the first region. */
static void compute_factors(
    const weir_kernel_context *context, const weir_ssm_scan_args *args, ssm_factors *factors
)
{
    const float *const dt = args->dt, *const dt_bias = args->dt_bias, *const a_neg = args->a_neg;
    const int64_t n_rows = rows_of(args), n_heads = args->n_heads, dt_stride = args->dt_stride;
    const float dt_min = args->dt_min, dt_max = args->dt_max;

    TEAMS(n_rows, factors, dt, dt_bias, a_neg)
    {
        TEAM_LANES
        for (int64_t r = lane_first_unit(); r < n_rows; r += lane_unit_step())
            factor_row(
                factors + r * n_heads, dt + r * dt_stride, dt_bias, a_neg, n_heads, dt_min, dt_max,
                lane_thread()
            );
    }
}

static weir_status WEIR_K(ssm_scan)(const weir_kernel_context *context, const void *op_args)
{
    const weir_ssm_scan_args *const args = op_args;
    if (!weir_ssm_scan_is_valid(args) || context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    const int64_t tiles = (args->head_dim + TILE - 1) / TILE,
                  parts = (tiles * TILE + UNIT_LANES - 1) / UNIT_LANES;
    const int64_t n_heads = args->n_heads, n_units = args->n_segments * n_heads * parts;
    if (n_units <= 0 || rows_of(args) <= 0) return WEIR_OK;
    ssm_factors *const factors = context->scratch;
    compute_factors(context, args, factors);

    float *const out = args->out;
    const float *const x = args->x, *const b = args->b, *const c = args->c,
                       *const skip = args->skip;
    const weir_recurrent_segment *const segments = args->segments;
    const int64_t per_group = n_heads / args->n_groups, head_dim = args->head_dim,
                  n_state = args->n_state, xbc_stride = args->xbc_stride;

    TEAMS(n_units, out, factors, x, b, c, skip, segments)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const weir_recurrent_segment *const segment = segments + u / (n_heads * parts);
            const int64_t h = u / parts % n_heads, first = u % parts * UNIT_LANES,
                          row = segment->first_row, group = h / per_group * n_state;
            const ssm_unit unit = { .x = x + row * xbc_stride + h * head_dim + first,
                                    .b = b + row * xbc_stride + group,
                                    .c = c + row * xbc_stride + group,
                                    .factors = factors + row * n_heads + h,
                                    .out = out + (row * n_heads + h) * head_dim + first,
                                    .state = segment->state + h * tiles * n_state * TILE,
                                    .skip = skip[h],
                                    .n_rows = segment->n_rows,
                                    .xbc_stride = xbc_stride,
                                    .out_stride = n_heads * head_dim,
                                    .factor_stride = n_heads,
                                    .n_state = n_state,
                                    .first = first,
                                    .width = head_dim - first };
            const int tid = lane_thread();
            const int64_t left = tiles * TILE - first - lane_of(0, tid);
            if (left >= VECTORS * LANE_WIDTH)
                scan(&unit, VECTORS, tid);
            else if (left > 0)
                scan(&unit, 1, tid);
        }
    }
    return WEIR_OK;
}

/* Tolerance: the state accumulates rounding of about 1e-7 of its values per token, which the decay
 * bounds; an output sums n_state products, which may cancel. */
extern const weir_kernel WEIR_K_ROW(ssm_scan);
const weir_kernel WEIR_K_ROW(ssm_scan) = {
    .op = WEIR_OP_SSM_SCAN,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("ssm_scan"),
    .atol = 1e-4,
    .rtol = 2e-5,
    .scratch = scratch,
    .run = WEIR_K(ssm_scan),
};
