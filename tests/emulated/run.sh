#!/bin/bash
# The device path without a device: emulated lanes, real x86 images, CUDA overrides on emulated
# warps, and the race check. For CI; minutes.
#
#   tests/emulated/run.sh [--all] [BAZEL-OPTION...]
#
# --all: offload_test and the race check with all cases, instead of at most 20 and 50 of an op.
set -euo pipefail
cd "$(dirname "$0")/../.."
most=50 all=()
[ "${1:-}" != --all ] || { most=0 all=(--test_arg=--most --test_arg=0); shift; }
bazel test //tests/emulated:{emulated,offload}_test \
    //tests/emulated:cuda_{test,90_test,attention_test,delta_test,engine_test} \
    //tests/emulated:cuda_{matmul_test,matmul_90_test,warpgroup_test,emulation_test,async_test} \
    ${all:+"${all[@]}"} "$@"
# The race check: host threads as lanes under ThreadSanitizer; Archer tells it what OpenMP
# synchronises inside a team. One team: it does not know the end of a league, and the races that
# barriers prevent are those within a team. Cases, references and comparisons are the work of one
# thread, before and after a team: not instrumented. Kernels are one source: undefined behaviour in
# it is looked for here, where clang compiles it without optimisation.
exec bazel test --config=tsan //tests/emulated:emulated_test \
    '--per_file_copt=^(kernels/ref|tests/kernel)/.*@-fno-sanitize=thread,-O3' \
    '--per_file_copt=^kernels/omp/.*@-fsanitize=undefined,-fno-sanitize-recover=undefined' \
    --linkopt=-fsanitize=undefined --test_env=UBSAN_OPTIONS=print_stacktrace=1 \
    --test_env=OMP_TOOL_LIBRARIES=/usr/lib/llvm-19/lib/libarcher.so \
    --test_env=TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
    --test_arg=--teams --test_arg=1 --test_arg=--most --test_arg=$most "$@"
