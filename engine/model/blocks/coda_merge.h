/* engine/model/blocks/coda_merge.h - merges the states (kernels/abi/coda.h) of two sequences into
 * one. */
#pragma once
#include <stddef.h>

#include "kernels/abi/coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `out` becomes a state that continues from the end of `later` and has the contents of both banks,
 * as far as there is space. All three are valid states of `layer`; `out` must not alias the others.
 *   ring            that of `later`; the last rows of `earlier` are lost unless its banks have them
 *   exact bank      of both banks' rows those with the least similar values: beginning with the
 *                   most recently matched row, the one whose greatest cosine with those taken is
 *                   the least, until the slots are full or all others are similar (cosine >=
 *                   layer->hit). Ties: `later` first, then the lower slot
 *   prototypes      those of `earlier` take free slots; if there are none they are blended into
 *                   the nearest by the slow half of its key, with a rate of earlier /
 *                   (earlier + later) tokens, keys in the low band only
 * Keys keep the rotation to their own positions: the model sees rows of `earlier` as if they were
 * at those positions of `later` (docs/decisions/0024).
 * scratch: weir_coda_merge_scratch bytes, aligned for float. */
size_t weir_coda_merge_scratch(const weir_coda_layer *layer);
void weir_coda_merge(
    const weir_coda_layer *layer, const void *earlier, const void *later, void *out, void *scratch
);

#ifdef __cplusplus
}
#endif
