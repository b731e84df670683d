#!/bin/bash
# tests/gpu/check.sh - the GPU plugin and the engine on a machine that has a GPU, Python and nothing
# of ours; prints ONE JSON object (check.py).
#
#   check.sh --pack DIR                      here: build, and collect binaries, runtimes and goldens
#                                            in DIR (under 48 MiB)
#   DIR/check.sh [--no-engine] [MODEL...]    there: exit code 0 when every row agrees with ref, and
#                                            the engine with itself. At most 8 minutes.
set -euo pipefail

build() {
    bazel build --config=cpu //engine:weir //tests/golden:run
    cp -L .bazel/bin/engine/cli/weir "$1/weir"
    cp -L .bazel/bin/tests/golden/run "$1/golden_runner"
    bazel build --config=gpu //offload:weir_gpu //tests/gpu:gpu_parity
    cp -L .bazel/bin/tests/gpu/gpu_parity .bazel/bin/offload/libweir_gpu.so "$1"
}

# LIBRARY USER PREFIX: a library without code, with the functions of LIBRARY that USER names. LLVM
# needs Z3 and an XML parser to load, the offload runtime calls neither: with what they need, 70
# MiB.
stub() {
    local name
    name=$(basename "$1")
    nm -D --undefined-only "$2" |
        awk -v p="$3" '$2 ~ "^" p { sub("@+", " ", $2); print $2 }' >symbols
    awk '{ print "void " $1 "(void) { __builtin_trap(); }" }' symbols >stub.c
    awk 'NF > 1 { of[$2] = of[$2] " " $1 ";" }
        END { for (v in of) print v " {" of[v] " };" }' symbols >versions
    [ -s versions ] || echo '{ global: *; };' >versions
    clang-19 -w -shared -nostdlib stub.c -o "$1" "-Wl,-soname,$name" -Wl,--version-script=versions
    rm symbols stub.c versions
}

pack() {
    local dir root
    mkdir -p "$1"
    dir=$(realpath "$1")
    root=$(cd "$(dirname "$0")/../.." && pwd)
    (cd "$root" && build "$dir")
    chmod u+w "$dir"/*
    install -m 755 "$0" "$root/tests/gpu/check.py" "$root/tests/gpu/cost_model.py" "$dir"
    # Everything that a bare machine may lack; the C library stays the machine's.
    { for program in gpu_parity libweir_gpu.so weir golden_runner; do ldd "$dir/$program"; done; } |
        awk '$3 ~ /^\// { print $3 }' | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so' |
        while read -r library; do install -m 644 "$library" "$dir"; done
    (
        cd "$dir"
        stub ./libz3.so.4 libLLVM.so.19.1 Z3_
        stub ./libxml2.so.2 libLLVM.so.19.1 xml
        rm -f libicu*
    )
    strip --strip-unneeded "$dir"/*.so* "$dir"/{weir,golden_runner,gpu_parity} 2>/dev/null || true
    # The offload runtime needs LLVM: 130 MiB that travel compressed.
    (
        cd "$dir"
        tar -cf - ./*.so* weir golden_runner | xz -T0 -6 >libraries.tar.xz
        rm -f ./*.so* weir golden_runner
    )
    # Without what no device computes: tokenizers, templates, the codecs of pages, and the sources
    # of the runner.
    tar -C "$root/tests" --exclude='golden/text' --exclude='golden/kv' \
        --exclude='golden/realvocab*' --exclude='*.cc' --exclude='*.h' -cf - golden |
        xz -T0 -6 >"$dir/golden.tar.xz"
    local size
    size=$(du -sm "$dir" | cut -f1)
    echo "packed $dir: $size MiB"
    [ "$size" -lt 64 ]
}

run() {
    local from dir
    from=$(cd "$(dirname "$0")" && pwd)
    dir=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$dir'" EXIT
    for archive in libraries golden; do
        tar -xJf "$from/$archive.tar.xz" -C "$dir" 2>/dev/null ||
            python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
                "$from/$archive.tar.xz" "$dir"
    done
    cp "$from/gpu_parity" "$from/check.py" "$from/cost_model.py" "$dir"
    export LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export OMP_TARGET_OFFLOAD=MANDATORY PYTHONDONTWRITEBYTECODE=1
    python3 "$dir/check.py" "$dir" "$@"
}

if [ "${1:-}" = --pack ]; then pack "${2:?check.sh --pack DIR}"; else run "$@"; fi
