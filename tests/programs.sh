#!/bin/sh
# tests/programs.sh - prints the folder of serve and weir: WEIR_PROGRAMS, which .ci/run sets while
# Bazel compiles something else; without it they are built.
set -eu
if [ -z "${WEIR_PROGRAMS:-}" ]; then
    cd "$(dirname "$0")/.."
    bazel build //engine:serve //engine:weir >&2
    # Other configurations move the link, not the folder behind it.
    WEIR_PROGRAMS=$(realpath .bazel/bin/engine/cli)
fi
echo "$WEIR_PROGRAMS"
