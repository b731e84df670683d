#!/bin/bash
# tests/gpu/ptxas_gate.sh - fails when a hot kernel uses a stack frame or spills registers on sm_90: both put its arrays in slow memory.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
clang=/usr/lib/llvm-19/bin/clang
offload="-fopenmp --offload-arch=sm_90 --cuda-path=/usr/local/cuda --libomptarget-nvptx-bc-path=/usr/lib/llvm-19/lib/libomptarget-nvptx-sm_90.bc"
status=0
for op in attention attention_mass coda_combine coda_queries coda_write gated_delta_rule rmsnorm; do
    $clang -O3 -fPIC -mllvm -openmp-opt-max-iterations=4000 -DNDEBUG -std=c17 -D_GNU_SOURCE -march=x86-64-v2 -fno-math-errno -ffp-contract=fast -Wno-pass-failed -I. $offload \
        -DWEIR_ISA=nvptx -Xcuda-ptxas -v -c kernels/omp/$op.c -o "$out/$op.o" >"$out/$op.log" 2>&1
done
/usr/local/cuda/bin/nvcc -ccbin gcc-12 -O3 -std=c++17 -gencode=arch=compute_90,code=sm_90 -I. -Xptxas -v -c kernels/cuda/rmsnorm.cu -o "$out/cuda.o" \
    >"$out/cuda.log" 2>&1
# Entry functions only: the runtime's own helpers have frames that no hot path enters.
for log in "$out"/*.log; do
    awk -v file="$(basename "$log" .log)" '
        /Compiling entry function/ { split($0, part, "'"'"'"); name = part[2]; entry = 1; next }
        /Function properties for/ { entry = (name != "" && index($0, name) > 0); next }
        entry && /bytes stack frame/ {
            seen++
            printf "%-18s %s\n    %s\n", file, name, $0
            if ($1 > 0 || $5 > 0 || $9 > 0) bad = 1
            entry = 0
        }
        /Used [0-9]+ registers/ { printf "    %s\n", $0 }
        END { if (seen == 0) { print file ": ptxas reported no kernel"; bad = 1 } exit bad }' "$log" || status=1
done
exit $status
