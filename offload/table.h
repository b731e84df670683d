/* offload/table.h - the rows linked into this build, in order of preference, with the x86-64 level
 * each was compiled for.
 *
 * Internal to offload/: other folders use offload/dispatch.h. Tests link their own table in place
 * of table.c. */
#pragma once
#include <stddef.h>

#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The lowest x86-64 level that a row needs. ANY: the row's own reject() checks the capabilities it
 * needs. */
typedef enum weir_isa { WEIR_ISA_ANY, WEIR_ISA_V2, WEIR_ISA_V3, WEIR_ISA_V4 } weir_isa;

typedef struct weir_table_row {
    const weir_kernel *kernel;
    weir_isa isa;
} weir_table_row;

const weir_table_row *weir_table_rows(size_t *count);

#ifdef __cplusplus
}
#endif
