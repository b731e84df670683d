/* engine/model/blocks/registry.c - the list of blocks. A new block is a file beside this one and a
 * line here. */
#include <string.h>

#include "engine/model/block.h"

const weir_block *weir_block_at(size_t index)
{
    static const weir_block *const all[] = { &weir_block_attention,
                                             &weir_block_differential_attention, &weir_block_coda,
                                             &weir_block_gated_delta_net, &weir_block_swiglu };
    return index < sizeof all / sizeof *all ? all[index] : NULL;
}

const weir_block *weir_block_find(const char *name)
{
    const weir_block *block;
    for (size_t i = 0; (block = weir_block_at(i)) != NULL; i++) {
        if (strcmp(block->name, name) == 0) return block;
    }
    return NULL;
}

bool weir_block_is_mixer(const weir_block *block)
{
    return block->has_kv || block->history_elements != NULL || block->state_elements != NULL;
}
