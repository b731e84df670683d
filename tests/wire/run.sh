#!/bin/sh
# tests/wire/run.sh - the wire suite against a server program, without an API key (then 1000
# requests that must not make it grow) and with one.
#   tests/wire/run.sh [--slow] [PROGRAM [ARGUMENT...]]
# PROGRAM takes --set server.KEY=VALUE; without one, //engine:serve is built and served with its
# bundled model. --slow also runs the cases that wait for a time-out, with time-outs of 5 s. The
# Python environments are made once, outside of the tree (WEIR_WIRE_VENV, and next to it the one of
# clients that need an older openai).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
slow=no
if [ "${1:-}" = --slow ]; then slow=yes; shift; fi
if [ $# -lt 1 ]; then
    programs=$("$here/../programs.sh")
    set -- "$programs/serve"
fi

venv=${WEIR_WIRE_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/wire-venv}
old_clients=$venv-openai2
lacks=responses,messages,ollama,llama

# make_venv FOLDER REQUIREMENTS
make_venv() {
    if cmp -s "$2" "$1/requirements.txt" 2>/dev/null; then return 0; fi
    python3 -m venv --clear "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
    cp "$2" "$1/requirements.txt"
}
make_venv "$venv" "$here/requirements.txt"
make_venv "$old_clients" "$here/requirements-openai2.txt"

work=$(mktemp -d)
server=
stop_server() {
    if [ -z "$server" ]; then return 0; fi
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop_server; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# pytest_with LABEL VENV ARGUMENT...; LABEL begins the names of skipped cases.
pytest_with() {
    label_of_run=$1 python=$2/bin/python; shift 2
    (cd "$work" && PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 WEIR_WIRE_LABEL=$label_of_run \
        "$python" -m pytest "$here/suite" \
        -q -p no:cacheprovider -p expected --rootdir "$here" --lacks "$lacks" \
        --base-url "http://127.0.0.1:$port" --pid "$server" "$@")
}

# run_suite LABEL SUITE-ARGUMENTS -- SERVER-ARGUMENTS
run_suite() {
    label=$1; shift
    suite=
    while [ "$1" != -- ]; do suite="$suite $1"; shift; done
    shift
    port=$("$venv/bin/python" "$here/free_port.py")
    if [ $slow = yes ]; then
        suite="$suite --slow --read-timeout 5"
        set -- "$@" --set server.read_timeout=5s --set server.write_timeout=5s
    fi
    "$@" --set "server.port=$port" >"$work/$label.out" 2>"$work/$label.err" &
    server=$!
    if ! "$venv/bin/python" "$here/await_server.py" "$port" "$server"; then
        echo "$label: the server did not start:" >&2
        tail -n 20 "$work/$label.err" >&2
        return 1
    fi
    echo "== wire suite $label"
    # shellcheck disable=SC2086  # words without spaces, made above
    if pytest_with "$label" "$venv" $suite; then code=0; else code=$?; fi
    if [ "$label" = without-key ]; then
        pytest_with old-clients "$old_clients" -k "langchain or instructor" || code=1
        "$venv/bin/python" "$here/flat_memory.py" --base-url "http://127.0.0.1:$port" \
            --pid "$server" || code=1
    fi
    stop_server
    if [ $code -ne 0 ]; then tail -n 20 "$work/$label.err" >&2; fi
    return $code
}

result=0
key=sk-wire-Test-1
run_suite without-key --require sessions -- "$@" --set "sessions.dir=$work/sessions" || result=1
run_suite with-key --api-key "$key" -- "$@" --set "server.api_key=$key" || result=1
exit $result
