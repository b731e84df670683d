/* tests/kernel/matmul_cases.h - cases of matmul: apart, because packing weights needs a stream and
 * the libraries behind it. */
#pragma once
#include "offload/dispatch.h"
#include "tests/kernel/cases.h"

namespace weir_test {

// Weights are packed as that stream (of the engine's default options, or of a forced level) would
// pack them.
std::vector<Case> matmul_cases(weir_stream *stream);
std::vector<Case> matmul_benches(weir_stream *stream);

inline std::vector<Case> parity_cases(weir_op op, weir_stream *stream)
{
    return op == WEIR_OP_MATMUL ? matmul_cases(stream) : parity_cases(op);
}
inline std::vector<Case> bench_cases(weir_op op, weir_stream *stream)
{
    return op == WEIR_OP_MATMUL ? matmul_benches(stream) : bench_cases(op);
}

} // namespace weir_test
