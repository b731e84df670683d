/* kernels/ref/attention.c - out = softmax(scale * q . K) V over pages, a split of 1024 positions at
 * a time, rows as the codecs decode them. f64 within a split; f32 maximum, sum and value between
 * splits, so several calls equal one, for about 1e-7 of the output. 16 query rows of a KV head
 * share a decoded row, which costs more than a product with it. */
#include <float.h>
#include <math.h>

#include "kernels/abi/attention_partials.h"
#include "kernels/ref/kv_rows.h"
#include "kernels/ref/row.h"

enum { DIM_MAX = WEIR_KV_DIM_MAX, SPLIT = WEIR_ATTENTION_SPLIT, ROWS = 16 };

/* Pages of a KV head. */
typedef struct ref_head {
    const weir_attention_args *args;
    const weir_kv_segment *segment;
    int64_t head;
} ref_head;

/* A query row and its sums so far. */
typedef struct ref_row {
    const float *q;
    float *out, *lse, *partials; /* the last two NULL: not requested */
    float *logits; /* by position, of a segment's last row; NULL: not requested */
    const float *sink_logit; /* of the query head; NULL: none */
    int64_t seen, last; /* the first position it sees, and its own */
    float maximum, sum, value[DIM_MAX];
} ref_row;

/* A row of KV as rows of its own page read it, unsealed if the format has unsealed pages, and as
 * later ones do. */
typedef struct ref_decoded {
    bool is_done[2];
    float values[2][DIM_MAX];
} ref_decoded;

/* A value that aliases its key is the beginning of it. */
static const float *load(
    const ref_head *head, const ref_row *row, int64_t position, weir_kv_side side, ref_decoded *to
)
{
    const ref_pages pages = REF_PAGES(head->args);
    const int64_t page = position / WEIR_PAGE_TOKENS,
                  table = head->head - head->segment->first_head;
    const bool is_own = page == row->last / WEIR_PAGE_TOKENS;
    if (!to->is_done[is_own]) {
        const weir_kv_side stored = head->args->value_aliases_key ? WEIR_KV_K : side;
        const weir_kv_part part = ref_part(pages, head->segment, table, page, stored);
        ref_read_row(&part, position % WEIR_PAGE_TOKENS, is_own, to->values[is_own]);
        to->is_done[is_own] = true;
    }
    return to->values[is_own];
}

static double score(
    const weir_attention_args *args, const ref_row *row, int64_t position, const float *key
)
{
    double sum = 0.0;
    for (int64_t d = 0; d < args->key_dim; d++) sum += (double)row->q[d] * (double)key[d];
    sum *= (double)args->scale;
    const double cap = (double)args->softcap;
    if (cap > 0.0) sum = cap * tanh(sum / cap);
    if (row->logits) row->logits[position] = (float)sum;
    return sum * 1.4426950408889634; /* log2(e): weights are powers of two, as in the partials */
}

static bool sees(const ref_row *row, int64_t position)
{
    return position >= row->seen && position <= row->last;
}

/* Adds a split to the sums of a row. */
static void add_split(
    ref_row *row, double maximum, double sum, const double *values, int64_t value_dim
)
{
    const float highest = fmaxf(row->maximum, (float)maximum);
    const double keep = exp2((double)row->maximum - (double)highest),
                 add = exp2(maximum - (double)highest);
    for (int64_t d = 0; d < value_dim; d++)
        row->value[d] = (float)((double)row->value[d] * keep + values[d] * add);
    row->sum = (float)((double)row->sum * keep + sum * add);
    row->maximum = highest;
}

/* Adds the positions of a split that each of the n rows sees. */
static void attend_split(const ref_head *head, ref_row *rows, int n, int64_t split)
{
    const int64_t value_dim = head->args->value_dim, begin = split * SPLIT, end = begin + SPLIT;
    double scores[ROWS][SPLIT], values[ROWS][DIM_MAX] = { 0 }, maximum[ROWS], sum[ROWS] = { 0 };
    int64_t first = end, past = begin;
    for (int i = 0; i < n; i++) {
        maximum[i] = -INFINITY;
        if (rows[i].seen < first) first = rows[i].seen;
        if (rows[i].last >= past) past = rows[i].last + 1;
    }
    if (first < begin) first = begin;
    if (past > end) past = end;
    ref_decoded key, value;
    for (int64_t p = first; p < past; p++) {
        key.is_done[0] = key.is_done[1] = false;
        for (int i = 0; i < n; i++) {
            if (!sees(rows + i, p)) continue;
            const float *const k = load(head, rows + i, p, WEIR_KV_K, &key);
            scores[i][p - begin] = score(head->args, rows + i, p, k);
            maximum[i] = fmax(maximum[i], scores[i][p - begin]);
        }
    }
    for (int64_t p = first; p < past; p++) {
        value.is_done[0] = value.is_done[1] = false;
        for (int i = 0; i < n; i++) {
            if (!sees(rows + i, p)) continue;
            const double weight = exp2(scores[i][p - begin] - maximum[i]);
            const float *const v = load(head, rows + i, p, WEIR_KV_V, &value);
            sum[i] += weight;
            for (int64_t d = 0; d < value_dim; d++) values[i][d] += weight * (double)v[d];
        }
    }
    for (int i = 0; i < n; i++)
        if (rows[i].seen < end && rows[i].last >= begin)
            add_split(rows + i, maximum[i], sum[i], values[i], value_dim);
}

static void begin_row(const weir_attention_args *args, ref_row *row)
{
    row->maximum = -FLT_MAX;
    row->sum = 0.0f;
    memset(row->value, 0, sizeof row->value);
    if (!row->partials || args->first_split == 0) return;
    row->maximum = row->partials[0];
    row->sum = row->partials[1];
    memcpy(row->value, row->partials + 2, (size_t)args->value_dim * sizeof(float));
}

static void end_row(const weir_attention_args *args, const ref_row *row)
{
    const int64_t value_dim = args->value_dim;
    if (row->partials && !args->is_last) {
        row->partials[0] = row->maximum;
        row->partials[1] = row->sum;
        memcpy(row->partials + 2, row->value, (size_t)value_dim * sizeof(float));
        return;
    }
    const double log2e = 1.4426950408889634,
                 sink = row->sink_logit ? (double)*row->sink_logit * log2e : -INFINITY,
                 highest = fmax((double)row->maximum, sink),
                 keep = exp2((double)row->maximum - highest),
                 sum = (double)row->sum * keep + exp2(sink - highest);
    for (int64_t d = 0; d < value_dim; d++)
        row->out[d] = (float)((double)row->value[d] * keep / sum);
    if (row->lse) *row->lse = (float)((highest + log2(sum)) / log2e);
}

static void attend(const ref_head *head, ref_row *rows, int n)
{
    const weir_attention_args *const args = head->args;
    const int64_t first_split = args->partials ? args->first_split : 0,
                  end_split = args->partials ? args->end_split : INT64_MAX;
    int64_t last = 0;
    for (int i = 0; i < n; i++) {
        begin_row(args, rows + i);
        if (rows[i].last > last) last = rows[i].last;
    }
    for (int64_t split = first_split; split < end_split && split * SPLIT <= last; split++)
        attend_split(head, rows, n, split);
    for (int i = 0; i < n; i++) end_row(args, rows + i);
}

/* Row t of the segment of `head`, query head h. */
static ref_row row_of(const ref_head *head, int64_t t, int64_t h)
{
    const weir_attention_args *const args = head->args;
    const weir_kv_segment *const segment = head->segment;
    const int64_t group = args->n_heads / args->n_kv_heads, row = segment->first_row + t,
                  index = row * args->n_heads + h, last = segment->n_past + t,
                  own_head = h - segment->first_head * group;
    const bool keeps = segment->logits && t == segment->n_rows - 1;
    return (ref_row
    ){ .q = args->q + row * args->q_stride + h * args->q_head_stride,
       .out = args->out + row * args->out_stride + h * args->value_dim,
       .lse = args->lse ? args->lse + index : NULL,
       .partials = args->partials
                       ? args->partials + index * weir_attention_partials_floats(args->value_dim)
                       : NULL,
       .logits = keeps ? segment->logits + own_head * segment->logits_stride : NULL,
       .sink_logit = args->sink_logits ? args->sink_logits + h : NULL,
       .seen = args->window > 0 && last >= args->window ? last - args->window + 1 : 0,
       .last = last };
}

static void attend_head(const ref_head *head)
{
    const int64_t group = head->args->n_heads / head->args->n_kv_heads;
    ref_row rows[ROWS];
    int n = 0;
    for (int64_t t = 0; t < head->segment->n_rows; t++)
        for (int64_t h = head->head * group; h < (head->head + 1) * group; h++) {
            rows[n++] = row_of(head, t, h);
            if (n < ROWS) continue;
            attend(head, rows, n);
            n = 0;
        }
    if (n > 0) attend(head, rows, n);
}

static weir_status weir_k_ref_attention(const weir_kernel_context *context, const void *op_args)
{
    const weir_attention_args *const args = op_args;
    (void)context;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0) return WEIR_EINVAL;
    if (args->partials && (args->first_split < 0 || args->end_split < args->first_split))
        return WEIR_EINVAL;
    if (!weir_kv_segments_are_sound(args->segments, args->n_segments, args->n_kv_heads))
        return WEIR_EINVAL;
    if (args->value_dim <= 0) return WEIR_EINVAL;
    if (weir_attention_pages_reject(args)) return WEIR_EUNSUPPORTED;
    const bool unsealed = weir_attention_needs_unsealed(args);
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_kv_segment *const segment = args->segments + s;
        const int64_t heads = weir_kv_segment_heads(segment, args->n_kv_heads);
        if (segment->n_rows > 0 && unsealed && !segment->unsealed_pages) return WEIR_EINVAL;
        if (segment->n_rows > 0 && segment->logits &&
            (args->window > 0 || segment->logits_stride < (int64_t)segment->n_past + segment->n_rows
            ))
            return WEIR_EINVAL;
        for (int64_t g = segment->first_head; g < segment->first_head + heads; g++)
            attend_head(&(ref_head){ args, segment, g });
    }
    return WEIR_OK;
}

WEIR_REF_ROW(attention, WEIR_OP_ATTENTION)
