/* engine/model/segments.c - prepares a batch for one layer: KV segments of heads with equal numbers
 * of rows, recurrent state by rounds between snapshots. */
#include <string.h>

#include "engine/model/workspace.h"

void weir_fill_positions(const weir_workspace *w, const weir_model *model, const weir_batch *batch)
{
    for (int32_t i = 0; i < batch->n_segments; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        w->is_prompt[i] = segment->is_prompt || segment->n_rows > 1;
        for (int32_t r = 0; r < segment->n_rows; r++)
            w->positions[segment->first_row + r] = segment->n_past + r;
    }
    if (w->near_positions != w->positions)
        weir_stream_queue_copy(
            model->stream, w->near_positions, w->positions,
            (size_t)batch->n_rows * sizeof *w->positions
        );
}

/* Assigns unsealed rows to the pages that a segment writes to: the sequence's own are used for the
 * last of them, with which it continues. Rows of the first page that earlier steps wrote are moved
 * out of them. Advances `table` and `rows` past what it used. */
static void open_segment(
    weir_stream *stream, weir_kv_segment *kv, void *const *own, size_t bytes, int64_t n_heads,
    void ***table, char **rows
)
{
    const int64_t first = kv->n_past / WEIR_PAGE_TOKENS,
                  last = (kv->n_past + kv->n_rows - 1) / WEIR_PAGE_TOKENS;
    kv->unsealed_pages = *table;
    kv->unsealed_stride = last - first + 1;
    for (int64_t h = 0; h < n_heads; h++) {
        void **const unsealed = *table + h * kv->unsealed_stride;
        for (int64_t p = 0; p < last - first; p++, *rows += bytes) unsealed[p] = *rows;
        unsealed[last - first] = own[h];
        if (last > first && kv->n_past % WEIR_PAGE_TOKENS != 0)
            weir_stream_queue_copy(stream, unsealed[0], own[h], bytes);
    }
    *table += n_heads * kv->unsealed_stride;
}

/* Heads [first, end) have the same number of rows: all heads, unless rows were evicted. */
static int64_t end_of_equal(const int32_t *head_rows, int64_t first, int64_t n_heads)
{
    int64_t end = first + 1;
    if (head_rows == NULL) return n_heads;
    while (end < n_heads && head_rows[end] == head_rows[first]) end++;
    return end;
}

static void keep_logits(
    weir_kv_segment *kv, const weir_attention_watch *watch, int64_t first_query_head
)
{
    kv->logits = watch->logits != NULL ? watch->logits + first_query_head * watch->stride : NULL;
    kv->logits_stride = watch->stride;
}

int64_t weir_fill_segments(
    const weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l
)
{
    const weir_block_kv *const kv = &l->kv;
    const int64_t n_heads = kv->geometry.n_heads;
    const int64_t group = n_heads > 0 ? kv->n_queries / n_heads : 0;
    const size_t unsealed =
        l->kv_index >= 0 ? weir_unsealed_bytes(l, batch->formats, batch->sinks) : 0;
    void **unsealed_table = w->unsealed_table;
    char *unsealed_rows = w->unsealed_rows;
    int64_t n = 0;
    for (int32_t i = 0; i < batch->n_segments && l->kv_index >= 0; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        const bool is_pruned = segment->head_rows != NULL && !l->drops_rows;
        const int32_t *const rows = is_pruned ? segment->head_rows + kv->geometry.first_head : NULL;
        void *const *const pages = l->drops_rows ? segment->window_pages : segment->pages;
        const int64_t stride = l->drops_rows ? segment->window_stride : segment->page_stride;
        for (int64_t first = 0, end; first < n_heads; first = end) {
            const int64_t head = kv->geometry.first_head + first;
            end = end_of_equal(rows, first, n_heads);
            w->kv_owner[n] = i;
            w->kv[n] = (weir_kv_segment){ .pages = pages != NULL ? pages + head * stride : NULL,
                                          .page_stride = stride,
                                          .first_row = segment->first_row,
                                          .n_rows = segment->n_rows,
                                          .n_past = rows != NULL ? rows[first] : segment->n_past,
                                          .first_head = (int32_t)first,
                                          .n_heads = (int32_t)(end - first) };
            if (segment->watch != NULL && kv->watched)
                keep_logits(&w->kv[n], segment->watch, first * group);
            if (unsealed > 0 && segment->unsealed != NULL)
                open_segment(
                    model->stream, &w->kv[n], segment->unsealed + head, unsealed, end - first,
                    &unsealed_table, &unsealed_rows
                );
            n++;
        }
    }
    return n;
}

/* Rows [first, end) of a segment in round r: up to its r-th snapshot. */
static void round_rows(const weir_batch_segment *segment, int32_t r, int32_t *first, int32_t *end)
{
    *first = r == 0                      ? 0
             : r <= segment->n_snapshots ? segment->snapshots[r - 1].after
                                         : segment->n_rows;
    *end = r < segment->n_snapshots ? segment->snapshots[r].after : segment->n_rows;
}

/* Adds copies of this layer's part of the recurrent state. */
static int32_t put_copies(weir_state_copy *copies, const layer *l, float *dst, const float *src)
{
    int32_t n = 0;
    if (l->history_elements > 0)
        copies[n++] = (weir_state_copy){ dst + l->history_offset, src + l->history_offset,
                                         (size_t)l->history_elements * sizeof(float) };
    if (l->state_elements > 0)
        copies[n++] = (weir_state_copy){ dst + l->state_offset, src + l->state_offset,
                                         (size_t)l->state_elements * sizeof(float) };
    return n;
}

/* NULL: the sequence has no state, or the layer none of this kind. */
static float *part_of(float *memory, int64_t offset, int64_t n_elements)
{
    return memory != NULL && n_elements > 0 ? memory + offset : NULL;
}

static int32_t fill_rounds(const weir_workspace *w, const weir_batch *batch, const layer *l)
{
    int32_t n_rounds = 1;
    if (l->mixer.block->state == NULL) return 0;
    for (int32_t i = 0; i < batch->n_segments; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        const int32_t n = segment->n_snapshots;
        const int32_t wanted = n == 0 ? 1 : n + (segment->snapshots[n - 1].after < segment->n_rows);
        if (wanted > n_rounds) n_rounds = wanted;
    }
    for (int32_t r = 0; r < n_rounds; r++) {
        weir_recurrent_segment *const segments = w->recurrent + r * w->limits.segments;
        weir_state_copy *const copies = w->copies + r * w->limits.segments * 2;
        int32_t n_copies = 0;
        for (int32_t i = 0; i < batch->n_segments; i++) {
            const weir_batch_segment *const segment = &batch->segments[i];
            float *const memory = segment->recurrent;
            int32_t first, end;
            round_rows(segment, r, &first, &end);
            segments[i] = (weir_recurrent_segment
            ){ .conv_history = part_of(memory, l->history_offset, l->history_elements),
               .state = part_of(memory, l->state_offset, l->state_elements),
               .first_row = segment->first_row + first,
               .n_rows = end - first };
            if (r < segment->n_snapshots)
                n_copies += put_copies(copies + n_copies, l, segment->snapshots[r].dst, memory);
        }
        w->rounds[r] = (weir_recurrent_round){ segments, copies, n_copies };
    }
    return n_rounds;
}

static bool fill_watches(const weir_workspace *w, const weir_batch *batch)
{
    bool any = false;
    for (int32_t i = 0; i < batch->n_segments; i++) any = any || batch->segments[i].watch != NULL;
    for (int32_t i = 0; any && i < batch->n_segments; i++) w->watches[i] = batch->segments[i].watch;
    return any;
}

void weir_fill_layer(
    weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l
)
{
    w->n_kv = weir_fill_segments(w, model, batch, l);
    w->n_rounds = fill_rounds(w, batch, l);
    w->is_watched = fill_watches(w, batch);
}

static weir_step_next next_of(const weir_model *model, const layer *l)
{
    const weir_expert_plan *const plan = &model->expert_plan;
    if (plan->bytes == 0 || !plan->prefetches) return (weir_step_next){ 0 };
    for (const layer *n = l + 1; n < model->layers + model->shape.n_layers; n++)
        if (strcmp(n->ffn.block->name, l->ffn.block->name) == 0)
            return (weir_step_next){ .layer = n - model->layers,
                                     .options = n->ffn.options,
                                     .weights = n->ffn_weights,
                                     .norm = n->ffn_norm,
                                     .eps = model->stream_eps };
    return (weir_step_next){ 0 };
}

weir_step weir_step_of(
    const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l
)
{
    const int64_t index = l - model->layers;
    return (weir_step
    ){ .stream = model->stream,
       .n_rows = batch->n_rows,
       .n_segments = batch->n_segments,
       .in = { .x = w->in,
               .stream = w->x,
               .layer_input = l->input.block != NULL
                                  ? w->layer_inputs + index * model->shape.d_layer_input
                                  : NULL,
               .layer_input_stride = weir_model_layer_input_row(model),
               .positions = w->near_positions,
               .is_prompt = w->is_prompt,
               .rope = model->near_rope,
               .local_rope = model->near_local_rope,
               .rounds = w->rounds,
               .n_rounds = w->n_rounds },
       .out = { .x = w->out, .scratch = w->scratch },
       .kv = { .segments = w->kv,
               .owner = w->kv_owner,
               .n_segments = w->n_kv,
               .layer = l->kv_index,
               .format = weir_layer_format(batch->formats, l),
               .sinks = batch->sinks,
               .source = l->drops_rows ? NULL : batch->source,
               .warm = w->warm,
               .partials = w->partials },
       .observer = { .watches = w->is_watched && l->kv.watched ? w->watches : NULL,
                     .lse = w->lse,
                     .mass = w->mass,
                     .queries = w->shown_queries },
       .layer = index,
       .experts = model->experts,
       .expert_watch = model->expert_watch.see != NULL && index < model->shape.n_layers
                           ? &model->expert_watch
                           : NULL,
       .lost_rows = w->may_lose ? w->lost_rows : NULL,
       .problem = &w->problem,
       .next = next_of(model, l) };
}
