#!/bin/bash
# tests/gpu/check.sh - parity and benches of the GPU plugin on a machine that has a GPU and nothing else of ours.
#
#   check.sh --pack DIR    here: build, and collect binaries and runtimes in DIR (under 64 MiB)
#   DIR/check.sh           there: run; exit code 0 when every row agrees with ref. At most 8 minutes.
set -euo pipefail

pack() {
    local dir=$1 root
    root=$(cd "$(dirname "$0")/../.." && pwd)
    mkdir -p "$dir"
    (cd "$root" && bazel build --config=gpu //offload:weir_gpu //tests/gpu:gpu_parity)
    install -m 755 "$root/.bazel/bin/tests/gpu/gpu_parity" "$root/.bazel/bin/offload/libweir_gpu.so" "$0" "$dir"
    # Everything the two need that a bare machine may lack; the C library stays the machine's.
    { ldd "$dir/gpu_parity"; ldd "$dir/libweir_gpu.so"; } | awk '$3 ~ /^\// { print $3 }' | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so' | while read -r library; do install -m 644 "$library" "$dir"; done
    strip --strip-unneeded "$dir"/*.so* 2>/dev/null || true
    # The offload runtime needs LLVM, and LLVM needs ICU and Z3: 150 MiB that travel compressed.
    (cd "$dir" && tar -cf - ./*.so* | xz -T0 -6 >libraries.tar.xz && rm -f ./*.so*)
    echo "packed $dir: $(du -sm "$dir" | cut -f1) MiB"
}

run() {
    local from dir
    from=$(cd "$(dirname "$0")" && pwd)
    dir=$(mktemp -d)
    tar -xJf "$from/libraries.tar.xz" -C "$dir" 2>/dev/null ||
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$from/libraries.tar.xz" "$dir"
    # The offload runtime opens libcuda.so; drivers often bring only libcuda.so.1.
    local driver
    driver=$(ldconfig -p | awk '/libcuda\.so\.1 / { print $NF; exit }')
    if [ -n "$driver" ]; then ln -sf "$driver" "$dir/libcuda.so"; fi
    export LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OMP_TARGET_OFFLOAD=MANDATORY
    timeout 240 "$from/gpu_parity" "$dir/libweir_gpu.so"
    timeout 220 "$from/gpu_parity" "$dir/libweir_gpu.so" --bench
}

if [ "${1:-}" = --pack ]; then pack "${2:?check.sh --pack DIR}"; else run; fi
