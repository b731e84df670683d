#!/usr/bin/env bash
# What can be checked of the GPU plugin without a GPU: it builds, ptxas keeps its kernels in
# registers, the offload runtime finds the right image through a driver that is played, it loads and
# refuses politely; and what its kernels could reach. Ends with "N passed, N failed".
#
#   tests/gpu/build.sh [--two]
#
# --two: for two of the architectures (TWO_ARCHS of toolchain/gpu.bzl) instead of all.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
if [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "skipped: no CUDA toolkit in /usr/local/cuda"
    echo "0 passed, 0 failed"
    exit 0
fi
archs=ARCHS options=(--config=gpu)
case ${1:-} in
--two) archs=TWO_ARCHS options+=(--config=gpu_two) ;;
?*) echo "build: unknown option $1" >&2; exit 2 ;;
esac
passed=0 failed=0
check() {
    local name=$1 start=$SECONDS
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok      $name, $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
    fi
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
reports=.bazel/bin/offload/_gpu/weir_gpu

# Bazel lists all reports when it is done: of no interest.
build() {
    bazel build "${options[@]}" --output_groups=+reports --show_result=0 \
        //offload:weir_gpu //tests/gpu:gpu_parity //tests/gpu:case_costs
}

# Only the runtimes that every machine with the plugin has: neither the driver nor cuBLAS may be
# asked for before a device was found.
needs_no_driver() {
    local needed
    needed=$(readelf -d .bazel/bin/offload/libweir_gpu.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    [ -n "$needed" ] && ! grep -E 'libcuda|libcudart|libcublas' <<<"$needed"
}

cost_model() {
    .bazel/bin/tests/gpu/case_costs >"$work/cases" && [ -s "$work/cases" ] &&
        tests/gpu/cost_model.py --self-test --kernels "$work/kernels" --cases "$work/cases" \
            --ptx "$reports"
}

check "the plugin builds" build
check "it needs no driver to be loaded" needs_no_driver
check "the gate finds seeded faults" tests/gpu/kernel_gate_test.py
check "no stack frames, spills, local memory; the reports cover every kernel" \
    tests/gpu/kernel_gate.py --archs "$archs" --json "$work/kernels"
check "what the kernels could reach" cost_model
check "each device gets its image, each model its kernels, and none without a device" \
    bazel test "${options[@]}" //tests/gpu:{images,plugin,plan}_test
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
