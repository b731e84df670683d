/* kernels/x86/matmul_dense_v3.c - the product on dense panels with AVX2 and FMA. */
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_dense_pass.h"

static const char *reject(const weir_caps *caps, const void *args)
{
    return caps->x86_v3 ? weir_dense_reject(args) : "needs AVX2 (x86-64-v3)";
}
DENSE_KERNEL(v3, reject);
