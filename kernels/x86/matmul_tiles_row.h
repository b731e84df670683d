/* kernels/x86/matmul_tiles_row.h - the kernel row of the product on tiles. The including file
 * defines, for the instruction set that it is compiled for:
 *
 *   ROW, NAME         of the row
 *   ROWS              rows that a pass takes at most: 1, 4 or 6
 *   FEW_ROWS          as weir_tiles_isa.few_rows: those that a pass prefetches for
 *   ROW_AHEAD         bytes that one row prefetches ahead
 *   RUNS_ON(caps)     whether the machine has the instructions; MISSING: the reason if not */
#pragma once
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_tiles_pass.h"

#if ROWS == 1
#define EACH_ROWS(F, ...) F(1, __VA_ARGS__)
#elif ROWS == 4
#define EACH_ROWS(F, ...) F(1, __VA_ARGS__) F(2, __VA_ARGS__) F(3, __VA_ARGS__) F(4, __VA_ARGS__)
#elif ROWS == 6
#define EACH_ROWS(F, ...)                                                                          \
    F(1, __VA_ARGS__)                                                                              \
    F(2, __VA_ARGS__) F(3, __VA_ARGS__) F(4, __VA_ARGS__) F(5, __VA_ARGS__) F(6, __VA_ARGS__)
#endif

#define DEFINE(rows, index, ...) PASS(index, rows, __VA_ARGS__)
#define X(index, ...) EACH_ROWS(DEFINE, index, __VA_ARGS__)
WEIR_TILES_FORMAT_MAP(X)
#undef X

static const weir_tiles_isa isa = {
    .few_rows = FEW_ROWS,
    .many_rows = ROWS,
    .row_ahead = ROW_AHEAD,
    .pass = {
#define LIST(rows, index) , pass_##index##_##rows
#define X(index, ...) { NULL EACH_ROWS(LIST, index) },
        WEIR_TILES_FORMAT_MAP(X)
#undef X
    },
    .quantise = quantise_groups,
};

static const char *reject(const weir_caps *caps, const void *args)
{
    (void)caps;
    return RUNS_ON(caps) ? weir_tiles_reject(args) : MISSING;
}
static size_t scratch(const void *args) { return weir_tiles_scratch(&isa, args); }
static weir_status run(const weir_kernel_context *context, const void *args)
{
    return weir_tiles_matmul(&isa, context, args);
}

const weir_kernel ROW = {
    .op = WEIR_OP_MATMUL,
    .backend = WEIR_BACKEND_X86,
    .name = NAME,
    .atol = WEIR_TILES_ATOL,
    .rtol = WEIR_TILES_RTOL,
    .reject = reject,
    .scratch = scratch,
    .run = run,
};
