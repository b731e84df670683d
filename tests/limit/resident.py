#!/usr/bin/env python3
"""tests/limit/resident.py - what the process holds is what the ledger says, with requests that
leave much free memory.

    resident.py PROGRAM

PROGRAM is the serve binary with its bundled model.

1. Its KV is filled, then come large bodies for /tokenize whose tool arguments are lists of empty
   objects, one after the other. All the time the process's own memory less what the ledger has
   charged must stay below the account `process`, which is set aside for what has no account.
2. In a memory cgroup of 128 MiB, its memory.host, two bodies of 3.9 MB at once whose arguments
   are such lists behind escapes. The server must live and answer others.

Prints "N passed, N failed"."""
import collections
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

import limit
from checks import report

MIB = 1 << 20
ROUNDS = 60


class Server:
    """The program with its memory.host, in a group if one is given."""

    def __init__(self, program, memory, group=None, more=()):
        self.port, self.lines = limit.free_port(), collections.deque(maxlen=20)
        settings = [f"server.port={self.port}", f"memory.host={memory}MiB", *more]
        words = [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True,
                                        preexec_fn=group.enter if group else None)
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr),
                         daemon=True).start()
        for _ in range(300):
            if self.process.poll() is not None:
                break
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        self.end()
        sys.exit("the server did not start:\n" + "".join(self.lines))

    def get(self, path):
        return limit.get(self.port, path)

    def post(self, path, body):
        """The status; 0: the connection broke."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def memory(self):
        return json.loads(self.get("/v1/memory")[1])

    def own_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status if line.startswith("Rss"))
        return (int(fields["RssAnon"].split()[0]) + int(fields["RssShmem"].split()[0])) * 1024

    def end(self):
        """Whether it ends when it is asked to."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30) in (0, 143)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.process.kill()
            self.process.wait()


def body_of(size, item="{}", comma=","):
    """A chat of `size` bytes whose tool call has a list of items as arguments."""
    items = comma.join([item] * (size // (len(item) + len(comma))))
    call = ('{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\\"a\\":['
            + items + ']}"}}]}')
    return '{"messages":[{"role":"user","content":"a"},' + call + ',{"role":"user","content":"b"}]}'


def without_account(server):
    """What the process holds and no account has, and what is set aside for that."""
    held = server.own_bytes()
    host = server.memory()["tiers"]["host"]
    return held - (host["used"] - host["accounts"]["process"]), host["accounts"]["process"]


def fill_kv(server):
    window = json.loads(server.get("/props")[1])["n_ctx"]
    for first in range(5, 45):
        ids = [first + i % 700 for i in range(window - 20)]
        server.post("/v1/completions", json.dumps({"prompt": ids, "max_tokens": 1}))
        kv = server.memory()["kv"]
        if kv["free_pages"] * 20 < kv["pages"]:
            break


def check_accounts(program, checks):
    server = Server(program, 256, more=["batch.max_sequences=8"])
    try:
        fill_kv(server)
        before, set_aside = without_account(server)
        most, done, statuses = before, threading.Event(), collections.Counter()

        def send():
            for i in range(ROUNDS):
                statuses[server.post("/tokenize", body_of((400 + 50 * (i % 8)) * 1000))] += 1
            done.set()

        threading.Thread(target=send, daemon=True).start()
        while not done.is_set() and server.process.poll() is None:
            try:
                most = max(most, without_account(server)[0])
            except (OSError, ValueError):
                break
            time.sleep(0.01)
        alive = server.process.poll() is None
        after = without_account(server)[0] if alive else 0
        print(f"without an account: {before / MIB:.1f} MiB before, {most / MIB:.1f} at most, "
              f"{after / MIB:.1f} after; process has {set_aside / MIB:.1f} MiB; {dict(statuses)}")
        checks.append(("the server is alive", alive))
        checks.append(("every body was answered or refused",
                       sum(statuses[s] for s in (200, 400, 503)) == ROUNDS))
        checks.append(("the process never held more than is charged and set aside",
                       most < set_aside))
        checks.append(("what the requests took went back", after < before + 8 * MIB))
    finally:
        checks.append(("it ends when it is asked to", server.end()))


def check_escapes(program, checks):
    size = 128
    group = limit.Group(size * MIB)
    group.say()
    server = Server(program, size, group)
    try:
        peak, statuses = 0, collections.Counter()
        paths = ("/tokenize", "/v1/chat/completions")
        cases = [(path, body_of(3900000, item, "\\u002c")) for path in paths
                 for item in ("\\u007b\\u007d", "\\u005b\\u005d", "{}")]
        for path, body in cases:
            threads = [threading.Thread(
                target=lambda: statuses.update([server.post(path, body)])) for _ in range(2)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                if server.process.poll() is None:
                    peak = max(peak, group.anonymous(server.process.pid))
                time.sleep(0.02)
        alive = server.process.poll() is None
        print(f"escaped arguments: {dict(statuses)}, {peak / MIB:.1f} MiB at most")
        checks.append(("two bodies of escapes do not kill it", alive and group.kills() == 0))
        checks.append(("they are answered with 503 or 400",
                       sum(statuses[s] for s in (400, 503)) == 2 * len(cases)))
        checks.append(("its own memory stays below memory.host", 0 < peak <= size * MIB))
        chat = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2})
        checks.append(("others are answered",
                       alive and server.post("/v1/chat/completions", chat) == 200))
        if alive:
            host = server.memory()["tiers"]["host"]
            checks.append(("the ledger stays below its cap", host["peak"] <= host["cap"]))
    finally:
        server.end()
        group.remove()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    checks = []
    check_accounts(os.path.abspath(sys.argv[1]), checks)
    check_escapes(os.path.abspath(sys.argv[1]), checks)
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
