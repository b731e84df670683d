/* kernels/x86/matmul_dense.c - the matrix product on WEIR_LAYOUT_DENSE, without its inner loop
 * (matmul_dense_pass.h). f32 activations are read in place, no scratch. A row's sum is one chain in
 * ascending order, so its bits depend on nothing else (docs/kernels.md). */
#include "kernels/x86/matmul_dense.h"

#include "kernels/abi/share.h"

enum {
    PIECE = 128, /* inputs: [128][32] f32 are half of a small L1 */
    BLOCK_ROWS = 96, /* their sums are 12 KB; more products per weight read from L2 */
    /* Rows are split over threads if panels are few, but no finer than this. */
    LEAST_ROWS = 24,
    /* Prefetch distance of a stream (4 KB or more: DRAM latency). */
    STREAM_BYTES = 8192,
};

typedef struct unit {
    const weir_matmul_args *args;
    const weir_matmul_output *output;
    int32_t matrix;
    int64_t panel, first_row, n_rows;
} unit;

static weir_dense_form form_of(const weir_weight *weight)
{
    return weight->dtype == WEIR_F32    ? WEIR_DENSE_F32
           : weight->dtype == WEIR_BF16 ? WEIR_DENSE_BF16
                                        : WEIR_DENSE_F16;
}

const char *weir_dense_reject(const weir_matmul_args *args)
{
    if (args->n_outputs < 1 || args->n_outputs > WEIR_MATMUL_OUTPUTS) return "needs 1 to 4 outputs";
    if (args->n_rows < 1) return "needs rows";
    for (int o = 0; o < args->n_outputs; o++) {
        const weir_weight *weight = args->outputs[o].weight;
        if (weight->layout != WEIR_LAYOUT_DENSE) return "weight is not in dense panels";
        if (weight->dtype != WEIR_F32 && weight->dtype != WEIR_BF16 && weight->dtype != WEIR_F16)
            return "weight is not f32, bf16 or f16";
        if (weight->n_in != args->n_in) return "n_in differs from the weight's";
    }
    return NULL;
}

/* dst (+)= sums + bias */
static void finish(const unit *u, const float *sums)
{
    const weir_matmul_output *output = u->output;
    const int64_t first = u->panel * WEIR_DENSE_PANEL, n_out = output->weight->n_out,
                  left = n_out - first;
    const int64_t n = left < WEIR_DENSE_PANEL ? left : WEIR_DENSE_PANEL;
    const float *bias = output->bias ? output->bias + u->matrix * n_out + first : NULL;
    for (int64_t row = 0; row < u->n_rows; row++, sums += WEIR_DENSE_PANEL) {
        float *dst = output->dst + (u->first_row + row) * output->dst_stride + first;
        for (int64_t i = 0; i < n; i++) {
            const float biased = bias ? sums[i] + bias[i] : sums[i];
            dst[i] = output->accumulate ? dst[i] + biased : biased;
        }
    }
}

/* A panel with a block of rows. Up to 6 rows read it once, as a stream; more in pieces that stay in
 * L1 while all rows pass (16 bits: expanded to f32 once per piece), each pass prefetching its share
 * of the next into L2. Sums are stored and loaded between pieces, which rounds nothing. */
static void multiply_unit(const weir_dense_isa *isa, const unit *u)
{
    _Alignas(64) float sums[BLOCK_ROWS * WEIR_DENSE_PANEL], expanded[PIECE * WEIR_DENSE_PANEL];
    const weir_weight *weight = &u->output->weight[u->matrix];
    const weir_dense_form form = form_of(weight);
    const int64_t n_in = weight->n_in, passes = (u->n_rows + WEIR_DENSE_ROWS - 1) / WEIR_DENSE_ROWS;
    const int64_t step = u->n_rows == 1 ? n_in : PIECE,
                  input_bytes = (int64_t)weir_dense_panel_bytes(weight->dtype, 1);
    const char *const panel =
        (const char *)weight->data + (size_t)u->panel * weir_dense_panel_bytes(weight->dtype, n_in);
    const bool expand = passes > 1 && isa->expand[form];
    for (int64_t k = 0; k < n_in; k += step) {
        const int64_t n = n_in - k < step ? n_in - k : step;
        weir_dense_pass pass = { .piece = panel + k * input_bytes,
                                 .x_stride = u->args->x_stride,
                                 .n = n,
                                 .starts = k == 0 };
        pass.ahead = (const char *)pass.piece + (passes == 1 ? STREAM_BYTES : n * input_bytes);
        pass.ahead_stride = (input_bytes + passes - 1) / passes;
        if (expand) {
            isa->expand[form](expanded, pass.piece, n);
            pass.piece = expanded;
        }
        for (int64_t row = 0; row < u->n_rows;
             row += WEIR_DENSE_ROWS, pass.ahead += n * pass.ahead_stride) {
            const int64_t rows =
                u->n_rows - row < WEIR_DENSE_ROWS ? u->n_rows - row : WEIR_DENSE_ROWS;
            pass.x = u->args->x + (u->first_row + row) * u->args->x_stride + k;
            pass.sums = sums + row * WEIR_DENSE_PANEL;
            isa->pass[expand ? WEIR_DENSE_F32 : form][rows](&pass);
        }
    }
    finish(u, sums);
}

/* The rows of one matrix; blocks: of rows, the units of a panel. */
typedef struct row_group {
    int64_t first, n_rows, blocks, block_rows;
    int32_t matrix;
} row_group;

/* `split`: wanted blocks, for as many threads. */
static row_group group_of(const weir_matmul_args *args, int32_t index, int64_t split)
{
    row_group g = { .n_rows = args->n_rows };
    if (args->n_groups > 0) {
        g.first = args->groups[index].first;
        g.n_rows = args->groups[index].n_rows;
        g.matrix = args->groups[index].matrix;
    }
    const int64_t most = (g.n_rows + LEAST_ROWS - 1) / LEAST_ROWS,
                  least = (g.n_rows + BLOCK_ROWS - 1) / BLOCK_ROWS,
                  wanted = split < most ? split : most;
    g.blocks = wanted > least ? wanted : least;
    g.block_rows = ((g.n_rows + g.blocks - 1) / g.blocks + WEIR_DENSE_ROWS - 1) / WEIR_DENSE_ROWS *
                   WEIR_DENSE_ROWS;
    return g;
}

/* Units [first, end) of a group. */
static void multiply_group(
    const weir_dense_isa *isa, const weir_matmul_args *args, const int64_t *panels_before,
    const row_group *group, int64_t first, int64_t end
)
{
    for (int64_t i = first; i < end; i++) {
        const int64_t panel = i / group->blocks, row = i % group->blocks * group->block_rows,
                      left = group->n_rows - row;
        int32_t o = 0;
        while (panel >= panels_before[o + 1]) o++;
        if (left <= 0) continue;
        multiply_unit(
            isa, &(unit){ args, &args->outputs[o], group->matrix, panel - panels_before[o],
                          group->first + row, left < group->block_rows ? left : group->block_rows }
        );
    }
}

weir_status weir_dense_matmul(
    const weir_dense_isa *isa, const weir_kernel_context *context, const weir_matmul_args *args
)
{
    int64_t panels_before[WEIR_MATMUL_OUTPUTS + 1] = { 0 };
    for (int o = 0; o < args->n_outputs; o++)
        panels_before[o + 1] = panels_before[o] + weir_dense_panels(args->outputs[o].weight->n_out);
    const int32_t n_groups = args->n_groups > 0 ? args->n_groups : 1;
    const int64_t panels = panels_before[args->n_outputs], all_panels = panels * n_groups;
    const int64_t split = context->n_threads == 1
                              ? 1
                              : (4 * (int64_t)context->n_threads + all_panels - 1) / all_panels;
    int64_t n_units = 0;
    for (int32_t g = 0; g < n_groups; g++) n_units += panels * group_of(args, g, split).blocks;
#pragma omp parallel num_threads(context->n_threads)
    {
        const weir_share units = weir_share_of(n_units);
        int64_t before = 0;
        for (int32_t g = 0; g < n_groups; g++) {
            const row_group group = group_of(args, g, split);
            const int64_t n = panels * group.blocks, first = units.first - before,
                          end = units.end - before;
            multiply_group(
                isa, args, panels_before, &group, first > 0 ? first : 0, end < n ? end : n
            );
            before += n;
        }
    }
    return WEIR_OK;
}
