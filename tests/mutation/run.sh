#!/usr/bin/env bash
# Changes the program in the ways that tests/mutation/list.txt has, each alone, in a copy of HEAD:
# a test must notice each.
#
#   tests/mutation/run.sh [BAZEL-OPTION...]
#   tests/mutation/run.sh --check      only whether each fits the working tree
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
list=$top/tests/mutation/list.txt
export PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = --check ]; then
    exec python3 "$top/tests/mutation/mutate.py" --check "$list" "$top"
fi
copy=$(mktemp -d)
clean() {
    (cd "$copy/tree" && bazel shutdown) >/dev/null 2>&1 || true
    git -C "$top" worktree remove --force "$copy/tree" >/dev/null 2>&1 || true
    rm -rf "$copy"
}
trap clean EXIT
git -C "$top" worktree add --quiet --detach "$copy/tree" HEAD
python3 "$top/tests/mutation/mutate.py" "$list" "$copy/tree" "$@"
