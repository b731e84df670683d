/* tests/unit/offload/fake_table.c - a table of three adds, so that the choice among rows is tested
 * without any real kernel. */
#include "offload/table.h"

static weir_status add_mark(
    const weir_kernel_context *context, const weir_add_args *args, float mark
)
{
    if (args->n_rows > 0)
        args->dst[0] =
            mark + (float)(context->scratch_bytes > 0 && ((uintptr_t)context->scratch % 64 == 0));
    return WEIR_OK;
}
static weir_status run_fast(const weir_kernel_context *context, const void *args)
{
    return add_mark(context, args, 10);
}
static weir_status run_vector(const weir_kernel_context *context, const void *args)
{
    return add_mark(context, args, 20);
}
static weir_status run_ref(const weir_kernel_context *context, const void *args)
{
    return add_mark(context, args, 30);
}

static const char *reject_odd(const weir_caps *caps, const void *args)
{
    (void)caps;
    return ((const weir_add_args *)args)->dim % 2 ? "dim is odd" : NULL;
}
static const char *reject_caps(const weir_caps *caps, const void *args)
{
    (void)args;
    return caps->x86_v4 ? NULL : "needs AVX-512";
}
static size_t scratch_rows(const void *args)
{
    return (size_t)((const weir_add_args *)args)->n_rows * 1000;
}

static const weir_kernel fast = {
    .op = WEIR_OP_ADD,
    .backend = WEIR_BACKEND_OMP,
    .name = "fake.add.v2",
    .reject = reject_odd,
    .scratch = scratch_rows,
    .run = run_fast,
    .thread_scratch = 200000,
};
static const weir_kernel vector = {
    .op = WEIR_OP_ADD, .backend = WEIR_BACKEND_X86, .name = "fake.add.v4", .run = run_vector
};
static const weir_kernel asking = {
    .op = WEIR_OP_GLU,
    .backend = WEIR_BACKEND_X86,
    .name = "fake.glu.asking",
    .reject = reject_caps,
    .run = run_vector,
};
static const weir_kernel ref = {
    .op = WEIR_OP_ADD, .backend = WEIR_BACKEND_REF, .name = "fake.add.ref", .run = run_ref
};

const weir_table_row *weir_table_rows(size_t *count)
{
    static const weir_table_row rows[] = {
        { &fast, WEIR_ISA_V2 },
        { &vector, WEIR_ISA_V4 },
        { &asking, WEIR_ISA_ANY },
        { &ref, WEIR_ISA_ANY },
    };
    *count = sizeof rows / sizeof rows[0];
    return rows;
}
