/* engine/base/block.h - the 16-byte header of a block of memory.c or heap.c. Private to these
 * two. */
#pragma once
#include <stdalign.h>

#include "engine/base/memory.h"

typedef struct weir_block {
    alignas(16) weir_memory_tracker
        *tracker; /* NULL: not charged; if it has a heap, the block lies in that heap */
    size_t tag; /* malloc: the bytes charged; heap: where the block lies, and its class */
} weir_block;
