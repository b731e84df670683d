/* offload/ops.c - the typed entries: op and arguments cannot disagree; debug builds check the
 * parts of a contract that need no data. */
#include "engine/base/checked.h"
#include "offload/dispatch_internal.h"

/* Rows of `width` do not overlap. Unused where asserts are compiled out. */
__attribute__((unused)) static bool fits(int64_t n, int64_t stride, int64_t width)
{
    return n <= 1 || stride >= width;
}

weir_status weir_embed(weir_stream *stream, const weir_embed_args *args)
{
    WEIR_DASSERT(args->n_rows >= 0 && args->dim % weir_dtype_of(args->dtype).block_elements == 0);
    return weir_stream_call(stream, WEIR_OP_EMBED, args);
}

weir_status weir_rmsnorm(weir_stream *stream, const weir_rmsnorm_args *args)
{
    WEIR_DASSERT(fits(args->n_groups, args->dst_group_stride, args->dim) &&
                 fits(args->n_groups, args->src_group_stride, args->dim));
    WEIR_DASSERT(fits(args->n_rows, args->dst_stride, args->dim) &&
                 fits(args->n_rows, args->src_stride, args->dim));
    WEIR_DASSERT(!args->add || (args->n_groups == 1 && args->dst != args->src &&
                                fits(args->n_rows, args->add_stride, args->dim)));
    return weir_stream_call(stream, WEIR_OP_RMSNORM, args);
}

weir_status weir_gated_rmsnorm(weir_stream *stream, const weir_gated_rmsnorm_args *args)
{
    WEIR_DASSERT(args->n_rows >= 0 && args->dst != args->gate);
    return weir_stream_call(stream, WEIR_OP_GATED_RMSNORM, args);
}

weir_status weir_rope(weir_stream *stream, const weir_rope_args *args)
{
    WEIR_DASSERT(args->rotary_dim % 2 == 0 &&
                 fits(args->n_heads, args->head_stride, args->rotary_dim));
    return weir_stream_call(stream, WEIR_OP_ROPE, args);
}

static bool same_layout(const weir_weight *a, const weir_weight *b)
{
    return a->layout == b->layout && (a->layout != WEIR_LAYOUT_ONEDNN || a->dtype == b->dtype);
}

/* Files mix types, kernels do not: outputs of one layout at a time, in the order given. */
weir_status weir_matmul(weir_stream *stream, const weir_matmul_args *args)
{
    WEIR_DASSERT(args->n_outputs >= 1 && args->n_outputs <= WEIR_MATMUL_OUTPUTS &&
                 fits(args->n_rows, args->x_stride, args->n_in));
    for (int32_t first = 0; first < args->n_outputs;) {
        weir_matmul_args part = *args;
        part.n_outputs = 0;
        for (; first < args->n_outputs &&
               (part.n_outputs == 0 ||
                same_layout(part.outputs[0].weight, args->outputs[first].weight));
             first++) {
            WEIR_DASSERT(args->outputs[first].weight->n_in == args->n_in &&
                         args->outputs[first].dst != args->x);
            WEIR_DASSERT(fits(args->n_rows, args->outputs[first].dst_stride,
                              args->outputs[first].weight->n_out));
            part.outputs[part.n_outputs++] = args->outputs[first];
        }
        WEIR_TRY(weir_stream_call(stream, WEIR_OP_MATMUL, &part));
    }
    return WEIR_OK;
}

weir_status weir_swiglu(weir_stream *stream, const weir_swiglu_args *args)
{
    WEIR_DASSERT(fits(args->n_rows, args->dst_stride, args->dim) &&
                 fits(args->n_rows, args->gate_stride, args->dim));
    WEIR_DASSERT(fits(args->n_rows, args->up_stride, args->dim));
    return weir_stream_call(stream, WEIR_OP_SWIGLU, args);
}

weir_status weir_sigmoid_gate(weir_stream *stream, const weir_sigmoid_gate_args *args)
{
    WEIR_DASSERT(fits(args->n_heads, args->x_head_stride, args->dim) &&
                 fits(args->n_heads, args->gate_head_stride, args->dim));
    return weir_stream_call(stream, WEIR_OP_SIGMOID_GATE, args);
}

weir_status weir_add(weir_stream *stream, const weir_add_args *args)
{
    WEIR_DASSERT(fits(args->n_rows, args->dst_stride, args->dim) &&
                 fits(args->n_rows, args->src_stride, args->dim));
    return weir_stream_call(stream, WEIR_OP_ADD, args);
}

weir_status weir_kv_write(weir_stream *stream, const weir_kv_write_args *args)
{
    WEIR_DASSERT(args->k_stride >= args->n_kv_heads * args->key_dim &&
                 args->v_stride >= args->n_kv_heads * args->value_dim);
    return weir_stream_call(stream, WEIR_OP_KV_WRITE, args);
}

weir_status weir_kv_read(weir_stream *stream, const weir_kv_read_args *args)
{
    WEIR_DASSERT(args->k == NULL || args->k_stride >= args->n_kv_heads * args->key_dim);
    WEIR_DASSERT(args->v == NULL || args->v_stride >= args->n_kv_heads * args->value_dim);
    return weir_stream_call(stream, WEIR_OP_KV_READ, args);
}

weir_status weir_kv_compact(weir_stream *stream, const weir_kv_compact_args *args)
{
    return weir_stream_call(stream, WEIR_OP_KV_COMPACT, args);
}

weir_status weir_key_products(weir_stream *stream, const weir_key_products_args *args)
{
    return weir_stream_call(stream, WEIR_OP_KEY_PRODUCTS, args);
}

weir_status weir_attention(weir_stream *stream, const weir_attention_args *args)
{
    WEIR_DASSERT(args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 &&
                 args->window >= 0);
    WEIR_DASSERT(fits(args->n_heads, args->q_head_stride, args->key_dim));
    return weir_stream_call(stream, WEIR_OP_ATTENTION, args);
}

weir_status weir_attention_mass(weir_stream *stream, const weir_attention_mass_args *args)
{
    WEIR_DASSERT(args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 &&
                 fits(args->n_heads, args->q_head_stride, args->key_dim));
    return weir_stream_call(stream, WEIR_OP_ATTENTION_MASS, args);
}

weir_status weir_conv1d(weir_stream *stream, const weir_conv1d_args *args)
{
    WEIR_DASSERT(args->n_taps >= 1 && args->n_taps <= 8 && args->dst != args->src);
    return weir_stream_call(stream, WEIR_OP_CONV1D, args);
}

weir_status weir_gated_delta_rule(weir_stream *stream, const weir_gated_delta_rule_args *args)
{
    WEIR_DASSERT(args->n_k_heads > 0 && args->n_v_heads % args->n_k_heads == 0);
    return weir_stream_call(stream, WEIR_OP_GATED_DELTA_RULE, args);
}

weir_status weir_coda_queries(weir_stream *stream, const weir_coda_queries_args *args)
{
    WEIR_DASSERT(args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 &&
                 fits(args->n_rows, args->q_stride, args->n_heads * args->head_dim));
    return weir_stream_call(stream, WEIR_OP_CODA_QUERIES, args);
}

weir_status weir_coda_combine(weir_stream *stream, const weir_coda_combine_args *args)
{
    WEIR_DASSERT(args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 &&
                 args->dst != args->src);
    return weir_stream_call(stream, WEIR_OP_CODA_COMBINE, args);
}

weir_status weir_coda_write(weir_stream *stream, const weir_coda_write_args *args)
{
    return weir_stream_call(stream, WEIR_OP_CODA_WRITE, args);
}
