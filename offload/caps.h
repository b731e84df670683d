/* offload/caps.h - what this machine can run. */
#pragma once
#include "offload/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From cpuid, and only what the operating system saves across context switches (XCR0). Asks Linux
 * for the tile registers of AMX, which it grants per process; where it does not, amx_int8 is false.
 * cuda_capability is 0: the GPU plugin fills it. */
weir_caps weir_caps_detect(void);
/* The machine as if it ended at `isa`: what a forced lower level leaves. ANY changes nothing; v4
 * leaves the AVX-512 extensions (VNNI, bf16), not AMX. */
weir_caps weir_caps_limited(weir_caps caps, weir_isa isa);
weir_isa weir_caps_isa(const weir_caps *caps); /* the highest level, ANY below v2 */

#ifdef __cplusplus
}
#endif
