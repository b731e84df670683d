#!/bin/sh
# tests/hardening/run.sh - builds the programs and checks their ELF files (program.py), then a
# running server in each sandbox (server.py), with keys and under signals (process.py). Ends with
# "N passed, N failed".
#   tests/hardening/run.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$("$here/../programs.sh")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
result=0
export PYTHONDONTWRITEBYTECODE=1
python3 "$here/program.py" "$bin/serve" "$bin/weir" >"$log" 2>&1 || result=1
python3 "$here/server.py" "$bin/serve" >>"$log" 2>&1 || result=1
python3 "$here/process.py" "$bin/serve" >>"$log" 2>&1 || result=1
grep -v '^[0-9]* passed, [0-9]* failed$' "$log" || true
awk '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; n++ }
    END { if (n != 3) f++; print p + 0 " passed, " f + 0 " failed" }' "$log"
exit $result
