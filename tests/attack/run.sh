#!/bin/sh
# tests/attack/run.sh - builds //engine:serve and attacks it (attack.py).
#   tests/attack/run.sh [--only TEXT] [--long]
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
(cd "$top" && bazel build //engine:serve)
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$top/tests/attack/attack.py" "$top/.bazel/bin/engine/cli/serve" "$@"
