/* engine/model/blocks/coda_pack.h - states of kernels/abi/coda.h in 8 or 4 bits, to be stored.
 *
 * The small form is lossy for keys and values alone: everything else of a state is kept to the bit.
 * Each channel of a KV head has a step of its own in each segment (ring, exact bank, prototypes):
 * keys of one channel lie near each other, those of different ones do not.
 *
 *   weir_coda_head, used_at, rows, gates      as in memory, each padded to 8 bytes
 *   [KV head][K, V][segment]                  f16 least [head_dim] | f16 step [head_dim] | codes
 *   [slots of the segment][head_dim], 8 bits or two in a byte, the lower dimension in the low half;
 *   value = least + code * step
 * All little-endian. A channel whose values are equal comes back as it was rounded to f16. */
#pragma once
#include <stddef.h>

#include "engine/base/error.h"
#include "kernels/abi/coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bits: 8 or 4. */
size_t weir_coda_packed_bytes(const weir_coda_layer *layer, int bits);
/* `state` is sound (kernels/abi/coda_check.h). EUNSUPPORTED when a value is no number or beyond
 * f16; `packed` is then void. */
WEIR_MUST_CHECK weir_status weir_coda_pack(
    const weir_coda_layer *layer, const void *state, int bits, void *packed, weir_error *error
);
/* `packed` holds weir_coda_packed_bytes. EFORMAT for bytes that are no state; `state` is then
 * void. */
WEIR_MUST_CHECK weir_status weir_coda_unpack(
    const weir_coda_layer *layer, const void *packed, int bits, void *state, weir_error *error
);

#ifdef __cplusplus
}
#endif
