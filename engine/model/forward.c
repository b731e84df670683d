/* engine/model/forward.c - one step through the layers: pre-norm residual blocks, the same for every architecture.
 *
 *   x = embed(tokens)
 *   per layer:  x += mixer(norm(x));  x += ffn(norm(x))
 *   logits = output(norm(x)) for the rows that ask
 * The additions ride on the next norm, so x is complete only where a norm or an observer looks at it.                     */
#include <stdlib.h>
#include <string.h>

#include "engine/model/model_internal.h"

struct weir_workspace {
    weir_ledger                 *ledger;
    void                        *memory;
    size_t                       bytes, scratch_bytes; /* of the memory; of the stream's scratch, charged here */
    weir_workspace_limits        limits;
    float                       *x, *normed, *mixed, *scratch, *gathered, *logits;
    int32_t                     *positions;
    weir_kv_segment             *kv, *warm;  /* [segments, n_kv_heads], or [segments] where all heads have the same rows */
    int32_t                     *kv_owner;
    float                       *carry, *lse;
    const weir_attention_watch **watches; /* [segments] */
    weir_attention_mass_segment *mass;
    char                        *open_rows;  /* [open_pages, n_kv_heads] of the layer with the largest */
    void                       **open_table; /* [n_kv_heads, pages of each segment] */
    weir_recurrent_segment      *recurrent; /* [MAX_ROUNDS, segments] */
    weir_recurrent_round        *rounds;    /* [MAX_ROUNDS] */
    bool                        *is_prompt; /* [segments] */
    weir_state_copy             *copies;    /* [MAX_ROUNDS, segments, 2] */
};

enum { MAX_ROUNDS = WEIR_BATCH_SNAPSHOTS + 1 };

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t scratch_elements(const weir_model *model, const weir_workspace_limits *limits)
{
    int64_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        n = most(n, l->mixer->scratch_elements(&model->shape, &l->options, limits->rows, limits->segments));
        n = most(n, l->ffn->scratch_elements(&model->shape, &l->options, limits->rows, limits->segments));
    }
    return n;
}

/* Of a page with this pair, or of a sink. */
static size_t open_bytes(const weir_model *model, weir_kv_pair others, weir_kv_sinks sinks)
{
    const weir_kv_pair first = weir_kv_pair_at(others, sinks, 0);
    const int64_t      dim = model->shape.head_dim;
    return (size_t)most(weir_kv_open_bytes(others.k, others.v, dim, dim), weir_kv_open_bytes(first.k, first.v, dim, dim));
}

/* Of one KV head in the layer with the largest; 0: no format has open rows. */
static size_t most_open_bytes(const weir_model *model, const weir_workspace_limits *limits)
{
    size_t n = 0;
    for (int64_t i = 0; i < model->kv_layers; i++) {
        const size_t bytes = open_bytes(model, limits->formats[i], limits->sinks);
        if (bytes > n) n = bytes;
    }
    return n;
}

/* Pages beside the last one that the segments of a step can write to: two rows of a segment may lie in two pages, every other page takes 64. */
static size_t open_pages(const weir_workspace_limits *limits)
{
    const int32_t pairs = limits->segments < limits->rows / 2 ? limits->segments : limits->rows / 2;
    return (size_t)(pairs + (limits->rows - 2 * pairs) / WEIR_PAGE_TOKENS);
}

static int64_t most_kv_segments(const weir_model *model, const weir_workspace_limits *limits)
{
    return limits->segments * (limits->evicts ? most(model->shape.n_kv_heads, 1) : 1);
}

/* Query heads of a layer over pages: differential attention asks twice with each. */
static int64_t most_queries(const weir_model *model)
{
    int64_t n = model->shape.n_heads;
    for (int64_t i = 0; i < model->shape.n_layers; i++)
        if (model->layers[i].mixer == &weir_block_differential_attention) n = 2 * model->shape.n_heads;
    return n;
}

/* Lays the arrays out from `base` (NULL: only measures). Sizes were checked: rows and widths are bounded by the shape table. */
static size_t lay_out(weir_workspace *w, const weir_model *model, char *base)
{
    const weir_workspace_limits *const limits = &w->limits;
    const size_t                       rows = (size_t)limits->rows, width = (size_t)model->shape.d_model;
    size_t                             at = 0;
#define PLACE(field, count)                                                                                                                \
    do {                                                                                                                                   \
        if (base != NULL) w->field = (void *)(base + at);                                                                                  \
        at = (at + (size_t)(count) * sizeof *w->field + 63) & ~(size_t)63;                                                                 \
    } while (0)
    PLACE(x, rows * width);
    PLACE(normed, rows * width);
    PLACE(mixed, rows * width);
    PLACE(scratch, scratch_elements(model, limits));
    PLACE(gathered, (size_t)limits->logits * width);
    PLACE(logits, (size_t)limits->logits * (size_t)model->shape.n_vocab);
    PLACE(positions, rows);
    PLACE(kv, most_kv_segments(model, limits));
    PLACE(kv_owner, most_kv_segments(model, limits));
    PLACE(warm, limits->has_disk ? most_kv_segments(model, limits) : 0);
    PLACE(watches, limits->evicts ? limits->segments : 0);
    PLACE(mass, limits->evicts ? most_kv_segments(model, limits) : 0);
    PLACE(lse, limits->evicts ? rows * (size_t)model->shape.n_heads : 0);
    PLACE(carry, limits->has_disk ? rows * (size_t)(most_queries(model) * (2 + model->shape.head_dim)) : 0);
    const size_t open = most_open_bytes(model, limits), heads = (size_t)model->shape.n_kv_heads;
    PLACE(open_rows, open_pages(limits) * heads * open);
    PLACE(open_table, open > 0 ? (open_pages(limits) + (size_t)limits->segments) * heads : 0);
    PLACE(recurrent, (size_t)limits->segments * MAX_ROUNDS);
    PLACE(rounds, MAX_ROUNDS);
    PLACE(is_prompt, limits->segments);
    PLACE(copies, (size_t)limits->segments * MAX_ROUNDS * 2);
#undef PLACE
    return at;
}

size_t weir_workspace_bytes(const weir_model *model, const weir_workspace_limits *limits)
{
    weir_workspace measure = { .limits = *limits };
    return lay_out(&measure, model, NULL) + sizeof measure;
}

void weir_workspace_close(weir_workspace *workspace)
{
    if (workspace == NULL) return;
    weir_ledger_return(workspace->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, workspace->scratch_bytes);
    weir_ledger_free(workspace->ledger, workspace->memory, WEIR_ACCOUNT_ACTIVATIONS, workspace->bytes);
    weir_ledger_free(workspace->ledger, workspace, WEIR_ACCOUNT_ACTIVATIONS, sizeof *workspace);
}

/* Open rows of the pages that a segment writes to: the sequence's own are for the last of them, which it goes on with. Rows of the first page
 * that earlier steps wrote move out of them. Moves `table` and `rows` past what it used. */
static void open_segment(weir_kv_segment *kv, void *const *own, size_t bytes, int64_t n_heads, void ***table, char **rows)
{
    const int64_t first = kv->n_past / WEIR_PAGE_TOKENS, last = (kv->n_past + kv->n_rows - 1) / WEIR_PAGE_TOKENS;
    kv->open_pages = *table;
    kv->open_stride = last - first + 1;
    for (int64_t h = 0; h < n_heads; h++) {
        void **const open = *table + h * kv->open_stride;
        for (int64_t p = 0; p < last - first; p++, *rows += bytes) open[p] = *rows;
        open[last - first] = own[h];
        if (last > first && kv->n_past % WEIR_PAGE_TOKENS != 0) memcpy(open[0], own[h], bytes);
    }
    *table += n_heads * kv->open_stride;
}

/* Heads [first, end) have the same number of rows: all, where no row was ever dropped. */
static int64_t end_of_equal(const int32_t *head_rows, int64_t first, int64_t n_heads)
{
    int64_t end = first + 1;
    if (head_rows == NULL) return n_heads;
    while (end < n_heads && head_rows[end] == head_rows[first]) end++;
    return end;
}

static void keep_logits(weir_kv_segment *kv, const weir_attention_watch *watch, int64_t first_query_head)
{
    kv->logits = watch->logits != NULL ? watch->logits + first_query_head * watch->stride : NULL;
    kv->logits_stride = watch->stride;
}

/* The segments as this layer sees them; returns their number. */
static int64_t fill_segments(const weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l)
{
    const int64_t n_heads = model->shape.n_kv_heads, group = n_heads > 0 ? model->shape.n_heads / n_heads : 0;
    const bool    is_watched = weir_model_watches(model, l - model->layers);
    const size_t  open = l->kv_index >= 0 ? open_bytes(model, batch->formats[l->kv_index], batch->sinks) : 0;
    void        **open_table = w->open_table;
    char         *open_rows = w->open_rows;
    int64_t       n = 0;
    for (int32_t i = 0; i < batch->n_segments && l->kv_index >= 0; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        const int32_t *const            rows = segment->head_rows != NULL ? segment->head_rows + l->kv_index * n_heads : NULL;
        for (int64_t first = 0, end; first < n_heads; first = end) {
            const int64_t head = l->kv_index * n_heads + first;
            end = end_of_equal(rows, first, n_heads);
            w->kv_owner[n] = i;
            w->kv[n] = (weir_kv_segment){ .pages = segment->pages != NULL ? segment->pages + head * segment->page_stride : NULL,
                                          .page_stride = segment->page_stride,
                                          .first_row = segment->first_row,
                                          .n_rows = segment->n_rows,
                                          .n_past = rows != NULL ? rows[first] : segment->n_past,
                                          .first_head = (int32_t)first,
                                          .n_heads = (int32_t)(end - first) };
            if (segment->watch != NULL && is_watched) keep_logits(&w->kv[n], segment->watch, first * group);
            if (open > 0 && segment->open != NULL)
                open_segment(&w->kv[n], segment->open + head, open, end - first, &open_table, &open_rows);
            n++;
        }
    }
    return n;
}

/* Rows [first, end) of a segment in round r: up to its r-th snapshot. */
static void round_rows(const weir_batch_segment *segment, int32_t r, int32_t *first, int32_t *end)
{
    *first = r == 0 ? 0 : r <= segment->n_snapshots ? segment->snapshots[r - 1].after : segment->n_rows;
    *end = r < segment->n_snapshots ? segment->snapshots[r].after : segment->n_rows;
}

/* Copies of this layer's part of the recurrent memory. */
static int32_t put_copies(weir_state_copy *copies, const weir_model *model, const layer *l, float *dst, const float *src)
{
    const size_t history = l->mixer->history_elements != NULL ? (size_t)l->mixer->history_elements(&model->shape) : 0;
    const size_t state = l->mixer->state_elements != NULL ? (size_t)l->mixer->state_elements(&model->shape, &l->options) : 0;
    int32_t      n = 0;
    if (history > 0) copies[n++] = (weir_state_copy){ dst + l->history_offset, src + l->history_offset, history * sizeof(float) };
    if (state > 0) copies[n++] = (weir_state_copy){ dst + l->state_offset, src + l->state_offset, state * sizeof(float) };
    return n;
}

/* The rows between snapshots as this layer sees them; returns the number of rounds. */
static int32_t fill_rounds(const weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l)
{
    int32_t n_rounds = 1;
    for (int32_t i = 0; i < batch->n_segments; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        const int32_t                   n = segment->n_snapshots;
        const int32_t                   wanted = n == 0 ? 1 : n + (segment->snapshots[n - 1].after < segment->n_rows);
        if (wanted > n_rounds) n_rounds = wanted;
    }
    for (int32_t r = 0; r < n_rounds; r++) {
        weir_recurrent_segment *const segments = w->recurrent + r * w->limits.segments;
        weir_state_copy *const        copies = w->copies + r * w->limits.segments * 2;
        int32_t                       n_copies = 0;
        for (int32_t i = 0; i < batch->n_segments; i++) {
            const weir_batch_segment *const segment = &batch->segments[i];
            float *const                    memory = segment->recurrent;
            int32_t                         first, end;
            round_rows(segment, r, &first, &end);
            segments[i] = (weir_recurrent_segment){ .conv_history = memory != NULL ? memory + l->history_offset : NULL,
                                                    .state = memory != NULL ? memory + l->state_offset : NULL,
                                                    .first_row = segment->first_row + first,
                                                    .n_rows = end - first };
            if (r < segment->n_snapshots) n_copies += put_copies(copies + n_copies, model, l, segment->snapshots[r].dst, memory);
        }
        w->rounds[r] = (weir_recurrent_round){ segments, copies, n_copies };
    }
    return n_rounds;
}

/* normed = rmsnorm(x += mixed) over all rows; mixed NULL before the first layer. */
static weir_status add_and_norm(const weir_model *model, weir_workspace *w, const float *mixed, const float *weight, int64_t n_rows)
{
    const int64_t d = model->shape.d_model;
    return weir_rmsnorm(model->stream, &(weir_rmsnorm_args){ .dst = w->normed,
                                                             .src = w->x,
                                                             .weight = weight,
                                                             .add = mixed,
                                                             .n_rows = n_rows,
                                                             .n_groups = 1,
                                                             .dim = d,
                                                             .dst_stride = d,
                                                             .src_stride = d,
                                                             .add_stride = d,
                                                             .dst_group_stride = d,
                                                             .src_group_stride = d,
                                                             .eps = (float)model->shape.norm_eps });
}

static weir_kv_pair format_of(const weir_kv_pair *formats, const layer *l)
{
    return l->kv_index >= 0 ? formats[l->kv_index] : (weir_kv_pair){ WEIR_KV_F32, WEIR_KV_F32 };
}

/* NULL: nobody watches. */
static const weir_attention_watch *const *fill_watches(const weir_workspace *w, const weir_batch *batch)
{
    bool any = false;
    for (int32_t i = 0; i < batch->n_segments; i++) any = any || batch->segments[i].watch != NULL;
    for (int32_t i = 0; any && i < batch->n_segments; i++) w->watches[i] = batch->segments[i].watch;
    return any ? w->watches : NULL;
}

static weir_status run_layers(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, n = batch->n_rows;
    const float  *pending = NULL;
    if (batch->observe != NULL) batch->observe(batch->user, -1, w->x);
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        const weir_step    step = { .stream = model->stream,
                                    .positions = w->positions,
                                    .n_kv = fill_segments(w, model, batch, l),
                                    .kv = w->kv,
                                    .kv_owner = w->kv_owner,
                                    .rounds = w->rounds,
                                    .n_rounds = fill_rounds(w, model, batch, l),
                                    .is_prompt = w->is_prompt,
                                    .rope = model->rope,
                                    .n_rows = n,
                                    .n_segments = batch->n_segments,
                                    .normed = w->normed,
                                    .mixed = w->mixed,
                                    .scratch = w->scratch,
                                    .kv_format = format_of(batch->formats, l),
                                    .sinks = batch->sinks,
                                    .kv_layer = l->kv_index,
                                    .source = batch->source,
                                    .warm = w->warm,
                                    .carry = w->carry,
                                    .watches = fill_watches(w, batch),
                                    .lse = w->lse,
                                    .mass = w->mass };
        WEIR_TRY(add_and_norm(model, w, pending, l->mixer_norm, n));
        WEIR_TRY(l->mixer->forward(&model->shape, &l->options, l->mixer_weights, &step));
        WEIR_TRY(add_and_norm(model, w, w->mixed, l->ffn_norm, n));
        WEIR_TRY(l->ffn->forward(&model->shape, &l->options, l->ffn_weights, &step));
        pending = w->mixed;
        if (batch->observe != NULL) {
            WEIR_TRY(weir_add(model->stream,
                              &(weir_add_args){ .dst = w->x, .src = w->mixed, .n_rows = n, .dim = d, .dst_stride = d, .src_stride = d }));
            pending = NULL;
            batch->observe(batch->user, i, w->x);
        }
    }
    if (pending != NULL)
        WEIR_TRY(weir_add(model->stream,
                          &(weir_add_args){ .dst = w->x, .src = w->mixed, .n_rows = n, .dim = d, .dst_stride = d, .src_stride = d }));
    return WEIR_OK;
}

/* Norm and projection of the wanted rows only. */
static weir_status run_output(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, v = model->shape.n_vocab, n = batch->n_logits;
    if (n == 0) return WEIR_OK;
    for (int64_t i = 0; i < n; i++) memcpy(w->gathered + i * d, w->x + batch->logit_rows[i] * d, (size_t)d * sizeof(float));
    WEIR_TRY(weir_rmsnorm(model->stream, &(weir_rmsnorm_args){ .dst = w->gathered,
                                                               .src = w->gathered,
                                                               .weight = model->output_norm,
                                                               .n_rows = n,
                                                               .n_groups = 1,
                                                               .dim = d,
                                                               .dst_stride = d,
                                                               .src_stride = d,
                                                               .dst_group_stride = d,
                                                               .src_group_stride = d,
                                                               .eps = (float)model->shape.norm_eps }));
    return weir_matmul(model->stream, &(weir_matmul_args){ .x = w->gathered,
                                                           .n_rows = n,
                                                           .n_in = d,
                                                           .x_stride = d,
                                                           .n_outputs = 1,
                                                           .outputs = { { .weight = model->output, .dst = w->logits, .dst_stride = v } } });
}

static void fill_positions(const weir_workspace *w, const weir_batch *batch)
{
    for (int32_t i = 0; i < batch->n_segments; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        w->is_prompt[i] = segment->is_prompt || segment->n_rows > 1;
        for (int32_t r = 0; r < segment->n_rows; r++) w->positions[segment->first_row + r] = segment->n_past + r;
    }
}

static weir_status run(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    fill_positions(w, batch);
    WEIR_TRY(weir_embed(model->stream, &(weir_embed_args){ .dst = w->x,
                                                           .table = model->embedding->data,
                                                           .ids = batch->tokens,
                                                           .n_rows = batch->n_rows,
                                                           .dim = model->shape.d_model,
                                                           .n_vocab = model->shape.n_vocab,
                                                           .dtype = model->embedding->dtype }));
    WEIR_TRY(run_layers(model, w, batch));
    return run_output(model, w, batch);
}

weir_status weir_model_forward(const weir_model *model, weir_workspace *workspace, const weir_batch *batch, const float **logits,
                               weir_error *error)
{
    WEIR_ASSERT(batch->n_rows >= 1 && batch->n_rows <= workspace->limits.rows);
    WEIR_ASSERT(batch->n_segments >= 1 && batch->n_segments <= workspace->limits.segments);
    WEIR_ASSERT(batch->n_logits >= 0 && batch->n_logits <= workspace->limits.logits);
    WEIR_ASSERT(batch->source == NULL || workspace->limits.has_disk);
    const weir_status status = run(model, workspace, batch);
    if (status != WEIR_OK) return weir_error_set(error, status, "the forward pass failed: %s", weir_status_text(status));
    *logits = workspace->logits;
    return WEIR_OK;
}

/* ---- noise ------------------------------------------------------------------------------------------------------- */
/* The sum of four bytes is near enough to a normal distribution; its deviation is 2 * sqrt((256^2 - 1) / 12). */
static float noise_at(uint64_t place)
{
    uint64_t h = place * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ (h >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
    h ^= h >> 32;
    const int32_t sum = (int32_t)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24 & 255));
    return (float)(sum - 2 * 255) * (1.0f / 147.8f);
}

/* rows [n_rows, width] of keys (side 0) or values (side 1) */
static void fill_rows(float *rows, const weir_workspace *w, const weir_batch *batch, int64_t kv_layer, int64_t side, int64_t width)
{
    for (int64_t r = 0; r < batch->n_rows; r++) {
        const uint64_t row = (uint64_t)((kv_layer * 2 + side) * w->limits.context + w->positions[r]);
        for (int64_t i = 0; i < width; i++) rows[r * width + i] = noise_at(row * (uint64_t)width + (uint64_t)i);
    }
}

static weir_status write_noise(const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l)
{
    const weir_shape *const shape = &model->shape;
    const int64_t           width = shape->n_kv_heads * shape->head_dim;
    float *const k = w->scratch, *const v = k + batch->n_rows * width;
    const weir_kv_pair format = format_of(batch->formats, l);
    fill_rows(k, w, batch, l->kv_index, 0, width);
    fill_rows(v, w, batch, l->kv_index, 1, width);
    return weir_kv_write(model->stream, &(weir_kv_write_args){ .k = k,
                                                               .v = v,
                                                               .segments = w->kv,
                                                               .n_segments = fill_segments(w, model, batch, l),
                                                               .n_kv_heads = shape->n_kv_heads,
                                                               .key_dim = shape->head_dim,
                                                               .value_dim = shape->head_dim,
                                                               .k_stride = width,
                                                               .v_stride = width,
                                                               .k_format = format.k,
                                                               .v_format = format.v,
                                                               .sinks = batch->sinks });
}

weir_status weir_model_fill_noise(const weir_model *model, weir_workspace *workspace, const weir_batch *batch, weir_error *error)
{
    weir_workspace *const w = workspace;
    WEIR_ASSERT(batch->n_rows >= 1 && batch->n_rows <= w->limits.rows && batch->n_segments <= w->limits.segments);
    fill_positions(w, batch);
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        if (model->layers[i].kv_index < 0) continue;
        const weir_status status = write_noise(model, w, batch, &model->layers[i]);
        if (status != WEIR_OK) return weir_error_set(error, status, "noise cannot be written: %s", weir_status_text(status));
    }
    return WEIR_OK;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */
/* The kernels are asked for their scratch only, and read nothing. */
static const weir_attention_watch *const *plan_watches(const weir_workspace *w, int32_t n_segments)
{
    static float                      nothing;
    static const weir_attention_watch all = { .mass = &nothing, .below = &nothing, .last = &nothing, .stride = INT32_MAX };
    for (int32_t i = 0; w->limits.evicts && i < n_segments; i++) w->watches[i] = &all;
    return w->limits.evicts ? w->watches : NULL;
}

/* Segments of `each` rows at full depth, the last one of all that is left. */
static weir_status plan_mixers(const weir_model *model, weir_workspace *w, int32_t n_segments, int32_t each, int32_t last)
{
    const int32_t n_rows = (n_segments - 1) * each + last;
    for (int32_t s = 0; s < n_segments; s++) {
        const int32_t n = s + 1 < n_segments ? each : last, n_past = w->limits.context > n ? w->limits.context - n : 0;
        w->kv[s] = (weir_kv_segment){ .first_row = s * each, .n_rows = n, .n_past = n_past };
        w->kv_owner[s] = s;
        w->recurrent[s] = (weir_recurrent_segment){ .first_row = s * each, .n_rows = n };
    }
    w->rounds[0] = (weir_recurrent_round){ .segments = w->recurrent };
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        const weir_step    step = { .stream = model->stream,
                                    .positions = w->positions,
                                    .kv = w->kv,
                                    .kv_owner = w->kv_owner,
                                    .n_kv = n_segments,
                                    .rounds = w->rounds,
                                    .n_rounds = 1,
                                    .is_prompt = w->is_prompt,
                                    .rope = model->rope,
                                    .n_rows = n_rows,
                                    .n_segments = n_segments,
                                    .normed = w->normed,
                                    .mixed = w->mixed,
                                    .scratch = w->scratch,
                                    .kv_format = format_of(w->limits.formats, l),
                                    .sinks = w->limits.sinks,
                                    .watches = plan_watches(w, n_segments),
                                    .lse = w->lse,
                                    .mass = w->mass };
        WEIR_TRY(l->mixer->forward(&model->shape, &l->options, l->mixer_weights, &step));
    }
    return WEIR_OK;
}

/* Short pieces let attention split every row, unequal ones leave the most partly filled chunks: both grow with the number of segments,
 * and pieces longer than SHORT are not split. */
static weir_status plan_batches(const weir_model *model, weir_workspace *w)
{
    enum { SHORT = 64 };
    const int32_t rows = w->limits.rows, n = w->limits.segments < rows ? w->limits.segments : rows;
    for (int32_t each = 1; each <= SHORT && each <= rows; each++) {
        const int32_t segments = each * n <= rows ? n : rows / each;
        WEIR_TRY(plan_mixers(model, w, segments, each, each));
        WEIR_TRY(plan_mixers(model, w, segments, each, rows - (segments - 1) * each));
    }
    return WEIR_OK;
}

/* Passes the largest batches with the stream in planning mode. */
static weir_status plan_scratch(size_t *bytes, const weir_model *model, weir_workspace *w)
{
    const int32_t            rows = w->limits.rows;
    const weir_batch_segment whole = { .n_rows = rows, .n_past = w->limits.context > rows ? w->limits.context - rows : 0 };
    const weir_batch         prefill = { .segments = &whole,
                                         .n_segments = 1,
                                         .n_rows = rows,
                                         .n_logits = w->limits.logits,
                                         .formats = w->limits.formats,
                                         .sinks = w->limits.sinks };
    weir_stream_set_planning(model->stream, true);
    weir_status status = run_layers(model, w, &prefill);
    if (status == WEIR_OK) status = plan_batches(model, w);
    if (status == WEIR_OK)
        status = weir_matmul(
            model->stream,
            &(weir_matmul_args){ .x = w->gathered,
                                 .n_rows = w->limits.logits,
                                 .n_in = model->shape.d_model,
                                 .x_stride = model->shape.d_model,
                                 .n_outputs = 1,
                                 .outputs = { { .weight = model->output, .dst = w->logits, .dst_stride = model->shape.n_vocab } } });
    weir_stream_set_planning(model->stream, false);
    *bytes = weir_stream_planned_bytes(model->stream);
    return status;
}

static weir_status no_kernel(weir_status status, weir_error *error)
{
    return weir_error_set(error, status, "no kernel for this model: %s", weir_status_text(status));
}

/* The arrays are laid out in memory that is never touched but for the segments. */
weir_status weir_workspace_scratch(size_t *bytes, const weir_model *model, const weir_workspace_limits *limits, weir_error *error)
{
    weir_workspace w = { .limits = *limits };
    void *const    memory = aligned_alloc(64, lay_out(&w, model, NULL));
    if (memory == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory to plan steps of %d rows; lower batch.chunk", (int)limits->rows);
    (void)lay_out(&w, model, memory);
    const weir_status status = plan_scratch(bytes, model, &w);
    free(memory);
    return status == WEIR_OK ? WEIR_OK : no_kernel(status, error);
}

static weir_status take_scratch(weir_workspace *w, const weir_model *model, weir_error *error)
{
    size_t      bytes;
    weir_status status = plan_scratch(&bytes, model, w);
    if (status != WEIR_OK) return no_kernel(status, error);
    WEIR_TRY(weir_ledger_reserve(w->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, bytes, error));
    w->scratch_bytes = bytes;
    status = weir_stream_reserve_bytes(model->stream, bytes);
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "the system has no %zu bytes of scratch; lower batch.chunk", bytes);
}

weir_status weir_workspace_open(weir_workspace **out, const weir_model *model, weir_ledger *ledger, const weir_workspace_limits *limits,
                                weir_error *error)
{
    WEIR_ASSERT(limits->rows >= 1 && limits->segments >= 1 && limits->logits >= 1);
    void *self = NULL;
    WEIR_TRY(weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_ACTIVATIONS, sizeof(weir_workspace), error));
    weir_workspace *const w = self;
    *w = (weir_workspace){ .ledger = ledger, .limits = *limits };
    w->bytes = lay_out(w, model, NULL);
    weir_status status = weir_ledger_alloc(ledger, &w->memory, WEIR_ACCOUNT_ACTIVATIONS, w->bytes, error);
    if (status == WEIR_OK) {
        (void)lay_out(w, model, w->memory);
        status = take_scratch(w, model, error);
    }
    if (status != WEIR_OK) {
        weir_workspace_close(w);
        return status;
    }
    *out = w;
    return WEIR_OK;
}
