#!/bin/sh
# tests/attack/run.sh - builds //engine:serve and attacks it (attack.py).
#   tests/attack/run.sh [--only TEXT] [--long]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$("$here/../programs.sh")
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/attack.py" "$programs/serve" "$@"
