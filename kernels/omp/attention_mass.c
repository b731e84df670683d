/* kernels/omp/attention_mass.c - the attention mass of each slot: sums of 2^(score - lse) over the
 * rows of a segment, from a second pass over K; scores are attention's, to the bit, except
 * those of latents in tile registers (docs/decisions/0082). Cost: 2 * key_dim flops and one
 * exponential per row and slot (docs/kernels.md). */
#include "kernels/omp/attention_rotate.h"
#include "kernels/omp/attention_scores.h"

enum {
    SLOT_TILES = 8,
    /* Per unit: staging rows costs as much as an eighth of their scores. */
    SLOTS = SLOT_TILES * TILE,
    TILE_LANES = TILE / LANE_WIDTH,
};

/* What all units of a call share. */
typedef struct mass_call {
    const float *q, *lse;
    const weir_attention_mass_segment *segments;
    int64_t n_segments, n_heads, n_kv_heads, group, key_dim, q_stride, q_head_stride;
    float scale, softcap; /* times log2(e); softcap: 0: none */
    weir_kv_format k_format, k_sinks; /* the first n_sinks pages have k_sinks */
    int32_t n_sinks;
} mass_call;

typedef struct mass_unit {
    const weir_attention_mass_segment *segment;
    int64_t head, table; /* KV head, of the op and of the segment */
    int32_t first, end; /* slots */
} mass_unit;

/* A block of query rows; row = token * group + head. Rows past the end see nothing. */
typedef struct mass_memory {
    team_memory tile;
    float lse[UNIT_ROWS], mean[UNIT_ROWS]; /* times log2(e); of what the row sees */
    int32_t last[UNIT_ROWS]; /* last slot that the row sees */
} mass_memory;

#pragma omp declare target
WEIR_INLINE int64_t units_of(const mass_call *call, const weir_attention_mass_segment *segment)
{
    if (segment->rows.n_rows <= 0 || (!segment->mass && !segment->below && !segment->last))
        return 0;
    const int64_t n_slots = weir_attention_mass_end(segment) - segment->first_slot;
    return n_slots > 0 ? weir_kv_segment_heads(&segment->rows, call->n_kv_heads) *
                             ((n_slots + SLOTS - 1) / SLOTS)
                       : 0;
}

WEIR_INLINE mass_unit
unit_of(const mass_call *call, const weir_attention_mass_segment *segment, int64_t u)
{
    const int64_t heads = weir_kv_segment_heads(&segment->rows, call->n_kv_heads),
                  table = u % heads;
    const int32_t first = segment->first_slot + (int32_t)(u / heads) * SLOTS,
                  end = (int32_t)weir_attention_mass_end(segment);
    return (mass_unit){ .segment = segment,
                        .head = segment->rows.first_head + table,
                        .table = table,
                        .first = first,
                        .end = end - first < SLOTS ? end : first + SLOTS };
}

/* Outputs of a query head of the unit's group, at its first slot; NULL: not wanted. */
WEIR_INLINE float *output_of(
    const mass_call *call, const mass_unit *unit, float *output, int64_t head
)
{
    return output
               ? output + (unit->table * call->group + head) * unit->segment->stride + unit->first
               : NULL;
}

/* 1 / (number of slots that a row with this last slot sees). The only slot of a row is not below
 * its mean. */
WEIR_INLINE float mean_of(int32_t last) { return last > 0 ? 1.0f / ((float)last + 1.0f) : 0.0f; }

WEIR_INLINE lane_float count_below(lane_float p, lane_float mean)
{
    return lane_select(p < mean, (lane_float)1.0f, (lane_float)0.0f);
}

/* ---- one row, from its logits ---------------------------------------------------------------- */
/* A single row whose logits attention kept: an exponential per slot. */
WEIR_INLINE void observe_logits(const mass_call *call, const mass_unit *unit, int tid)
{
    const weir_attention_mass_segment *const segment = unit->segment;
    const lane_float mean = (lane_float)mean_of(segment->rows.n_past);
    for (int64_t head = 0; head < call->group; head++) {
        const float *const logits =
            segment->rows.logits +
            (unit->table * call->group + head) * segment->rows.logits_stride + unit->first;
        const float lse =
            call->lse[segment->rows.first_row * call->n_heads + unit->head * call->group + head];
        float *const mass = output_of(call, unit, segment->mass, head), *const below = output_of(
                                                                            call, unit,
                                                                            segment->below, head
                                                                        );
        float *const last = output_of(call, unit, segment->last, head);
        for (int64_t at = tid * LANE_WIDTH; at < unit->end - unit->first;
             at += LANE_THREADS * LANE_WIDTH) {
            const int64_t n = unit->end - unit->first - at;
            const lane_float p = lane_exp2((lane_load_part(logits + at, n) - lse) * 1.44269504f);
            if (mass) lane_store_part(mass + at, p, n);
            if (last) lane_store_part(last + at, p, n);
            if (below) lane_store_part(below + at, count_below(p, mean), n);
        }
    }
}

/* ---- rows in blocks -------------------------------------------------------------------------- */
WEIR_INLINE weir_kv_format format_of(const mass_call *call, int32_t page)
{
    return READS_CODED && page < call->n_sinks ? call->k_sinks : call->k_format;
}

WEIR_INLINE bool is_rotated(const mass_call *call)
{
    return any_rotated(format_of(call, 0), call->k_format);
}

WEIR_INLINE bool cut_at_pages(const mass_call *call)
{
    return READS_CODED &&
           (weir_kv_seals_pages(format_of(call, 0)) || weir_kv_seals_pages(call->k_format));
}

/* K at `slot`, as read by rows the first of which has its own slot in page `own`. */
WEIR_INLINE tile_source
key_source(const mass_call *call, const mass_unit *unit, int32_t slot, int32_t own)
{
    const weir_kv_segment *const rows = &unit->segment->rows;
    const int32_t page = slot / WEIR_PAGE_TOKENS;
    const weir_kv_format format = format_of(call, page);
    const bool unsealed = READS_CODED && page == own && weir_kv_seals_pages(format);
    return (tile_source
    ){ .part =
           unsealed
               ? rows->unsealed_pages
                     [unit->table * rows->unsealed_stride + page - rows->n_past / WEIR_PAGE_TOKENS]
               : rows->pages[unit->table * rows->page_stride + page],
       .token = slot % WEIR_PAGE_TOKENS,
       .format = unsealed ? WEIR_KV_F16 : format };
}

/* Copies query rows [first, first + n) to team memory, [register block][key_dim][rows], scaled, and
 * rotated for turbo's K. */
WEIR_INLINE void stage_rows(
    mass_memory *team, const mass_call *call, const mass_unit *unit, int64_t first, int64_t n,
    int tid
)
{
    const weir_kv_segment *const rows = &unit->segment->rows;
    const bool turbo = is_rotated(call);
    for (int64_t r = 0; r < UNIT_ROWS && r < (n + LANE_ROWS - 1) / LANE_ROWS * LANE_ROWS; r++) {
        const int64_t token = (first + r) / call->group,
                      head = unit->head * call->group + (first + r) % call->group;
        const float *query =
            call->q + (rows->first_row + token) * call->q_stride + head * call->q_head_stride;
        float *const staged =
            team->tile.q + r / LANE_ROWS * call->key_dim * LANE_ROWS + r % LANE_ROWS;
        if (r >= n) query = NULL;
        for (int64_t d = tid; d < call->key_dim; d += LANE_THREADS)
            staged[d * LANE_ROWS] =
                query ? query[d] * (turbo ? weir_kv_sign(WEIR_KV_K, d) * call->scale : call->scale)
                      : 0.0f;
        if (tid != 0) continue;
        team->last[r] = query ? rows->n_past + (int32_t)token : -1;
        team->lse[r] =
            query ? call->lse[(rows->first_row + token) * call->n_heads + head] * 1.44269504f
                  : 0.0f;
        team->mean[r] = mean_of(team->last[r]);
    }
    TEAM_BARRIER
    for (int64_t b = 0; turbo && b * LANE_ROWS < n; b++)
        kv_hadamard(team->tile.q + b * call->key_dim * LANE_ROWS, call->key_dim, LANE_ROWS, tid);
}

/* Replaces scores of a tile by weights in team memory; 0 for slots that a row does not see. */
WEIR_INLINE void weigh_rows(mass_memory *team, const row_block *block, int b, int32_t slot, int tid)
{
    UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        const int row = b * LANE_ROWS + row_of(r, tid);
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_int at = lane_iota() + (slot + (int32_t)token_of(v, tid));
            const lane_float p = lane_exp2(block->score[r][v] - team->lse[row]);
            lane_store(
                &team->tile.weights[b][row_of(r, tid)][token_of(v, tid)],
                lane_select(at <= team->last[row], p, (lane_float)0.0f)
            );
        }
    }
}

/* Each thread adds some (query head, vector of slots) of the tile, rows in ascending order, to the
 * sums of earlier blocks in the outputs. `first`: row of the block's first. */
WEIR_INLINE void add_rows(
    const mass_memory *team, const mass_call *call, const mass_unit *unit, int64_t first, int64_t n,
    int32_t slot, int tid
)
{
    const weir_attention_mass_segment *const segment = unit->segment;
    const int32_t last = segment->rows.n_past + segment->rows.n_rows - 1;
    for (int64_t item = tid; item < call->group * TILE_LANES; item += LANE_THREADS) {
        const int64_t head = item / TILE_LANES, lane = item % TILE_LANES * LANE_WIDTH,
                      at = slot - unit->first + lane;
        const int64_t left = unit->end - slot - lane;
        if (left <= 0) continue;
        float *const mass = output_of(call, unit, segment->mass, head), *const below = output_of(
                                                                            call, unit,
                                                                            segment->below, head
                                                                        );
        float *const of_last = output_of(call, unit, segment->last, head);
        lane_float sum = mass ? lane_load_part(mass + at, left) : (lane_float)0.0f;
        lane_float count = below ? lane_load_part(below + at, left) : (lane_float)0.0f;
        for (int64_t r = (head + call->group - first % call->group) % call->group; r < n;
             r += call->group) {
            const lane_float p = lane_load(&team->tile.weights[0][0][0] + r * TILE + lane);
            const lane_int seen = lane_iota() + (int32_t)(slot + lane) <= team->last[r];
            sum += p;
            count += lane_select(seen, count_below(p, (lane_float)team->mean[r]), (lane_float)0.0f);
            if (of_last && team->last[r] == last) lane_store_part(of_last + at, p, left);
        }
        if (mass) lane_store_part(mass + at, sum, left);
        if (below) lane_store_part(below + at, count, left);
    }
}

WEIR_INLINE void clear_sums(const mass_call *call, const mass_unit *unit, int tid)
{
    for (int64_t head = 0; head < call->group; head++) {
        float *const mass = output_of(call, unit, unit->segment->mass, head),
                     *const below = output_of(call, unit, unit->segment->below, head);
        for (int64_t at = tid; mass && at < unit->end - unit->first; at += LANE_THREADS)
            mass[at] = 0.0f;
        for (int64_t at = tid; below && at < unit->end - unit->first; at += LANE_THREADS)
            below[at] = 0.0f;
    }
}

/* Query rows [first, first + n) over the tiles of the unit that any of them sees: K comes from
 * memory once, for later blocks from the cache. With unsealed pages blocks are cut at pages: a row
 * reads its own page unsealed. */
WEIR_INLINE void observe_block(
    mass_memory *team, const mass_call *call, const mass_unit *unit, int64_t first, int64_t n,
    int tid
)
{
    row_block blocks[UNIT_BLOCKS];
    const int n_blocks = (int)((n + LANE_ROWS - 1) / LANE_ROWS);
    const int32_t n_past = unit->segment->rows.n_past,
                  own = (n_past + (int32_t)(first / call->group)) / WEIR_PAGE_TOKENS;
    const int32_t past_last = n_past + (int32_t)((first + n - 1) / call->group) + 1,
                  end = unit->end < past_last ? unit->end : past_last;
    stage_rows(team, call, unit, first, n, tid);
    for (int32_t slot = unit->first; slot < end; slot += TILE) {
        tile_source k = key_source(call, unit, slot, own);
        const tile_source next = slot + TILE < end ? key_source(call, unit, slot + TILE, own) : k;
        if (is_rotated(call)) use_rotated_keys(&team->tile, &k, call->key_dim, tid);
        score_tile(&team->tile, blocks, &k, &next, call->key_dim, n_blocks, LANE_ROWS, tid);
        if (call->softcap > 0.0f) cap_scores(blocks, call->softcap, n_blocks, LANE_ROWS);
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            weigh_rows(team, blocks + b, b, slot, tid);
        TEAM_BARRIER
        add_rows(team, call, unit, first, n, slot, tid);
        TEAM_BARRIER
    }
}

WEIR_INLINE void observe_unit(
    mass_memory *team, const mass_call *call, const mass_unit *unit, int tid
)
{
    const weir_kv_segment *const rows = &unit->segment->rows;
    clear_sums(call, unit, tid);
    int64_t n, first = (unit->first > rows->n_past ? unit->first - rows->n_past : 0) * call->group;
    for (; first < rows->n_rows * call->group; first += n) {
        const int64_t token = first / call->group,
                      in_page = (rows->n_past + token) % WEIR_PAGE_TOKENS;
        int64_t end = cut_at_pages(call) ? token - in_page + WEIR_PAGE_TOKENS : rows->n_rows;
        if (end > rows->n_rows) end = rows->n_rows;
        n = end * call->group - first < UNIT_ROWS ? end * call->group - first : UNIT_ROWS;
        observe_block(team, call, unit, first, n, tid);
    }
}

/* The units of one team: every step-th, over all segments. */
WEIR_INLINE void run_units(mass_memory *team, const mass_call *call, int tid)
{
    int64_t u = lane_first_unit();
    for (int64_t s = 0; s < call->n_segments; s++) {
        const weir_attention_mass_segment *const segment = call->segments + s;
        const int64_t n_units = units_of(call, segment);
        for (; u < n_units; u += lane_unit_step()) {
            const mass_unit unit = unit_of(call, segment, u);
            if (weir_attention_mass_from_logits(segment))
                observe_logits(call, &unit, tid);
            else
                observe_unit(team, call, &unit, tid);
        }
        u -= n_units;
    }
}
#pragma omp end declare target

/* ---- the row --------------------------------------------------------------------------------- */
static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_attention_mass_args *const args = op_args;
    (void)caps;
    const char *const why = weir_kv_keys_reject(args->k_format, args->sinks, args->key_dim);
    if (why) return why;
    if (args->key_dim > KEY_MAX) return "key_dim > 576";
    return key_pages_reject(args->k_format, args->sinks);
}

static weir_status WEIR_K(attention_mass)(const weir_kernel_context *context, const void *op_args)
{
    const weir_attention_mass_args *const args = op_args;
    if (!weir_attention_mass_is_sound(args)) return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    const float *const q = args->q, *const lse = args->lse;
    const weir_attention_mass_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_heads = args->n_heads,
                  n_kv_heads = args->n_kv_heads, key_dim = args->key_dim;
    const int64_t group = n_heads / n_kv_heads, q_stride = args->q_stride,
                  q_head_stride = args->q_head_stride;
    const float scale = args->scale * 1.44269504f, softcap = args->softcap * 1.44269504f;
    const weir_kv_format k_format = args->k_format, k_sinks = args->sinks.pair.k;
    const int32_t n_sinks = args->sinks.n_pages;
    const mass_call plan_call = { .n_kv_heads = n_kv_heads };
    int64_t n_units = 0;
    for (int64_t s = 0; s < n_segments; s++) n_units += units_of(&plan_call, segments + s);
    if (n_units == 0) return WEIR_OK;

    TEAMS(n_units, q, lse, segments)
    {
        mass_memory team;
        const mass_call shared = { q,          lse,     segments, n_segments, n_heads,
                                   n_kv_heads, group,   key_dim,  q_stride,   q_head_stride,
                                   scale,      softcap, k_format, k_sinks,    n_sinks };
        TEAM_LANES
        {
            mass_call call = shared;
#define PAGE_FORMAT_STATEMENT                                                                      \
    call.k_format = format;                                                                        \
    run_units(&team, &call, lane_thread());
            PAGE_FORMAT_SWITCH(k_format)
#undef PAGE_FORMAT_STATEMENT
        }
    }
    return WEIR_OK;
}

/* Tolerance: as attention's weights: relative, and larger for steep logits, which amplify the
 * rounding of their sums. */
extern const weir_kernel WEIR_K_ROW(attention_mass);
const weir_kernel WEIR_K_ROW(attention_mass) = {
    .op = WEIR_OP_ATTENTION_MASS,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("attention_mass"),
    .atol = 2e-6,
    .rtol = 2e-5,
    .reject = reject,
    .run = WEIR_K(attention_mass),
};
