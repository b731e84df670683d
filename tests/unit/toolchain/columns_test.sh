#!/usr/bin/env bash
# Lines of 100 columns pass and of 101 do not, but for tables that say so, up to their end; of
# documents those of prose; sources of 500 lines pass and of 501 do not.
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
{ for _ in {1..500}; do echo; done; } >long.py
python3 -B "$columns" long.py >out || fail "500 lines are too many"
echo >>long.py
python3 -B "$columns" long.py >out && fail "501 lines pass"
[ "$(cat out)" = "not formatted: long.py: 501 lines" ] || fail "another message for lines"
{ echo "| $(line 120) |"; echo; echo "    $(line 120)"; echo; echo '```'; line 120; echo '```'
    echo "see [the page](https://a.example/$(line 120))"; } >table.md
python3 -B "$columns" table.md >out || fail "a table, code or a link is prose"
{ echo; echo "a word $(line 120)"; } >prose.md
python3 -B "$columns" prose.md >out && fail "prose is not read"
[ "$(cat out)" = "not formatted: prose.md:2: 127 columns" ] || fail "another message for prose"
{ echo "1. - an item"; echo "     $(line 120)"; } >item.md
python3 -B "$columns" item.md >out && fail "the rest of an item is not read"
mkdir -p tests/golden/kv && line 200 >tests/golden/kv/make.py && line 200 >tests/golden/kv/own.py
python3 -B "$columns" tests/golden/kv/own.py >out && fail "a file between copies is not"
python3 -B "$columns" tests/golden/kv/make.py >out || fail "copies are checked"

