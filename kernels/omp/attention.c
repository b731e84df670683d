/* kernels/omp/attention.c - paged causal attention with an online softmax (Milakov & Gimelshein
 * 2018; Dao et al. 2022). Unit: (segment, KV head, block of query rows, split or all splits); query
 * row = token * group + head, so heads of a group share K and V tiles (docs/kernels.md). */
#include "kernels/omp/attention_unit.h"

#pragma omp declare target

/* ---- the first region: units ----------------------------------------------------------------- */
/* A unit's tiles: scores, softmax, values. Every (row, position) and (row, dim) is one chain in
 * ascending order, so bits do not depend on the block's other rows. Cost: 2 * (key_dim + value_dim)
 * flops per row and position. next: the team's next unit, or this one if there is none. */
WEIR_INLINE void attend(
    team_memory *team, const attention_call *call, const attention_unit *unit,
    const attention_unit *next, const int width, const int rows, int tid
)
{
    row_block blocks[UNIT_BLOCKS];
    row_total totals[UNIT_BLOCKS];
    float *rows_of[LANE_ROWS]; /* split_partials or partials of a block */
    const int n_blocks = (int)((unit->n_rows + rows - 1) / rows);
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        const int64_t first = unit->first_row + b * rows;
#if HAS_TILES
        for (int r = 0; r < rows; r++)
            stage_latent_query(
                team->latents, b * rows + r, query_of(call, unit, first + r), call->scale,
                call->key_dim
            );
#else
        stage_queries(team->q + b * call->key_dim * rows, call, unit, first, rows, tid);
#endif
        UNROLL
        for (int r = 0; r < rows; r++) rows_of[r] = NULL;
        if (call->partials && call->first_split > 0 && !unit->split_partials)
            partials_of_rows(rows_of, call, unit, first, rows);
        load_totals(totals + b, rows_of, call->value_dim, width, rows, tid);
    }
    TEAM_BARRIER
    for (int32_t split = unit->first_split; split < unit->first_split + unit->n_splits; split++) {
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            reset_block(blocks + b, call, unit, unit->first_row + b * rows, width, rows, tid);
#if HAS_TILES
        clear_sums(team->latents);
        walk_split(team, blocks, call, unit, split, next, n_blocks, width, rows, tid);
        take_sums(team->latents, blocks, call->value_dim, n_blocks);
#else
        walk_split(team, blocks, call, unit, split, next, n_blocks, width, rows, tid);
#endif
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
            publish_block(team, blocks + b, rows, tid);
            if (unit->split_partials) {
                partial_rows(rows_of, call, unit, unit->first_row + b * rows, split, rows);
                store_partial(team, blocks + b, rows_of, call->value_dim, width, rows, tid);
            } else {
                merge_block(team, blocks + b, totals + b, call->value_dim, width, rows);
            }
            TEAM_BARRIER
        }
    }
    if (unit->split_partials) return;
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        if (call->is_last) {
            write_block(call, unit, totals + b, unit->first_row + b * rows, width, rows, tid);
        } else {
            partials_of_rows(rows_of, call, unit, unit->first_row + b * rows, rows);
            store_totals(totals + b, rows_of, call->value_dim, width, rows, tid);
        }
    }
}

#define ATTEND(rows)                                                                               \
    INLINE_DEVICE void attend_##rows(                                                              \
        team_memory *team, const attention_call *call, const attention_unit *unit,                 \
        const attention_unit *next, const int width, int tid                                       \
    )                                                                                              \
    {                                                                                              \
        attend(team, call, unit, next, width, rows, tid);                                          \
    }
ATTEND(1)
ATTEND(2)
ATTEND(4)
ATTEND(LANE_ROWS)
#undef ATTEND

/* The smallest register block that holds the rows. */
WEIR_INLINE void attend_rows(
    team_memory *team, const attention_call *call, const attention_unit *unit,
    const attention_unit *next, const int width, int tid
)
{
    if (!HAS_TILES && ROW_THREADS <= 1 && unit->n_rows <= 1)
        attend_1(team, call, unit, next, width, tid);
    else if (!HAS_TILES && ROW_THREADS <= 2 && unit->n_rows <= 2)
        attend_2(team, call, unit, next, width, tid);
    else if (LANE_ROWS == 4 || (!HAS_TILES && ROW_THREADS <= 4 && unit->n_rows <= 4))
        attend_4(team, call, unit, next, width, tid);
    else
        attend_LANE_ROWS(team, call, unit, next, width, tid);
}

/* On the host values are in L1 and one width serves all; on a device they are registers, so the
 * code is chosen by width. */
WEIR_INLINE void attend_width(
    team_memory *team, const attention_call *call, const attention_unit *unit,
    const attention_unit *next, int tid
)
{
    if (LANE_THREADS < 128 || call->value_dim > 256)
        attend_rows(team, call, unit, next, VALUE_MAX, tid);
    else if (call->value_dim > 128)
        attend_rows(team, call, unit, next, 256, tid);
    else
        attend_rows(team, call, unit, next, 128, tid);
}

/* Units of segment `plan`, KV heads innermost: neighbouring units have equal work. With unsealed
 * pages units are cut at pages, as a row reads its own page unsealed. */
WEIR_INLINE attention_unit unit_of(
    const attention_call *call, const weir_kv_segment *segment, const segment_plan *plan, int64_t u,
    float *split_partials
)
{
    const int64_t table = u % plan->n_heads, rest = u / plan->n_heads,
                  n_splits = plan->partial ? plan->n_splits : 1;
    attention_unit unit = { .segment = segment,
                            .pages = segment->pages + table * segment->page_stride,
                            .unsealed_pages =
                                segment->unsealed_pages
                                    ? segment->unsealed_pages + table * segment->unsealed_stride
                                    : NULL,
                            .head = segment->first_head + table,
                            .table = table,
                            .n_query_heads = plan->n_heads * call->group,
                            .plan_first_split = plan->first_split,
                            .plan_n_splits = plan->n_splits };
    const int64_t block = rest / n_splits, later = block - plan->first_blocks;
    int64_t begin = 0, end = plan->first_tokens,
            index = block; /* index of the block's rows among the tokens */
    if (later >= 0) {
        begin = plan->first_tokens + later / plan->page_blocks * plan->page_tokens;
        end = begin + plan->page_tokens < segment->n_rows ? begin + plan->page_tokens
                                                          : segment->n_rows;
        index = later % plan->page_blocks;
    }
    unit.first_row = begin * call->group + index * UNIT_ROWS;
    unit.n_rows = end * call->group - unit.first_row < UNIT_ROWS
                      ? end * call->group - unit.first_row
                      : UNIT_ROWS;
    if (READS_CODED && segment->logits &&
        unit.first_row + unit.n_rows > (int64_t)(segment->n_rows - 1) * call->group)
        unit.logits = segment->logits + table * call->group * segment->logits_stride;
    if (plan->partial) {
        unit.first_split = plan->first_split + (int32_t)(rest % n_splits);
        unit.n_splits = 1;
        unit.split_partials = split_partials;
    } else {
        const int32_t last =
            (segment->n_past + (int32_t)((unit.first_row + unit.n_rows - 1) / call->group)) /
                SPLIT -
            plan->first_split + 1;
        unit.first_split = plan->first_split;
        unit.n_splits = last < plan->n_splits ? last : plan->n_splits;
    }
    return unit;
}

WEIR_INLINE int64_t plan_partials(const attention_call *call, const segment_plan *plan)
{
    return plan->partial
               ? plan->n_heads * plan->n_rows * plan->n_splits * partial_floats(call->value_dim)
               : 0;
}

/* The units of one team: every step-th, over all segments. */
WEIR_INLINE void run_units(team_memory *team, const attention_call *call, int tid)
{
    int64_t u = lane_first_unit(), split_partials = 0;
    for (int64_t s = 0; s < call->n_segments; s++) {
        const weir_kv_segment *const segment = call->segments + s;
        const segment_plan plan = plan_segment(call, segment, UNIT_ROWS);
        for (; u < plan.n_units; u += lane_unit_step()) {
            float *const own = plan.partial ? call->split_partials + split_partials : NULL;
            const int64_t later = u + lane_unit_step() < plan.n_units ? u + lane_unit_step() : u;
            const attention_unit unit = unit_of(call, segment, &plan, u, own),
                                 next = unit_of(call, segment, &plan, later, own);
            /* Pages of splits of other calls may not be mapped. */
            attend_width(team, call, &unit, next.n_splits > 0 ? &next : &unit, tid);
        }
        u -= plan.n_units;
        split_partials += plan_partials(call, &plan);
    }
}

/* ---- the second region: partials of one (token, head), splits ascending ---------------------- */
WEIR_INLINE void merge_row(
    const attention_call *call, int64_t head, float *out, float *partials, float *lse,
    const float *partial, int32_t n_splits, int tid
)
{
    const int64_t value_dim = call->value_dim;
    const bool resumed = partials && call->first_split > 0 && partials[0] != NOTHING;
    float maximum = NOTHING, sum = 0.0f, keep, add;
    for (int64_t first = tid * LANE_WIDTH; first < value_dim; first += LANE_THREADS * LANE_WIDTH) {
        /* Not derived from `maximum`: clang 19 folds that load to NOTHING in device code. */
        bool started = resumed;
        lane_float value = started
                               ? lane_load_part(partials + PARTIAL_HEAD + first, value_dim - first)
                               : (lane_float)0.0f;
        maximum = started ? partials[0] : NOTHING;
        sum = started ? partials[1] : 0.0f;
        for (int32_t split = 0; split < n_splits; split++) {
            const float *const p = partial + split * partial_floats(value_dim);
            const lane_float x = lane_load_part(p + PARTIAL_HEAD + first, value_dim - first);
            if (!merge_weights(&maximum, &sum, p[0], p[1], &keep, &add)) continue;
            value = started ? weighted(value, keep, x, add) : x;
            started = true;
        }
        if (call->is_last)
            lane_store_part(
                out + first, value * close_row(call, head, &maximum, &sum), value_dim - first
            );
        else
            lane_store_part(partials + PARTIAL_HEAD + first, value, value_dim - first);
    }
    TEAM_BARRIER /* all have read the partials, or written the row */
        if (!call->is_last && tid == 0) partials[0] = maximum,
                                        partials[1] = sum;
    if (call->is_last && lse && tid == 0) *lse = lse_of(maximum, sum);
    if (call->is_last && is_rotated(call, WEIR_KV_V)) rotate_back(out, value_dim, tid);
}

/* Few rows: splits are separate units, and a second region merges them pairwise in ascending
 * order. */
WEIR_INLINE void merge_rows(const attention_call *call, int tid)
{
    int64_t u = lane_first_unit(), split_partials = 0;
    for (int64_t s = 0; s < call->n_segments; s++) {
        const weir_kv_segment *const segment = call->segments + s;
        const segment_plan plan = plan_segment(call, segment, UNIT_ROWS);
        const int64_t n_query_heads = plan.n_heads * call->group,
                      n_units = plan.partial ? segment->n_rows * n_query_heads : 0;
        for (; u < n_units; u += lane_unit_step()) {
            const int64_t row = segment->first_row + u / n_query_heads,
                          head = segment->first_head * call->group + u % n_query_heads;
            float *const partials = call->partials
                                        ? call->partials + (row * call->n_heads + head) *
                                                               partial_floats(call->value_dim)
                                        : NULL;
            float *const lse = call->lse ? call->lse + row * call->n_heads + head : NULL;
            merge_row(
                call, head, call->out + row * call->out_stride + head * call->value_dim, partials,
                lse,
                call->split_partials + split_partials +
                    u * plan.n_splits * partial_floats(call->value_dim),
                plan.n_splits, tid
            );
        }
        u -= n_units;
        split_partials += plan_partials(call, &plan);
    }
}
#pragma omp end declare target

/* ---- the row --------------------------------------------------------------------------------- */
static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_attention_args *const args = op_args;
    const weir_kv_pair others = { args->k_format, args->v_format },
                       first = weir_kv_pair_at(others, args->sinks, 0);
    const char *const why = weir_attention_pages_reject(args);
    if (why) return why;
#if HAS_TILES
    if (caps && !RUNS_TILES(caps)) return "needs AMX-BF16";
    if (!args->value_aliases_key) return "needs values that alias keys";
    if (others.k == WEIR_KV_F32 || first.k == WEIR_KV_F32) return "f32 rows are multiplied as f32";
#else
    (void)caps;
#endif
    if (!READS_CODED && args->value_aliases_key) return "GPUs read values from a V part";
    if (args->key_dim > KEY_MAX) return "key_dim > 576";
    if (args->value_dim > VALUE_MAX) return "value_dim > 512";
    for (int64_t s = 0; !READS_CODED && s < args->n_segments; s++)
        if (args->segments[s].logits) return "GPUs keep no logits: attention_mass reads K";
    return pages_reject(others, first);
}

static attention_call call_of(const weir_attention_args *args)
{
    const bool alias = args->value_aliases_key;
    return (attention_call){ .out = args->out,
                             .partials = args->partials,
                             .lse = args->lse,
                             .q = args->q,
                             .sink_logits = args->sink_logits,
                             .segments = args->segments,
                             .n_segments = args->n_segments,
                             .n_heads = args->n_heads,
                             .n_kv_heads = args->n_kv_heads,
                             .group = args->n_heads / args->n_kv_heads,
                             .key_dim = args->key_dim,
                             .value_dim = args->value_dim,
                             .q_stride = args->q_stride,
                             .q_head_stride = args->q_head_stride,
                             .out_stride = args->out_stride,
                             .window = args->window > 0 ? args->window : INT32_MAX,
                             .first_split = args->partials ? args->first_split : 0,
                             .end_split = args->partials ? args->end_split : INT32_MAX,
                             .scale = args->scale * 1.44269504f,
                             .softcap = args->softcap * 1.44269504f,
                             .k_format = args->k_format,
                             .v_format = alias ? args->k_format : args->v_format,
                             .k_sinks = args->sinks.pair.k,
                             .v_sinks = alias ? args->sinks.pair.k : args->sinks.pair.v,
                             .n_sinks = args->sinks.n_pages,
                             .is_last = !args->partials || args->is_last,
                             .aliases = alias };
}

static bool is_whole(const weir_attention_args *args)
{
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0 || args->key_dim <= 0 ||
        args->value_dim <= 0)
        return false;
    if (args->partials && (args->first_split < 0 || args->end_split < args->first_split))
        return false;
    if (!weir_kv_segments_are_sound(args->segments, args->n_segments, args->n_kv_heads))
        return false;
    const bool unsealed = weir_attention_needs_unsealed(args);
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_kv_segment *const segment = args->segments + s;
        if (segment->n_rows <= 0) continue;
        if (unsealed && !segment->unsealed_pages) return false;
        if (segment->logits && (args->window > 0 || segment->logits_stride <
                                                        (int64_t)segment->n_past + segment->n_rows))
            return false;
    }
    return true;
}

static size_t scratch(const void *op_args)
{
    const weir_attention_args *const args = op_args;
    if (!is_whole(args)) return 0;
    const attention_call call = call_of(args);
    int64_t floats = 0;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const segment_plan plan = plan_segment(&call, args->segments + s, 1);
        floats += plan_partials(&call, &plan);
    }
    return (size_t)floats * sizeof(float);
}

static weir_status WEIR_K(attention)(const weir_kernel_context *context, const void *op_args)
{
    const weir_attention_args *const args = op_args;
    if (!is_whole(args)) return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    if (context->scratch_bytes < scratch(args)) return WEIR_EINVAL;
    const attention_call plan_call = call_of(args);
    const int32_t unit_rows = lane_on_device(context) ? DEVICE_UNIT_ROWS : UNIT_ROWS;
    int64_t n_units = 0, n_merges = 0;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const segment_plan plan = plan_segment(&plan_call, args->segments + s, unit_rows);
        n_units += plan.n_units;
        n_merges += plan.partial ? plan.n_heads * plan.n_rows : 0;
    }
    if (n_units == 0) return WEIR_OK;

    /* Passed one by one: a struct would be mapped, and its pointers not be taken for the
     * device's. */
    float *const out = args->out, *const split_partials = context->scratch,
                 *const partials = args->partials, *const lse = args->lse;
    const float *const q = args->q, *const sink_logits = args->sink_logits;
    const weir_kv_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_heads = args->n_heads,
                  n_kv_heads = args->n_kv_heads, key_dim = args->key_dim;
    const int64_t value_dim = args->value_dim, q_stride = args->q_stride,
                  q_head_stride = args->q_head_stride;
    const int64_t out_stride = args->out_stride, group = plan_call.group;
    const int32_t window = plan_call.window, first_split = plan_call.first_split,
                  end_split = plan_call.end_split;
    const float scale = plan_call.scale, softcap = plan_call.softcap;
    const weir_kv_format k_format = plan_call.k_format, v_format = plan_call.v_format,
                         k_sinks = plan_call.k_sinks, v_sinks = plan_call.v_sinks;
    const int32_t n_sinks = args->sinks.n_pages;
    const bool is_last = plan_call.is_last, aliases = plan_call.aliases;
#define CALL                                                                                       \
    { out,           split_partials, partials,   lse,         q,         sink_logits, segments,    \
      n_segments,    n_heads,        n_kv_heads, group,       key_dim,   value_dim,   q_stride,    \
      q_head_stride, out_stride,     window,     first_split, end_split, scale,       softcap,     \
      k_format,      v_format,       k_sinks,    v_sinks,     n_sinks,   is_last,     aliases }
    TEAMS(n_units, out, split_partials, partials, lse, q, sink_logits, segments)
    {
        team_memory team;
#if HAS_TILES
        latent_memory latents;
        team.latents = &latents;
        use_tiles();
#endif
        const attention_call shared =
            CALL; /* passed as one pointer: more than 16 captures go to a stack on devices */
        TEAM_LANES
        {
            attention_call call = shared;
#define PAGE_FORMAT_STATEMENT                                                                      \
    call.k_format = format;                                                                        \
    if (!READS_CODED) call.v_format = format;                                                      \
    run_units(&team, &call, lane_thread());
            PAGE_FORMAT_SWITCH(k_format)
#undef PAGE_FORMAT_STATEMENT
        }
#if HAS_TILES
        LEAVE_TILES();
#endif
    }
    if (n_merges == 0) return WEIR_OK;

    TEAMS(n_merges, out, split_partials, partials, lse, q, sink_logits, segments)
    {
        TEAM_LANES
        {
            const attention_call call = CALL;
            merge_rows(&call, lane_thread());
        }
    }
#undef CALL
    return WEIR_OK;
}

/* Tolerance: scores have about 1e-7 * sqrt(key_dim) * |q| |k| of rounding, which the exponential
 * turns into relative error of the weights. Parts in tile registers hold 17 bits of queries and
 * weights: 1/64 of the rounding of 16-bit rows. */
#define TOLERANCE (HAS_TILES ? 8.0 : 1.0)
extern const weir_kernel WEIR_K_ROW(attention);
const weir_kernel WEIR_K_ROW(attention) = {
    .op = WEIR_OP_ATTENTION,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("attention"),
    .atol = 5e-6 * TOLERANCE,
    .rtol = 2e-5 * TOLERANCE,
    .reject = reject,
    .scratch = scratch,
    .run = WEIR_K(attention),
};
