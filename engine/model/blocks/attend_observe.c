/* engine/model/blocks/attend_observe.c - what policies observe of attention: queries, and the
 * attention mass that the rows of a sequence gave to earlier rows. */
#include <string.h>

#include "engine/model/blocks/attend_internal.h"

/* Returns n elements of queries in memory that the host can read; valid until the next call. */
static const float *shown(const weir_step *step, const float *q, int64_t n)
{
    if (step->observer.queries == NULL) return q;
    weir_stream_copy(step->stream, step->observer.queries, q, (size_t)n * sizeof *q);
    return step->observer.queries;
}

void weir_attend_show_plain(
    const weir_step *step, const float *q, int64_t n_heads, int64_t dim, int64_t stride
)
{
    for (int64_t i = 0; step->observer.watches != NULL && i < step->kv.n_segments; i++) {
        const weir_kv_segment *const segment = &step->kv.segments[i];
        const weir_attention_watch *const watch = step->observer.watches[step->kv.owner[i]];
        if (watch == NULL || watch->plain == NULL || segment->first_head > 0) continue;
        const float *const rows = shown(
            step, q + segment->first_row * n_heads * stride, segment->n_rows * n_heads * stride
        );
        for (int64_t r = 0; r < segment->n_rows * n_heads; r++)
            memcpy(watch->plain + r * dim, rows + r * stride, (size_t)dim * sizeof *rows);
    }
}

/* Returns the last row of a segment, whose logits attention stored. */
static weir_kv_segment last_row(const weir_kv_segment *segment)
{
    weir_kv_segment row = *segment;
    row.first_row += segment->n_rows - 1;
    row.n_past += segment->n_rows - 1;
    row.n_rows = 1;
    return row;
}

/* Computes the mass of a segment with cold pages, in the ranges that attention used. */
static weir_status find_mass_in_ranges(
    const weir_step *step, weir_attention_mass_args piece, int64_t segment
)
{
    weir_attention_mass_segment part = step->observer.mass[segment];
    bool is_last = false;
    piece.segments = &part;
    piece.n_segments = 1;
    while (!is_last) {
        const weir_kv_range range = weir_attend_take_range(step, segment, &part.rows);
        part.first_slot = range.first_split * WEIR_ATTENTION_SPLIT;
        part.end_slot = range.is_last ? 0 : range.end_split * WEIR_ATTENTION_SPLIT;
        is_last = range.is_last;
        const weir_status status = weir_attention_mass(step->stream, &piece);
        step->kv.source->give(step->kv.source->user);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Computes the attention mass that the rows of a sequence, segments [first, end), gave to earlier
 * rows. */
static weir_status find_mass(
    const weir_step *step, const weir_attention_watch *watch, const weir_attention_args *attention,
    int64_t first, int64_t end
)
{
    const int64_t group = attention->n_heads / attention->n_kv_heads;
    const weir_kv_segment *const segments = step->kv.segments;
    const bool rereads = weir_attention_watch_rereads(watch, segments[first].n_rows);
    for (int64_t i = first; i < end; i++) {
        const int64_t at = segments[i].first_head * group * watch->stride;
        step->observer.mass[i] =
            (weir_attention_mass_segment){ .rows = rereads ? segments[i] : last_row(&segments[i]),
                                           .mass = watch->mass != NULL ? watch->mass + at : NULL,
                                           .below = watch->below != NULL ? watch->below + at : NULL,
                                           .last = watch->last != NULL ? watch->last + at : NULL,
                                           .stride = watch->stride };
    }
    const weir_attention_mass_args args = { .q = attention->q,
                                            .lse = attention->lse,
                                            .segments = step->observer.mass + first,
                                            .n_segments = end - first,
                                            .n_heads = attention->n_heads,
                                            .n_kv_heads = attention->n_kv_heads,
                                            .key_dim = attention->key_dim,
                                            .q_stride = attention->q_stride,
                                            .q_head_stride = attention->q_head_stride,
                                            .scale = attention->scale,
                                            .k_format = attention->k_format,
                                            .sinks = attention->sinks,
                                            .softcap = attention->softcap };
    return rereads && weir_attend_is_cold(step, first) ? find_mass_in_ranges(step, args, first)
                                                       : weir_attention_mass(step->stream, &args);
}

/* Processes observed sequences one by one, since they may share the buffers for the mass. */
weir_status weir_attend_observe(const weir_step *step, const weir_attention_args *args)
{
    const int32_t *const owner = step->kv.owner;
    for (int64_t first = 0, end; first < step->kv.n_segments; first = end) {
        const weir_attention_watch *const watch = step->observer.watches[owner[first]];
        for (end = first + 1; end < step->kv.n_segments && owner[end] == owner[first];) end++;
        if (watch == NULL) continue;
        const bool is_planned = watch->seen == NULL;
        const weir_status status = weir_attention_watch_wants_mass(watch)
                                       ? find_mass(step, watch, args, first, end)
                                       : WEIR_OK;
        if (is_planned && status == WEIR_EUNSUPPORTED)
            continue; /* not supported: refused earlier (weir_model_shows_mass) */
        WEIR_TRY(status);
        if (is_planned) continue;
        const float *q = args->q + step->kv.segments[first].first_row * args->q_stride;
        q = shown(step, q, step->kv.segments[first].n_rows * args->q_stride);
        watch->seen(watch->user, step->kv.layer, q, args->q_stride, args->q_head_stride);
    }
    return WEIR_OK;
}
