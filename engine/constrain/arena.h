/* engine/constrain/arena.h - memory of one compilation: many small pieces, freed together. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise; weir_scratch_free releases it. Pieces never move. */
typedef struct weir_scratch {
    struct weir_scratch_chunk *chunks; /* owned, newest first */
    size_t used; /* of the newest chunk */
} weir_scratch;

/* Aligned to 16, not zeroed; NULL when memory is short. */
void *weir_scratch_take(weir_scratch *scratch, size_t n);
void weir_scratch_free(weir_scratch *scratch);

#ifdef __cplusplus
}
#endif
