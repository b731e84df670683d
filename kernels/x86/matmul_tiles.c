/* kernels/x86/matmul_tiles.c - the matrix product on WEIR_LAYOUT_TILES, without its inner loop
 * (matmul_tiles_pass.h): activations are quantised to scratch once for all outputs, then threads
 * take panels. A row sees the same operations in the same order in any batch (docs/kernels.md). */
#include "kernels/x86/matmul_tiles.h"

#include <string.h>

#include "kernels/abi/share.h"

enum {
    CHUNK_GROUPS = 64, /* groups quantised at a time: their sums stay in L1 */
    /* Prefetch distance when one block of several rows reads the stream (4 KB or more: DRAM
     * latency). */
    PREFETCH_BYTES = 8192,
    /* Activations that one thread quantises before the others could wake up. */
    SERIAL_ELEMENTS = 16384,
    /* Rows are split over threads if panels are few, but no finer than this. */
    MIN_CHUNK_ROWS = 32,
};

/* Side values that some outputs share: those with the same zero (or with minima) and splits. */
typedef struct side_set {
    weir_tile_format format;
    size_t offset;
} side_set;

/* Rows that share a matrix, in scratch as blocks of block_rows (the last may have fewer). */
typedef struct row_group {
    int64_t first, n_rows; /* in x and dst */
    int64_t at, rows, block_rows; /* in scratch: first row; rows, with padding */
    int32_t matrix;
} row_group;

typedef struct plan {
    int64_t n_groups, rows; /* n_groups: of inputs; rows: in scratch, of all row groups */
    int32_t n_row_groups;
    weir_tile_format formats[WEIR_MATMUL_OUTPUTS];
    side_set sets[WEIR_MATMUL_OUTPUTS];
    int32_t n_sets, set_of[WEIR_MATMUL_OUTPUTS];
    int64_t panels_before[WEIR_MATMUL_OUTPUTS + 1];
    size_t scales_offset, bytes; /* codes come first */
} plan;

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

/* Row group `index`; `at`: where the one before it ends in scratch. */
static row_group group_at(
    const weir_tiles_isa *isa, const weir_matmul_args *args, int32_t index, int64_t at
)
{
    row_group g = { .n_rows = args->n_rows, .at = at };
    if (args->n_groups > 0) {
        g.first = args->groups[index].first;
        g.n_rows = args->groups[index].n_rows;
        g.matrix = args->groups[index].matrix;
    }
    g.block_rows = g.n_rows <= 2 * isa->few_rows ? isa->few_rows : isa->many_rows;
    g.rows = isa->padded ? (g.n_rows + g.block_rows - 1) / g.block_rows * g.block_rows : g.n_rows;
    return g;
}

static int64_t scratch_rows(const weir_tiles_isa *isa, const weir_matmul_args *args)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < (args->n_groups > 0 ? args->n_groups : 1); i++)
        rows += group_at(isa, args, i, rows).rows;
    return rows;
}

static plan make_plan(const weir_matmul_args *args, int64_t rows)
{
    plan p = { .n_groups = args->n_in / WEIR_TILE_GROUP,
               .rows = rows,
               .n_row_groups = args->n_groups > 0 ? args->n_groups : 1 };
    const size_t n_groups = (size_t)p.rows * (size_t)p.n_groups;
    p.scales_offset = aligned(n_groups * WEIR_TILE_GROUP);
    p.bytes = p.scales_offset + aligned(n_groups * sizeof(float));
    for (int o = 0; o < args->n_outputs; o++) {
        const weir_weight *weight = args->outputs[o].weight;
        (void)weir_tile_format_of(weight->dtype, &p.formats[o]);
        p.panels_before[o + 1] = p.panels_before[o] + weir_panel_count(weight->n_out);
        const weir_tile_format format = p.formats[o];
        int32_t s = 0;
        while (s < p.n_sets && !(p.sets[s].format.zero == format.zero &&
                                 p.sets[s].format.minimum == format.minimum &&
                                 p.sets[s].format.splits == format.splits))
            s++;
        if (s == p.n_sets) {
            p.sets[p.n_sets++] = (side_set){ format, p.bytes };
            p.bytes += aligned(n_groups * (size_t)format.splits * sizeof(float));
        }
        p.set_of[o] = s;
    }
    return p;
}

const char *weir_tiles_reject(const weir_matmul_args *args)
{
    if (args->n_outputs < 1 || args->n_outputs > WEIR_MATMUL_OUTPUTS) return "needs 1 to 4 outputs";
    if (args->n_rows < 1) return "needs rows";
    for (int o = 0; o < args->n_outputs; o++) {
        const weir_weight *weight = args->outputs[o].weight;
        weir_tile_format format;
        if (weight->layout != WEIR_LAYOUT_TILES) return "weight is not in tiles";
        if (!weir_tile_format_of(weight->dtype, &format)) return "no tile format for the dtype";
        if (weight->n_in != args->n_in) return "n_in differs from the weight's";
    }
    return NULL;
}

size_t weir_tiles_scratch(const weir_tiles_isa *isa, const weir_matmul_args *args)
{
    const int64_t most_groups = isa->padded ? args->n_rows / isa->least_rows + 1 : 0;
    const int64_t rows = args->n_groups > 0 ? args->n_rows + most_groups * (isa->many_rows - 1)
                                            : scratch_rows(isa, args);
    return make_plan(args, rows).bytes;
}

/* ---- activations ----------------------------------------------------------------------------- */
static void put_side(
    const side_set *set, void *sides, int64_t stride, const float *scales, const int32_t *sums,
    int64_t n_groups
)
{
    const int splits = set->format.splits;
    for (int64_t g = 0; g < n_groups; g++) {
        for (int s = 0; s < splits; s++) {
            const int32_t sum = splits == 1 ? sums[2 * g] + sums[2 * g + 1] : sums[2 * g + s];
            const int64_t at = (g * splits + s) * stride;
            if (set->format.minimum)
                ((float *)sides)[at] = scales[g * stride] * (float)sum;
            else
                ((int32_t *)sides)[at] = -set->format.zero * sum;
        }
    }
}

static void clear_groups(const weir_tiles_row *row, int64_t n_groups)
{
    for (int64_t g = 0; g < n_groups; g++) {
        memset(row->codes + g * row->stride * WEIR_TILE_GROUP, 0, WEIR_TILE_GROUP);
        row->scales[g * row->stride] = 0.0f;
    }
}

/* `row` counts from the group's first; rows past its last are zero. */
static void quantise_row(
    const weir_tiles_isa *isa, const plan *p, const weir_matmul_args *args, char *scratch,
    const row_group *group, int64_t row
)
{
    const int64_t start = row / group->block_rows * group->block_rows, lane = row - start,
                  left = group->rows - start, block = group->at + start;
    const int64_t stride = left < group->block_rows ? left : group->block_rows;
    for (int64_t g = 0; g < p->n_groups; g += CHUNK_GROUPS) {
        const int64_t n = p->n_groups - g < CHUNK_GROUPS ? p->n_groups - g : CHUNK_GROUPS;
        const int64_t at = block * p->n_groups + g * stride + lane;
        const weir_tiles_row to = { .codes = (int8_t *)scratch + at * WEIR_TILE_GROUP,
                                    .scales = (float *)(scratch + p->scales_offset) + at,
                                    .stride = stride };
        int32_t sums[CHUNK_GROUPS * 2] = { 0 };
        if (row < group->n_rows)
            isa->quantise(
                &to, args->x + (group->first + row) * args->x_stride + g * WEIR_TILE_GROUP, n, sums
            );
        else
            clear_groups(&to, n);
        for (int s = 0; s < p->n_sets; s++) {
            const int64_t splits = p->sets[s].format.splits;
            float *sides = (float *)(scratch + p->sets[s].offset) + block * p->n_groups * splits +
                           g * splits * stride + lane;
            put_side(&p->sets[s], sides, stride, to.scales, sums, n);
        }
    }
}

/* Rows [share.first, share.end) of the scratch. */
static void quantise_rows(
    const weir_tiles_isa *isa, const plan *p, const weir_matmul_args *args, char *scratch,
    weir_share share
)
{
    for (int64_t i = 0, at = 0; i < p->n_row_groups && at < share.end; i++) {
        const row_group group = group_at(isa, args, (int32_t)i, at);
        at += group.rows;
        for (int64_t row = share.first > group.at ? share.first : group.at;
             row < (share.end < at ? share.end : at); row++)
            quantise_row(isa, p, args, scratch, &group, row - group.at);
    }
}

/* ---- panels ---------------------------------------------------------------------------------- */
/* Multiplies rows [first_row, end_row) of a group by one panel of one output. Few rows stream it
 * once; for many it stays in L2 while their blocks pass over it, each prefetching its share of the
 * next panel. first_row is the start of a block. */
static void multiply_panel(
    const weir_tiles_isa *isa, const plan *p, const weir_matmul_args *args, const char *scratch,
    const row_group *group, int32_t o, int64_t panel, int64_t first_row, int64_t end_row
)
{
    const weir_matmul_output *output = &args->outputs[o];
    const weir_weight *weight = &output->weight[group->matrix];
    const weir_tile_format format = p->formats[o];
    const size_t panel_bytes = weir_panel_bytes(format, args->n_in);
    const int64_t blocks = (end_row - first_row + group->block_rows - 1) / group->block_rows;
    const int64_t first_out = panel * WEIR_PANEL_ROWS;
    const int64_t record_lines = (int64_t)weir_record_bytes(format) / 64,
                  stride = (record_lines + blocks - 1) / blocks * 64;
    const uint8_t *data = (const uint8_t *)weight->data + (size_t)panel * panel_bytes;
    const float *bias =
        output->bias ? output->bias + group->matrix * weight->n_out + first_out : NULL;
    const int64_t distance = end_row - first_row == 1 ? isa->row_ahead
                             : blocks == 1            ? PREFETCH_BYTES
                                                      : (int64_t)panel_bytes;
    const char *ahead = (const char *)data + distance;
    for (int64_t row = first_row, b = 0; row < end_row; row += group->block_rows, b++) {
        const int64_t rows = end_row - row < group->block_rows ? end_row - row : group->block_rows;
        const int64_t at = group->at + row;
        const weir_tiles_pass pass = {
            .panel = data,
            .codes = (const int8_t *)scratch + at * args->n_in,
            .scales = (const float *)(scratch + p->scales_offset) + at * p->n_groups,
            .sides = scratch + p->sets[p->set_of[o]].offset +
                     (size_t)(at * p->n_groups * format.splits) * sizeof(float),
            .n_groups = p->n_groups,
            .ahead = ahead + b * stride * p->n_groups,
            .ahead_stride = stride,
            .dst = output->dst + (group->first + row) * output->dst_stride + first_out,
            .bias = bias,
            .dst_stride = output->dst_stride,
            .n = weight->n_out - first_out < WEIR_PANEL_ROWS ? weight->n_out - first_out
                                                             : WEIR_PANEL_ROWS,
            .unit = format.unit,
            .accumulate = output->accumulate,
        };
        if (isa->rows[0]) {
            isa->rows[weir_tiles_format_index(format)](&pass, end_row - row, format.zero);
            return;
        }
        isa->pass[weir_tiles_format_index(format)][rows](&pass);
    }
}

static int32_t output_of(const plan *p, int64_t panel)
{
    int32_t o = 0;
    while (panel >= p->panels_before[o + 1]) o++;
    return o;
}

/* One matrix: threads take panels, or pieces of rows of them if panels are few. */
static void multiply_rows(
    const weir_tiles_isa *isa, const plan *p, const weir_matmul_args *args, const char *scratch,
    int64_t panels
)
{
    const row_group all = group_at(isa, args, 0, 0);
    const int64_t n_threads = omp_get_num_threads();
    const int64_t wanted = (4 * n_threads + panels - 1) / panels,
                  most = (all.n_rows + MIN_CHUNK_ROWS - 1) / MIN_CHUNK_ROWS;
    const int64_t chunks = n_threads == 1 || wanted < 1 ? 1 : wanted < most ? wanted : most;
    const int64_t chunk_rows =
        ((all.n_rows + chunks - 1) / chunks + all.block_rows - 1) / all.block_rows * all.block_rows;
    const weir_share units = weir_share_of(panels * chunks);
    for (int64_t unit = units.first; unit < units.end; unit++) {
        const int64_t panel = unit / chunks, first = unit % chunks * chunk_rows;
        const int64_t end = first + chunk_rows < all.n_rows ? first + chunk_rows : all.n_rows;
        const int32_t o = output_of(p, panel);
        if (first < end)
            multiply_panel(isa, p, args, scratch, &all, o, panel - p->panels_before[o], first, end);
    }
}

/* Several matrices: threads take panels with all rows of their group, as many blocks of rows
 * each. */
static void multiply_groups(
    const weir_tiles_isa *isa, const plan *p, const weir_matmul_args *args, const char *scratch,
    int64_t panels
)
{
    int64_t blocks = 0, before = 0;
    for (int64_t i = 0, at = 0; i < p->n_row_groups; i++) {
        const row_group group = group_at(isa, args, (int32_t)i, at);
        at += group.rows;
        blocks += (group.rows + group.block_rows - 1) / group.block_rows;
    }
    const weir_share share = weir_share_of(blocks * panels);
    for (int64_t i = 0, at = 0; i < p->n_row_groups && before < share.end; i++) {
        const row_group group = group_at(isa, args, (int32_t)i, at);
        const int64_t each = (group.rows + group.block_rows - 1) / group.block_rows;
        const int64_t first = (share.first - before + each - 1) / each,
                      end = (share.end - before + each - 1) / each;
        for (int64_t panel = share.first > before ? first : 0;
             panel < (end < panels ? end : panels); panel++) {
            const int32_t o = output_of(p, panel);
            multiply_panel(
                isa, p, args, scratch, &group, o, panel - p->panels_before[o], 0, group.n_rows
            );
        }
        before += each * panels;
        at += group.rows;
    }
}

weir_status weir_tiles_matmul(
    const weir_tiles_isa *isa, const weir_kernel_context *context, const weir_matmul_args *args
)
{
    const plan p = make_plan(args, scratch_rows(isa, args));
    if (context->scratch_bytes < p.bytes) return WEIR_EINVAL;
    char *const scratch = context->scratch;
    const int64_t panels = p.panels_before[args->n_outputs];
    const bool serial = args->n_rows * args->n_in <= SERIAL_ELEMENTS;
    if (serial) quantise_rows(isa, &p, args, scratch, (weir_share){ 0, p.rows });
#pragma omp parallel num_threads(context->n_threads)
    {
        if (!serial) {
            quantise_rows(isa, &p, args, scratch, weir_share_of(p.rows));
#pragma omp barrier
        }
        if (args->n_groups > 0)
            multiply_groups(isa, &p, args, scratch, panels);
        else
            multiply_rows(isa, &p, args, scratch, panels);
    }
    return WEIR_OK;
}
