#include "engine/model/blocks/attend_internal.h"

bool weir_attend_is_cold(const weir_step *step, int64_t segment)
{
    const weir_kv_source *const source = step->kv.source;
    return source != NULL && source->is_cold(source->user, step->kv.layer, step->kv.owner[segment]);
}

weir_kv_range weir_attend_take_range(const weir_step *step, int64_t segment, weir_kv_segment *rows)
{
    const weir_kv_source *const source = step->kv.source;
    weir_kv_range range;
    source->take(source->user, step->kv.layer, step->kv.owner[segment], &range);
    rows->pages = range.pages;
    rows->page_stride = range.page_stride;
    return range;
}

/* Attends a segment with cold pages in ranges; any partition gives the same bits as one call. The
 * segment is a whole sequence, since sequences with evicted rows have no cold pages. */
static weir_status attend_in_ranges(
    const weir_step *step, weir_attention_args piece, int64_t segment
)
{
    weir_kv_segment rows = step->kv.segments[segment];
    piece.segments = &rows;
    piece.n_segments = 1;
    piece.partials = step->kv.partials;
    while (!piece.is_last) {
        const weir_kv_range range = weir_attend_take_range(step, segment, &rows);
        piece.first_split = range.first_split;
        piece.end_split = range.end_split;
        piece.is_last = range.is_last;
        const weir_status status = weir_attention(step->stream, &piece);
        step->kv.source->give(step->kv.source->user);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Attends all segments: those with all pages in memory in one call, the others in ranges. */
static weir_status attend(const weir_step *step, const weir_attention_args *args)
{
    weir_attention_args warm = *args;
    int32_t n_warm = 0;
    if (step->kv.source == NULL) return weir_attention(step->stream, args);
    for (int64_t i = 0; i < step->kv.n_segments; i++)
        if (!weir_attend_is_cold(step, i)) step->kv.warm[n_warm++] = step->kv.segments[i];
    warm.segments = step->kv.warm;
    warm.n_segments = n_warm;
    if (n_warm > 0) WEIR_TRY(weir_attention(step->stream, &warm));
    for (int64_t i = 0; n_warm < step->kv.n_segments && i < step->kv.n_segments; i++)
        if (weir_attend_is_cold(step, i)) WEIR_TRY(attend_in_ranges(step, *args, i));
    return WEIR_OK;
}

weir_status weir_attend(
    const weir_step *step, const float *k, const float *v, weir_attention_args args
)
{
    const bool is_watched = step->observer.watches != NULL;
    const int64_t k_width = args.n_kv_heads * args.key_dim,
                  value_dim = args.value_aliases_key ? 0 : args.value_dim,
                  v_width = args.n_kv_heads * value_dim;
    args.segments = step->kv.segments;
    args.n_segments = step->kv.n_segments;
    args.k_format = step->kv.format.k;
    args.v_format = step->kv.format.v;
    args.sinks = step->kv.sinks;
    args.lse = is_watched ? step->observer.lse : NULL;
    const weir_kv_write_args rows = { .k = k,
                                      .v = value_dim > 0 ? v : NULL,
                                      .segments = args.segments,
                                      .n_segments = args.n_segments,
                                      .n_kv_heads = args.n_kv_heads,
                                      .key_dim = args.key_dim,
                                      .value_dim = value_dim,
                                      .k_stride = k_width,
                                      .v_stride = v_width,
                                      .k_format = args.k_format,
                                      .v_format = args.v_format,
                                      .sinks = args.sinks };
    if (k != NULL) WEIR_TRY(weir_kv_write(step->stream, &rows));
    WEIR_TRY(attend(step, &args));
    return is_watched ? weir_attend_observe(step, &args) : WEIR_OK;
}
