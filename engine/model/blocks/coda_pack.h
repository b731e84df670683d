/* engine/model/blocks/coda_pack.h - packs states of kernels/abi/coda.h in 8 or 4 bits, for storage.
 *
 * The packed form is lossy for keys and values only; everything else of a state is copied exactly.
 * Each channel of a KV head has its own step in each segment (ring, exact bank, prototypes): keys
 * of one channel are close to each other, those of different ones are not.
 *
 *   weir_coda_head, used_at, rows, gates      as in memory, each padded to 8 bytes
 *   [KV head][K, V][segment]                  f16 least [head_dim] | f16 step [head_dim] | codes
 *   [slots of the segment][head_dim], 8 bits or two in a byte, the lower dimension in the low half;
 *   value = least + code * step
 * All little-endian. A channel with equal values is restored as its value rounded to f16. */
#pragma once
#include <stddef.h>

#include "engine/base/error.h"
#include "kernels/abi/coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bits: 8 or 4. */
size_t weir_coda_packed_bytes(const weir_coda_layer *layer, int bits);
/* `state` must be valid (kernels/abi/coda_check.h). Returns EUNSUPPORTED if a value is not finite
 * or exceeds f16; `packed` is then undefined. */
WEIR_MUST_CHECK weir_status weir_coda_pack(
    const weir_coda_layer *layer, const void *state, int bits, void *packed, weir_error *error
);
/* `packed` holds weir_coda_packed_bytes. Returns EFORMAT for bytes that are no state; `state` is
 * then undefined. */
WEIR_MUST_CHECK weir_status weir_coda_unpack(
    const weir_coda_layer *layer, const void *packed, int bits, void *state, weir_error *error
);

#ifdef __cplusplus
}
#endif
