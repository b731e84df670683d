#!/bin/sh
# tests/soak/run.sh - builds //engine:serve and keeps it busy for long (soak.py).
#   tests/soak/run.sh [--minutes N] [--clients N] [--memory MIB] [--seed N]
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
(cd "$top" && bazel build ${JOBS:+"--jobs=$JOBS"} //engine:serve)
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$top/tests/soak/soak.py" "$top/.bazel/bin/engine/cli/serve" "$@"
