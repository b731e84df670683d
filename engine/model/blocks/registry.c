/* engine/model/blocks/registry.c - the list of blocks. A new block is a file in this folder and a
 * line here. */
#include <string.h>

#include "engine/model/block.h"

#define WEIR_BLOCKS(X)                                                                             \
    X(attention)                                                                                   \
    X(differential_attention)                                                                      \
    X(coda)                                                                                        \
    X(mla)                                                                                         \
    X(gated_delta_net)                                                                             \
    X(kda)                                                                                         \
    X(short_conv)                                                                                  \
    X(mamba2)                                                                                      \
    X(attention_mamba2)                                                                            \
    X(no_mixer)                                                                                    \
    X(swiglu)                                                                                      \
    X(geglu)                                                                                       \
    X(relu2)                                                                                       \
    X(experts)                                                                                     \
    X(no_ffn)                                                                                      \
    X(layer_input)

#define X(name) extern const weir_block weir_block_##name;
WEIR_BLOCKS(X)
#undef X

static const weir_block *const registered[] = {
#define X(name) &weir_block_##name,
    WEIR_BLOCKS(X)
#undef X
};

const weir_block *weir_block_at(weir_block_list more, size_t index)
{
    const size_t n = sizeof registered / sizeof *registered;
    if (index < n) return registered[index];
    for (index -= n; more != NULL && *more != NULL; more++, index--)
        if (index == 0) return *more;
    return NULL;
}

const weir_block *weir_block_find(weir_block_list more, weir_block_kind kind, const char *name)
{
    const weir_block *block;
    for (size_t i = 0; (block = weir_block_at(more, i)) != NULL; i++) {
        if (block->kind == kind && strcmp(block->name, name) == 0) return block;
    }
    return NULL;
}

const weir_block *weir_block_of_kind(weir_block_list more, weir_block_kind kind)
{
    const weir_block *block;
    for (size_t i = 0; (block = weir_block_at(more, i)) != NULL; i++)
        if (block->kind == kind) break;
    return block;
}
