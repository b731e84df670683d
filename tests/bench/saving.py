#!/usr/bin/env python3
"""tests/bench/saving.py - what the save of a large session does to others.

    saving.py PROGRAM [--model PATH] [--tokens N] [--memory MIB] [--clients N] [--turns N]
              [--seconds N] [--set KEY=VALUE]...

PROGRAM is the serve binary, with its bundled model unless --model is given; a model of
`random_model.py --size KV-256K` has 256 KiB of KV a token, so that N = 4096 tokens are a file of
1.1 GB. They are computed once. Then clients (2) ask for short answers one after the other, in turns
(5) while files are written one after the other for some seconds (10), and without that for as long.
Prints the medians of the time between two tokens and to the first one, their ratios in each turn
and the median of these, and a line of JSON. One thread reads all sockets."""
import argparse
import selectors
import statistics
import subprocess
import sys
import threading
import time

from machine import Machine, spread
from mixed import Server, wire

PROMPT, ANSWER, LEAST = 24, 24, 5


class Client:
    """One request after the other, each with a prompt that is not cached."""

    def __init__(self, port, number):
        self.port, self.number, self.n = port, number, 0
        self.first, self.gaps = [], []  # (when it came, seconds)
        self.ask()

    def ask(self):
        self.n += 1
        ids = [5 + (i * i + self.number * 31 + self.n * 7) % 200 for i in range(PROMPT)]
        body = {"prompt": ids, "max_tokens": ANSWER, "stream": True, "ignore_eos": True,
                "temperature": 0, "cache_prompt": False}
        self.sock, self.last, self.text = wire.connect(self.port, timeout=60), None, b""
        self.start = time.monotonic()
        self.sock.sendall(wire.request("POST", "/v1/completions", self.port, body))
        self.sock.setblocking(False)

    def read(self):
        """False when the answer is over."""
        part = self.sock.recv(1 << 16)
        now = time.monotonic()
        self.text = (self.text + part)[-64:]
        if b"data: {" in part:
            if self.last is None:
                self.first.append((now, now - self.start))
            else:
                self.gaps.append((now, now - self.last))
            self.last = now
        return bool(part) and b"data: [DONE]" not in self.text


def run(clients, over, least):
    """Answers until `over`, and at least for these seconds. Returns when that was."""
    begin = time.monotonic()
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.sock, selectors.EVENT_READ, client)
    while not over() or time.monotonic() < begin + least:
        for key, _ in selector.select(0.05):
            client = key.data
            if client.read():
                continue
            selector.unregister(client.sock)
            client.sock.close()
            client.ask()
            selector.register(client.sock, selectors.EVENT_READ, client)
    selector.close()
    return begin, time.monotonic()


def milliseconds(clients, kind, begin, end):
    times = [1000 * value for client in clients for when, value in getattr(client, kind)
             if begin <= when <= end]
    if len(times) < LEAST:
        sys.exit(f"saving: only {len(times)} times of {kind}; save more tokens")
    return statistics.median(times)


class Saves(threading.Thread):
    """Writes the file until the time is over, the last time to its end."""

    def __init__(self, server, ids, seconds):
        super().__init__()
        self.server, self.ids, self.seconds = server, ids, seconds
        self.bytes, self.n, self.problem = 0, 0, None
        self.start()

    def run(self):
        until = time.monotonic() + self.seconds
        while self.problem is None and (self.n == 0 or time.monotonic() < until):
            reply = self.server.post("/v1/sessions", {"name": "large", "tokens": self.ids},
                                     seconds=600)
            self.n += 1
            if reply.status != 200:
                self.problem = reply.body[:300]
                return
            self.bytes = reply.json()["bytes"]


def one_turn(server, clients, ids, least):
    """Medians without and with saves, and what was saved."""
    saves = Saves(server, ids, least)
    times = run(clients, lambda: not saves.is_alive(), 0)
    if saves.problem is not None:
        sys.exit(f"saving: {saves.problem!r}")
    loud = {kind: milliseconds(clients, kind, *times) for kind in ("gaps", "first")}
    times = run(clients, lambda: True, times[1] - times[0])
    calm = {kind: milliseconds(clients, kind, *times) for kind in ("gaps", "first")}
    return calm, loud, (times[1] - times[0]) / saves.n, saves.bytes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--memory", type=int, default=3072)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    machine = Machine("saving")
    settings = [f"model.context={options.tokens + 256}", "sessions.dir={dir}/sessions",
                "sessions.autosave=false", "speculation.method=off",
                f"batch.max_sequences={options.clients + 1}",
                *([f"model.path={options.model}"] if options.model else []), *options.set]
    server = Server(options.program, options.memory, settings, stdout=subprocess.DEVNULL)
    turns = []
    try:
        ids = [5 + (i * 7919 + i * i) % 200 for i in range(options.tokens)]
        server.post("/v1/completions", {"prompt": ids, "max_tokens": 1}, seconds=600)
        clients = [Client(server.port, i) for i in range(options.clients)]
        run(clients, lambda: all(len(c.first) > 2 for c in clients), 1)
        for _ in range(options.turns):
            calm, loud, seconds, size = one_turn(server, clients, ids, options.seconds)
            ratios = {kind: loud[kind] / calm[kind] for kind in calm}
            turns.append(ratios)
            print(f"{size / 1e9:.2f} GB a file, {seconds:.1f} s each; ms between tokens "
                  f"{calm['gaps']:.2f}, saving {loud['gaps']:.2f} ({ratios['gaps']:.2f}); to the "
                  f"first {calm['first']:.1f}, saving {loud['first']:.1f} ({ratios['first']:.2f})")
    finally:
        server.close()
    machine.print({"bytes": size, "clients": options.clients, "turns": options.turns,
                   "itl_ratio": spread([turn["gaps"] for turn in turns]),
                   "ttft_ratio": spread([turn["first"] for turn in turns])})


if __name__ == "__main__":
    main()
