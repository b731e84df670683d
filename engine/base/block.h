/* engine/base/block.h - the 16 bytes before a block of memory.c or heap.c. For these two only. */
#pragma once
#include <stdalign.h>

#include "engine/base/memory.h"

typedef struct weir_block {
    alignas(16
    ) weir_payer *payer; /* NULL: nobody. Its `heap` says which of the two has the block */
    size_t room;                   /* malloc: what was charged; heap: where the block lies */
} weir_block;
