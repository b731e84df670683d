/* kernels/abi/ops/attention.h - attention over KV pages, and the attention mass of their slots. */
#pragma once
#include "kernels/abi/ops/kv.h"

/* out[t,h,:] = softmax(scale * q[t,h,:] . K[h / (H/G)]) V[h / (H/G)] over positions p <= t's
 * position (and p > position - window if window > 0). kv_write has stored the rows of the batch.
 * Rows read unsealed pages as kernels/abi/kv_format.h says: a format that needs them has one for
 * every page that contains a row of the batch.
 * partials: if given, a call covers the splits [first_split, end_split) only, of the rows that see
 *           them, and reads only their pages (kernels/abi/attention_partials.h). All calls of a row
 *           go to one kernel. The last call (is_last) writes `out`, the others do not touch it.
 *           Calls that follow each other from first_split 0 upwards without gaps and pass the
 *           partials on give the bits of one call. Calls with partials of their own may run in any
 *           order; joined, and with a last call without splits, they give the same up to rounding.
 * softcap : if not 0, softcap * tanh(scale * q . K / softcap) takes the place of scale * q . K,
 *           here and in what is observed.
 * alias   : with value_aliases_key V[p] is the first value_dim values of K[p], as K's format has
 *           them; pages have no V part, and V's formats are not read. Not for rotated formats
 * sinks   : with sink_logits exp(sink_logits[h]) joins the sum of the softmax, without a value.
 * observe : lse: the log of the sum of exp(scale * q . K) over what a row sees, and of the sink
 *           logit, written with `out`.
 *           logits of a segment: scale * q . K of its last row at each slot that it sees; a call
 *           writes those of its splits.
 * shapes  : q [T, H, *] with row and head stride, key_dim values each; out [T, H, value_dim] with
 *           out_stride, heads contiguous; partials [T, H, 2 + value_dim]; lse [T, H] or NULL
 * errors  : EINVAL for logits with a window; EUNSUPPORTED for logits on GPUs
 * order   : online softmax over tiles of 32 positions aligned to 32, in splits of 1024 positions
 *           aligned to 1024, merged in ascending order. All depend on absolute positions only, so
 *           prefill, decode and any batch give the same bits. A kernel may cut splits into equal
 *           parts. */
enum { WEIR_ATTENTION_SPLIT = 1024 };
typedef struct weir_attention_args {
    float *out;
    const float *q;
    const weir_kv_segment *segments;
    int64_t n_segments, n_heads, n_kv_heads, key_dim, value_dim;
    int64_t q_stride, q_head_stride, out_stride;
    int32_t window; /* 0: no window */
    float scale;
    weir_kv_format k_format, v_format; /* of the pages; any pair */
    weir_kv_sinks sinks; /* of the first pages; any pair */
    /* NULL: one call computes everything and ignores the next three fields. */
    float *partials;
    int32_t first_split, end_split;
    bool is_last;
    float *lse;
    const float *sink_logits; /* [H]; NULL: none */
    float softcap; /* 0: none */
    bool value_aliases_key;
} weir_attention_args;

/* Returns NULL, or why K and V cannot have these formats and widths. */
static inline const char *weir_attention_pages_reject(const weir_attention_args *args)
{
    const weir_kv_pair others = { args->k_format, args->v_format };
    return args->value_aliases_key
               ? weir_kv_alias_reject(others.k, args->sinks, args->key_dim, args->value_dim)
               : weir_kv_pages_reject(others, args->sinks, args->key_dim, args->value_dim);
}
/* True if some page needs unsealed rows. */
static inline bool weir_attention_needs_unsealed(const weir_attention_args *args)
{
    weir_kv_pair others = { args->k_format, args->v_format };
    weir_kv_sinks sinks = args->sinks;
    if (args->value_aliases_key) {
        others.v = others.k;
        sinks.pair.v = sinks.pair.k;
    }
    return weir_kv_any_unsealed(others, sinks);
}

static inline bool weir_attention_is_valid(const weir_attention_args *args)
{
    return args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 && args->window >= 0 &&
           args->value_dim > 0 && (args->n_heads <= 1 || args->q_head_stride >= args->key_dim);
}
static inline void weir_attention_marshal(weir_marshaller *m, weir_attention_args *args)
{
    enum { SPLIT_PAGES = WEIR_ATTENTION_SPLIT / WEIR_PAGE_TOKENS };
    weir_kv_segment *const copy = (weir_kv_segment *)weir_marshal_list(
        m, args->segments, (size_t)args->n_segments * sizeof *args->segments
    );
    for (int64_t i = 0; i < args->n_segments; i++) {
        weir_kv_segment s = args->segments[i];
        weir_marshal_range used = weir_kv_segment_seen(&s);
        const int64_t past = args->window > 0 ? (int64_t)s.n_past + 1 - args->window : 0;
        if (past > 0) used.first = past / WEIR_PAGE_TOKENS; /* tables may begin there */
        if (args->partials && (int64_t)args->first_split * SPLIT_PAGES > used.first)
            used.first = (int64_t)args->first_split * SPLIT_PAGES;
        if (args->partials && (int64_t)args->end_split * SPLIT_PAGES < used.end)
            used.end = (int64_t)args->end_split * SPLIT_PAGES;
        weir_kv_segment_marshal(
            m, &s, args->n_kv_heads, args->n_heads / args->n_kv_heads, WEIR_MARSHAL_IN_OUT, used
        );
        if (copy) copy[i] = s;
    }
    args->segments = copy;
    weir_marshal_require(m, args->q);
    weir_marshal_require(m, args->out);
    weir_marshal_require(m, args->lse);
    weir_marshal_require(m, args->partials);
    weir_marshal_require(m, args->sink_logits);
}

/* How much attention the rows of a segment gave to each slot, in one layer without a window. With
 * p(t,h,j) = exp(scale * q[t,h] . K[j] - lse[t,h]) for the slots j <= n_past + t that row t sees,
 * lse as attention wrote it:
 *   mass[h,j]  = sum over t of p(t,h,j)
 *   below[h,j] = number of rows t that see j with p(t,h,j) < 1 / (n_past + t + 1), the mean of what
 *                they see
 *   last[h,j]  = p of the last row
 * Segments of one row with logits are computed from those, without q and pages.
 * shapes : q [T, H, *] with row and head stride; lse [T, H]; mass, below, last [query heads of the
 *          segment, stride], each may be NULL; slots first_slot .. weir_attention_mass_end - 1 are
 *          written, and only their pages are read
 * cuts   : any cut of the slots into calls gives the bits of one call
 * order  : scores as in attention; rows are added in ascending order, in f32: no cut of the work or
 *          of the heads changes a bit
 * errors : EINVAL for a range of heads outside G, strides that are too short, missing unsealed
 *          pages, or a first_slot that is not the first of a page; EUNSUPPORTED as in attention */
typedef struct weir_attention_mass_segment {
    weir_kv_segment rows;
    float *mass, *below, *last;
    int64_t stride;
    int32_t first_slot; /* the first of a page */
    int32_t end_slot; /* 0 or past the last slot: all slots */
} weir_attention_mass_segment;
typedef struct weir_attention_mass_args {
    const float *q, *lse;
    const weir_attention_mass_segment *segments;
    int64_t n_segments, n_heads, n_kv_heads, key_dim, q_stride, q_head_stride;
    float scale;
    weir_kv_format k_format;
    weir_kv_sinks sinks; /* V's format is ignored */
    float softcap; /* as attention's */
} weir_attention_mass_args;

static inline bool weir_attention_mass_from_logits(const weir_attention_mass_segment *segment)
{
    return segment->rows.n_rows == 1 && segment->rows.logits;
}
/* One past the last slot that is written. */
static inline int64_t weir_attention_mass_end(const weir_attention_mass_segment *segment)
{
    const int64_t n_slots = (int64_t)segment->rows.n_past + segment->rows.n_rows;
    return segment->end_slot > 0 && segment->end_slot < n_slots ? segment->end_slot : n_slots;
}
static inline bool weir_attention_mass_needs_unsealed(const weir_attention_mass_args *args)
{
    return weir_kv_seals_pages(args->k_format) ||
           (args->sinks.n_pages > 0 && weir_kv_seals_pages(args->sinks.pair.k));
}
/* Kernels call it on the host and return EINVAL if it is false. */
static inline bool weir_attention_mass_is_sound(const weir_attention_mass_args *args)
{
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0) return false;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_attention_mass_segment *const segment = args->segments + s;
        const int64_t n_slots = (int64_t)segment->rows.n_past + segment->rows.n_rows;
        if (!weir_kv_segment_is_sound(&segment->rows, args->n_kv_heads)) return false;
        if (segment->rows.n_rows <= 0) continue;
        if (segment->rows.n_past < 0 || n_slots > INT32_MAX - WEIR_TILE_TOKENS ||
            segment->stride < n_slots)
            return false;
        if (segment->first_slot < 0 || segment->first_slot % WEIR_PAGE_TOKENS != 0 ||
            segment->end_slot < 0)
            return false;
        if (weir_attention_mass_from_logits(segment)
                ? segment->rows.logits_stride < n_slots
                : weir_attention_mass_needs_unsealed(args) && !segment->rows.unsealed_pages)
            return false;
    }
    return true;
}
static inline bool weir_attention_mass_is_valid(const weir_attention_mass_args *args)
{
    return args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 &&
           (args->n_heads <= 1 || args->q_head_stride >= args->key_dim);
}
static inline void weir_attention_mass_marshal(weir_marshaller *m, weir_attention_mass_args *args)
{
    weir_attention_mass_segment *const copy = (weir_attention_mass_segment *)weir_marshal_list(
        m, args->segments, (size_t)args->n_segments * sizeof *args->segments
    );
    const int64_t group = args->n_heads / args->n_kv_heads;
    for (int64_t i = 0; i < args->n_segments; i++) {
        weir_attention_mass_segment s = args->segments[i];
        const int64_t end = weir_attention_mass_end(&s),
                      queries = weir_kv_segment_heads(&s.rows, args->n_kv_heads) * group;
        const weir_marshal_range used = { s.first_slot / WEIR_PAGE_TOKENS,
                                          weir_kv_segment_n_pages(end) };
        weir_kv_segment_marshal(m, &s.rows, args->n_kv_heads, group, WEIR_MARSHAL_IN, used);
        s.mass = weir_marshal_host_rows(m, s.mass, queries, s.stride, end, WEIR_MARSHAL_IN_OUT);
        s.below = weir_marshal_host_rows(m, s.below, queries, s.stride, end, WEIR_MARSHAL_IN_OUT);
        s.last = weir_marshal_host_rows(m, s.last, queries, s.stride, end, WEIR_MARSHAL_IN_OUT);
        if (copy) copy[i] = s;
    }
    args->segments = copy;
    weir_marshal_require(m, args->q);
    weir_marshal_require(m, args->lse);
}
