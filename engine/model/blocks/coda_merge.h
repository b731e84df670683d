/* engine/model/blocks/coda_merge.h - states of kernels/abi/coda.h put together: what two texts
 * left, as one; and the KV heads of one, on several machines. */
#pragma once
#include <stddef.h>

#include "engine/base/error.h"
#include "kernels/abi/coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `out` becomes a state that goes on where `later` ends and has what both banks hold, as far as
 * there is room. All three are sound states of `layer`; `out` is none of the others.
 *   ring            that of `later`; the last rows of `earlier` are lost where its banks do not
 *                   have them
 *   exact bank      of both banks' rows those that are least alike in their values: beginning with
 *                   the row found last, the one whose greatest cosine with those taken is the
 *                   least, until the slots are full or nothing is left that is not there already
 *                   (cosine >= layer->hit). Of equals, `later` goes first, then the lower slot
 *   prototypes      those of `earlier` take free slots; without any they are blended into the
 *                   nearest by the slow half of its key, with a rate of earlier / (earlier + later)
 *                   tokens, keys in the low band alone
 * Keys keep the rotation to their own positions, and positions of two texts overlap: the model sees
 * rows of `earlier` as if they stood at those places in `later`. Nothing in the method says that
 * this is harmless; measure it.
 * scratch: weir_coda_merge_scratch bytes, aligned for float. */
size_t weir_coda_merge_scratch(const weir_coda_layer *layer);
void weir_coda_merge(
    const weir_coda_layer *layer, const void *earlier, const void *later, void *out, void *scratch
);

/* Parts of a state, one for each device that computes some of its heads: a contract with goldens.
 * The engine does not call them yet.
 *
 * KV heads first_head .. first_head + n_heads - 1 of a state, as a state of a layer with so many;
 * what heads have in common goes with each part. `out` holds weir_coda_view of that layer. */
weir_coda_layer weir_coda_part(const weir_coda_layer *layer, int64_t first_head, int64_t n_heads);
void weir_coda_split(
    const weir_coda_layer *layer, const void *state, int64_t first_head, int64_t n_heads, void *out
);
/* One state of parts that are in order and were split alike. EMISMATCH when they have gone
 * different ways since. */
WEIR_MUST_CHECK weir_status weir_coda_join(
    const weir_coda_layer *layer, const void *const *parts, const int64_t *n_heads, int64_t n_parts,
    void *out, weir_error *error
);

#ifdef __cplusplus
}
#endif
