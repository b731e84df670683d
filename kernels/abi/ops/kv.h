/* kernels/abi/ops/kv.h - ops on the rows of KV pages: kv_write, kv_read, kv_compact,
 * key_products. */
#pragma once
#include "kernels/abi/kv_format.h"
#include "kernels/abi/kv_page.h"
#include "kernels/abi/marshal.h"

/* Rows of one sequence and layer in the batch, for the KV heads [first_head, first_head + n_heads)
 * of the op's G; n_heads 0: all of them. Rows [first_row, first_row + n_rows) are at slots n_past
 * .. n_past + n_rows - 1, which equal positions until rows are evicted. Slot p of the range's i-th
 * head is in pages[i * page_stride + p / 64] at token p % 64. Heads that keep different numbers of
 * rows are segments with the same rows and their own n_past. Any cut of the heads gives the bits of
 * one segment, and a segment does not touch other heads. */
typedef struct weir_kv_segment {
    /* [heads of the range, page_stride], see kernels/abi/kv_page.h. */
    void *const *pages;
    int64_t page_stride; /* entries between heads */
    int32_t first_row, n_rows, n_past;
    /* [heads of the range, unsealed_stride]: the unsealed rows of pages n_past / 64,
     * n_past / 64 + 1, ... for formats that need them (kernels/abi/kv_format.h). Otherwise NULL;
     * an entry is NULL if its page is only read sealed. */
    void *const *unsealed_pages;
    int64_t unsealed_stride;
    int32_t first_head, n_heads;
    /* [query heads of the range, logits_stride] or NULL: written by attention, read by
     * attention_mass. */
    float *logits;
    int64_t logits_stride; /* >= n_past + n_rows */
} weir_kv_segment;

static inline int64_t weir_kv_segment_heads(const weir_kv_segment *segment, int64_t n_kv_heads)
{
    return segment->n_heads > 0 ? segment->n_heads : n_kv_heads;
}
/* How many pages, or tiles, of `tokens` slots hold rows of the segment. */
static inline int64_t weir_kv_segment_runs(const weir_kv_segment *segment, int64_t tokens)
{
    const int64_t first = segment->n_past, end = first + segment->n_rows;
    return segment->n_rows > 0 ? (end - 1) / tokens - first / tokens + 1 : 0;
}
/* True if the range of heads is within the op's. Called on the host. */
static inline bool weir_kv_segment_is_sound(const weir_kv_segment *segment, int64_t n_kv_heads)
{
    return segment->first_head >= 0 && segment->n_heads >= 0 &&
           segment->first_head + weir_kv_segment_heads(segment, n_kv_heads) <= n_kv_heads;
}
static inline bool weir_kv_segments_are_sound(
    const weir_kv_segment *segments, int64_t n_segments, int64_t n_kv_heads
)
{
    for (int64_t s = 0; s < n_segments; s++)
        if (!weir_kv_segment_is_sound(segments + s, n_kv_heads)) return false;
    return true;
}

static inline int64_t weir_kv_segment_n_pages(int64_t n_rows)
{
    return (n_rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}
/* The pages that the segment's rows attend to, and those that contain its rows. */
static inline weir_marshal_range weir_kv_segment_seen(const weir_kv_segment *s)
{
    const weir_marshal_range seen = { 0, weir_kv_segment_n_pages((int64_t)s->n_past + s->n_rows) };
    return seen;
}
static inline weir_marshal_range weir_kv_segment_own(const weir_kv_segment *s)
{
    const weir_marshal_range own = { s->n_past / WEIR_PAGE_TOKENS, weir_kv_segment_seen(s).end };
    return own;
}
/* group: query heads per KV head; 0: the op has no logits. `used`: the pages that it reads. */
static inline void weir_kv_segment_marshal(
    weir_marshaller *m, weir_kv_segment *s, int64_t n_kv_heads, int64_t group,
    weir_marshal_use logits, weir_marshal_range used
)
{
    const int64_t heads = weir_kv_segment_heads(s, n_kv_heads);
    const weir_marshal_range own = weir_kv_segment_own(s), unsealed = { 0, own.end - own.first };
    s->pages = weir_marshal_pages(m, s->pages, heads, s->page_stride, used);
    s->page_stride = used.end;
    s->unsealed_pages =
        weir_marshal_pages(m, s->unsealed_pages, heads, s->unsealed_stride, unsealed);
    s->unsealed_stride = unsealed.end;
    s->logits = weir_marshal_host_rows(
        m, s->logits, heads * group, s->logits_stride, (int64_t)s->n_past + s->n_rows, logits
    );
}
/* For ops that use the pages of their own rows. *n_rows: rows of the batch in these segments. */
static inline const weir_kv_segment *weir_kv_segments_marshal(
    weir_marshaller *m, const weir_kv_segment *segments, int64_t n, int64_t n_kv_heads,
    int64_t *n_rows
)
{
    weir_kv_segment *const copy =
        (weir_kv_segment *)weir_marshal_list(m, segments, (size_t)n * sizeof *segments);
    *n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        weir_kv_segment s = segments[i];
        const int64_t end = (int64_t)s.first_row + s.n_rows;
        if (end > *n_rows) *n_rows = end;
        weir_kv_segment_marshal(m, &s, n_kv_heads, 0, WEIR_MARSHAL_IN_OUT, weir_kv_segment_own(&s));
        if (copy) copy[i] = s;
    }
    return copy;
}

/* Stores new K and V rows into their pages in the pages' formats. Rows of formats that need it go
 * to the unsealed pages, which also hold the page's earlier rows; the row of token 63 seals its
 * page. Rows of a sequence come in ascending order; any cut gives the same bytes. Each page that a
 * row falls into must exist, and its unsealed page if a format needs one. The first pages of a
 * sequence have the formats of `sinks`, the others k_format and v_format, in this and the other ops
 * that take both. NULL: that side is unchanged.
 * shapes  : k [T, G, key_dim], v [T, G, value_dim] with row strides (heads contiguous); value_dim
 *           0: pages without a V part, v is NULL; so in kv_read and kv_compact
 * numerics: the codecs are defined to the bit by kernels/ref/kv_codec.h; every kernel stores the
 *           same bytes
 * errors  : EUNSUPPORTED if a format does not take the width; in this and the ops below, EINVAL for
 *           a range of heads outside G */
typedef struct weir_kv_write_args {
    const float *k, *v;
    const weir_kv_segment *segments;
    int64_t n_segments, n_kv_heads, key_dim, value_dim, k_stride, v_stride;
    weir_kv_format k_format, v_format;
    weir_kv_sinks sinks;
} weir_kv_write_args;

static inline const char *weir_kv_write_reject(const weir_kv_write_args *args)
{
    const weir_kv_pair others = { args->k_format, args->v_format };
    return weir_kv_pages_reject(others, args->sinks, args->key_dim, args->value_dim);
}
static inline bool weir_kv_write_is_valid(const weir_kv_write_args *args)
{
    return args->k_stride >= args->n_kv_heads * args->key_dim &&
           args->v_stride >= args->n_kv_heads * args->value_dim &&
           (args->value_dim > 0 || !args->v);
}
static inline void weir_kv_write_marshal(weir_marshaller *m, weir_kv_write_args *args)
{
    const int64_t k_width = args->n_kv_heads * args->key_dim,
                  v_width = args->n_kv_heads * args->value_dim;
    int64_t n;
    args->segments =
        weir_kv_segments_marshal(m, args->segments, args->n_segments, args->n_kv_heads, &n);
    args->k = weir_marshal_rows(m, args->k, n, args->k_stride, k_width, WEIR_MARSHAL_IN);
    args->v = weir_marshal_rows(m, args->v, n, args->v_stride, v_width, WEIR_MARSHAL_IN);
}

/* Rows of the pages as f32, for eviction scores, packs and checks. Position p of a segment gives
 * row first_row + p - n_past. Parts with unsealed pages are read unsealed if the segment has the
 * page, coded otherwise. NULL: that side is skipped.
 * shapes  : k [T, G, key_dim], v [T, G, value_dim] with row strides (heads contiguous)
 * numerics: the values that attention multiplies, for turbo rotated back: H is orthonormal to f32's
 *           rounding only */
typedef struct weir_kv_read_args {
    float *k, *v;
    const weir_kv_segment *segments;
    int64_t n_segments, n_kv_heads, key_dim, value_dim, k_stride, v_stride;
    weir_kv_format k_format, v_format;
    weir_kv_sinks sinks;
} weir_kv_read_args;

static inline const char *weir_kv_read_reject(const weir_kv_read_args *args)
{
    const weir_kv_pair others = { args->k_format, args->v_format };
    return weir_kv_pages_reject(others, args->sinks, args->key_dim, args->value_dim);
}
static inline bool weir_kv_read_is_valid(const weir_kv_read_args *args)
{
    return (!args->k || args->k_stride >= args->n_kv_heads * args->key_dim) &&
           (!args->v ||
            (args->value_dim > 0 && args->v_stride >= args->n_kv_heads * args->value_dim));
}
static inline void weir_kv_read_marshal(weir_marshaller *m, weir_kv_read_args *args)
{
    const int64_t k_width = args->n_kv_heads * args->key_dim,
                  v_width = args->n_kv_heads * args->value_dim;
    int64_t n;
    args->segments =
        weir_kv_segments_marshal(m, args->segments, args->n_segments, args->n_kv_heads, &n);
    args->k = weir_marshal_host_rows(m, args->k, n, args->k_stride, k_width, WEIR_MARSHAL_OUT);
    args->v = weir_marshal_host_rows(m, args->v, n, args->v_stride, v_width, WEIR_MARSHAL_OUT);
}

/* Row keep[i] of each KV head becomes row i, in place: the codes of kept rows move to the front.
 * Rows from n_keep on have undefined contents and are never read. Pages that are written to must
 * not be shared. Formats that code a page as a whole are refused: their sequences drop whole pages
 * from their tables instead. Rows before first[g] are in place: their entries of `keep` and their
 * pages are not read.
 * shapes : keep [G, keep_stride], of each head n_keep[g] rows, ascending: keep[i] >= i; first [G],
 *          or NULL: 0
 * errors : EUNSUPPORTED for those formats, or if a format does not take the width; EINVAL if keep
 *          is not ascending, or moves a row to a page of other formats */
typedef struct weir_kv_compact_segment {
    /* [G, page_stride]; the pages that rows are moved from and to. */
    void *const *pages;
    int64_t page_stride, keep_stride;
    const int32_t *keep, *n_keep, *first;
} weir_kv_compact_segment;
typedef struct weir_kv_compact_args {
    const weir_kv_compact_segment *segments;
    int64_t n_segments, n_kv_heads, key_dim, value_dim;
    weir_kv_format k_format, v_format;
    weir_kv_sinks sinks;
} weir_kv_compact_args;

/* Returns NULL, or why these rows cannot be moved; the host reads `keep`. */
static inline const char *weir_kv_compact_reject(const weir_kv_compact_args *args)
{
    const weir_kv_pair others = { args->k_format, args->v_format };
    const char *const why =
        weir_kv_pages_reject(others, args->sinks, args->key_dim, args->value_dim);
    if (why) return why;
    if (weir_kv_seals_pages(others.k) || weir_kv_seals_pages(others.v))
        return "codes a page as a whole: its rows cannot be moved";
    if (args->sinks.n_pages > 0 &&
        (weir_kv_seals_pages(args->sinks.pair.k) || weir_kv_seals_pages(args->sinks.pair.v)))
        return "codes a page as a whole: its rows cannot be moved";
    return NULL;
}
/* Kernels return EINVAL if it is false. */
static inline bool weir_kv_compact_is_sound(const weir_kv_compact_args *args)
{
    for (int64_t s = 0; s < args->n_segments; s++)
        for (int64_t g = 0; g < args->n_kv_heads; g++) {
            const weir_kv_compact_segment *const segment = args->segments + s;
            const int32_t *const keep = segment->keep + g * segment->keep_stride;
            const int32_t first = segment->first ? segment->first[g] : 0;
            if (first < 0) return false;
            for (int32_t i = first; i < segment->n_keep[g]; i++) {
                if (keep[i] < i || (i > first && keep[i] <= keep[i - 1])) return false;
                if (keep[i] / WEIR_PAGE_TOKENS >= args->sinks.n_pages &&
                    i / WEIR_PAGE_TOKENS < args->sinks.n_pages)
                    return false;
            }
        }
    return true;
}
static inline bool weir_kv_compact_is_valid(const weir_kv_compact_args *args)
{
    return args->n_segments >= 0 && args->n_kv_heads > 0;
}
/* Table entries that rows are moved from or to. */
static inline int64_t weir_kv_compact_n_pages(const weir_kv_compact_segment *s, int64_t n_kv_heads)
{
    int64_t n_pages = 0;
    for (int64_t g = 0; g < n_kv_heads; g++) {
        const int64_t n = s->n_keep[g], last = n > 0 ? s->keep[g * s->keep_stride + n - 1] : -1,
                      end = last > n - 1 ? last : n - 1;
        if (n > 0 && end / WEIR_PAGE_TOKENS + 1 > n_pages) n_pages = end / WEIR_PAGE_TOKENS + 1;
    }
    return n_pages;
}
static inline void weir_kv_compact_segment_marshal(
    weir_marshaller *m, weir_kv_compact_segment *s, int64_t n_kv_heads
)
{
    const bool plans = weir_marshal_is_planning(m);
    const weir_marshal_range used = { 0, plans ? weir_kv_segment_n_pages(s->keep_stride)
                                               : weir_kv_compact_n_pages(s, n_kv_heads) };
    int64_t n_keep = plans ? s->keep_stride : 0;
    for (int64_t g = 0; !plans && g < n_kv_heads; g++)
        if (s->n_keep[g] > n_keep) n_keep = s->n_keep[g];
    s->pages = weir_marshal_pages(m, s->pages, n_kv_heads, s->page_stride, used);
    s->page_stride = used.end;
    s->keep = (const int32_t *)weir_marshal_list(
        m, s->keep, (size_t)((n_kv_heads - 1) * s->keep_stride + n_keep) * sizeof *s->keep
    );
    s->n_keep =
        (const int32_t *)weir_marshal_list(m, s->n_keep, (size_t)n_kv_heads * sizeof *s->n_keep);
    s->first =
        (const int32_t *)weir_marshal_list(m, s->first, (size_t)n_kv_heads * sizeof *s->first);
}
static inline void weir_kv_compact_marshal(weir_marshaller *m, weir_kv_compact_args *args)
{
    weir_kv_compact_segment *const copy = (weir_kv_compact_segment *)weir_marshal_list(
        m, args->segments, (size_t)args->n_segments * sizeof *args->segments
    );
    for (int64_t i = 0; i < args->n_segments; i++) {
        weir_kv_compact_segment s = args->segments[i];
        weir_kv_compact_segment_marshal(m, &s, args->n_kv_heads);
        if (copy) copy[i] = s;
    }
    args->segments = copy;
}

/* Products with the keys of one KV head: out[v,i] = vectors[v] . K[n_past + i] + sum over f of
 * lengths[v,f] * |pair f of K[n_past + i]|, where pair f is of dims (f, f + n_pairs), or (2f, 2f +
 * 1) if interleaved. The segment's rows are at its slots n_past .. n_past + n_rows - 1, and are
 * read unsealed if it has the unsealed page, coded otherwise, as in kv_read.
 * shapes : out [n_vectors, out_stride], the first n_rows of each written; vectors
 *          [n_vectors, key_dim]; lengths [n_vectors, n_pairs] or NULL; 2 * n_pairs <= key_dim
 * order  : a slot's product does not depend on the other slots of the call
 * errors : EUNSUPPORTED if the format does not take the width, or for lengths where codes are of
 *          rotated keys */
typedef struct weir_key_products_args {
    float *out;
    const float *vectors, *lengths;
    /* Of one head; first_row, first_head and logits are ignored. */
    const weir_kv_segment *rows;
    int64_t n_vectors, out_stride, key_dim, n_pairs;
    weir_kv_format k_format;
    weir_kv_sinks sinks; /* V's format is ignored */
    bool is_interleaved;
} weir_key_products_args;

static inline const char *weir_key_products_reject(const weir_key_products_args *args)
{
    const weir_kv_format first = args->sinks.n_pages > 0 ? args->sinks.pair.k : args->k_format;
    const char *const why = weir_kv_keys_reject(args->k_format, args->sinks, args->key_dim);
    if (why) return why;
    return args->lengths && (weir_kv_is_rotated(args->k_format) || weir_kv_is_rotated(first))
               ? "codes are of rotated keys: their pairs have no lengths"
               : NULL;
}
/* Kernels return EINVAL if it is false. */
static inline bool weir_key_products_is_sound(const weir_key_products_args *args)
{
    return args->n_vectors >= 0 && args->n_pairs >= 0 && 2 * args->n_pairs <= args->key_dim &&
           args->rows->n_past >= 0 && args->rows->n_rows >= 0 &&
           args->rows->n_rows <= INT32_MAX - WEIR_TILE_TOKENS - args->rows->n_past &&
           args->out_stride >= args->rows->n_rows;
}
static inline bool weir_key_products_is_valid(const weir_key_products_args *args)
{
    return args->rows != NULL;
}
static inline void weir_key_products_marshal(weir_marshaller *m, weir_key_products_args *args)
{
    const int64_t n_rows = args->rows->n_rows;
    int64_t end;
    args->rows = weir_kv_segments_marshal(m, args->rows, 1, 1, &end);
    args->vectors = weir_marshal_host_rows(
        m, args->vectors, args->n_vectors, args->key_dim, args->key_dim, WEIR_MARSHAL_IN
    );
    args->lengths = weir_marshal_host_rows(
        m, args->lengths, args->n_vectors, args->n_pairs, args->n_pairs, WEIR_MARSHAL_IN
    );
    args->out = weir_marshal_host_rows(
        m, args->out, args->n_vectors, args->out_stride, n_rows, WEIR_MARSHAL_OUT
    );
}
