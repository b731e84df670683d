/* offload/table.h - the rows linked into this build, in order of preference, with the x86-64 level
 * each was compiled for.
 *
 * Internal to offload/ and tests: other folders use offload/dispatch.h. Tests of the dispatch link
 * their own table in place of table.c. */
#pragma once
#include <stddef.h>

#include "kernels/abi/isa.h"
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_table_row {
    const weir_kernel *kernel;
    /* The lowest level that the row needs. ANY: its own reject() checks the capabilities that it
     * needs. */
    weir_isa isa;
} weir_table_row;

const weir_table_row *weir_table_rows(size_t *count);

#ifdef __cplusplus
}
#endif
