/* tools/convert/row_order.h - rows of parameters that GGUF files have in another order than
 * checkpoints: options of blocks that differ between the two say so. */
#pragma once
#include "engine/model/sources.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_order_kind {
    WEIR_ORDER_SAME,
    WEIR_ORDER_PAIRS, /* of each head: halves become pairs */
    WEIR_ORDER_TILED, /* heads of groups: head j of all groups, then head j + 1 */
    WEIR_ORDER_TILED_COLUMNS, /* the same for the elements of each row */
} weir_order_kind;

typedef struct weir_row_order {
    weir_order_kind kind;
    int64_t head; /* rows of a head */
    int64_t first; /* rows before the ones in another order */
    int64_t n_groups, n_heads; /* tiled: groups, and heads of each */
} weir_row_order;

/* The order of a parameter's rows, from blocks of the checkpoint to blocks of the GGUF file. Of a
 * vector with several dimensions a row is an element of the first.
 * errors : EUNSUPPORTED: the blocks differ in what no order of rows makes up for */
WEIR_MUST_CHECK weir_status weir_row_order_of(
    weir_row_order *out, const weir_parameter_source *source, const weir_shape *shape,
    const weir_block_use *from, const weir_block_use *to, weir_error *error
);
/* The row of the checkpoint that is row `row` of the file; of columns, the column. */
int64_t weir_row_ordered(const weir_row_order *order, int64_t row);

#ifdef __cplusplus
}
#endif
