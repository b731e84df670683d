"""tests/wire/flat_memory.py - memory stays flat over many requests.

    flat_memory.py --base-url URL --pid PID [--requests N]

Sends N small completions, plain and streamed, some of which the client leaves in the middle, and
compares the server's resident memory after the first tenth with that at the end. Exit code 1: it
grew by 16 MiB or more."""

import argparse
import concurrent.futures
import http.client
import json
import sys
import threading
import urllib.parse

LIMIT_KIB = 16 * 1024
AT_ONCE = 4
PROMPTS = [
    "Count from 3 to 9.",
    "The key of the blue house is 4711. What is the key of the blue house?",
    "Hello",
    "KING HENRY:\nMy lord, " * 8,
]

connections = threading.local()


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise SystemExit(f"process {pid} has no VmRSS")


def connect(address):
    connection = getattr(connections, "kept", None)
    if connection is None:
        connection = connections.kept = http.client.HTTPConnection(*address, timeout=60)
    return connection


def send(address, number):
    """One request; every fifth is a stream that is left after its first bytes."""
    is_left = number % 5 == 4
    is_stream = is_left or number % 2 == 1
    body = {
        "prompt": f"{number} {PROMPTS[number % len(PROMPTS)]}",
        "max_tokens": 64 if is_left else 4,
        "stream": is_stream,
        "temperature": 0.7,
        "seed": number,
        "ignore_eos": is_left,
    }
    connection = connect(address)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"request {number}: status {answer.status}: {answer.read(500)!r}")
    if is_left:
        answer.read1(20)
        connection.close()
        connections.kept = None
        return "left"
    text = answer.read()
    if is_stream and not text.rstrip().endswith(b"data: [DONE]"):
        raise SystemExit(f"request {number}: the stream ends with {text[-80:]!r}")
    if not is_stream and "choices" not in json.loads(text):
        raise SystemExit(f"request {number}: no choices in {text[:200]!r}")
    return "streamed" if is_stream else "plain"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--requests", type=int, default=1000)
    arguments = parser.parse_args()
    url = urllib.parse.urlsplit(arguments.base_url)
    address = (url.hostname, url.port)
    kinds = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:

        def send_all(numbers):
            for kind in pool.map(lambda number: send(address, number), numbers):
                kinds[kind] = kinds.get(kind, 0) + 1

        n_warm = arguments.requests // 10
        send_all(range(n_warm))
        before = resident_kib(arguments.pid)
        send_all(range(n_warm, arguments.requests))
        after = resident_kib(arguments.pid)
    growth = after - before
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(
        f"{arguments.requests} requests ({counted}): {before} KiB resident after {n_warm}, "
        f"{after} KiB at the end, growth {growth} KiB"
    )
    return 0 if growth < LIMIT_KIB else 1


if __name__ == "__main__":
    sys.exit(main())
