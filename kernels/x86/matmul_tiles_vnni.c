/* kernels/x86/matmul_tiles_vnni.c - the product on tiles with AVX-512 VNNI: 64 multiplications per
 * instruction. Six rows by two tiles are 12 accumulators, 12 sums and 4 operands of the 32
 * registers; four rows or fewer also prefetch. */
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_tiles_pass.h"

#define X(index, ...)                                                                              \
    PASS(index, 1, __VA_ARGS__)                                                                    \
    PASS(index, 2, __VA_ARGS__)                                                                    \
    PASS(index, 3, __VA_ARGS__)                                                                    \
    PASS(index, 4, __VA_ARGS__)                                                                    \
    PASS(index, 5, __VA_ARGS__) PASS(index, 6, __VA_ARGS__)
WEIR_TILES_FORMAT_MAP(X)
#undef X

static const weir_tiles_isa isa = {
    .few_rows = 4,
    .many_rows = 6,
    .row_ahead = 8192,
    .pass = {
#define X(index, ...)                                                                              \
    { NULL,                                                                                        \
      pass_##index##_1,                                                                            \
      pass_##index##_2,                                                                            \
      pass_##index##_3,                                                                            \
      pass_##index##_4,                                                                            \
      pass_##index##_5,                                                                            \
      pass_##index##_6 },
        WEIR_TILES_FORMAT_MAP(X)
#undef X
    },
    .quantise = quantise_groups,
};

static const char *reject(const weir_caps *caps, const void *args)
{
    return caps->x86_v4 && caps->avx512_vnni ? weir_tiles_reject(args) : "needs AVX-512 VNNI";
}
static size_t scratch(const void *args) { return weir_tiles_scratch(&isa, args); }
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_tiles_matmul(&isa, context, args);
}

const weir_kernel weir_kernel_x86_matmul_tiles_vnni = {
    WEIR_OP_MATMUL,
    WEIR_BACKEND_X86,
    "x86.matmul_tiles.vnni",
    WEIR_TILES_ATOL,
    WEIR_TILES_RTOL,
    reject,
    scratch,
    run,
};
