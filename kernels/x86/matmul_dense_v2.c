/* kernels/x86/matmul_dense_v2.c - the product on dense panels with SSE, for machines without
 * AVX2. */
#include "kernels/x86/kernels.h"
#include "kernels/x86/matmul_dense_pass.h"

static const char *reject(const weir_caps *caps, const void *args)
{
    (void)caps;
    return weir_dense_reject(args);
}
DENSE_KERNEL(v2, reject);
