#!/usr/bin/env bash
# Runs clang-tidy-19 with .clang-tidy over engine/ and offload/, with the flags of .bazelrc.
#
#   toolchain/tidy.sh [FILE...]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
tidy=${CLANG_TIDY:-clang-tidy-19}
command -v "$tidy" >/dev/null || {
    echo "tidy: $tidy is not installed; run ./bootstrap dev" >&2
    exit 2
}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Kernels stay out: their lane loops are written for the vectoriser, and the parity tests judge
# them.
files=("$@")
[ $# -gt 0 ] || mapfile -t files < <(git ls-files 'engine/*.c' 'engine/*.cc' 'offload/*.c')
# Some files include what Bazel generates.
[ $# -gt 0 ] || bazel build --config=cpu //engine:serve || exit 1
export logs tidy
check() {
    local file=$1 standard=-std=c17
    local model=(-include toolchain/tidy_model.h)
    case $file in *.cc) standard=-std=c++17 ;; esac
    case $file in *.cc | engine/base/error.c) model=() ;; esac
    "$tidy" --quiet "$file" -- "$standard" "${model[@]}" -D_GNU_SOURCE -O2 -I. -I.bazel/bin \
        -fopenmp -Wall -Wextra -Wshadow -Wconversion >"$logs/${file//\//_}" 2>&1 ||
        echo "$file" >>"$logs/failed"
}
export -f check
# shellcheck disable=SC2016 # the inner shell expands it
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} bash -c 'check "$1"' tidy {}

failed=0
if [ -s "$logs/failed" ]; then
    failed=$(wc -l <"$logs/failed")
    while read -r file; do
        grep -E '(error|warning|note):' "$logs/${file//\//_}" | sed "s|$PWD/||"
    done < <(sort "$logs/failed") | awk '!seen[$0]++'
fi
echo "$((${#files[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
