/* engine/model/blocks/none.c - the block of layers that have no mixer, or no feed-forward network
 * (Nemotron-H). It is not run, and has no norm. */
#include "engine/model/block.h"

static const weir_parameter parameters[] = { { 0 } };
static const char *const shapes[] = { NULL };

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)shape, (void)options, (void)n_rows, (void)n_segments;
    return 0;
}

const weir_block weir_block_no_mixer = {
    .name = "none",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .scratch_elements = scratch_elements,
};
const weir_block weir_block_no_ffn = {
    .name = "none",
    .kind = WEIR_BLOCK_FFN,
    .parameters = parameters,
    .shapes = shapes,
    .scratch_elements = scratch_elements,
};
