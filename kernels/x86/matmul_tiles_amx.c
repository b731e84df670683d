/* kernels/x86/matmul_tiles_amx.c - the product on tiles for many rows, with AMX-INT8: 16 rows by 16
 * outputs by 32 inputs per instruction, a step in 22 ns where VNNI takes 32. The bits are those of
 * matmul_tiles_pass.h. Why tiles and vectors take turns: docs/kernels.md. */
#include <immintrin.h>

#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_tiles_pass.h"

enum {
    BLOCK_ROWS = 16, /* of a tile register */
    /* Per tile, 8 KB of codes, 16 KB of sums and 4 KB of activations share L1 (16: 1.5 times the
     * time). */
    CHUNK_STEPS = 8,
    /* Rows whose sums wait on the stack (32 KB) while the next chunk is expanded. */
    SPAN_ROWS = 256,
    REGISTERS = 4, /* tile registers 0 to 3: sums of four steps */
    LATENCY = 3, /* steps from a product to its store */
    PREFETCH_LINES = 4, /* 35 times in a chunk, which has up to 144 lines */
    /* Below, reading the weights takes the time and padded blocks cost more than they save. Groups,
     * on average: their scratch is planned for the padding of as many as there can be. */
    LEAST_ROWS = 12,
    LEAST_GROUP_ROWS = 32,
    /* With two scales per group, a step has half the depth: from here on VNNI is faster. */
    MOST_SPLIT_ROWS = 127,
};

typedef int32_t tile_sums[BLOCK_ROWS][WEIR_TILE_LANES];

/* A step is a group, or half a group if it has two scales. */
typedef struct chunk {
    int8_t codes[WEIR_PANEL_TILES][CHUNK_STEPS * WEIR_TILE_GROUP * WEIR_TILE_LANES];
    float scales[WEIR_PANEL_TILES][CHUNK_STEPS][WEIR_TILE_LANES];
    float minima[WEIR_PANEL_TILES][CHUNK_STEPS][WEIR_TILE_LANES];
} chunk;

/* ---- tile registers: 0 to 3 sums, 4 and 5 activations, 6 and 7 weights ----------------------- */
/* In the format of LDTILECFG. */
typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;

static void configure_tiles(int splits)
{
    tile_configuration c = { .palette = 1 };
    for (int i = 0; i < REGISTERS; i++)
        c.rows[i] = BLOCK_ROWS, c.row_bytes[i] = WEIR_TILE_LANES * sizeof(int32_t);
    for (int i = 4; i < 6; i++)
        c.rows[i] = BLOCK_ROWS, c.row_bytes[i] = (uint16_t)(WEIR_TILE_GROUP / splits);
    for (int i = 6; i < 8; i++)
        c.rows[i] = (uint8_t)(8 / splits), c.row_bytes[i] = WEIR_TILE_LANES * 4;
    _tile_loadconfig(&c);
}

/* Register numbers are part of the instruction; the switch is predicted. Both tiles of a panel
 * share the activations. */
LANES_INLINE void multiply(int64_t i, const int8_t *activations, const int8_t *weights)
{
#define PRODUCT(sums, a, b)                                                                        \
    case sums:                                                                                     \
        if ((sums) % WEIR_PANEL_TILES == 0) _tile_loadd(a, activations, WEIR_TILE_GROUP);          \
        _tile_zero(sums);                                                                          \
        _tile_loadd(b, weights, WEIR_TILE_LANES * 4);                                              \
        _tile_dpbssd(sums, a, b);                                                                  \
        break;
    switch (i % REGISTERS) {
        PRODUCT(0, 4, 6)
        PRODUCT(1, 4, 7)
        PRODUCT(2, 5, 6)
        PRODUCT(3, 5, 7)
    }
#undef PRODUCT
}

LANES_INLINE void store(int64_t i, tile_sums to)
{
    switch (i % REGISTERS) {
    case 0: _tile_stored(0, to, sizeof to[0]); break;
    case 1: _tile_stored(1, to, sizeof to[0]); break;
    case 2: _tile_stored(2, to, sizeof to[0]); break;
    case 3: _tile_stored(3, to, sizeof to[0]); break;
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */
/* A record is the B operand but for its code (u8 with a zero point, or packed nibbles): a chunk is
 * expanded to s8, the zero subtracted, and stays in L1 while all rows of the share pass over it. */
LANES_INLINE void expand(
    chunk *to, const uint8_t *record, int64_t n_groups, int zero, weir_tile_codes kind,
    bool minimum, int splits
)
{
    const int scales_at = weir_tile_index_bits(kind) * 128, minima_at = scales_at + splits * 64;
    const int record_bytes = minimum ? minima_at + splits * 64 : minima_at;
    const __m512i zeros = _mm512_set1_epi8((char)zero);
    for (int64_t g = 0; g < n_groups; g++, record += record_bytes) {
        UNROLL
        for (int t = 0; t < WEIR_PANEL_TILES; t++) {
            UNROLL
            for (int quad = 0; quad < 8; quad++)
                _mm512_store_si512(
                    to->codes[t] + (g * 8 + quad) * WEIR_TILE_LANES * 4,
                    _mm512_sub_epi8(tile_codes(record, t, quad, kind), zeros)
                );
            UNROLL
            for (int s = 0; s < splits; s++) {
                const int64_t step = g * splits + s;
                lanes_store(
                    to->scales[t][step], lanes_from_half(record + scales_at + s * 64 + t * 32)
                );
                if (minimum)
                    lanes_store(
                        to->minima[t][step], lanes_from_half(record + minima_at + s * 64 + t * 32)
                    );
            }
        }
    }
}

/* A share of the weights that come next, a few lines at a time: more would wait for each other, and
 * the work behind them for all. */
typedef struct prefetch {
    const uint8_t *at, *end;
} prefetch;

LANES_INLINE void prefetch_lines(prefetch *p)
{
    for (int i = 0; i < PREFETCH_LINES && p->at < p->end; i++, p->at += 64) PREFETCH(p->at);
}

/* Each group has its own scales, so its integer sums leave the tile registers first. Adds those of
 * one step to the accumulators, in the order of matmul_tiles_pass.h. Nothing moves across a row:
 * the compiler would gather all loads first and spill. */
LANES_INLINE void add_step(
    lanes_float acc[BLOCK_ROWS], tile_sums sums, const float *weight_scales, const float *minima,
    const float *scales, const float *sides, bool minimum
)
{
    const lanes_float scale = lanes_load(weight_scales),
                      low = minimum ? lanes_load(minima) : lanes_zero();
    UNROLL
    for (int r = 0; r < BLOCK_ROWS; r++) {
        acc[r] = lanes_fma(
            lanes_from_int(_mm512_load_si512(sums[r])), lanes_mul(scale, lanes_all(scales[r])),
            acc[r]
        );
        if (minimum) acc[r] = lanes_fma(low, lanes_all(sides[r]), acc[r]);
        __asm__ volatile("" : "+v"(acc[r]) : : "memory");
    }
}

/* Multiplies one block of rows by the chunk with groups [first, first + n_groups) of the panel;
 * sums continue from chunk to chunk. */
LANES_INLINE void multiply_block(
    float (*sums)[WEIR_PANEL_ROWS], const chunk *c, const weir_tiles_pass *block, int64_t first,
    int64_t n_groups, bool minimum, int splits, prefetch ahead
)
{
    _Alignas(64) tile_sums products[CHUNK_STEPS][WEIR_PANEL_TILES];
    const int8_t *const codes = block->codes + first * BLOCK_ROWS * WEIR_TILE_GROUP;
    const float *const scales = block->scales + first * BLOCK_ROWS;
    const float *const sides =
        minimum ? (const float *)block->sides + first * splits * BLOCK_ROWS : NULL;
    const int64_t steps = n_groups * splits, depth = WEIR_TILE_GROUP / splits,
                  n = steps * WEIR_PANEL_TILES;
    for (int64_t i = 0; i < n + LATENCY; i++) {
        const int64_t step = i / WEIR_PANEL_TILES, t = i % WEIR_PANEL_TILES, done = i - LATENCY;
        prefetch_lines(&ahead);
        if (i < n)
            multiply(
                i, codes + step / splits * BLOCK_ROWS * WEIR_TILE_GROUP + step % splits * depth,
                c->codes[t] + step * depth * WEIR_TILE_LANES
            );
        if (done >= 0) store(done, products[done / WEIR_PANEL_TILES][done % WEIR_PANEL_TILES]);
    }
    for (int t = 0; t < WEIR_PANEL_TILES; t++) {
        lanes_float acc[BLOCK_ROWS];
        UNROLL
        for (int r = 0; r < BLOCK_ROWS; r++)
            acc[r] = first ? lanes_load(sums[r] + t * WEIR_TILE_LANES) : lanes_zero();
        for (int64_t s = 0; s < steps; s++) {
            prefetch_lines(&ahead);
            add_step(
                acc, products[s][t], c->scales[t][s], c->minima[t][s],
                scales + s / splits * BLOCK_ROWS, minimum ? sides + s * BLOCK_ROWS : NULL, minimum
            );
        }
        UNROLL
        for (int r = 0; r < BLOCK_ROWS; r++) lanes_store(sums[r] + t * WEIR_TILE_LANES, acc[r]);
    }
}

static weir_tiles_pass rows_from(const weir_tiles_pass *job, int64_t row, int splits)
{
    weir_tiles_pass pass = *job;
    pass.codes += row * job->n_groups * WEIR_TILE_GROUP;
    pass.scales += row * job->n_groups;
    pass.sides = (const char *)pass.sides + row * job->n_groups * splits * (int64_t)sizeof(float);
    pass.dst += row * job->dst_stride;
    return pass;
}

/* The tile registers are used within this call only: released, they cost no context switch and
 * cannot meet another library's configuration. */
LANES_INLINE void multiply_rows(
    const weir_tiles_pass *job, int64_t n_rows, int zero, weir_tile_codes kind, bool minimum,
    int splits
)
{
    const int64_t record_bytes = weir_tile_index_bits(kind) * 128 + splits * 64 * (minimum ? 2 : 1);
    const int64_t chunk_groups = CHUNK_STEPS / splits;
    _Alignas(64) chunk c;
    _Alignas(64) float sums[SPAN_ROWS][WEIR_PANEL_ROWS];
    configure_tiles(splits);
    for (int64_t first = 0; first < n_rows; first += SPAN_ROWS) {
        const int64_t rows = n_rows - first < SPAN_ROWS ? n_rows - first : SPAN_ROWS;
        for (int64_t g = 0; g < job->n_groups; g += chunk_groups) {
            const int64_t groups =
                job->n_groups - g < chunk_groups ? job->n_groups - g : chunk_groups;
            expand(&c, job->panel + g * record_bytes, groups, zero, kind, minimum, splits);
            /* At the panel's end, the next one. */
            const uint8_t *ahead = job->panel + (g + groups) * record_bytes;
            const int64_t share = (chunk_groups * record_bytes * BLOCK_ROWS / rows + 63) / 64 * 64;
            for (int64_t row = 0; row < rows; row += BLOCK_ROWS, ahead += share) {
                const weir_tiles_pass block = rows_from(job, first + row, splits);
                multiply_block(
                    sums + row, &c, &block, g, groups, minimum, splits,
                    (prefetch){ ahead, ahead + share }
                );
            }
        }
        const weir_tiles_pass span = rows_from(job, first, splits);
        for (int64_t row = 0; row < rows; row++) {
            const tile_pair acc = { lanes_load(sums[row]),
                                    lanes_load(sums[row] + WEIR_TILE_LANES) };
            store_row(&span, (int)row, acc);
        }
    }
    _tile_release();
}

#define X(index, kind, bits, minimum, splits)                                                      \
    static void rows_##index(const weir_tiles_pass *job, int64_t n_rows, int zero)                 \
    {                                                                                              \
        multiply_rows(job, n_rows, zero, kind, minimum, splits);                                   \
    }
WEIR_TILES_FORMAT_MAP(X)
#undef X

static const weir_tiles_isa isa = {
    .few_rows = BLOCK_ROWS,
    .many_rows = BLOCK_ROWS,
    .row_ahead = 8192,
    .padded = true,
    .least_rows = LEAST_GROUP_ROWS,
    .rows = {
#define X(index, ...) rows_##index,
        WEIR_TILES_FORMAT_MAP(X)
#undef X
    },
    .quantise = quantise_groups,
};

static bool splits_all(const weir_matmul_args *args)
{
    weir_tile_format format;
    int32_t n = 0;
    for (int32_t o = 0; o < args->n_outputs; o++)
        n += weir_tile_format_of(args->outputs[o].weight->dtype, &format) && format.splits == 2;
    return n == args->n_outputs;
}

/* Time relative to VNNI, 1024 x 3584, one core of a Granite Rapids class Xeon, Q8_0, Q4_0, Q4_K and
 * Q6_K: 16 rows 0.78, 0.74, 0.78, 0.83; 32 rows 0.69, 0.71, 0.75, 0.84; 512 rows 0.92, 0.89, 0.92,
 * 1.09. At 17 to 20 rows, two blocks, 0.87 to 1.2. */
static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_matmul_args *args = op_args;
    if (!caps->amx_int8) return "needs AMX-INT8";
    const char *reason = weir_tiles_reject(args);
    if (reason) return reason;
    if (args->n_groups > 0 ? args->n_rows / args->n_groups < LEAST_GROUP_ROWS
                           : args->n_rows < LEAST_ROWS)
        return "few rows: AVX-512 VNNI is as fast";
    return args->n_rows > MOST_SPLIT_ROWS && splits_all(args)
               ? "two scales per group: AVX-512 VNNI is as fast"
               : NULL;
}
static size_t scratch(const void *args) { return weir_tiles_scratch(&isa, args); }
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_tiles_matmul(&isa, context, args);
}

const weir_kernel weir_kernel_x86_matmul_tiles_amx = {
    .op = WEIR_OP_MATMUL,
    .backend = WEIR_BACKEND_X86,
    .name = "x86.matmul_tiles.amx",
    .atol = WEIR_TILES_ATOL,
    .rtol = WEIR_TILES_RTOL,
    .reject = reject,
    .scratch = scratch,
    .run = run,
};
