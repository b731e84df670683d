#!/usr/bin/env bash
# Lines of 100 columns pass and of 101 do not, but for tables that say so, up to their end.
set -uo pipefail
columns=$PWD/toolchain/columns.py
cd "$TEST_TMPDIR"
fail() { echo "FAILED: $*" >&2; cat out >&2; exit 1; }
line() { printf '%*s\n' "$1" '' | tr ' ' "${2:-x}"; }

{ line 100; echo; line 99; } >short.c
python3 -B "$columns" short.c >out || fail "100 columns are too many"
{ echo; line 101; } >long.c
python3 -B "$columns" short.c long.c >out && fail "101 columns pass"
[ "$(cat out)" = "not formatted: long.c:2: 101 columns" ] || fail "another message"
{ printf 'é%.0s' {1..100}; echo; } >accents.toml
python3 -B "$columns" accents.toml >out || fail "columns are counted in bytes"
{ echo "# table: lines longer than 100 columns"; line 200; line 200; echo; line 101; } >table.toml
python3 -B "$columns" table.toml >out && fail "a table has no end"
[ "$(cat out)" = "not formatted: table.toml:5: 101 columns" ] || fail "a table is not read"
mkdir -p tests/golden && line 200 >tests/golden/a.py
python3 -B "$columns" tests/golden/a.py >out || fail "copies are checked"
