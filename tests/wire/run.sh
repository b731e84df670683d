#!/bin/sh
# tests/wire/run.sh - the wire suite against a server program, without an API key (then 1000 requests that must not make it grow) and with one.
#   tests/wire/run.sh [--slow] [PROGRAM [ARGUMENT...]]
# PROGRAM takes --set server.KEY=VALUE; without one, //engine:serve is built and served with its bundled model. --slow also runs the cases
# that wait for a time-out, with time-outs of 5 s. The Python environment is made once, outside of the tree (WEIR_WIRE_VENV).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
slow=no
if [ "${1:-}" = --slow ]; then slow=yes; shift; fi
if [ $# -lt 1 ]; then
    top=$(cd "$here/../.." && pwd)
    (cd "$top" && bazel build //engine:serve)
    set -- "$top/.bazel/bin/engine/cli/serve"
fi

venv=${WEIR_WIRE_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/wire-venv}
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt" 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/requirements.txt"
fi

work=$(mktemp -d)
server=
stop_server() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; server=; fi
}
trap 'stop_server; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# run_suite LABEL SUITE-ARGUMENTS -- SERVER-ARGUMENTS
run_suite() {
    label=$1; shift
    suite=
    while [ "$1" != -- ]; do suite="$suite $1"; shift; done
    shift
    port=$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    if [ $slow = yes ]; then
        suite="$suite --slow --read-timeout 5"
        set -- "$@" --set server.read_timeout=5s --set server.write_timeout=5s
    fi
    "$@" --set "server.port=$port" >"$work/$label.out" 2>"$work/$label.err" &
    server=$!
    "$venv/bin/python" - "$port" "$server" <<'PYTHON' || { echo "$label: the server did not start:" >&2; tail -n 20 "$work/$label.err" >&2; return 1; }
import os, sys, time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen("http://127.0.0.1:%s/health" % sys.argv[1], timeout=2)
        sys.exit(0)
    except OSError:
        try:
            os.kill(int(sys.argv[2]), 0)
        except OSError:
            sys.exit(1)
        time.sleep(0.1)
sys.exit(1)
PYTHON
    echo "== wire suite $label"
    # shellcheck disable=SC2086  # words without spaces, made above
    if (cd "$work" && PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest "$here/suite" -q -p no:cacheprovider -p expected \
        --rootdir "$here" --base-url "http://127.0.0.1:$port" --pid "$server" $suite); then code=0; else code=$?; fi
    if [ "$label" = without-key ]; then
        "$venv/bin/python" "$here/flat_memory.py" --base-url "http://127.0.0.1:$port" --pid "$server" || code=1
    fi
    stop_server
    if [ $code -ne 0 ]; then tail -n 20 "$work/$label.err" >&2; fi
    return $code
}

result=0
run_suite without-key -- "$@" || result=1
run_suite with-key --api-key sk-wire-Test-1 -- "$@" --set server.api_key=sk-wire-Test-1 || result=1
exit $result
