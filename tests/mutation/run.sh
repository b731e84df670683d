#!/usr/bin/env bash
# Changes the program in the ways that tests/mutation/list.txt has, each alone, in a copy of HEAD:
# a test must notice each.
#
#   tests/mutation/run.sh [BAZEL-OPTION...]
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
clean() {
    (cd "$copy/tree" && bazel shutdown) >/dev/null 2>&1 || true
    git -C "$top" worktree remove --force "$copy/tree" >/dev/null 2>&1 || true
    rm -rf "$copy"
}
trap clean EXIT
git -C "$top" worktree add --quiet --detach "$copy/tree" HEAD
PYTHONDONTWRITEBYTECODE=1 python3 "$top/tests/mutation/mutate.py" "$top/tests/mutation/list.txt" \
    "$copy/tree" "$@"
