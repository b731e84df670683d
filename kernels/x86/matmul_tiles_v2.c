/* kernels/x86/matmul_tiles_v2.c - the product on tiles in plain C, for machines without AVX2. Slow:
 * see lanes_fma. */
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_tiles_pass.h"

#define X(index, ...) PASS(index, 1, __VA_ARGS__)
WEIR_TILES_FORMAT_MAP(X)
#undef X

static const weir_tiles_isa isa = {
    .few_rows = 1,
    .many_rows = 1,
    .row_ahead = 8192,
    .pass = {
#define X(index, ...) { NULL, pass_##index##_1 },
        WEIR_TILES_FORMAT_MAP(X)
#undef X
    },
    .quantise = quantise_groups,
};

static const char *reject(const weir_caps *caps, const void *args)
{
    (void)caps;
    return weir_tiles_reject(args);
}
static size_t scratch(const void *args) { return weir_tiles_scratch(&isa, args); }
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_tiles_matmul(&isa, context, args);
}

const weir_kernel weir_kernel_x86_matmul_tiles_v2 = {
    WEIR_OP_MATMUL,
    WEIR_BACKEND_X86,
    "x86.matmul_tiles.v2",
    WEIR_TILES_ATOL,
    WEIR_TILES_RTOL,
    reject,
    scratch,
    run,
};
