#!/usr/bin/env python3
"""tests/bench/shared_document.py - many users of the same text, over HTTP.

    shared_document.py PROGRAM [--model PATH] [--memory MIB] [--burst N] [--document N]
                       [--pool N] [--askers N] [--conversations N] [--set KEY=VALUE]...

PROGRAM is the serve binary, with its bundled model unless --model is given.
1. 16 equal prompts of 20,000 tokens (--burst) at once: how many tokens are computed.
2. 16 askers of one document of 30,000 tokens (--document), each with a question of its own, in a
   pool of 40,000 tokens (--pool): how many run at once, and how many tokens are computed.
3. 256 conversations (--conversations), one turn each; then each speaks again: how much of the first
   turns is reused.
Prints each, and a line of JSON. --askers: of 1 and 2."""
import argparse
import subprocess
import sys
import threading
import time

from machine import Machine
from mixed import Server, engine
from case import Wrong

MIB, TRIES = 1 << 20, 1000


def text(n, start):
    return [5 + (i * 7919 + i * i + start * 104729) % 200 for i in range(n)]


class Asker(threading.Thread):
    def __init__(self, server, ids, answer):
        super().__init__()
        self.server, self.ids, self.answer, self.reply = server, ids, answer, None
        self.start()

    def run(self):
        body = {"prompt": self.ids, "max_tokens": self.answer, "temperature": 0,
                "ignore_eos": True}
        for _ in range(TRIES):  # without memory to read it now the answer is 503, or none
            try:
                self.reply = self.server.post("/v1/completions", body, seconds=3000)
            except (Wrong, OSError):
                self.reply = None
            if self.reply is not None and self.reply.status != 503:
                return
            time.sleep(0.2)

    def usage(self):
        """Prompt tokens and those that were cached."""
        if self.reply is None or self.reply.status != 200:
            sys.exit(f"shared_document: {self.reply and self.reply.body[:300]!r}")
        usage = self.reply.json()["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def ask_all(server, prompts, answer):
    """Askers at once, and the most that ran at a time."""
    askers, most = [Asker(server, ids, answer) for ids in prompts], 0
    while any(asker.is_alive() for asker in askers):
        most = max(most, int(engine(server).get("num_requests_running", 0)))
        time.sleep(0.05)
    return askers, most


def computed(askers):
    return sum(prompt - cached for prompt, cached in (asker.usage() for asker in askers))


class Places:
    """Servers with one model; `memory` in MiB."""

    def __init__(self, options):
        self.options = options

    def open(self, memory, *settings):
        o = self.options
        model = [f"model.path={o.model}"] if o.model else []
        return Server(o.program, memory, [*model, *settings, *o.set], stdout=subprocess.DEVNULL)

    def open_with_pool(self, tokens, *settings):
        """With KV pages for about this many tokens."""
        memory = self.options.memory
        for _ in range(8):
            server = self.open(memory, *settings)
            kv = server.ask("GET", "/v1/memory", seconds=60).json()["kv"]
            more = (tokens - kv["free_tokens"]) * kv["bytes_per_token"] / MIB
            if abs(tokens - kv["free_tokens"]) < tokens / 50:
                return server, kv["free_tokens"]
            server.close()
            memory = int(memory + more + (1 if more > 0 else 0))
        sys.exit(f"shared_document: no memory.host gives a pool of {tokens} tokens")


def burst(places, n_askers, n):
    server = places.open(places.options.memory, f"model.context={n + 256}",
                         f"batch.max_sequences={n_askers}")
    try:
        begin = time.monotonic()
        askers, most = ask_all(server, [text(n, 1)] * n_askers, 4)
        seconds = time.monotonic() - begin
        tokens = computed(askers)
    finally:
        server.close()
    print(f"burst: {n_askers} equal prompts of {n} tokens: {tokens} computed, "
          f"{tokens / n:.3f} prefills, in {seconds:.1f} s")
    return {"askers": n_askers, "tokens": n, "computed": tokens, "prefills": tokens / n,
            "seconds": round(seconds, 1), "most_running": most}


def document(places, n_askers, n, pool):
    server, free = places.open_with_pool(pool, f"model.context={n + 1024}",
                                         f"batch.max_sequences={n_askers}")
    try:
        common = text(n, 2)
        prompts = [common + text(32, 100 + i) for i in range(n_askers)]
        askers, most = ask_all(server, prompts, 350)
        tokens = computed(askers)
    finally:
        server.close()
    print(f"document: {n_askers} askers of {n} tokens in a pool of {free}: {most} at once, "
          f"{tokens} computed, {tokens / n:.3f} prefills")
    return {"askers": n_askers, "tokens": n, "pool": free, "most_running": most,
            "computed": tokens, "prefills": tokens / n}


def conversations(places, n):
    first, answer, more = 400, 24, 40
    server = places.open(places.options.memory, "model.context=4096", "batch.max_sequences=8",
                         "memory.disk=2GiB", "memory.disk_dir={dir}", f"batch.queue={n}")
    try:
        heard = []
        for i in range(n):
            body = {"prompt": text(first, 1000 + i), "max_tokens": answer, "temperature": 0,
                    "ignore_eos": True}
            reply = server.post("/v1/completions", body, seconds=600).json()
            heard.append(reply["choices"][0]["text"])
        reused = known = 0
        for i in range(n):
            ids = server.post("/tokenize", {"content": heard[i]}, seconds=60).json()["tokens"]
            prompt = text(first, 1000 + i) + ids + text(more, 5000 + i)
            usage = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1},
                                seconds=600).json()["usage"]
            reused += min(usage["prompt_tokens_details"]["cached_tokens"], first)
            known += first
        memory = server.ask("GET", "/v1/memory", seconds=60).json()
    finally:
        server.close()
    disk = memory["tiers"]["disk"]["used"]
    print(f"conversations: {n} of {first} tokens, each speaks again: {reused / known:.3f} of the "
          f"first prompts reused; {disk / MIB:.0f} MiB on disk")
    return {"conversations": n, "tokens": first, "reused": round(reused / known, 4),
            "disk_bytes": disk, "memory_bytes": memory["tiers"]["host"]["used"]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model")
    parser.add_argument("--memory", type=int, default=256)
    parser.add_argument("--burst", type=int, default=20000)
    parser.add_argument("--document", type=int, default=30000)
    parser.add_argument("--pool", type=int, default=40000)
    parser.add_argument("--askers", type=int, default=16)
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    machine, places = Machine("shared_document"), Places(options)
    figures = {"burst": burst(places, options.askers, options.burst),
               "document": document(places, options.askers, options.document, options.pool),
               "conversations": conversations(places, options.conversations)}
    machine.print(figures)


if __name__ == "__main__":
    main()
