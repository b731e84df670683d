#!/bin/bash
# toolchain/keep_ptx.sh - stands where clang expects ptxas: the PTX itself is the output. gpu.bzl
# assembles it for every architecture.
set -euo pipefail
while [ $# -gt 0 ]; do
    case $1 in
        --output-file) out=$2; shift ;;
        *.s) ptx=$1 ;;
    esac
    shift
done
cp "$ptx" "$out"
