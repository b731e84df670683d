/* engine/model/blocks/registry.c - the list of blocks. A new block is a file beside this one and a line here. */
#include <string.h>

#include "engine/model/block.h"

const weir_block *weir_block_find(const char *name)
{
    static const weir_block *const all[] = { &weir_block_attention, &weir_block_gated_delta_net, &weir_block_swiglu };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->name, name) == 0) return all[i];
    }
    return NULL;
}
