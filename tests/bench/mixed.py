#!/usr/bin/env python3
"""tests/bench/mixed.py - what one long prompt does to streams that decode.

    mixed.py PROGRAM [--model PATH] [--memory MIB] [--prompt N] [--streams N] [--alone SECONDS]
             [--set KEY=VALUE]...

PROGRAM is the serve binary, with its bundled model unless --model is given. N streams (8) decode
alone for some seconds (5), then a prompt of N tokens (32768) arrives and is computed among them.
Prints percentiles of the time between two tokens of a stream, alone and until the first token of
the prompt's answer, where the engine thread spent its time in both, and a line of JSON. One thread
reads all sockets."""
import argparse
import json
import pathlib
import selectors
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
import samples  # noqa: E402
import wire  # noqa: E402
from machine import Machine  # noqa: E402
from server import Server  # noqa: E402

PIECES = b"data: {"


class Stream:
    def __init__(self, server, prompt, answer):
        body = {"prompt": prompt, "max_tokens": answer, "stream": True, "ignore_eos": True,
                "temperature": 0, "cache_prompt": False}
        self.sock, self.times = wire.connect(server.port, timeout=60), []
        self.last = b""
        self.sock.sendall(wire.request("POST", "/v1/completions", server.port, body))
        self.sock.setblocking(False)

    def read(self):
        """Pieces that hold several tokens count once: their reader was late, not the server."""
        part = self.sock.recv(1 << 16)
        if PIECES in part:
            self.times.append(time.monotonic())
        self.last = part or self.last
        return bool(part)


def read_until(streams, over, until):
    selector = selectors.DefaultSelector()
    for stream in streams:
        selector.register(stream.sock, selectors.EVENT_READ, stream)
    while not over() and time.monotonic() < until:
        for key, _ in selector.select(0.5):
            if not key.data.read():
                sys.exit(f"mixed: a stream ended early, after {key.data.last[-300:]!r}")
    selector.close()


def engine(server):
    return samples.metrics(server.ask("GET", "/metrics", seconds=60).body.decode())


def gaps_of(streams, begin, end):
    return sorted(1000 * (b - a) for stream in streams
                  for a, b in zip(stream.times, stream.times[1:]) if begin <= a and b <= end)


def report(name, streams, begin, end, before, after):
    gaps = gaps_of(streams, begin, end)
    if len(gaps) < 100:
        sys.exit(f"mixed: only {len(gaps)} intervals {name}")
    cuts = statistics.quantiles(gaps, n=100)
    steps = after["steps_total"] - before["steps_total"]
    rows = after["batch_rows_total"] - before["batch_rows_total"]
    print(f"{name}: {end - begin:.1f} s, {len(gaps)} intervals, ms: p10 {cuts[9]:.2f}, "
          f"median {cuts[49]:.2f}, p90 {cuts[89]:.2f}, p99 {cuts[98]:.2f}, most {gaps[-1]:.2f}; "
          f"p99 / median {cuts[98] / cuts[49]:.2f}")
    parts = {key.split(".")[1]: 1000 * (value - before[key]) / steps
             for key, value in after.items() if key.startswith("step_seconds_total.")}
    print(f"  {steps:.0f} steps of {rows / steps:.1f} rows, ms each: " +
          ", ".join(f"{part} {ms:.3f}" for part, ms in parts.items() if ms >= 0.001))
    return cuts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model")
    parser.add_argument("--memory", type=int, default=2048)
    parser.add_argument("--prompt", type=int, default=32768)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--alone", type=float, default=5)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    machine, context = Machine("mixed"), options.prompt + 2048
    settings = (*([f"model.path={options.model}"] if options.model else []),
                f"model.context={context}", f"batch.max_sequences={options.streams + 1}",
                "speculation.method=off",
                *options.set)
    server = Server(options.program, options.memory, settings, stdout=subprocess.DEVNULL)
    try:
        streams = [Stream(server, [5 + i] * 16, context - 64) for i in range(options.streams)]
        read_until(streams, lambda: all(len(s.times) > 10 for s in streams),
                   time.monotonic() + 60)
        first, start = engine(server), time.monotonic()
        read_until(streams, lambda: False, start + options.alone)
        second, middle = engine(server), time.monotonic()
        ids = [5 + (i * 7919 + i * i) % 250 for i in range(options.prompt)]
        long = Stream(server, ids, 4)
        read_until([*streams, long], lambda: bool(long.times), middle + 500)
        third, end = engine(server), long.times[0]
        alone = report("alone", streams, start, middle, first, second)
        mixed = report("with the prompt", streams, middle, end, second, third)
        print(f"p99 with the prompt / median alone {mixed[98] / alone[49]:.2f}")
        tenths = [statistics.quantiles(gaps_of(streams, middle + i * (end - middle) / 10,
                                               middle + (i + 1) * (end - middle) / 10), n=10)[0]
                  for i in range(10)]
        print("p10 by tenths of the prompt's time, ms: " +
              ", ".join(f"{ms:.1f}" for ms in tenths))
        machine.print({"streams": options.streams, "prompt": options.prompt,
                       "alone_ms": {"median": alone[49], "p99": alone[98]},
                       "mixed_ms": {"median": mixed[49], "p99": mixed[98]},
                       "p99_of_median": mixed[98] / mixed[49],
                       "p99_of_median_alone": mixed[98] / alone[49]})
    finally:
        server.close()


if __name__ == "__main__":
    main()
