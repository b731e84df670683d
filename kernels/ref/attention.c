/* kernels/ref/attention.c - out = softmax(scale * q . K) V over pages, a query row and a split of
 * 1024 positions at a time, rows as the codecs decode them. f64 within a split; f32 maximum, sum
 * and value between splits, so several calls equal one, for about 1e-7 of the output. */
#include <float.h>
#include <math.h>

#include "kernels/abi/attention_partials.h"
#include "kernels/ref/kv_rows.h"
#include "kernels/ref/row.h"

enum { DIM_MAX = WEIR_KV_DIM_MAX, SPLIT = WEIR_ATTENTION_SPLIT };

/* A query row, the pages that it reads, and its sums so far. */
typedef struct ref_row {
    const weir_attention_args *args;
    const weir_kv_segment *segment;
    const float *q;
    /* By position, of a segment's last row; NULL: not requested. */
    float *logits;
    const float *sink_logit; /* of the query head; NULL: none */
    int64_t head, last; /* KV head, own position */
    float maximum, sum, value[DIM_MAX];
} ref_row;

/* Its own page unsealed if the format has unsealed pages, earlier ones as coded. A value that
 * aliases its key is the beginning of it. */
static void load(const ref_row *row, int64_t position, weir_kv_side side, float *values)
{
    const ref_pages pages = REF_PAGES(row->args);
    const int64_t page = position / WEIR_PAGE_TOKENS;
    const weir_kv_side stored = row->args->value_aliases_key ? WEIR_KV_K : side;
    const weir_kv_part part =
        ref_part(pages, row->segment, row->head - row->segment->first_head, page, stored);
    ref_read_row(&part, position % WEIR_PAGE_TOKENS, page == row->last / WEIR_PAGE_TOKENS, values);
}

static double score(const ref_row *row, int64_t position)
{
    float key[DIM_MAX];
    double sum = 0.0;
    load(row, position, WEIR_KV_K, key);
    for (int64_t d = 0; d < row->args->key_dim; d++) sum += (double)row->q[d] * (double)key[d];
    sum *= (double)row->args->scale;
    const double cap = (double)row->args->softcap;
    if (cap > 0.0) sum = cap * tanh(sum / cap);
    if (row->logits) row->logits[position] = (float)sum;
    return sum * 1.4426950408889634; /* log2(e): weights are powers of two, as in the partials */
}

/* Adds positions [first, end) of one split to the row. */
static void attend_split(ref_row *row, int64_t first, int64_t end)
{
    const int64_t value_dim = row->args->value_dim;
    double scores[SPLIT], values[DIM_MAX] = { 0 }, maximum = -INFINITY, sum = 0.0;
    for (int64_t p = first; p < end; p++)
        maximum = fmax(maximum, scores[p - first] = score(row, p));
    for (int64_t p = first; p < end; p++) {
        const double weight = exp2(scores[p - first] - maximum);
        float value[DIM_MAX];
        load(row, p, WEIR_KV_V, value);
        sum += weight;
        for (int64_t d = 0; d < value_dim; d++) values[d] += weight * (double)value[d];
    }
    const float highest = fmaxf(row->maximum, (float)maximum);
    const double keep = exp2((double)row->maximum - (double)highest),
                 add = exp2(maximum - (double)highest);
    for (int64_t d = 0; d < value_dim; d++)
        row->value[d] = (float)((double)row->value[d] * keep + values[d] * add);
    row->sum = (float)((double)row->sum * keep + sum * add);
    row->maximum = highest;
}

static void attend(ref_row *row, float *out, float *partials, float *lse)
{
    const weir_attention_args *const args = row->args;
    const int64_t value_dim = args->value_dim;
    const int64_t seen =
        args->window > 0 && row->last >= args->window ? row->last - args->window + 1 : 0;
    const int64_t first_split = partials ? args->first_split : 0,
                  end_split = partials ? args->end_split : INT64_MAX;
    row->maximum = -FLT_MAX;
    row->sum = 0.0f;
    memset(row->value, 0, sizeof row->value);
    if (partials && first_split > 0) {
        row->maximum = partials[0];
        row->sum = partials[1];
        memcpy(row->value, partials + 2, (size_t)value_dim * sizeof(float));
    }
    for (int64_t split = first_split; split < end_split && split * SPLIT <= row->last; split++) {
        const int64_t begin = split * SPLIT, end = begin + SPLIT;
        const int64_t first = begin > seen ? begin : seen,
                      past = end < row->last + 1 ? end : row->last + 1;
        if (first < past) attend_split(row, first, past);
    }
    if (partials && !args->is_last) {
        partials[0] = row->maximum;
        partials[1] = row->sum;
        memcpy(partials + 2, row->value, (size_t)value_dim * sizeof(float));
        return;
    }
    const double log2e = 1.4426950408889634,
                 sink = row->sink_logit ? (double)*row->sink_logit * log2e : -INFINITY,
                 highest = fmax((double)row->maximum, sink),
                 keep = exp2((double)row->maximum - highest),
                 sum = (double)row->sum * keep + exp2(sink - highest);
    for (int64_t d = 0; d < value_dim; d++) out[d] = (float)((double)row->value[d] * keep / sum);
    if (lse) *lse = (float)((highest + log2(sum)) / log2e);
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
    const int64_t group = args->n_heads / args->n_kv_heads;
    const bool unsealed = weir_attention_needs_unsealed(args);
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_kv_segment *const segment = args->segments + s;
        const int64_t heads = weir_kv_segment_heads(segment, args->n_kv_heads),
                      first = segment->first_head * group;
        if (segment->n_rows > 0 && unsealed && !segment->unsealed_pages) return WEIR_EINVAL;
        if (segment->n_rows > 0 && segment->logits &&
            (args->window > 0 || segment->logits_stride < (int64_t)segment->n_past + segment->n_rows
            ))
            return WEIR_EINVAL;
        for (int64_t t = 0; t < segment->n_rows; t++) {
            for (int64_t h = first; h < first + heads * group; h++) {
                const int64_t row = segment->first_row + t, index = row * args->n_heads + h;
                const bool keeps = segment->logits && t == segment->n_rows - 1;
                ref_row query = {
                    .args = args,
                    .segment = segment,
                    .q = args->q + row * args->q_stride + h * args->q_head_stride,
                    .sink_logit = args->sink_logits ? args->sink_logits + h : NULL,
                    .logits = keeps ? segment->logits + (h - first) * segment->logits_stride : NULL,
                    .head = h / group,
                    .last = segment->n_past + t
                };
                attend(
                    &query, args->out + row * args->out_stride + h * args->value_dim,
                    args->partials
                        ? args->partials + index * weir_attention_partials_floats(args->value_dim)
                        : NULL,
                    args->lse ? args->lse + index : NULL
                );
            }
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(attention, WEIR_OP_ATTENTION)
