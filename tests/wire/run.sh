#!/bin/sh
# tests/wire/run.sh - the wire suite against a server program, without an API key (then 1000
# requests that must not make it grow) and with one.
#   tests/wire/run.sh [--slow] [PROGRAM [ARGUMENT...]]
#   tests/wire/run.sh --clients     only makes the Python environments of clients
# PROGRAM takes --set server.KEY=VALUE; without one, //engine:serve is built and served with its
# bundled model. --slow also runs the cases that wait for a time-out, with time-outs of 5 s. The
# Python environments are made once, outside of the tree (WEIR_WIRE_VENV, and next to it the one of
# clients that need an older openai).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
slow=no only_clients=no
case ${1:-} in
--slow) slow=yes; shift ;;
--clients) only_clients=yes; shift ;;
-*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
esac
venv=${WEIR_WIRE_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/wire-venv}
old_clients=$venv-openai2

# make_venv FOLDER REQUIREMENTS
make_venv() {
    if cmp -s "$2" "$1/requirements.txt" 2>/dev/null; then return 0; fi
    python3 -m venv --clear "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
    cp "$2" "$1/requirements.txt"
}
make_venv "$venv" "$here/requirements.txt"
make_venv "$old_clients" "$here/requirements-openai2.txt"

[ $only_clients = no ] || exit 0
if [ $# -lt 1 ]; then
    programs=$("$here/../programs.sh")
    set -- "$programs/serve"
fi

work=$(mktemp -d)
server=
left="without-key with-key" # servers that the suite has not seen yet
doing=begins

# A server ends with code 0 when it is asked to.
stop_server() {
    if [ -z "$server" ]; then return 0; fi
    doing="waits for the server to end"
    ended=0 code_at_end=0
    python3 "$here/end_server.py" "$server" || ended=1
    wait "$server" || code_at_end=$?
    server=
    if [ $ended = 0 ] && [ $code_at_end = 0 ]; then return 0; fi
    echo "FAILED  $label: the server ended with code $code_at_end"
    return 1
}
# An end from outside says what was not reached.
over() {
    code=$?
    if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi
    if [ -n "$left" ]; then
        echo "FAILED  not run to the end: $left; ended while it $doing"
        code=1
    fi
    rm -rf "$work"
    exit $code
}
trap over EXIT
trap 'exit 130' INT TERM

# pytest_with LABEL VENV ARGUMENT...; LABEL begins the names of skipped cases.
pytest_with() {
    label_of_run=$1 python=$2/bin/python; shift 2
    (cd "$work" && PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 WEIR_WIRE_LABEL=$label_of_run \
        "$python" -m pytest "$here/suite" \
        -q -p no:cacheprovider -o faulthandler_timeout=90 -p expected -p described \
        --rootdir "$here" \
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
    echo "== wire suite $label"
    "$@" --set "server.port=$port" >"$work/$label.out" 2>"$work/$label.err" &
    server=$!
    doing="waits for the server to start"
    if ! "$venv/bin/python" "$here/await_server.py" "$port" "$server"; then
        echo "FAILED  $label: the server did not start:"
        tail -n 20 "$work/$label.err"
        stop_server || true
        return 1
    fi
    doing="runs cases"
    # shellcheck disable=SC2086  # words without spaces, made above
    if pytest_with "$label" "$venv" $suite; then code=0; else code=$?; fi
    if [ "$label" = without-key ]; then
        doing="runs cases of old clients"
        pytest_with old-clients "$old_clients" -k "langchain or instructor" || code=1
        doing="sends 1000 requests"
        "$venv/bin/python" "$here/flat_memory.py" --base-url "http://127.0.0.1:$port" \
            --pid "$server" || code=1
    fi
    stop_server || code=1
    if [ $code -ne 0 ]; then tail -n 20 "$work/$label.err"; fi
    return $code
}

result=0
key=sk-wire-Test-1
parts=sessions,slots,infill,embeddings,rerank
run_suite without-key --require $parts -- "$@" --set "sessions.dir=$work/sessions" || result=1
left=with-key
run_suite with-key --api-key "$key" -- "$@" --set "server.api_key=$key" || result=1
left=
exit $result
