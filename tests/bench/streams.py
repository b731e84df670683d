#!/usr/bin/env python3
"""tests/bench/streams.py - servers under the same load over HTTP, in turns.

    streams.py WEIR --model FILE.gguf [--peer "NAME=PROGRAM [ARGUMENT]..."]... [--streams LIST]
               [--prompt N] [--answer N] [--threads N] [--turns N] [--set KEY=VALUE]...
               [--seconds N]

WEIR is the program `weir`. A peer is llama.cpp's server, or one with its options, such as that of
ik_llama.cpp; each server has as many slots as there are streams. For each number of streams (1, 4,
16, 64), N clients ask at once for answers of 128 tokens (--answer) to different prompts of 512
(--prompt), which no server keeps. Servers take turns, and each turn (2) begins with another one.
Prints a table and a line of JSON, of medians with the least and the most of the turns:
  all/s      tokens of all answers, by the time until the last one ends
  prefill/s  tokens of all prompts, by the time until the last first token
  decode/s   tokens of all streams while all decode: from the last first token to the first end.
             None where that is less than a quarter of an answer
  TTFT       of the median client and of the last; TPOT: of the median client
  RSS        peak resident memory of the server, with pages of the file that it maps
  GB/s       read bandwidth of all threads before the server starts, by `weir bench`
A server that fails, or is not done after --seconds (1200), has no figures, but the reason."""
import argparse
import http.client
import json
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from machine import Machine, spread

ADDRESS = "127.0.0.1"
START_SECONDS = 120
COLUMNS = (("all", "all/s", 9), ("prefill", "prefill/s", 10), ("decode", "decode/s", 9),
           ("ttft", "TTFT s", 8), ("ttft_last", "last", 8), ("tpot", "TPOT ms", 8),
           ("rss", "RSS MB", 8), ("gb_per_second", "GB/s", 6))


class Failed(Exception):
    pass


class Client(threading.Thread):
    """One request; when its tokens came."""

    def __init__(self, port, prompt, answer, seconds):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(ADDRESS, port, timeout=seconds)
        self.body = json.dumps({
            "prompt": prompt, "max_tokens": answer, "temperature": 0, "stream": True,
            "ignore_eos": True, "cache_prompt": False, "stream_options": {"include_usage": True}})
        self.answer, self.times, self.why = answer, [], None

    def run(self):
        try:
            self.ask()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.why = f"{type(error).__name__}: {error}"

    def ask(self):
        self.connection.request("POST", "/v1/completions", self.body,
                                {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        if reply.status != 200:
            self.why = f"status {reply.status}: {reply.read(200)!r}"
            return
        tokens = self.answer
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event, now = json.loads(line[6:]), time.monotonic()
            if "error" in event:
                self.why = str(event["error"])[:200]
                return
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            if any(choice.get("text") or not choice.get("finish_reason")
                   for choice in event.get("choices", ())):
                self.times.append(now)
        if tokens != self.answer or len(self.times) < min(2, self.answer):
            self.why = f"{tokens} tokens in {len(self.times)} events, of {self.answer}"

    def tokens_between(self, begin, end):
        """An event has the mean number of tokens: a server may send several at once."""
        return sum(begin < at <= end for at in self.times) * self.answer / len(self.times)


def prompt_of(n, i):
    """Bytes, as ids of the first tokens of the vocabulary."""
    return [5 + (k * 7919 + k * k + (i + 1) * 104729) % 240 for k in range(n)]


def ask_all(port, n_streams, options):
    clients = [Client(port, prompt_of(options.prompt, i), options.answer, options.seconds)
               for i in range(n_streams)]
    begin = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join(max(0.0, begin + options.seconds - time.monotonic()))
    if any(client.is_alive() for client in clients):
        raise Failed(f"not done after {options.seconds} s")
    why = [client.why for client in clients if client.why]
    if why:
        raise Failed(f"{len(why)} of {n_streams} requests: {why[0]}")
    return begin, clients


def figures(begin, clients, options):
    firsts = sorted(client.times[0] for client in clients)
    ends = sorted(client.times[-1] for client in clients)
    last_first, first_end, n = firsts[-1], ends[0], len(clients)
    row = {"all": n * options.answer / (ends[-1] - begin),
           "prefill": n * options.prompt / (last_first - begin),
           "ttft": statistics.median(firsts) - begin, "ttft_last": last_first - begin,
           "tpot": statistics.median(1000 * (client.times[-1] - client.times[0]) /
                                     (options.answer - 1) for client in clients)}
    tokens = sum(client.tokens_between(last_first, first_end) for client in clients)
    if tokens >= n * options.answer / 4:
        row["decode"] = tokens / (first_end - last_first)
    return row


class Server:
    """A program with a port; its log is in `folder`."""

    def __init__(self, words, port, folder):
        self.port, self.log = port, pathlib.Path(folder) / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def wait_ready(self):
        until = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=5)
            try:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.1)
        raise Failed("does not start: " + self.last_line())

    def last_line(self):
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no log")[:200]

    def peak_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as sock:
        sock.bind((ADDRESS, 0))
        return sock.getsockname()[1]


def command(name, peers, n_streams, port, options):
    # llama-server rounds the context of a slot up to 256.
    context = -(-(options.prompt + options.answer + 64) // 256) * 256
    threads, streams = str(options.threads), str(n_streams)
    if name in peers:
        return [*peers[name], "-m", options.model, "--host", ADDRESS, "--port", str(port), "-t",
                threads, "-tb", threads, "-np", streams, "-c", str(context * n_streams)]
    settings = ("speculation.method=off", f"model.context={context}", *options.set)
    return [options.weir, "serve", "--model", options.model, "--port", str(port), "--threads",
            threads, "--max-sequences", streams,
            *(word for setting in settings for word in ("--set", setting))]


def measure(name, peers, n_streams, options):
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="weir-streams-") as folder:
        row = {"gb_per_second": bandwidth(options)}
        server = Server(command(name, peers, n_streams, port, options), port, folder)
        try:
            server.wait_ready()
            ask_all(port, 1, argparse.Namespace(prompt=8, answer=4, seconds=START_SECONDS))
            row.update(figures(*ask_all(port, n_streams, options), options))
            row["rss"] = server.peak_mb()
        except Failed as failed:
            reason = str(failed)
            if server.process.poll() is not None:
                reason += f"; ended with {server.process.returncode}: {server.last_line()}"
            return {"failed": reason}
        finally:
            server.close()
    return row


def bandwidth(options):
    """Of the bundled model's threads: as many as the servers have."""
    words = [options.weir, "bench", "--json", "--prompt", "0", "--gen", "4", "--repeat", "1",
             "--threads", str(options.threads)]
    output = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)["rows"][0]["bandwidth_gb_per_second"]


def summary(rows):
    whole = [row for row in rows if "failed" not in row]
    out = {key: spread(values) for key, _, _ in COLUMNS
           if (values := [row[key] for row in whole if key in row])}
    return {**out, "turns": len(whole),
            **({"failed": why} if (why := [r["failed"] for r in rows if "failed" in r]) else {})}


def text(values, width):
    """The median, with three digits."""
    if values is None:
        return "-".rjust(width)
    median = values["median"]
    return f"{median:.{0 if median >= 100 else 1 if median >= 10 else 2}f}".rjust(width)


def print_table(table, names):
    wide = max(map(len, names))
    print("streams  " + "server".ljust(wide) +
          "".join(title.rjust(width + 1) for _, title, width in COLUMNS) + "  spread of all/s")
    for (n_streams, name), row in table.items():
        line = f"{n_streams:7d}  {name.ljust(wide)}" + "".join(
            " " + text(row.get(key), width) for key, _, width in COLUMNS)
        if "all" in row:
            line += f"  {row['all']['least']:.1f} to {row['all']['most']:.1f}"
        print(line + "".join(f"\n         failed: {why}" for why in row.get("failed", ())))


def read_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--streams", default="1,4,16,64")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--answer", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seconds", type=int, default=1200)
    options = parser.parse_args()
    peers = {}
    for peer in options.peer:
        name, equals, words = peer.partition("=")
        if not equals or not words or name == "weir":
            parser.error(f"--peer {peer}: NAME=PROGRAM, and a name other than weir")
        peers[name] = shlex.split(words)
    try:
        options.streams = [int(word) for word in options.streams.split(",")]
    except ValueError:
        parser.error("--streams: numbers with commas between them")
    if min(*options.streams, options.prompt, options.turns, options.answer - 1) < 1:
        parser.error("numbers are at least 1, --answer at least 2")
    return options, peers


def main():
    options, peers = read_options()
    machine, names, rows = Machine("streams"), ["weir", *peers], {}
    for turn in range(options.turns):
        first = turn % len(names)
        for n_streams in options.streams:
            for name in names[first:] + names[:first]:
                row = measure(name, peers, n_streams, options)
                rows.setdefault((n_streams, name), []).append(row)
                print(f"turn {turn + 1}, {n_streams} streams, {name}: " + json.dumps(row),
                      file=sys.stderr, flush=True)
    table = {key: summary(rows[key]) for key in
             ((n, name) for n in options.streams for name in names)}
    print_table(table, names)
    machine.print({"model": os.path.basename(options.model), "threads": options.threads,
                   "prompt": options.prompt, "answer": options.answer,
                   "rows": [{"streams": n, "server": name, **row}
                            for (n, name), row in table.items()]})


if __name__ == "__main__":
    main()
