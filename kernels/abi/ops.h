/* kernels/abi/ops.h - what a kernel is: one args struct and one contract per op, and the row that
 * the kernel table holds.
 *
 * Kernels are pure functions over arrays: no allocation, no I/O, no locks, no globals. Shapes are
 * row-major, slowest first; strides are in elements. Letters: T rows of the batch (tokens of all
 * sequences, each sequence's rows contiguous), S sequences (segments), D model width, H query
 * heads, G KV heads, hd head width. All activations are f32. Accumulation is f32 (ref: f64). A
 * row's result never depends on which other rows share the call. */
#pragma once
#include "kernels/abi/coda.h"
#include "kernels/abi/dtype.h"
#include "kernels/abi/kv_format.h"
#include "kernels/abi/kv_page.h"
#include "kernels/abi/status.h"

typedef enum weir_op {
    WEIR_OP_EMBED,
    WEIR_OP_RMSNORM,
    WEIR_OP_GATED_RMSNORM,
    WEIR_OP_ROPE,
    WEIR_OP_MATMUL,
    WEIR_OP_SWIGLU,
    WEIR_OP_SIGMOID_GATE,
    WEIR_OP_ADD,
    WEIR_OP_KV_WRITE,
    WEIR_OP_KV_READ,
    WEIR_OP_KV_COMPACT,
    WEIR_OP_KEY_PRODUCTS,
    WEIR_OP_ATTENTION,
    WEIR_OP_ATTENTION_MASS,
    WEIR_OP_CONV1D,
    WEIR_OP_GATED_DELTA_RULE,
    WEIR_OP_CODA_QUERIES,
    WEIR_OP_CODA_COMBINE,
    WEIR_OP_CODA_WRITE,
    WEIR_OP_COUNT
} weir_op;

typedef enum weir_backend {
    WEIR_BACKEND_REF,
    WEIR_BACKEND_OMP,
    WEIR_BACKEND_X86,
    WEIR_BACKEND_ONEDNN,
    WEIR_BACKEND_CUDA
} weir_backend;

/* ---- weights --------------------------------------------------------------------------------- */
typedef enum weir_layout {
    WEIR_LAYOUT_ROWS, /* as in the file: n_out rows of n_in elements of `dtype` */
    WEIR_LAYOUT_TILES, /* quantised, repacked for the dot kernels: kernels/x86/tiles.h */
    WEIR_LAYOUT_ONEDNN, /* f32 or bf16 in the blocks of oneDNN's packed kernels:
                           kernels/onednn/weight.h                    */
    WEIR_LAYOUT_DENSE, /* f32, bf16 or f16 in panels, where oneDNN has none: kernels/x86/dense.h */
    WEIR_LAYOUT_CUDA, /* for a GPU: rows of elements, or of codes with their scales apart:
                         kernels/cuda/weight.h          */
} weir_layout;

/* A matrix [n_out, n_in] in the layout of the kernel that will read it. `data` is owned by the
 * model's weight memory. */
typedef struct weir_weight {
    const void *data;
    void       *packed_state; /* layout-private: oneDNN primitives; NULL otherwise */
    size_t      bytes; /* of data */
    int64_t     n_out, n_in;
    weir_dtype  dtype; /* ROWS, TILES, CUDA: the file's type; ONEDNN: f32 or bf16; DENSE: f32, bf16
                          or f16            */
    weir_layout layout;
} weir_weight;

/* ---- ops ------------------------------------------------------------------------------------- */
/* dst[t,:] = table[ids[t],:] as f32, exact.
 * shapes : dst [T, dim]; ids [T], 0 <= id < n_vocab; table is file bytes: n_vocab rows of dim
 * elements of `dtype`, unaligned   */
typedef struct weir_embed_args {
    float         *dst;
    const void    *table;
    const int32_t *ids;
    int64_t        n_rows, dim, n_vocab;
    weir_dtype     dtype;
} weir_embed_args;

/* dst[t,h,:] = src[t,h,:] / sqrt(mean(src[t,h,:]^2) + eps) * weight[:]
 * shapes : dst, src [n_rows, n_groups, dim] with row and group strides (n_groups 1 for a layer
 *          norm, heads for a q or k norm);
 *          weight [dim]. If `add` is given, src[t,:] += add[t,:] first and the sum is stored to src
 *          (the residual stream).
 * alias  : dst == src allowed when add is NULL
 * errors : EINVAL if dim <= 0 */
typedef struct weir_rmsnorm_args {
    float       *dst, *src;
    const float *weight,
        *add; /* add: NULL or [n_rows, dim] with add_stride, only with n_groups == 1  */
    int64_t n_rows, n_groups, dim;
    int64_t dst_stride, dst_group_stride, src_stride, src_group_stride, add_stride;
    float   eps;
} weir_rmsnorm_args;

/* dst[r,:] = weight[:] * src[r,:] / sqrt(mean(src[r,:]^2) + eps) * silu(gate[r,:])      (Gated
 * DeltaNet's output norm) shapes : all [n_rows, dim], contiguous; alias: dst == src allowed */
typedef struct weir_gated_rmsnorm_args {
    float       *dst;
    const float *src, *gate, *weight;
    int64_t      n_rows, dim;
    float        eps;
} weir_gated_rmsnorm_args;

typedef enum weir_rope_pairing { WEIR_ROPE_HALF_SPLIT, WEIR_ROPE_PAIRS } weir_rope_pairing;
/* Rotates the first rotary_dim elements of x[t,h,:] in place by angle = (float)positions[t] *
 * frequencies[i], i < rotary_dim / 2; half split pairs (i, i + rotary_dim/2), pairs (2i, 2i+1). cos
 * and sin are multiplied by `magnitude`.
 * shapes : x [T, n_heads, *] with strides; positions [T]; frequencies [rotary_dim / 2] (scaling
 *          already applied) */
typedef struct weir_rope_args {
    float            *x;
    const int32_t    *positions;
    const float      *frequencies;
    int64_t           n_rows, n_heads, rotary_dim, row_stride, head_stride;
    float             magnitude;
    weir_rope_pairing pairing;
} weir_rope_args;

/* outputs[o].dst[t,:] (+)= W_o x[t,:] (+ bias_o[:])        several matrices that read the same x
 * are one call
 * shapes : x [T, n_in] with x_stride; dst [T, n_out] with dst_stride; bias NULL or [n_out];
 *          accumulate adds to dst.
 * numerics: WEIR_LAYOUT_TILES quantises each row of x to int8 per 32 elements (round to nearest
 *           even, scale = amax / 127);
 *           integer sums are exact and groups are added in ascending order in f32, in every kernel:
 *           all have the same bits. ONEDNN bf16 rounds x to bf16; ONEDNN f32, DENSE and ROWS (ref)
 *           keep f32. DENSE adds inputs in ascending order. */
enum { WEIR_MATMUL_OUTPUTS = 4 };
typedef struct weir_matmul_output {
    const weir_weight *weight;
    float             *dst;
    const float       *bias;
    int64_t            dst_stride;
    bool               accumulate;
} weir_matmul_output;
typedef struct weir_matmul_args {
    const float       *x;
    int64_t            n_rows, n_in, x_stride;
    weir_matmul_output outputs[WEIR_MATMUL_OUTPUTS];
    int32_t            n_outputs;
} weir_matmul_args;

/* dst[t,i] = silu(gate[t,i]) * up[t,i]     shapes : [T, dim], own row strides; alias: dst == gate
 * or dst == up allowed         */
typedef struct weir_swiglu_args {
    float       *dst;
    const float *gate, *up;
    int64_t      n_rows, dim, dst_stride, gate_stride, up_stride;
} weir_swiglu_args;

/* x[t,h,:] *= sigmoid(gate[t,h,:])        shapes : x, gate [T, n_heads, dim] with strides */
typedef struct weir_sigmoid_gate_args {
    float       *x;
    const float *gate;
    int64_t      n_rows, n_heads, dim, x_stride, x_head_stride, gate_stride, gate_head_stride;
} weir_sigmoid_gate_args;

/* dst[t,:] += src[t,:]                    shapes : [T, dim] with row strides */
typedef struct weir_add_args {
    float       *dst;
    const float *src;
    int64_t      n_rows, dim, dst_stride, src_stride;
} weir_add_args;

/* Rows of one sequence and layer in the batch, for the KV heads [first_head, first_head + n_heads)
 * of the op's G; n_heads 0: all of them. Rows [first_row, first_row + n_rows) are at slots n_past
 * .. n_past + n_rows - 1: positions, as long as nothing was evicted. Slot p of the range's i-th
 * head lives in pages[i * page_stride + p / 64] at token p % 64. Heads that keep different numbers
 * of rows are segments with the same rows and their own n_past: any cut of the heads gives the bits
 * of one segment, and a segment touches nothing of other heads. */
typedef struct weir_kv_segment {
    void *const *pages; /* [heads of the range, page_stride], see kernels/abi/kv_page.h */
    int64_t      page_stride; /* entries between heads */
    int32_t      first_row, n_rows, n_past;
    /* [heads of the range, open_stride]: the open rows of pages n_past / 64, n_past / 64 + 1, ...
     * (kernels/abi/kv_format.h), for formats that need them; NULL otherwise, and NULL entries where
     * a page is only read closed                                                    */
    void *const *open_pages;
    int64_t      open_stride;
    int32_t      first_head, n_heads;
    float  *logits; /* [query heads of the range, logits_stride] or NULL: kept by attention, read by
                      attention_mass            */
    int64_t logits_stride; /* >= n_past + n_rows */
} weir_kv_segment;

static inline int64_t weir_kv_segment_heads(const weir_kv_segment *segment, int64_t n_kv_heads)
{
    return segment->n_heads > 0 ? segment->n_heads : n_kv_heads;
}
/* The range of heads lies within the op's; asked on the host. */
static inline bool weir_kv_segment_is_sound(const weir_kv_segment *segment, int64_t n_kv_heads)
{
    return segment->first_head >= 0 && segment->n_heads >= 0 &&
           segment->first_head + weir_kv_segment_heads(segment, n_kv_heads) <= n_kv_heads;
}
static inline bool weir_kv_segments_are_sound(const weir_kv_segment *segments, int64_t n_segments,
                                              int64_t n_kv_heads)
{
    for (int64_t s = 0; s < n_segments; s++)
        if (!weir_kv_segment_is_sound(segments + s, n_kv_heads)) return false;
    return true;
}

/* Stores new K and V rows into their pages in the pages' formats. Rows of formats that need it go
 * to the open pages, which also hold the page's earlier rows; the row of token 63 closes its page.
 * Rows of a sequence come in ascending order; any cut gives the same bytes. Each page that a row
 * falls into is there, and its open page if a format needs one. The first pages of a text have the
 * formats of `sinks`, the others k_format and v_format; so in all ops that take both. NULL: that
 * side stays as it is.
 * shapes : k [T, G, key_dim], v [T, G, value_dim] with row strides (heads contiguous)
 * numerics: the codecs are defined to the bit by kernels/ref/kv_codec.h; every kernel stores the
 *           same bytes
 * errors : EUNSUPPORTED if a format does not take the width; here and in the ops below, EINVAL for
 *          heads that are not there */
typedef struct weir_kv_write_args {
    const float           *k, *v;
    const weir_kv_segment *segments;
    int64_t                n_segments, n_kv_heads, key_dim, value_dim, k_stride, v_stride;
    weir_kv_format         k_format, v_format;
    weir_kv_sinks          sinks;
} weir_kv_write_args;

/* Rows of the pages as f32: what eviction scores, packs and checks look at. Position p of a segment
 * gives row first_row + p - n_past. Parts that have open pages are read open where the segment
 * names one, coded otherwise. NULL: that side is not wanted.
 * shapes : k [T, G, key_dim], v [T, G, value_dim] with row strides (heads contiguous)
 * numerics: the values that attention multiplies, for turbo rotated back: H is orthonormal to f32's
 *           rounding only */
typedef struct weir_kv_read_args {
    float                 *k, *v;
    const weir_kv_segment *segments;
    int64_t                n_segments, n_kv_heads, key_dim, value_dim, k_stride, v_stride;
    weir_kv_format         k_format, v_format;
    weir_kv_sinks          sinks;
} weir_kv_read_args;

/* Row keep[i] of each KV head becomes row i, in place: what eviction leaves moves to the front, as
 * the codes that it has. Rows from n_keep on are as they were before or after a move: nobody reads
 * them. Pages that will be written to are held by this text alone. Formats that code a page as a
 * whole are refused: a text in them loses whole pages, which is a matter of its table. Rows before
 * first[g] are in place: their entries of `keep` and their pages are not looked at.
 * shapes : keep [G, keep_stride], of each head n_keep[g] rows, ascending: keep[i] >= i; first [G],
 *          or NULL: 0
 * errors : EUNSUPPORTED for those formats, or if a format does not take the width; EINVAL if keep
 *          is not ascending, or moves a row to a page of
 *          other formats */
typedef struct weir_kv_compact_segment {
    void *const   *pages; /* [G, page_stride]; those that rows come from and go to */
    int64_t        page_stride, keep_stride;
    const int32_t *keep, *n_keep, *first;
} weir_kv_compact_segment;
typedef struct weir_kv_compact_args {
    const weir_kv_compact_segment *segments;
    int64_t                        n_segments, n_kv_heads, key_dim, value_dim;
    weir_kv_format                 k_format, v_format;
    weir_kv_sinks                  sinks;
} weir_kv_compact_args;

/* NULL, or why these rows cannot be moved; the host reads `keep`. */
static inline const char *weir_kv_compact_reject(const weir_kv_compact_args *args)
{
    const weir_kv_pair others = { args->k_format, args->v_format };
    const char *const  why =
        weir_kv_pages_reject(others, args->sinks, args->key_dim, args->value_dim);
    if (why) return why;
    if (weir_kv_needs_open(others.k) || weir_kv_needs_open(others.v))
        return "codes a page as a whole: its rows cannot be moved";
    if (args->sinks.n_pages > 0 &&
        (weir_kv_needs_open(args->sinks.pair.k) || weir_kv_needs_open(args->sinks.pair.v)))
        return "codes a page as a whole: its rows cannot be moved";
    return NULL;
}
static inline bool weir_kv_compact_is_sound(const weir_kv_compact_args *args)
{
    for (int64_t s = 0; s < args->n_segments; s++)
        for (int64_t g = 0; g < args->n_kv_heads; g++) {
            const weir_kv_compact_segment *const segment = args->segments + s;
            const int32_t *const                 keep = segment->keep + g * segment->keep_stride;
            const int32_t                        first = segment->first ? segment->first[g] : 0;
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

/* Products with the keys of one KV head: out[v,i] = vectors[v] . K[n_past + i] + sum over f of
 * lengths[v,f] * |pair f of K[n_past + i]|, where pair f is of dims (f, f + n_pairs), or (2f, 2f +
 * 1) if interleaved. The segment's rows are at its slots n_past .. n_past + n_rows - 1, and are
 * read open where it names an open page, coded otherwise, as in kv_read.
 * shapes : out [n_vectors, out_stride], the first n_rows of each written; vectors [n_vectors,
 *          key_dim]; lengths [n_vectors, n_pairs] or NULL; 2 * n_pairs <=
 *          key_dim
 * order  : a slot's product does not depend on which others are asked for
 * errors : EUNSUPPORTED if the format does not take the width, or for lengths where turbo's codes
 *          hide the pairs */
typedef struct weir_key_products_args {
    float       *out;
    const float *vectors, *lengths;
    const weir_kv_segment
                  *rows; /* of one head; its first_row, first_head and logits are not looked at */
    int64_t        n_vectors, out_stride, key_dim, n_pairs;
    weir_kv_format k_format;
    weir_kv_sinks  sinks; /* V's format is not looked at */
    bool           is_interleaved;
} weir_key_products_args;

static inline const char *weir_key_products_reject(const weir_key_products_args *args)
{
    const weir_kv_format first = args->sinks.n_pages > 0 ? args->sinks.pair.k : args->k_format;
    const char          *why = weir_kv_format_reject(args->k_format, WEIR_KV_K, args->key_dim);
    if (!why) why = weir_kv_format_reject(first, WEIR_KV_K, args->key_dim);
    if (why) return why;
    const bool is_turbo = weir_kv_scheme_of(args->k_format) == WEIR_KV_TURBO ||
                          weir_kv_scheme_of(first) == WEIR_KV_TURBO;
    return args->lengths && is_turbo
               ? "turbo's codes are of rotated keys: their pairs have no lengths"
               : NULL;
}
static inline bool weir_key_products_is_sound(const weir_key_products_args *args)
{
    return args->n_vectors >= 0 && args->n_pairs >= 0 && 2 * args->n_pairs <= args->key_dim &&
           args->rows->n_past >= 0 && args->rows->n_rows >= 0 &&
           args->rows->n_rows <= INT32_MAX - WEIR_TILE_TOKENS - args->rows->n_past &&
           args->out_stride >= args->rows->n_rows;
}

/* out[t,h,:] = softmax(scale * q[t,h,:] . K[h / (H/G)]) V[h / (H/G)] over positions p <= t's
 * position (and p > position - window if window > 0) The rows of the batch are already in the pages
 * (kv_write ran before). Rows read open pages as kernels/abi/kv_format.h says: a format that needs
 * them has one for every page that a row of the batch lies in.
 * pieces : with `carry`, a call covers the splits [first_split, end_split) only, of the rows that
 *          see them, and only their pages are read. What the carry
 *          holds is in kernels/abi/attention_carry.h; all calls for a row go to one kernel. The
 *          last call (is_last) writes `out`, the others do not touch it. Calls with the same q that
 *          follow each other from first_split 0 upwards without gaps, and hand the carry on, have
 *          the bits of one call, whatever the partition. Calls with carries of their own, cleared
 *          before, may come in any order and place; their carries are joined, and a last call
 *          without splits writes `out`: that agrees to rounding.
 * beside : what observers of a text need, as nothing else can give it without reading K again. lse:
 *          the log of the sum of exp(scale * q . K) over what a row
 *          sees; written with `out`. logits of a segment: scale * q . K of its last row at each
 *          slot that it sees; a call writes those of its splits.
 * shapes : q [T, H, *] with row and head stride, key_dim values each; out [T, H, value_dim] with
 *          out_stride, heads contiguous; carry [T, H, 2 + value_dim];
 *          lse [T, H] or NULL
 * errors : EINVAL for logits behind a window; EUNSUPPORTED for logits on GPUs
 * order  : online softmax over tiles of 32 positions aligned to 32, in splits of 1024 positions
 *          aligned to 1024, merged in ascending
 *          order. All depend on absolute positions only, so prefill, decode and any batch give the
 *          same bits. */
enum { WEIR_ATTENTION_SPLIT = 1024 };
typedef struct weir_attention_args {
    float                 *out;
    const float           *q;
    const weir_kv_segment *segments;
    int64_t                n_segments, n_heads, n_kv_heads, key_dim, value_dim;
    int64_t                q_stride, q_head_stride, out_stride;
    int32_t                window; /* 0: all */
    float                  scale;
    weir_kv_format         k_format, v_format; /* of the pages, any pair */
    weir_kv_sinks          sinks; /* of the first pages, any pair */
    float                 *carry; /* NULL: one call does all, and what follows is not looked at */
    int32_t                first_split, end_split;
    bool                   is_last;
    float                 *lse;
} weir_attention_args;

/* What the rows of a segment gave to each slot, in one layer without a window. With p(t,h,j) =
 * exp(scale * q[t,h] . K[j] - lse[t,h]) for the slots j <= n_past + t that row t sees, lse as
 * attention gave it:
 *   mass[h,j]  = sum over t of p(t,h,j) below[h,j] = number of rows t that see j with p(t,h,j) < 1
 *              / (n_past + t + 1), the mean of what they see
 *   last[h,j]  = p of the last row
 * Segments of one row whose logits attention kept are done from those, without q and pages. Others
 * read K, a tile once per block of rows.
 * shapes : q [T, H, *] with row and head stride; lse [T, H]; mass, below, last [query heads of the
 *          segment, stride], each may be NULL; slots
 *          first_slot .. weir_attention_mass_end - 1 are written, and only their pages are read
 * pieces : any cut of the slots into calls has the bits of one call
 * order  : scores as in attention; rows are added in ascending order, in f32: no cut of the work or
 *          of the heads changes a bit
 * errors : EINVAL for heads that are not there, strides that are too short, open pages that are
 *          missing, or slots that do not begin with a page;
 *          EUNSUPPORTED as in attention */
typedef struct weir_attention_mass_segment {
    weir_kv_segment rows;
    float          *mass, *below, *last;
    int64_t         stride;
    int32_t         first_slot,
        end_slot; /* first_slot: a page's first; end_slot: 0 or past the last one: to the end */
} weir_attention_mass_segment;
typedef struct weir_attention_mass_args {
    const float                       *q, *lse;
    const weir_attention_mass_segment *segments;
    int64_t        n_segments, n_heads, n_kv_heads, key_dim, q_stride, q_head_stride;
    float          scale;
    weir_kv_format k_format;
    weir_kv_sinks  sinks; /* V's format is not looked at */
} weir_attention_mass_args;

static inline bool weir_attention_mass_from_logits(const weir_attention_mass_segment *segment)
{
    return segment->rows.n_rows == 1 && segment->rows.logits;
}
/* The first slot behind those that are written. */
static inline int64_t weir_attention_mass_end(const weir_attention_mass_segment *segment)
{
    const int64_t n_slots = (int64_t)segment->rows.n_past + segment->rows.n_rows;
    return segment->end_slot > 0 && segment->end_slot < n_slots ? segment->end_slot : n_slots;
}
static inline bool weir_attention_mass_needs_open(const weir_attention_mass_args *args)
{
    return weir_kv_needs_open(args->k_format) ||
           (args->sinks.n_pages > 0 && weir_kv_needs_open(args->sinks.pair.k));
}
/* Of the rest no kernel has to ask; on the host. */
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
                : weir_attention_mass_needs_open(args) && !segment->rows.open_pages)
            return false;
    }
    return true;
}

/* One sequence's rows for the recurrent mixers; state memory belongs to the sequence and is updated
 * in place. */
typedef struct weir_recurrent_segment {
    float  *conv_history; /* [n_taps - 1, C], oldest first: raw inputs before the convolution */
    float  *state; /* [Hv, value_dim / 16 (rounded up), key_dim, 16]: see gated_delta_rule */
    int32_t first_row, n_rows;
} weir_recurrent_segment;

/* dst[t,c] = silu(sum_j taps[c,j] * u[t - n_taps + 1 + j, c]), u before the first row comes from
 * the history, which is updated shapes : dst, src [T, C] contiguous, not aliased; taps [C, n_taps],
 * the last tap multiplies the current row; n_taps <= 8      */
typedef struct weir_conv1d_args {
    float                        *dst;
    const float                  *src, *taps;
    const weir_recurrent_segment *segments;
    int64_t                       n_segments, n_channels, n_taps;
} weir_conv1d_args;

/* Gated delta rule (Yang et al. 2024), per V head h with K head m:
 *   q = q / sqrt(|q|^2 + 1e-6) * key_dim^-0.5, k = k / sqrt(|k|^2 + 1e-6), beta = sigmoid(b), g =
 *   a_neg * softplus(a + dt_bias)
 *   S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  out = S^T q
 * shapes : q, k [T, Hk, key_dim], v [T, Hv, value_dim] inside rows of qkv_stride; a, b [T, Hv] with
 *          ab_stride; a_neg, dt_bias [Hv];
 *          out [T, Hv, value_dim] contiguous
 * state  : S[i][j] (i < key_dim, j < value_dim) of head h at ((h * tiles + j / 16) * key_dim + i) *
 *          16 + j % 16, tiles = ceil(value_dim / 16);
 *          lanes past value_dim are zero
 * m      : tiled_heads (GGUF order) h % Hk, otherwise h / (Hv / Hk)
 * numerics: `scan` kernels run the recurrence in order: any cut of a sequence into calls gives the
 *           same bits. */
enum { WEIR_DELTA_LANES = 16 };
typedef struct weir_gated_delta_rule_args {
    float                        *out;
    const float                  *q, *k, *v, *a, *b, *a_neg, *dt_bias;
    const weir_recurrent_segment *segments;
    int64_t n_segments, n_k_heads, n_v_heads, key_dim, value_dim, qkv_stride, ab_stride;
    bool    tiled_heads;
} weir_gated_delta_rule_args;

/* Differential attention (Ye et al. 2024; CoDA-GQA-L): every query head asks twice, as it is
 * (signal) and turned by angles of its own (noise), and both attend to the same keys and values: a
 * call of attention with 2 H query heads reads K and V once. These two stand around it.
 *
 * Queries: dst[t, g, 0 .. H/G - 1, :] = q[t, heads of g, :], then the same turned: pairs (2i, 2i +
 * 1) of head h by theta[h, i], whatever pairs RoPE has
 * shapes : q [T, H, hd] rotated, q_stride; dst [T, G, 2 H/G, hd] contiguous, not aliased; theta [H,
 *          hd / 2], radians */
typedef struct weir_coda_queries_args {
    float       *dst;
    const float *q, *theta;
    int64_t      n_rows, n_heads, n_kv_heads, head_dim, q_stride;
} weir_coda_queries_args;

/* r[t, h, :] = signal - sigmoid(lambda[t, h] + bias[h]) * noise; dst = r / sqrt(mean(r^2) + eps) *
 * weight, or r where weight is NULL shapes : src [T, G, 2 H/G, hd] contiguous; dst [T, H, hd]
 * contiguous, not aliased; lambda [T, H], lambda_stride; bias [H]; weight [hd]    */
typedef struct weir_coda_combine_args {
    float       *dst;
    const float *src, *lambda, *bias, *weight;
    int64_t      n_rows, n_heads, n_kv_heads, head_dim, lambda_stride;
    float        eps;
} weir_coda_combine_args;

/* New rows into the ring of each sequence; those that leave it are judged by the banks
 * (kernels/abi/coda.h). */
typedef struct weir_coda_segment {
    void   *state; /* weir_coda_view, updated in place */
    int32_t first_row, n_rows;
    bool is_step; /* n_rows is 1: the row pushes out the oldest before it is attended, and its gate
                     slows blending. Else rows of a block, that were attended together: of those
                     that leave, the banks see candidates, chosen by their gates */
} weir_coda_segment;

/* shapes   : k, v [T, G, hd] inside rows of their strides, keys rotated; gates [T], before the
 * sigmoid; states differ; layer, its rates and segments are
 *            read where the kernel runs
 * numerics : cosines are summed in f32 (ref: f64), by head, then over heads in ascending order:
 *            decisions agree but where a score is within rounding of
 *            another or of a threshold. Gates and contents are the same bits everywhere:
 *            weir_coda_gate, weir_coda_blend, means of a block in f64 */
typedef struct weir_coda_write_args {
    const float             *k, *v, *gates;
    const weir_coda_layer   *layer;
    const weir_coda_segment *segments;
    int64_t                  n_segments, k_stride, v_stride, gate_stride;
} weir_coda_write_args;

/* ---- the kernel table ------------------------------------------------------------------------ */
typedef struct weir_caps { /* what a kernel may ask about the machine; filled once at start */
    bool x86_v2, x86_v3, x86_v4, avx512_vnni, avx512_bf16, amx_int8;
    int  cuda_capability; /* 90 for sm_90, 0 without CUDA */
} weir_caps;

typedef struct weir_kernel_context { /* where to run; filled by offload/, read by kernels */
    int    omp_device; /* omp_get_initial_device() is the host; only omp kernels look */
    int    n_threads;
    void  *cuda_stream;
    void  *scratch; /* at least row.scratch(args) bytes, 64-byte aligned */
    size_t scratch_bytes;
    void  *cublas; /* kernels/cuda/cublas.h, opened by the plugin; NULL: the library is not there */
} weir_kernel_context;

typedef struct weir_kernel {
    weir_op      op;
    weir_backend backend;
    const char  *name; /* "omp.rmsnorm.v4": what --explain prints and [kernels] may pin     */
    double atol, rtol; /* allowed error against ref: |x - ref| <= atol + rtol * |ref|          */
    /* NULL = accepts; otherwise a static reason such as "needs AVX-512". Pure. */
    const char *(*reject)(const weir_caps *caps, const void *args);
    size_t (*scratch)(const void *args); /* bytes; NULL = none */
    weir_status (*run)(const weir_kernel_context *context, const void *args);
} weir_kernel;
