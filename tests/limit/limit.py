#!/usr/bin/env python3
"""tests/limit/limit.py - the limit is a limit: a server in a memory cgroup whose limit is its
memory.host, under clients that want more.

    limit.py PROGRAM [--memory MIB] [--disk MIB] [--context N] [--seconds N] [--clients N]
             [--workers N] [--threads N]

PROGRAM is the serve binary with its bundled model. Clients (16) send long prompts, several
choices, bodies and prompts that are too large, streams that they leave, for N seconds. It must not
be killed for memory, its peak must stay within the limit, its files without a name within the
disk's, every request must be answered or refused
with a JSON error, and at the end no page may be in use. Where no memory cgroup can be made (version
1 or 2), the peak resident memory takes its place, and the output says so. Prints "N passed, N
failed"."""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
from checks import report  # noqa: E402
from group import Group, field  # noqa: E402

MIB = 1 << 20
ANSWERED = {200, 400, 413, 429, 503}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def bytes_on_disk(pid):
    """What the files hold that the process has open and no folder has, and how many there are."""
    total = files = 0
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            held = os.stat(link)
        except OSError:
            continue  # closed meanwhile
        if stat.S_ISREG(held.st_mode) and held.st_nlink == 0:
            total += held.st_blocks * 512
            files += 1
    return total, files


def request_of(rng, window):
    """A body and whether the client stays."""
    kind = rng.randrange(8)
    ids = [
        rng.randrange(5, 1000)
        for _ in range(rng.choice((10, 200, window // 4, window // 2, window - 20)))
    ]
    if rng.random() < 0.5:
        ids = list(range(5, 5 + window // 4)) + ids[: window // 2]  # a beginning that many share
    body = {
        "prompt": ids,
        "max_tokens": rng.choice((1, 16, 100, 400)),
        "ignore_eos": rng.random() < 0.7,
        "temperature": 1.0,
        "repetition_penalty": rng.choice((1.0, 1.1)),
        "stream": rng.random() < 0.5,
    }
    if kind == 0:
        body["prompt"] = [7] * (window + 1 + rng.randrange(100000))
    elif kind == 1:
        body["n"] = 4
    elif kind == 2:
        body["prompt"] = "x" * rng.randrange(8 * MIB)
    elif kind == 3:
        body["logprobs"], body["echo"], body["max_tokens"] = 5, True, 1
    elif kind == 4:
        body["on_overflow"] = "truncate_middle"
        body["prompt"] = ids * 20
    return body, rng.random() < 0.7


def client(port, seed, until, window, statuses, problems):
    rng = random.Random(seed)
    while time.monotonic() < until:
        body, stays = request_of(rng, window)
        answer = None
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            if not stays and rng.random() < 0.5:
                time.sleep(rng.random() * 0.3)
                connection.close()
                statuses["left"] += 1
                continue
            answer = connection.getresponse()
            statuses[answer.status] += 1
            if answer.status not in ANSWERED:
                problems.append(f"status {answer.status}: {answer.read(300)!r}")
            if not stays:
                answer.read1(100)
            elif answer.status != 200:
                if "error" not in json.loads(answer.read()):
                    problems.append(f"status {answer.status} without an error")
                time.sleep(0.05)
            else:
                text = answer.read()
                if (
                    body["stream"]
                    and b"data: [DONE]" not in text[-100:]
                    and b"error" not in text[-1000:]
                ):
                    problems.append(f"a stream ends with {text[-100:]!r}")
            connection.close()
        except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
            statuses["closed by the server"] += 1  # of a body that is refused before it is read
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, http.client.IncompleteRead) and b"error" in error.partial[-1000:]:
                statuses["ended with an error"] += 1
                continue
            if (
                answer is not None
                and answer.status in (413, 503)
                and isinstance(error, http.client.IncompleteRead)
            ):
                statuses["closed by the server"] += 1  # the rest of its body met a closed socket
                continue
            problems.append(
                f"{type(error).__name__}: {error}, status {answer and answer.status}, stream "
                f"{body['stream']}"
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument(
        "--memory", type=int, default=128, help="memory.host and the group's limit, in MiB"
    )
    parser.add_argument(
        "--disk", type=int, default=0, help="memory.disk in MiB, 0: pages stay in memory"
    )
    parser.add_argument(
        "--context",
        type=int,
        default=0,
        help="window of a sequence, 0: what the model was trained for",
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument(
        "--workers", type=int, default=0, help="server.workers, 0: one per core, at least 4"
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="kernels.threads, 0: one per core; may be more"
    )
    options = parser.parse_args()
    limit = options.memory * MIB
    group, port = Group(limit), free_port()
    group.say()
    settings = [
        f"server.port={port}",
        f"memory.host={options.memory}MiB",
        f"memory.disk={options.disk}MiB",
        "memory.disk_dir=/var/tmp",
        "batch.max_sequences=8",
        f"model.context={options.context}",
        f"server.workers={options.workers}",
        f"kernels.threads={options.threads}",
    ]
    # Threads that wait for a core do not spin for those that have one.
    many = {"KMP_BLOCKTIME": "0"} if options.threads > len(os.sched_getaffinity(0)) else {}
    server = subprocess.Popen(
        [options.program, *(word for setting in settings for word in ("--set", setting))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **many},
        preexec_fn=group.enter,
    )
    checks = []
    try:
        lines = collections.deque(maxlen=20)
        threading.Thread(target=lambda: lines.extend(server.stderr), daemon=True).start()
        for _ in range(300):
            if server.poll() is not None:
                print("the server did not start:\n" + "".join(lines))
                print("0 passed, 1 failed")
                return 1
            try:
                if get(port, "/health")[0] == 200:
                    break
            except OSError:
                time.sleep(0.1)
        window = json.loads(get(port, "/props")[1])["n_ctx"]
        statuses, problems = collections.Counter(), []
        until = time.monotonic() + options.seconds
        threads = [
            threading.Thread(target=client, args=(port, seed, until, window, statuses, problems))
            for seed in range(options.clients)
        ]
        for thread in threads:
            thread.start()
        anonymous, on_disk = 0, (0, 0)
        while any(thread.is_alive() for thread in threads) and server.poll() is None:
            anonymous = max(anonymous, group.anonymous(server.pid))
            on_disk = max(on_disk, bytes_on_disk(server.pid))
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        alive = server.poll() is None
        checks.append(("the server is alive", alive))
        peak = (group.peak() or field(server.pid, "VmHWM")) if alive else 0
        print(
            f"{sum(statuses.values())} requests: {dict(statuses)}; peak {peak / MIB:.1f} of "
            f"{options.memory} MiB, "
            f"{anonymous / MIB:.1f} without the page cache, window {window}"
        )
        checks.append(("it was not killed for memory", group.kills() == 0))
        checks.append(("the peak is within the limit", 0 < peak <= limit))
        checks.append(("every request was answered or refused", not problems))
        for problem in problems[:10]:
            print("  " + problem)
        checks.append(("some were answered", statuses[200] > 0))
        memory = {}
        for _ in range(100 if alive else 0):
            memory = json.loads(get(port, "/v1/memory")[1])
            if not memory["sequences"] and memory["kv"]["free_pages"] == memory["kv"]["pages"]:
                break
            time.sleep(0.1)
        checks.append(
            (
                "no page is in use at the end",
                bool(memory) and memory["kv"]["free_pages"] == memory["kv"]["pages"],
            )
        )
        checks.append(
            (
                "the ledger's peak is within its cap",
                bool(memory) and memory["tiers"]["host"]["peak"] <= limit,
            )
        )
        if options.disk > 0:
            disk = memory["kv"]["disk"] if memory else {}
            print(f"disk: {disk}; {on_disk[1]} files held {on_disk[0] / MIB:.1f} MiB at most")
            checks.append(
                (
                    "pages went to the disk and were read there",
                    bool(disk) and disk["bytes_out"] > 0 and disk["bytes_read"] > 0,
                )
            )
            # A file system counts blocks of its own for files with holes: one in 256 is more.
            most = options.disk * MIB * 257 // 256
            checks.append(("what the files hold is within the cap", 0 < on_disk[0] <= most))
            checks.append(
                (
                    "the disk's peak is within its cap",
                    bool(memory) and memory["tiers"]["disk"]["peak"] <= options.disk * MIB,
                )
            )
        server.send_signal(signal.SIGTERM)
        checks.append(("it ends when it is asked to", server.wait(60) in (0, 143)))
    finally:
        server.kill()
        server.wait()
        group.remove()
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
