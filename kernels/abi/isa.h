/* kernels/abi/isa.h - the x86-64 levels that kernels are built for, and their names, which the key
 * kernels.isa, messages and files use. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, name), lowest first. */
#define WEIR_ISA_LEVELS(X) X(V2, "v2") X(V3, "v3") X(V4, "v4")

/* ANY: below v2, or not limited. */
typedef enum weir_isa {
    WEIR_ISA_ANY,
#define X(NAME, name) WEIR_ISA_##NAME,
    WEIR_ISA_LEVELS(X)
#undef X
} weir_isa;

/* WEIR_ISA_WORDS: what the key kernels.isa may be. */
#define WEIR_ISA_AUTO "auto"
#define WEIR_ISA_WORD(NAME, name) "|" name
#define WEIR_ISA_WORDS WEIR_ISA_AUTO WEIR_ISA_LEVELS(WEIR_ISA_WORD)

#ifdef __cplusplus
}
#endif
