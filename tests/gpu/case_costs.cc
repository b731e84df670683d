// The bench cases of every op as lines "op <tab> case <tab> bytes <tab> flops": what cost_model.py
// reckons with.
#include <cstdio>
#include <cstring>

#include "tests/kernel/cases.h"
#include "tests/kernel/references.h"

int main()
{
    for (int op = 0; op < WEIR_OP_COUNT; op++) {
        const weir_kernel *reference = reference_kernel((weir_op)op);
        if (!reference) continue;
        const char *dot = std::strchr(reference->name, '.'); // "ref.rmsnorm"
        for (const weir_test::Case &test_case : weir_test::bench_cases((weir_op)op))
            std::printf(
                "%s\t%s\t%.0f\t%.0f\n", dot ? dot + 1 : reference->name, test_case.name.c_str(),
                test_case.work.bytes, test_case.work.flops
            );
    }
    return 0;
}
