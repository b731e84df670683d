#!/usr/bin/env bash
# What can be checked of the GPU plugin without a GPU: it builds, ptxas keeps hot kernels in registers, it loads and refuses politely.
# Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
if [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "skipped: no CUDA toolkit in /usr/local/cuda"
    echo "0 passed, 0 failed"
    exit 0
fi
passed=0 failed=0
check() {
    local name=$1
    shift
    if "$@"; then passed=$((passed + 1)); echo "ok      $name"; else failed=$((failed + 1)); echo "FAILED  $name"; fi
}

# Only the runtimes that every machine with the plugin has: neither the driver nor cuBLAS may be asked for before a device was found.
needs_no_driver() {
    local needed
    needed=$(readelf -d .bazel/bin/offload/libweir_gpu.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    ! grep -E 'libcuda|libcudart|libcublas' <<<"$needed"
}

check "the plugin builds" bazel build --config=gpu //offload:weir_gpu //tests/gpu:gpu_parity
check "it needs no driver to be loaded" needs_no_driver
check "ptxas: no stack frames, no spills" tests/gpu/ptxas_gate.sh
check "it refuses politely without a GPU" bazel test --config=gpu //tests/gpu:plugin_test
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
