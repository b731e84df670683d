#!/bin/sh
# tests/page/run.sh - the chat page in headless Chromium (Debian: apt-get install chromium; nothing
# else in the tree needs it), against a server with an API key.
#   tests/page/run.sh [--pictures FOLDER] [PROGRAM]
# PROGRAM takes --set server.KEY=VALUE; without one, //engine:serve is built and served with its
# bundled model. --pictures: light, dark and small ones of the page. Takes about 10 s.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
pictures=
if [ "${1:-}" = --pictures ]; then
    pictures=$2
    shift 2
fi
if ! command -v chromium >/dev/null; then
    echo "skipped: chromium is not installed"
    echo "0 passed, 0 failed"
    exit 0
fi
if [ $# -lt 1 ]; then
    programs=$("$here/../programs.sh")
    set -- "$programs/serve"
fi

work=$(mktemp -d)
server=
stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

port=$(python3 "$here/../wire/free_port.py")
"$1" --set "server.port=$port" --set server.api_key=sk-page \
    --set "sessions.dir=$work/sessions" >"$work/out" 2>"$work/err" &
server=$!
if ! python3 "$here/../wire/await_server.py" "$port" "$server"; then
    echo "the server did not start:" >&2
    tail -n 20 "$work/err" >&2
    exit 1
fi
PYTHONDONTWRITEBYTECODE=1 python3 "$here/page_test.py" "http://127.0.0.1:$port/" sk-page \
    ${pictures:+"$pictures"}
