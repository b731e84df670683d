#!/usr/bin/env bash
# Formats the tracked C, C++ and CUDA files with clang-format-19 and .clang-format.
#
#   toolchain/format.sh [FILE...]           rewrites them
#   toolchain/format.sh --check [FILE...]   lists those that differ and fails; without FILE also
#                                           what toolchain/columns.py finds in sources, scripts,
#                                           build files and documents: long lines and long files
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=${CLANG_FORMAT:-clang-format-19}
command -v "$formatter" >/dev/null || {
    echo "format: $formatter is not installed; run ./bootstrap dev" >&2
    exit 2
}

check=0
[ "${1:-}" != --check ] || { check=1; shift; }
sources=('*.c' '*.h' '*.cc' '*.cu' '*.inc')
lines=("${sources[@]}" '*.py' '*.sh' '*.bzl' '*BUILD.bazel' WORKSPACE .bazelrc '*.toml' '*.nix'
    '*.md' bootstrap '.ci/*')
files=("$@")
wide=()
[ $# -gt 0 ] || {
    mapfile -t files < <(git ls-files "${sources[@]}")
    mapfile -t wide < <(git ls-files "${lines[@]}")
}
[ ${#files[@]} -gt 0 ] || { echo "format: no files" >&2; exit 2; }

if [ "$check" = 0 ]; then
    "$formatter" -i "${files[@]}"
    exit 0
fi
# The first message about a file names it; all others are of no interest.
first='s/^\([^:]*\):[0-9]*:[0-9]*: error: code should be clang-formatted.*/\1/p'
differing=$("$formatter" --dry-run --Werror "${files[@]}" 2>&1 | sed -n "$first" | sort -u || true)
count=0
if [ -n "$differing" ]; then
    count=$(wc -l <<<"$differing")
    printf 'not formatted: %s\n' $differing # names of files are words here
    echo "format: run toolchain/format.sh"
fi
passed=$((${#files[@]} - count))
if [ ${#wide[@]} -gt 0 ]; then
    if toolchain/columns.py "${wide[@]}"; then
        passed=$((passed + 1))
    else
        count=$((count + 1))
        echo "format: wrap or split the above; tables of data are marked (toolchain/columns.py)"
    fi
fi
echo "$passed passed, $count failed"
[ "$count" = 0 ]
