/* kernels/x86/matmul_bf16_amx.c - the product on WEIR_LAYOUT_AMX with AMX-BF16, without its inner
 * loop (matmul_bf16_pass.h). Activations are rounded to bf16 once for all outputs, then threads
 * take panels. A row's sum is one chain of steps in ascending order, so its bits depend on nothing
 * else (docs/kernels.md). WEIR_EMULATED: a row for tests, with the instructions in C. */
#include <string.h>

#include "kernels/abi/share.h"
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_bf16_pass.h"

#ifdef WEIR_EMULATED
#define RUNS_ON(caps) ((caps)->x86_v2)
#define ROW weir_kernel_x86_matmul_bf16_amx_emulated
#define NAME "x86.matmul_bf16.amx_emulated"
#else
#define RUNS_ON(caps) ((caps)->amx_bf16)
#define ROW weir_kernel_x86_matmul_bf16_amx
#define NAME "x86.matmul_bf16.amx"
#endif

enum {
    /* Of many rows: 32 KB of weights stay in L1. */
    PIECE_STEPS = 16,
    /* Rounded at a time, for all rows of a tile, which take turns in lines of scratch. */
    ROUND_INPUTS = 8 * WEIR_AMX_STEP,
    /* Sums that wait for the next piece: 256 KB. Activations come from L3 once per 8 panels. */
    SPAN_ROWS = 256,
    SPAN_PANELS = 8,
    SUMS_BYTES = SPAN_ROWS * SPAN_PANELS * WEIR_AMX_PANEL * (int)sizeof(float),
    /* Prefetch distance of a stream (DRAM latency; 0.97 of the time with 8192). */
    STREAM_BYTES = 16384,
    /* Below, waking the threads costs more than the loop. */
    SERIAL_ELEMENTS = 16384,
    /* Rows are split over threads if panels are few, but no finer than this. */
    LEAST_ROWS = 2 * BLOCK_ROWS,
};

/* ---- rows ------------------------------------------------------------------------------------ */
/* Rows that share a matrix, in scratch as tiles [n_in / 32 steps][rows][32] of up to 16 rows. */
typedef struct row_range {
    int64_t first, n_rows; /* in x and dst */
    int64_t at, rows; /* in scratch: rows before it; its own, with padding */
    int32_t matrix;
} row_range;

typedef struct call {
    const weir_matmul_args *args;
    char *rounded; /* activations */
    int64_t n_steps, range_rows, panels_before[WEIR_MATMUL_OUTPUTS + 1];
    int32_t n_ranges;
} call;

/* Up to a block of rows has tiles of its own size; of more, all tiles are whole. */
static int64_t padded_rows(int64_t n)
{
    return n <= BLOCK_ROWS ? n : (n + LANES - 1) / LANES * LANES;
}

/* Range `index`; `at`: rows in scratch before it. */
static row_range range_at(const call *c, int32_t index, int64_t at)
{
    row_range range = { .at = at };
    if (c->args->n_groups > 0) {
        const weir_matmul_group *const group = &c->args->groups[index];
        range.first = group->first, range.n_rows = group->n_rows, range.matrix = group->matrix;
    } else {
        const int64_t left = c->args->n_rows - index * c->range_rows;
        range.first = index * c->range_rows;
        range.n_rows = left < c->range_rows ? left : c->range_rows;
    }
    range.rows = padded_rows(range.n_rows);
    return range;
}

static int64_t tiles_of(const row_range *range) { return (range->rows + LANES - 1) / LANES; }

static int64_t tile_rows(const row_range *range, int64_t tile)
{
    const int64_t left = range->rows - tile * LANES;
    return left < LANES ? left : LANES;
}

static char *tile_at(const call *c, const row_range *range, int64_t tile)
{
    return c->rounded + (range->at + tile * LANES) * c->n_steps * TILE_ROW_BYTES;
}

static void split_rows(call *c, int32_t n_threads)
{
    const weir_matmul_args *const args = c->args;
    const int64_t panels = c->panels_before[args->n_outputs];
    const int64_t wanted = n_threads == 1 ? 1 : (4 * (int64_t)n_threads + panels - 1) / panels,
                  most = (args->n_rows + LEAST_ROWS - 1) / LEAST_ROWS,
                  ranges = wanted < most ? wanted : most;
    c->range_rows =
        ((args->n_rows + ranges - 1) / ranges + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
    c->n_ranges = args->n_groups > 0
                      ? args->n_groups
                      : (int32_t)((args->n_rows + c->range_rows - 1) / c->range_rows);
}

/* A bound for any groups: only those of more than a block are padded. */
static int64_t scratch_rows(int64_t n_rows)
{
    return n_rows + n_rows / (BLOCK_ROWS + 1) * (LANES - 1);
}

static size_t scratch(const void *op_args)
{
    const weir_matmul_args *const args = op_args;
    return (size_t)scratch_rows(args->n_rows) * (size_t)weir_amx_steps(args->n_in) * TILE_ROW_BYTES;
}

/* ---- activations ----------------------------------------------------------------------------- */
/* Inputs [k, end) of a row, of which n exist. */
static void round_piece(char *to, int64_t stride, const float *x, int64_t k, int64_t end, int64_t n)
{
    for (; k < end; k += WEIR_AMX_STEP, to += stride) {
        if (n - k >= WEIR_AMX_STEP) {
            round_inputs(to, x + k);
            continue;
        }
        float values[WEIR_AMX_STEP] = { 0 };
        if (n > k) memcpy(values, x + k, (size_t)(n - k) * sizeof(float));
        round_inputs(to, values);
    }
}

/* Rows [first, end) of a tile, which count from the range's first; those past its last are zero. */
static void round_tile(const call *c, const row_range *range, int64_t first, int64_t end)
{
    const int64_t tile = first / LANES, stride = tile_rows(range, tile) * TILE_ROW_BYTES,
                  n_in = c->args->n_in;
    char *to = tile_at(c, range, tile);
    for (int64_t k = 0; k < n_in; k += ROUND_INPUTS, to += ROUND_INPUTS / WEIR_AMX_STEP * stride)
        for (int64_t row = first; row < end; row++)
            round_piece(
                to + row % LANES * TILE_ROW_BYTES, stride,
                c->args->x + (range->first + row) * c->args->x_stride, k,
                n_in - k < ROUND_INPUTS ? n_in : k + ROUND_INPUTS, row < range->n_rows ? n_in : 0
            );
}

/* Rows [share.first, share.end) of the scratch. */
static void round_rows(const call *c, weir_share share)
{
    for (int64_t i = 0, at = 0; i < c->n_ranges && at < share.end; i++) {
        const row_range range = range_at(c, (int32_t)i, at);
        at += range.rows;
        const int64_t last = (share.end < at ? share.end : at) - range.at;
        int64_t row = share.first > range.at ? share.first - range.at : 0;
        while (row < last) {
            const int64_t next = (row / LANES + 1) * LANES, end = next < last ? next : last;
            round_tile(c, &range, row, end);
            row = end;
        }
    }
}

static int64_t all_rows(const call *c)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < c->n_ranges; i++) rows += range_at(c, i, rows).rows;
    return rows;
}

/* ---- panels ---------------------------------------------------------------------------------- */
typedef float lanes __attribute__((vector_size(64)));

/* `n` of 16 outputs; bias: NULL or [n]. */
ALWAYS_INLINE void put(float *dst, const float *sums, const float *bias, size_t n, bool accumulate)
{
    lanes sum, other = { 0 };
    memcpy(&sum, sums, sizeof sum);
    if (bias) {
        memcpy(&other, bias, n * sizeof(float));
        sum += other;
    }
    if (accumulate) {
        memcpy(&other, dst, n * sizeof(float));
        sum = other + sum;
    }
    memcpy(dst, &sum, n * sizeof(float));
}

/* dst (+)= sums + bias, for the rows of a block that are no padding. */
static void finish(
    block_sums sums, const weir_matmul_output *output, const row_range *range, int64_t row,
    int64_t panel
)
{
    const int64_t first = panel * WEIR_AMX_PANEL, left = range->n_rows - row,
                  rows = left < BLOCK_ROWS ? left : BLOCK_ROWS, n_out = output->weight->n_out,
                  n = n_out - first;
    const float *const bias = output->bias ? output->bias + range->matrix * n_out + first : NULL;
    float *dst = output->dst + (range->first + row) * output->dst_stride + first;
    for (int64_t r = 0; r < rows; r++, dst += output->dst_stride)
        for (int64_t at = 0; at < WEIR_AMX_PANEL && at < n; at += LANES) {
            const float *const from = sums[r / LANES][at / LANES][r % LANES];
            if (n - at >= LANES)
                put(dst + at, from, bias ? bias + at : NULL, LANES, output->accumulate);
            else
                put(dst + at, from, bias ? bias + at : NULL, (size_t)(n - at), output->accumulate);
        }
}

/* Consecutive panels of an output, for one range of rows. */
typedef struct panels {
    const call *call;
    const row_range *range;
    const weir_matmul_output *output;
    int64_t first, n;
    block_sums *sums; /* [SPAN_PANELS][SPAN_ROWS / BLOCK_ROWS] */
} panels;

static const char *weights_at(const panels *p, int64_t panel, int64_t step)
{
    const weir_weight *const weight = &p->output->weight[p->range->matrix];
    return (const char *)weight->data +
           (size_t)(p->first + panel) * weir_amx_panel_bytes(weight->n_in) +
           (size_t)step * WEIR_AMX_STEP_BYTES;
}

/* Rows [row, end) with steps [step, step + n) of a panel. Several blocks find the weights in L1 and
 * each prefetch a share of the next piece; a single one streams them. */
static void multiply_piece(
    const panels *p, int64_t panel, int64_t row, int64_t end, int64_t step, int64_t n
)
{
    const call *const c = p->call;
    const int64_t blocks = (end - row + BLOCK_ROWS - 1) / BLOCK_ROWS, last = tiles_of(p->range);
    pass to = { .weights = weights_at(p, panel, step), .n_steps = n, .starts = step == 0 };
    to.ahead_bytes = (WEIR_AMX_STEP_BYTES / 64 + blocks - 1) / blocks * 64;
    to.ahead = blocks == 1             ? to.weights + STREAM_BYTES
               : panel + 1 < p->n      ? weights_at(p, panel + 1, step)
               : step + n < c->n_steps ? weights_at(p, 0, step + n)
                                       : weights_at(p, p->n, 0);
    for (int64_t b = 0; b < blocks; b++, row += BLOCK_ROWS, to.ahead += n * to.ahead_bytes) {
        const int64_t tile = row / LANES;
        float(*const sums)[2][LANES][LANES] = p->sums[panel * (SPAN_ROWS / BLOCK_ROWS) + b];
        to.upper_bytes = tile_rows(p->range, tile) * TILE_ROW_BYTES;
        to.upper = tile_at(c, p->range, tile) + step * to.upper_bytes;
        to.lower = to.upper, to.lower_bytes = to.upper_bytes;
        if (tile + 1 < last) {
            to.lower_bytes = tile_rows(p->range, tile + 1) * TILE_ROW_BYTES;
            to.lower = tile_at(c, p->range, tile + 1) + step * to.lower_bytes;
            if (blocks > 1)
                multiply(sums, &to, true, true);
            else
                multiply(sums, &to, true, false);
        } else {
            multiply(sums, &to, false, false);
        }
        if (step + n == c->n_steps) finish(sums, p->output, p->range, row, p->first + panel);
    }
}

static void multiply_panels(const panels *p)
{
    const int64_t n_steps = p->call->n_steps, n_rows = p->range->n_rows,
                  piece = n_rows <= BLOCK_ROWS ? n_steps : PIECE_STEPS;
    for (int64_t row = 0; row < n_rows; row += SPAN_ROWS) {
        const int64_t end = row + SPAN_ROWS < n_rows ? row + SPAN_ROWS : n_rows;
        for (int64_t step = 0; step < n_steps; step += piece)
            for (int64_t panel = 0; panel < p->n; panel++)
                multiply_piece(
                    p, panel, row, end, step, n_steps - step < piece ? n_steps - step : piece
                );
    }
}

/* Panels [first, end) of all outputs for one range of rows. */
static void multiply_range(
    const call *c, const row_range *range, int64_t first, int64_t end, block_sums *sums
)
{
    const bool is_single = range->n_rows <= BLOCK_ROWS;
    if (first >= end) return;
    configure_tiles(
        is_single ? tile_rows(range, 0) : LANES,
        is_single && range->n_rows > LANES ? tile_rows(range, 1) : LANES
    );
    for (int64_t panel = first; panel < end;) {
        int32_t o = 0;
        while (panel >= c->panels_before[o + 1]) o++;
        const int64_t left =
                          (end < c->panels_before[o + 1] ? end : c->panels_before[o + 1]) - panel,
                      n = left < SPAN_PANELS ? left : SPAN_PANELS;
        multiply_panels(&(panels){ .call = c,
                                   .range = range,
                                   .output = &c->args->outputs[o],
                                   .first = panel - c->panels_before[o],
                                   .n = n,
                                   .sums = sums });
        panel += n;
    }
}

/* This thread's panels: as many tiles of rows as the others'. The registers are used within this
 * call only: released, they cost no context switch and cannot meet another configuration. */
static void multiply_share(const call *c, block_sums *sums)
{
    const int64_t n_panels = c->panels_before[c->args->n_outputs];
    int64_t tiles = 0, before = 0;
    for (int64_t i = 0, at = 0; i < c->n_ranges; i++) {
        const row_range range = range_at(c, (int32_t)i, at);
        at += range.rows;
        tiles += tiles_of(&range);
    }
    const weir_share share = weir_share_of(tiles * n_panels);
    for (int64_t i = 0, at = 0; i < c->n_ranges && before < share.end; i++) {
        const row_range range = range_at(c, (int32_t)i, at);
        const int64_t each = tiles_of(&range);
        const int64_t first = share.first > before ? (share.first - before + each - 1) / each : 0,
                      end = (share.end - before + each - 1) / each;
        multiply_range(c, &range, first, end < n_panels ? end : n_panels, sums);
        before += each * n_panels;
        at += range.rows;
    }
    RELEASE();
}

/* ---- row of the table ------------------------------------------------------------------------ */
static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_matmul_args *args = op_args;
    if (!RUNS_ON(caps)) return "needs AMX-BF16";
    if (args->n_outputs < 1 || args->n_outputs > WEIR_MATMUL_OUTPUTS) return "needs 1 to 4 outputs";
    if (args->n_rows < 1) return "needs rows";
    for (int o = 0; o < args->n_outputs; o++) {
        const weir_weight *const weight = args->outputs[o].weight;
        if (weight->layout != WEIR_LAYOUT_AMX) return "weight is not packed for AMX";
        if (weight->n_in != args->n_in) return "n_in differs from the weight's";
    }
    return NULL;
}

static weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const weir_matmul_args *const args = op_args;
    const size_t rounded = scratch(args);
    if (context->scratch_bytes < rounded + SUMS_BYTES * (size_t)context->n_threads)
        return WEIR_EINVAL;
    call c = { .args = args, .rounded = context->scratch, .n_steps = weir_amx_steps(args->n_in) };
    for (int o = 0; o < args->n_outputs; o++)
        c.panels_before[o + 1] =
            c.panels_before[o] + weir_amx_panels(args->outputs[o].weight->n_out);
    split_rows(&c, context->n_threads);
    const int64_t rows = all_rows(&c);
    const bool serial = args->n_rows * args->n_in <= SERIAL_ELEMENTS;
    if (serial) round_rows(&c, (weir_share){ 0, rows });
#pragma omp parallel num_threads(context->n_threads)
    {
        if (!serial) {
            round_rows(&c, weir_share_of(rows));
#pragma omp barrier
        }
        char *const sums = c.rounded + rounded + (size_t)omp_get_thread_num() * SUMS_BYTES;
        multiply_share(&c, (block_sums *)(void *)sums);
    }
    return WEIR_OK;
}

const weir_kernel ROW = {
    .op = WEIR_OP_MATMUL,
    .backend = WEIR_BACKEND_X86,
    .name = NAME,
    .atol = WEIR_AMX_ATOL,
    .rtol = WEIR_AMX_RTOL,
    .reject = reject,
    .scratch = scratch,
    .run = run,
    .thread_scratch = SUMS_BYTES,
};
