#include "tools/convert/row_order.h"

#include <string.h>

/* The value of an option of a block; -1: it has none of this name. */
static double option(const weir_block_use *use, const char *name)
{
    const weir_block_option *const found =
        use->block->options != NULL ? weir_block_option_find(use->block->options, name) : NULL;
    return found != NULL ? weir_block_option_value(use->options, found) : -1.0;
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* RoPE's pairs are halves of a head in the checkpoint, neighbours in the file. */
static void pairs_order(weir_row_order *out, const char *name, const weir_shape *shape)
{
    static const char *const rotated[] = { "attn.q", "attn.k", "attn.q_bias", "attn.k_bias", NULL };
    if (is_one_of(name, rotated))
        *out = (weir_row_order){ .kind = WEIR_ORDER_PAIRS, .head = shape->head_dim };
}

/* V heads of a K head are adjacent in the checkpoint; the file has the first V heads of all K
 * heads, then the second ones. */
static void tiled_order(weir_row_order *out, const char *name, const weir_shape *shape)
{
    static const char *const of_dims[] = { "gdn.z", NULL },
                             *const of_heads[] = { "gdn.a", "gdn.b", "gdn.a_neg", "gdn.dt_bias",
                                                   NULL },
                             *const after_keys[] = { "gdn.qkv", "gdn.conv", NULL };
    const int64_t keys = 2 * shape->gdn_k_heads * shape->gdn_k_dim;
    weir_row_order order = { .kind = WEIR_ORDER_TILED,
                             .head = shape->gdn_v_dim,
                             .n_groups = shape->gdn_k_heads,
                             .n_heads = shape->gdn_v_heads / shape->gdn_k_heads };
    if (is_one_of(name, of_heads))
        order.head = 1;
    else if (is_one_of(name, after_keys))
        order.first = keys;
    else if (strcmp(name, "gdn.out") == 0)
        order.kind = WEIR_ORDER_TILED_COLUMNS;
    else if (!is_one_of(name, of_dims))
        return;
    *out = order;
}

/* An option in which the blocks may differ. Returns false if they do in a way that has no order. */
static bool differs(
    const weir_block_use *from, const weir_block_use *to, const char *name, double in_file,
    bool *is_other
)
{
    const double a = option(from, name), b = option(to, name);
    const bool is_same = !(a < b) && !(a > b);
    *is_other = !is_same;
    return is_same || (!(b < in_file) && !(b > in_file));
}

weir_status weir_row_order_of(
    weir_row_order *out, const weir_parameter_source *source, const weir_shape *shape,
    const weir_block_use *from, const weir_block_use *to, weir_error *error
)
{
    bool has_pairs = false, has_tiles = false;
    *out = (weir_row_order){ 0 };
    const bool fits = from->block == to->block &&
                      differs(from, to, "rope", WEIR_ROPE_PAIRS, &has_pairs) &&
                      differs(from, to, "tiled_heads", 1.0, &has_tiles);
    if (!fits || (has_pairs && shape->rotary_dim != shape->head_dim))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "layer %lld: block %s cannot be written as block %s of a GGUF file",
            (long long)source->layer, from->block->name, to->block->name
        );
    if (has_pairs) pairs_order(out, source->name, shape);
    if (has_tiles) tiled_order(out, source->name, shape);
    return WEIR_OK;
}

int64_t weir_row_ordered(const weir_row_order *order, int64_t row)
{
    const int64_t head = order->head, in_head = head > 0 ? row % head : 0;
    switch (order->kind) {
    case WEIR_ORDER_SAME: return row;
    case WEIR_ORDER_PAIRS: return row - in_head + in_head % 2 * (head / 2) + in_head / 2;
    case WEIR_ORDER_TILED:
    case WEIR_ORDER_TILED_COLUMNS: {
        if (row < order->first) return row;
        const int64_t at = row - order->first, place = at / head, element = at % head,
                      from = place % order->n_groups * order->n_heads + place / order->n_groups;
        return order->first + from * head + element;
    }
    }
    return row;
}
