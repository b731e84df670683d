/* kernels/x86/matmul_tiles_v3.c - the product on tiles with AVX2. One row at a time: a row of a
 * panel already needs all 16 registers. */
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_tiles_pass.h"

#define X(index, kind, minimum, splits) PASS(index, kind, minimum, splits, 1)
WEIR_TILES_FORMAT_MAP(X)
#undef X

static const weir_tiles_isa isa = {
    .few_rows = 1,
    .many_rows = 1,
    .pass = {
#define X(index, kind, minimum, splits) { NULL, pass_##index##_1 },
        WEIR_TILES_FORMAT_MAP(X)
#undef X
    },
    .quantise = quantise_groups,
};

static const char *reject(const weir_caps *caps, const void *args)
{
    return caps->x86_v3 ? weir_tiles_reject(args) : "needs AVX2 (x86-64-v3)";
}
static size_t scratch(const void *args) { return weir_tiles_scratch(&isa, args); }
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_tiles_matmul(&isa, context, args);
}

const weir_kernel weir_kernel_x86_matmul_tiles_v3 = {
    WEIR_OP_MATMUL,
    WEIR_BACKEND_X86,
    "x86.matmul_tiles.v3",
    WEIR_TILES_ATOL,
    WEIR_TILES_RTOL,
    reject,
    scratch,
    run,
};
