/* offload/caps.h - CPU features of this machine. */
#pragma once
#include "offload/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From cpuid, limited to what the operating system saves across context switches (XCR0). Asks Linux
 * for the tile registers of AMX, which it grants per process; if it does not, amx_int8 and amx_bf16
 * are false. cuda_capability is 0: the GPU plugin sets it. */
weir_caps weir_caps_detect(void);
/* The features up to `isa`, for a forced lower level. ANY changes nothing; v3 keeps AVX-VNNI,
 * v4 the AVX-512 extensions (VNNI, bf16) too, not AMX. */
weir_caps weir_caps_limited(weir_caps caps, weir_isa isa);
weir_isa weir_caps_isa(const weir_caps *caps); /* the highest level, ANY below v2 */
/* Prints the features on which the bits of results depend: "v3"; "v4+bf16", where oneDNN multiplies
 * dense bf16 weights; "v4+amx_bf16", where tile registers do. VNNI and AMX-INT8 change none:
 * integer products are exact (tests/unit/matmul/tiles_test.cc). */
enum { WEIR_CAPS_TEXT = 16 };
void weir_caps_print(char out[WEIR_CAPS_TEXT], const weir_caps *caps);

#ifdef __cplusplus
}
#endif
