/* kernels/omp/key_products.c - multiplies vectors with the keys of a head, and with the lengths of
 * their rotated pairs; policies score rows with it. Products are attention's scores, to the bit
 * (score_tile), except for latents in tile registers (docs/decisions/0082). Cost: 2 * key_dim
 * flops per vector and slot, K read once (docs/kernels.md). */
#include "kernels/omp/attention_rotate.h"
#include "kernels/omp/attention_scores.h"

enum {
    /* Per unit: staging vectors costs as much as an eighth of their products. */
    SLOTS = 8 * TILE,
    PAIRS_MAX = KEY_MAX / 2,
};

typedef struct products_call {
    float *out;
    const float *vectors, *lengths;
    const weir_kv_segment *rows;
    int64_t n_vectors, out_stride, key_dim, n_pairs;
    /* The first n_sinks pages have k_sinks. */
    weir_kv_format k_format, k_sinks;
    int32_t n_sinks;
    bool is_interleaved;
} products_call;

typedef struct products_memory {
    team_memory tile;
    float lengths[UNIT_BLOCKS * PAIRS_MAX * LANE_ROWS]; /* [block][n_pairs][rows] */
    _Alignas(64) float other[TILE * KV_GROUP]; /* the second dims of pairs, [32 dims][32 slots] */
} products_memory;

#pragma omp declare target
WEIR_INLINE weir_kv_format format_of(const products_call *call, int32_t page)
{
    return READS_CODED && page < call->n_sinks ? call->k_sinks : call->k_format;
}

WEIR_INLINE bool is_rotated(const products_call *call)
{
    return any_rotated(format_of(call, 0), call->k_format);
}

WEIR_INLINE tile_source key_source(const products_call *call, int32_t slot)
{
    const int32_t page = slot / WEIR_PAGE_TOKENS;
    const weir_kv_format format = format_of(call, page);
    const char *const unsealed =
        READS_CODED && call->rows->unsealed_pages && weir_kv_seals_pages(format)
            ? (const char *)call->rows->unsealed_pages[page - call->rows->n_past / WEIR_PAGE_TOKENS]
            : NULL;
    return (tile_source){ .part = unsealed ? unsealed : (const char *)call->rows->pages[page],
                          .token = slot % WEIR_PAGE_TOKENS,
                          .format = unsealed ? WEIR_KV_F16 : format };
}

/* Copies rows [first, first + n) of from [.., dim] to [register block][dim][rows]; rows past n are
 * 0. */
WEIR_INLINE void stage_rows(
    float *to, const float *from, int64_t dim, int64_t first, int64_t n, bool signs, int tid
)
{
    for (int64_t r = 0; r < UNIT_ROWS && r < (n + LANE_ROWS - 1) / LANE_ROWS * LANE_ROWS; r++) {
        const float *const row = from + (first + r) * dim;
        float *const staged = to + r / LANE_ROWS * dim * LANE_ROWS + r % LANE_ROWS;
        for (int64_t d = tid; d < dim; d += LANE_THREADS)
            staged[d * LANE_ROWS] =
                r < n ? row[d] * (signs ? weir_kv_sign(WEIR_KV_K, d) : 1.0f) : 0.0f;
    }
}

WEIR_INLINE void stage_vectors(
    products_memory *team, const products_call *call, int64_t first, int64_t n, int tid
)
{
    const bool turbo = is_rotated(call);
    TEAM_BARRIER
    stage_rows(team->tile.q, call->vectors, call->key_dim, first, n, turbo, tid);
    if (call->lengths)
        stage_rows(team->lengths, call->lengths, call->n_pairs, first, n, false, tid);
    TEAM_BARRIER
    for (int64_t b = 0; turbo && b * LANE_ROWS < n; b++)
        kv_hadamard(team->tile.q + b * call->key_dim * LANE_ROWS, call->key_dim, LANE_ROWS, tid);
}

/* Expands the group of 32 dims that contains `dim` to block [32 dims][32 slots]. */
WEIR_NOINLINE void expand_group(
    float *block, const char *part, weir_kv_format page_format, int64_t key_dim, int64_t tile,
    int64_t dim, int tid
)
{
#define KV_FORMAT_STATEMENT                                                                        \
    kv_expand_k(block, part, format, key_dim, tile, dim / KV_GROUP * KV_GROUP, tid);
    KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
}

/* Pairs [f, f + n) are (at, at + n) of the group of `first` and of `second`. Their lengths go to
 * tile.expanded [n][32 slots]. */
typedef struct pair_run {
    int64_t first, second, n, step;
} pair_run;

WEIR_INLINE pair_run run_of(const products_call *call, int64_t f)
{
    const int64_t step = call->is_interleaved ? 2 : 1, first = f * step,
                  second = call->is_interleaved ? first + 1 : f + call->n_pairs;
    const int64_t in_first = (KV_GROUP - first % KV_GROUP + step - 1) / step,
                  in_second = (KV_GROUP - second % KV_GROUP + step - 1) / step;
    int64_t n = in_first < in_second ? in_first : in_second;
    if (n > call->n_pairs - f) n = call->n_pairs - f;
    return (pair_run){ first, second, n, step };
}

/* A root per pair and slot. Lengths are then multiplied like keys of as many dims. */
WEIR_INLINE void find_lengths(
    products_memory *team, const tile_source *k, const products_call *call, pair_run run, int tid
)
{
    float *const first = team->tile.expanded, *const second =
                                                  call->is_interleaved ? first : team->other;
    TEAM_BARRIER
    expand_group(first, k->part, k->format, call->key_dim, k->token / TILE, run.first, tid);
    if (!call->is_interleaved)
        expand_group(second, k->part, k->format, call->key_dim, k->token / TILE, run.second, tid);
    TEAM_BARRIER
    /* A thread's own columns, ascending: none is written before it is read. */
    for (int64_t i = 0; i < run.n; i++) {
        const float *const a = first + (run.first % KV_GROUP + i * run.step) * TILE,
                           *const b = second + (run.second % KV_GROUP + i * run.step) * TILE;
        for (int64_t t = tid * LANE_WIDTH; t < TILE; t += LANE_THREADS * LANE_WIDTH) {
            const lane_float x = lane_load(a + t), y = lane_load(b + t);
            lane_store(first + i * TILE + t, lane_sqrt(lane_fma(x, x, y * y)));
        }
    }
    TEAM_BARRIER
}

WEIR_INLINE void add_lengths(
    products_memory *team, row_block *blocks, const tile_source *k, const products_call *call,
    int n_blocks, int tid
)
{
    const key_tile lengths = { .codes = (const char *)team->tile.expanded };
    for (int64_t f = 0; f < call->n_pairs;) {
        const pair_run run = run_of(call, f);
        find_lengths(team, k, call, run, tid);
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            score_rows(
                blocks[b].score, team->lengths + (b * call->n_pairs + f) * LANE_ROWS, lengths,
                lengths, run.n, WEIR_KV_F32, LANE_ROWS, tid
            );
        f += run.n;
    }
    TEAM_BARRIER
}

/* Writes the tile's products of block b to the outputs. */
WEIR_INLINE void put_products(
    const products_call *call, const row_block *block, int64_t first, int64_t n, int32_t slot,
    int tid
)
{
    const int32_t begin = call->rows->n_past, end = begin + call->rows->n_rows;
    UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        const int64_t row = row_of(r, tid);
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int32_t at = slot + (int32_t)token_of(v, tid);
            float *const out = call->out + (first + row) * call->out_stride + at - begin;
            if (row >= n) continue;
            if (at >= begin) {
                lane_store_part(out, block->score[r][v], end - at);
                continue;
            }
            float lanes[LANE_WIDTH];
            lane_store_part(lanes, block->score[r][v], LANE_WIDTH);
            for (int i = 0; i < LANE_WIDTH; i++)
                if (at + i >= begin && at + i < end) out[i] = lanes[i];
        }
    }
}

/* A unit: vectors [first, first + n), staged, with the tiles of slots [slot, end), as in
 * attention. */
WEIR_INLINE void run_unit(
    products_memory *team, const products_call *call, int64_t first, int64_t n, int32_t slot,
    int32_t end, int tid
)
{
    row_block blocks[UNIT_BLOCKS];
    const int n_blocks = (int)((n + LANE_ROWS - 1) / LANE_ROWS);
    stage_vectors(team, call, first, n, tid);
    for (; slot < end; slot += TILE) {
        tile_source k = key_source(call, slot);
        const tile_source next = slot + TILE < end ? key_source(call, slot + TILE) : k;
        if (is_rotated(call)) use_rotated_keys(&team->tile, &k, call->key_dim, tid);
        score_tile(&team->tile, blocks, &k, &next, call->key_dim, n_blocks, LANE_ROWS, tid);
        if (call->lengths) add_lengths(team, blocks, &k, call, n_blocks, tid);
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            put_products(call, blocks + b, first + b * LANE_ROWS, n - b * LANE_ROWS, slot, tid);
        TEAM_BARRIER
    }
}

WEIR_INLINE void run_units(
    products_memory *team, const products_call *call, int64_t n_units, int64_t n_blocks, int tid
)
{
    const int32_t begin = call->rows->n_past / TILE * TILE,
                  past = call->rows->n_past + call->rows->n_rows;
    for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
        const int64_t first = u % n_blocks * UNIT_ROWS, left = call->n_vectors - first;
        const int32_t slot = begin + (int32_t)(u / n_blocks) * SLOTS;
        run_unit(
            team, call, first, left < UNIT_ROWS ? left : UNIT_ROWS, slot,
            past - slot < SLOTS ? past : slot + SLOTS, tid
        );
    }
}
#pragma omp end declare target

/* ---- the row --------------------------------------------------------------------------------- */
static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_key_products_args *const args = op_args;
    (void)caps;
    const char *const why = weir_key_products_reject(args);
    if (why) return why;
    if (args->key_dim > KEY_MAX) return "key_dim > 576";
    return key_pages_reject(args->k_format, args->sinks);
}

static weir_status WEIR_K(key_products)(const weir_kernel_context *context, const void *op_args)
{
    const weir_key_products_args *const args = op_args;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    if (!weir_key_products_is_sound(args)) return WEIR_EINVAL;
    float *const out = args->out;
    const float *const vectors = args->vectors, *const lengths = args->lengths;
    const weir_kv_segment *const rows = args->rows;
    const int64_t n_vectors = args->n_vectors, out_stride = args->out_stride,
                  key_dim = args->key_dim, n_pairs = args->n_pairs;
    const weir_kv_format k_format = args->k_format, k_sinks = args->sinks.pair.k;
    const int32_t n_sinks = args->sinks.n_pages;
    const bool is_interleaved = args->is_interleaved;
    const int64_t n_tiles = weir_kv_segment_runs(rows, TILE);
    const int64_t unit_rows = lane_on_device(context) ? DEVICE_UNIT_ROWS : UNIT_ROWS,
                  n_blocks = (n_vectors + unit_rows - 1) / unit_rows;
    const int64_t n_units = (n_tiles * TILE + SLOTS - 1) / SLOTS * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, out, vectors, lengths, rows)
    {
        products_memory team;
        const products_call shared = { out,       vectors,    lengths, rows,
                                       n_vectors, out_stride, key_dim, n_pairs,
                                       k_format,  k_sinks,    n_sinks, is_interleaved };
        TEAM_LANES
        {
            products_call call = shared;
#define PAGE_FORMAT_STATEMENT                                                                      \
    call.k_format = format;                                                                        \
    run_units(&team, &call, n_units, n_blocks, lane_thread());
            PAGE_FORMAT_SWITCH(k_format)
#undef PAGE_FORMAT_STATEMENT
        }
    }
    return WEIR_OK;
}

/* Tolerance: sums of products as attention's scores, relative to the vector's and the key's
 * lengths. */
extern const weir_kernel WEIR_K_ROW(key_products);
const weir_kernel WEIR_K_ROW(key_products) = {
    .op = WEIR_OP_KEY_PRODUCTS,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("key_products"),
    .atol = 2e-4,
    .rtol = 2e-5,
    .reject = reject,
    .run = WEIR_K(key_products),
};
