/* kernels/omp/attention.c - paged causal attention with an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022), decode and prefill.
 *
 * A unit is (segment, KV head, block of query rows, split or all splits). A query row is one token of one head of the group: row = token *
 * group + head, so that all heads of a group share every K and V tile that is read. Work on a tile of 32 positions:
 *     scores   thread = (position lanes, rows): sum over key_dim of q[d][row] * K[d][position], q staged and scaled by scale * log2(e)
 *     softmax  new maximum, weights = 2^(score - maximum), decay of what was summed before
 *     values   thread = lanes of value_dim: value[dim] = value[dim] * decay + sum over the 32 positions of weight * V[position][dim]
 * Every (row, position) and (row, dim) is one chain of multiply-adds in ascending order, so a row's bits do not depend on the rows beside
 * it. Splits of 1024 positions start afresh and are merged pairwise in ascending order, either here, when a unit walks all its splits
 * (many rows), or from partials in the scratch by a second region (few rows: the splits are what keeps the machine busy).
 *
 * Cost: 2 * (key_dim + value_dim) flops per row and position; K and V are read once per 32 rows on the host. Decode is bound by memory:
 * the next tile is prefetched while this one is used. */
#include "kernels/omp/attention_tile.h"

/* What all units of a call share. */
typedef struct attention_call {
    float                 *out, *partials;
    const float           *q;
    const weir_kv_segment *segments;
    int64_t                n_segments, n_heads, n_kv_heads, group, key_dim, value_dim, q_stride, q_head_stride, out_stride;
    int32_t                window;
    float                  scale; /* times log2(e) */
} attention_call;

#pragma omp declare target

/* ---- the plan of a segment --------------------------------------------------------------------------------------- */
typedef struct segment_plan {
    int32_t first_split, n_splits;
    int64_t n_rows, n_blocks, n_units; /* query rows per KV head; blocks of unit_rows; units of all KV heads */
    bool    partial; /* one unit per split, merged by the second region                    */
} segment_plan;

WEIR_INLINE segment_plan plan_segment(const weir_kv_segment *segment, int64_t n_kv_heads, int64_t group, int32_t window, int32_t unit_rows)
{
    segment_plan plan = { 0 };
    if (segment->n_rows <= 0) return plan;
    const int32_t first = window > 0 && segment->n_past >= window ? segment->n_past - window + 1 : 0;
    plan.first_split = first / SPLIT;
    plan.n_splits = (segment->n_past + segment->n_rows - 1) / SPLIT - plan.first_split + 1;
    plan.n_rows = segment->n_rows * group;
    plan.n_blocks = (plan.n_rows + unit_rows - 1) / unit_rows;
    plan.partial = plan.n_splits > 1 && plan.n_rows <= SPLIT_ROWS;
    plan.n_units = plan.n_blocks * n_kv_heads * (plan.partial ? plan.n_splits : 1);
    return plan;
}

/* ---- splits and merging ---------------------------------------------------------------------------------------------- */
WEIR_INLINE float exp2_of(float x) { return lane_first(lane_exp2((lane_float)x)); }

/* a * x + b * y, fused the same way wherever this is inlined: the two places that merge must agree to the bit. */
WEIR_INLINE lane_float weighted(lane_float a, float x, lane_float b, float y) { return lane_fma(a, (lane_float)x, b * y); }

/* Weights of the two sides when (maximum, sum) of the next split joins the total; false: nothing to join. */
WEIR_INLINE bool merge_weights(float *total_maximum, float *total_sum, float maximum, float sum, float *keep, float *add)
{
    if (maximum == NOTHING) return false;
    const float highest = *total_maximum > maximum ? *total_maximum : maximum;
    *keep = exp2_of(*total_maximum - highest); /* 0 when the total is of nothing yet */
    *add = exp2_of(maximum - highest);
    *total_sum = lane_first(weighted((lane_float)*total_sum, *keep, (lane_float)sum, *add));
    *total_maximum = highest;
    return true;
}

/* Sum of each row over the lanes of the tile, in team memory: sums[row][0 .. POSITION_THREADS), and maximum[row]. */
WEIR_INLINE void publish_block(team_memory *team, const row_block *block, const int rows, int tid)
{
    const int thread_rows = rows / ROW_THREADS;
    UNROLL
    for (int r = 0; r < thread_rows; r++) {
        lane_float sum = block->sum[r][0];
        UNROLL
        for (int v = 1; v < TILE_VECTORS; v++) sum += block->sum[r][v];
        team->sums[row_of(r, tid)][tid % POSITION_THREADS] = lane_sum_of(sum);
        if (tid % POSITION_THREADS == 0) team->maximum[row_of(r, tid)] = block->maximum[r];
    }
    TEAM_BARRIER
}

WEIR_INLINE float block_sum(const team_memory *team, int row)
{
    float sum = 0.0f;
    for (int t = 0; t < POSITION_THREADS; t++) sum += team->sums[row][t];
    return sum;
}

WEIR_INLINE int64_t partial_floats(int64_t value_dim) { return PARTIAL_HEAD + value_dim; }

WEIR_INLINE void store_partial(const team_memory *team, const row_block *block, float *const *partial, int64_t value_dim, const int width,
                               const int rows, int tid)
{
    UNROLL_DEVICE
    for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
        const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
        if (first >= value_dim) break;
        UNROLL
        for (int r = 0; r < rows; r++)
            if (partial[r]) lane_store_part(partial[r] + PARTIAL_HEAD + first, block->value[n][r], value_dim - first);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (tid != 0 || !partial[r]) continue;
        partial[r][0] = team->maximum[r];
        partial[r][1] = block_sum(team, r);
    }
}

WEIR_INLINE void merge_block(const team_memory *team, const row_block *block, row_total *total, const int width, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        float keep, add;
        if (!merge_weights(&total->maximum[r], &total->sum[r], team->maximum[r], block_sum(team, r), &keep, &add)) continue;
        UNROLL_DEVICE
        for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++)
            total->value[n][r] = total->started[r] ? weighted(total->value[n][r], keep, block->value[n][r], add) : block->value[n][r];
        total->started[r] = true;
    }
}

/* ---- a unit ------------------------------------------------------------------------------------------------------------- */
typedef struct attention_unit {
    const weir_kv_segment *segment;
    void *const           *pages; /* of this KV head                            */
    int64_t                head; /* KV head                                    */
    int64_t                first_row, n_rows; /* query rows of this unit     */
    int32_t                first_split, n_splits; /* to walk                     */
    float                 *partials; /* of this segment, NULL: merge and write out */
    int32_t                plan_first_split, plan_n_splits;
} attention_unit;

/* Query rows of a block to team memory, [key_dim][rows], scaled; rows past the end are zero. */
WEIR_INLINE void stage_queries(float *q, const attention_call *call, const attention_unit *unit, int64_t first, const int rows, int tid)
{
    for (int r = 0; r < rows; r++) {
        const int64_t row = first + r;
        const bool    exists = row < unit->first_row + unit->n_rows;
        const int64_t token = unit->segment->first_row + row / call->group, head = unit->head * call->group + row % call->group;
        const float  *src = call->q + (exists ? token * call->q_stride + head * call->q_head_stride : 0);
        for (int64_t d = tid; d < call->key_dim; d += LANE_THREADS) q[d * rows + r] = exists ? src[d] * call->scale : 0.0f;
    }
}

WEIR_INLINE void reset_block(row_block *block, const attention_call *call, const attention_unit *unit, int64_t first, const int width,
                             const int rows, int tid)
{
    UNROLL
    for (int r = 0; r < rows / ROW_THREADS; r++) {
        block->last[r] = unit->segment->n_past + (int32_t)((first + row_of(r, tid)) / call->group);
        block->maximum[r] = NOTHING;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) block->sum[r][v] = (lane_float)0.0f;
    }
    UNROLL_DEVICE
    for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
        if (n * LANE_THREADS * LANE_WIDTH >= call->value_dim) break;
        UNROLL
        for (int r = 0; r < rows; r++) block->value[n][r] = (lane_float)0.0f;
    }
}

/* All blocks of a unit over the tiles of one split that any of its rows sees. */
WEIR_INLINE void walk_split(team_memory *team, row_block *blocks, const attention_call *call, const attention_unit *unit, int32_t split,
                            int n_blocks, const int width, const int rows, const bool half, int tid)
{
    const int32_t first_own = unit->segment->n_past + (int32_t)(unit->first_row / call->group);
    const int32_t last_own = unit->segment->n_past + (int32_t)((unit->first_row + unit->n_rows - 1) / call->group);
    const int32_t first_seen = first_own >= call->window ? first_own - call->window + 1 : 0;
    const int32_t begin = first_seen > split * SPLIT ? first_seen / TILE * TILE : split * SPLIT;
    const int32_t end = last_own < split * SPLIT + SPLIT - 1 ? last_own + 1 : split * SPLIT + SPLIT;
    for (int32_t position = begin; position < end; position += TILE) {
        const int32_t     ahead = position + TILE < end ? position + TILE : position;
        const void *const page = unit->pages[position / WEIR_PAGE_TOKENS], *const next_page = unit->pages[ahead / WEIR_PAGE_TOKENS];
        const int64_t     token = position % WEIR_PAGE_TOKENS, next_token = ahead % WEIR_PAGE_TOKENS;
        const void *const k = element(page, weir_page_k_tile(token, call->key_dim), half);
        const void *const v = element(page, weir_page_v(token, call->key_dim, call->value_dim), half);
        const void *const next_k = element(next_page, weir_page_k_tile(next_token, call->key_dim), half);
        const void *const next_v = element(next_page, weir_page_v(next_token, call->key_dim, call->value_dim), half);
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
            lane_float score[THREAD_ROWS][TILE_VECTORS];
            score_tile(score, team->q + b * call->key_dim * rows, k, next_k, call->key_dim, rows, half, tid);
            weigh_tile(team, blocks + b, score, position, call->window, rows, tid);
            value_tile(team, blocks + b, v, next_v, call->value_dim, width, rows, half, tid);
        }
    }
}

/* Where the partials of the rows of a block go; NULL for rows past the end. */
WEIR_INLINE void partial_rows(float **partial, const attention_call *call, const attention_unit *unit, int64_t first, int32_t split,
                              const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int64_t row = first + r, token = row / call->group, head = unit->head * call->group + row % call->group;
        const int64_t index = (token * call->n_heads + head) * unit->plan_n_splits + split - unit->plan_first_split;
        partial[r] = row < unit->first_row + unit->n_rows ? unit->partials + index * partial_floats(call->value_dim) : NULL;
    }
}

WEIR_INLINE void write_block(const attention_call *call, const attention_unit *unit, const row_total *total, int64_t first_row,
                             const int width, const int rows, int tid)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int64_t row = first_row + r;
        if (row >= unit->first_row + unit->n_rows) break;
        const int64_t token = unit->segment->first_row + row / call->group, head = unit->head * call->group + row % call->group;
        float *const  out = call->out + token * call->out_stride + head * call->value_dim;
        const float   inverse = 1.0f / total->sum[r];
        UNROLL_DEVICE
        for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
            const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
            if (first >= call->value_dim) break;
            lane_store_part(out + first, total->value[n][r] * inverse, call->value_dim - first);
        }
    }
}

WEIR_INLINE void attend(team_memory *team, const attention_call *call, const attention_unit *unit, const int width, const int rows,
                        const bool half, int tid)
{
    row_block blocks[UNIT_BLOCKS];
    row_total totals[UNIT_BLOCKS];
    const int n_blocks = (int)((unit->n_rows + rows - 1) / rows);
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        stage_queries(team->q + b * call->key_dim * rows, call, unit, unit->first_row + b * rows, rows, tid);
        UNROLL
        for (int r = 0; r < rows; r++) totals[b].maximum[r] = NOTHING, totals[b].sum[r] = 0.0f, totals[b].started[r] = false;
    }
    TEAM_BARRIER
    for (int32_t split = unit->first_split; split < unit->first_split + unit->n_splits; split++) {
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            reset_block(blocks + b, call, unit, unit->first_row + b * rows, width, rows, tid);
        walk_split(team, blocks, call, unit, split, n_blocks, width, rows, half, tid);
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
            publish_block(team, blocks + b, rows, tid);
            if (unit->partials) {
                float *partial[LANE_ROWS];
                partial_rows(partial, call, unit, unit->first_row + b * rows, split, rows);
                store_partial(team, blocks + b, partial, call->value_dim, width, rows, tid);
            } else {
                merge_block(team, blocks + b, totals + b, width, rows);
            }
            TEAM_BARRIER
        }
    }
    if (unit->partials) return;
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) write_block(call, unit, totals + b, unit->first_row + b * rows, width, rows, tid);
}

/* The smallest register block that holds the rows. */
WEIR_INLINE void attend_rows(team_memory *team, const attention_call *call, const attention_unit *unit, const int width, const bool half,
                             int tid)
{
    if (ROW_THREADS <= 1 && unit->n_rows <= 1)
        attend(team, call, unit, width, 1, half, tid);
    else if (ROW_THREADS <= 2 && unit->n_rows <= 2)
        attend(team, call, unit, width, 2, half, tid);
    else if (LANE_ROWS == 4 || (ROW_THREADS <= 4 && unit->n_rows <= 4))
        attend(team, call, unit, width, 4, half, tid);
    else
        attend(team, call, unit, width, LANE_ROWS, half, tid);
}

/* On the host values live in L1 and one width serves all; on a device they are registers, so the code is chosen by width. */
WEIR_INLINE void attend_width(team_memory *team, const attention_call *call, const attention_unit *unit, const bool half, int tid)
{
    if (LANE_THREADS < 128 || call->value_dim > 256)
        attend_rows(team, call, unit, VALUE_MAX, half, tid);
    else if (call->value_dim > 128)
        attend_rows(team, call, unit, 256, half, tid);
    else
        attend_rows(team, call, unit, 128, half, tid);
}

/* Units of segment `plan`, KV heads innermost: neighbours in the order have equal work. */
WEIR_INLINE attention_unit unit_of(const attention_call *call, const weir_kv_segment *segment, const segment_plan *plan, int64_t u,
                                   float *partials)
{
    const int64_t  head = u % call->n_kv_heads, rest = u / call->n_kv_heads, n_splits = plan->partial ? plan->n_splits : 1;
    attention_unit unit = { .segment = segment,
                            .pages = segment->pages + head * segment->page_stride,
                            .head = head,
                            .plan_first_split = plan->first_split,
                            .plan_n_splits = plan->n_splits };
    unit.first_row = rest / n_splits * UNIT_ROWS;
    unit.n_rows = plan->n_rows - unit.first_row < UNIT_ROWS ? plan->n_rows - unit.first_row : UNIT_ROWS;
    if (plan->partial) {
        unit.first_split = plan->first_split + (int32_t)(rest % n_splits);
        unit.n_splits = 1;
        unit.partials = partials;
    } else {
        const int32_t last = segment->n_past + (int32_t)((unit.first_row + unit.n_rows - 1) / call->group);
        unit.first_split = plan->first_split;
        unit.n_splits = last / SPLIT - plan->first_split + 1;
    }
    return unit;
}

WEIR_INLINE int64_t plan_partials(const attention_call *call, const weir_kv_segment *segment, const segment_plan *plan)
{
    return plan->partial ? (int64_t)segment->n_rows * call->n_heads * plan->n_splits * partial_floats(call->value_dim) : 0;
}

/* The units of one team: every step-th, over all segments. */
WEIR_INLINE void run_units(team_memory *team, const attention_call *call, const bool half, int tid)
{
    int64_t u = lane_first_unit(), partials = 0;
    for (int64_t s = 0; s < call->n_segments; s++) {
        const weir_kv_segment *const segment = call->segments + s;
        const segment_plan           plan = plan_segment(segment, call->n_kv_heads, call->group, call->window, UNIT_ROWS);
        for (; u < plan.n_units; u += lane_unit_step()) {
            const attention_unit unit = unit_of(call, segment, &plan, u, call->partials + partials);
            attend_width(team, call, &unit, half, tid);
        }
        u -= plan.n_units;
        partials += plan_partials(call, segment, &plan);
    }
}

/* ---- the second region: partials of one (token, head) in ascending order of splits --------------------------------------- */
WEIR_INLINE void merge_row(float *out, const float *partial, int32_t n_splits, int64_t value_dim, int tid)
{
    for (int64_t first = tid * LANE_WIDTH; first < value_dim; first += LANE_THREADS * LANE_WIDTH) {
        float      maximum = NOTHING, sum = 0.0f, keep, add;
        lane_float value = (lane_float)0.0f;
        bool       started = false; /* not read back from `maximum`: clang 19 folds that load to NOTHING in device code */
        for (int32_t split = 0; split < n_splits; split++) {
            const float *const p = partial + split * partial_floats(value_dim);
            const lane_float   x = lane_load_part(p + PARTIAL_HEAD + first, value_dim - first);
            if (!merge_weights(&maximum, &sum, p[0], p[1], &keep, &add)) continue;
            value = started ? weighted(value, keep, x, add) : x;
            started = true;
        }
        const float inverse = 1.0f / sum;
        lane_store_part(out + first, value * inverse, value_dim - first);
    }
}

WEIR_INLINE void merge_rows(const attention_call *call, int tid)
{
    int64_t u = lane_first_unit(), partials = 0;
    for (int64_t s = 0; s < call->n_segments; s++) {
        const weir_kv_segment *const segment = call->segments + s;
        const segment_plan           plan = plan_segment(segment, call->n_kv_heads, call->group, call->window, UNIT_ROWS);
        const int64_t                n_units = plan.partial ? segment->n_rows * call->n_heads : 0;
        for (; u < n_units; u += lane_unit_step()) {
            float *const out =
                call->out + (segment->first_row + u / call->n_heads) * call->out_stride + u % call->n_heads * call->value_dim;
            merge_row(out, call->partials + partials + u * plan.n_splits * partial_floats(call->value_dim), plan.n_splits, call->value_dim,
                      tid);
        }
        u -= n_units;
        partials += plan_partials(call, segment, &plan);
    }
}
#pragma omp end declare target

/* ---- the row --------------------------------------------------------------------------------------------------------------- */
static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_attention_args *const args = op_args;
    (void)caps;
    if (args->dtype != WEIR_F16 && args->dtype != WEIR_F32) return "pages are neither f16 nor f32";
    if (args->key_dim > KEY_MAX) return "key_dim > 576";
    if (args->value_dim > VALUE_MAX) return "value_dim > 512";
    return NULL;
}

static size_t scratch(const void *op_args)
{
    const weir_attention_args *const args = op_args;
    if (args->n_kv_heads <= 0) return 0;
    const int64_t        group = args->n_heads / args->n_kv_heads;
    const attention_call call = { .n_heads = args->n_heads, .value_dim = args->value_dim };
    int64_t              floats = 0;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const segment_plan plan = plan_segment(args->segments + s, args->n_kv_heads, group, args->window > 0 ? args->window : INT32_MAX, 1);
        floats += plan_partials(&call, args->segments + s, &plan);
    }
    return (size_t)floats * sizeof(float);
}

static weir_status WEIR_K(attention)(const weir_kernel_context *context, const void *op_args)
{
    const weir_attention_args *const args = op_args;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0 || args->key_dim <= 0 || args->value_dim <= 0) return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    if (context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    float *const out = args->out, *const partials = context->scratch;
    const float *const           q = args->q;
    const weir_kv_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_heads = args->n_heads, n_kv_heads = args->n_kv_heads, key_dim = args->key_dim;
    const int64_t value_dim = args->value_dim, q_stride = args->q_stride, q_head_stride = args->q_head_stride,
                  out_stride = args->out_stride;
    const int64_t group = n_heads / n_kv_heads;
    const int32_t window = args->window > 0 ? args->window : INT32_MAX;
    const int32_t unit_rows = lane_on_device(context) ? DEVICE_UNIT_ROWS : UNIT_ROWS;
    const float   scale = args->scale * 1.44269504f;
    const bool    half = args->dtype == WEIR_F16;
    int64_t       n_units = 0, n_merges = 0;
    for (int64_t s = 0; s < n_segments; s++) {
        const segment_plan plan = plan_segment(segments + s, n_kv_heads, group, window, unit_rows);
        n_units += plan.n_units;
        n_merges += plan.partial ? segments[s].n_rows * n_heads : 0;
    }
    if (n_units == 0) return WEIR_OK;

#pragma omp target teams is_device_ptr(out, partials, q, segments) device(context -> omp_device) num_teams(lane_teams(context, n_units))   \
    thread_limit(lane_threads(context))
    {
        team_memory team;
#pragma omp parallel num_threads(LANE_THREADS)
        {
            const attention_call call = { out,        partials,  q,          segments,
                                          n_segments, n_heads,   n_kv_heads, n_heads / n_kv_heads,
                                          key_dim,    value_dim, q_stride,   q_head_stride,
                                          out_stride, window,    scale };
            if (half)
                run_units(&team, &call, true, lane_thread());
            else
                run_units(&team, &call, false, lane_thread());
        }
    }
    if (n_merges == 0) return WEIR_OK;

#pragma omp target teams is_device_ptr(out, partials, segments) device(context -> omp_device) num_teams(lane_teams(context, n_merges))     \
    thread_limit(lane_threads(context))
    {
#pragma omp parallel num_threads(LANE_THREADS)
        {
            const attention_call call = { .out = out,
                                          .partials = partials,
                                          .segments = segments,
                                          .n_segments = n_segments,
                                          .n_heads = n_heads,
                                          .n_kv_heads = n_kv_heads,
                                          .group = group,
                                          .value_dim = value_dim,
                                          .out_stride = out_stride,
                                          .window = window };
            merge_rows(&call, lane_thread());
        }
    }
    return WEIR_OK;
}

/* Tolerance: scores carry some 1e-7 * sqrt(key_dim) * |q| |k| of rounding, which the exponential turns into relative error of the weights. */
extern const weir_kernel WEIR_K_ROW(attention);
const weir_kernel        WEIR_K_ROW(attention) = {
           .op = WEIR_OP_ATTENTION,
           .backend = WEIR_BACKEND_OMP,
           .name = WEIR_K_NAME("attention"),
           .atol = 5e-6,
           .rtol = 2e-5,
           .reject = reject,
           .scratch = scratch,
           .run = WEIR_K(attention),
};
