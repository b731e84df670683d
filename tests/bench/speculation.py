#!/usr/bin/env python3
"""tests/bench/speculation.py - what drafts by n-gram lookup give and cost.

    speculation.py PROGRAM [--model PATH] [--memory MIB] [--tokens N] [--turns N]
                   [--set KEY=VALUE]...

PROGRAM is the serve binary, with its bundled model unless --model is given. Two servers, without
drafts and with them, answer in turns (--turns, 3) with N tokens (--tokens, 128): answers of few
different tokens, which repeat themselves, free ones, and sampled ones, alone and four at a time.
The answers must be equal. Prints medians of tokens/s, and a line of JSON."""
import argparse
import statistics
import subprocess
import sys
import threading

from machine import Machine
from mixed import Server

PROMPT = [10 + (i * 7919 + i * i) % 200 for i in range(48)]


def few(n):
    return {str(20 + 12 * i): 100 for i in range(n)}


CASES = {
    "one token": {"logit_bias": few(1)},
    "three tokens": {"logit_bias": few(3)},
    "free": {},
    "free, of a text that repeats": {"prompt": PROMPT * 4},
    "sampled": {"temperature": 1.0},
    "sampled of three tokens": {"logit_bias": few(3), "temperature": 1.0},
    "sampled of eight tokens": {"logit_bias": few(8), "temperature": 1.0},
    "three tokens, four at a time": {"logit_bias": few(3), "streams": 4},
    "sampled of eight tokens, four at a time":
        {"logit_bias": few(8), "temperature": 1.0, "streams": 4},
}


def ask(server, case, tokens):
    """Tokens/s of all streams, drafted and accepted tokens, and the answers."""
    streams, replies = case.get("streams", 1), {}

    def run(i):
        body = {"prompt": PROMPT, "temperature": 0, "seed": i, "max_tokens": tokens,
                "ignore_eos": True, "cache_prompt": False,
                **{key: value for key, value in case.items() if key != "streams"}}
        replies[i] = server.post("/v1/completions", body, seconds=600).json()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    timings = [replies[i]["timings"] for i in range(streams)]
    return {"rate": sum(t["predicted_per_second"] for t in timings),
            "drafted": sum(t.get("draft_n", 0) for t in timings),
            "accepted": sum(t.get("draft_n_accepted", 0) for t in timings),
            "texts": [replies[i]["choices"][0]["text"] for i in range(streams)]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model")
    parser.add_argument("--memory", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    machine, servers, figures = Machine("speculation"), [], {}
    settings = (*([f"model.path={options.model}"] if options.model else []),
                "model.context=4096", "batch.max_sequences=4", *options.set)
    try:
        for method in ("off", "ngram"):
            servers.append(Server(options.program, options.memory,
                                  (*settings, f"speculation.method={method}"),
                                  stdout=subprocess.DEVNULL))
        for name, case in CASES.items():
            turns = [[ask(server, case, options.tokens) for server in servers]
                     for _ in range(options.turns)]
            if any(off["texts"] != on["texts"] for off, on in turns):
                sys.exit(f"speculation: {name}: the answers differ")
            off, on = (statistics.median(turn[i]["rate"] for turn in turns) for i in (0, 1))
            last = turns[-1][1]
            figures[name] = {"off": off, "ngram": on, "drafted": last["drafted"],
                             "accepted": last["accepted"]}
            print(f"{name}: {off:.1f} tokens/s, with drafts {on:.1f}: {on / off:.2f} times; "
                  f"{last['accepted']} of {last['drafted']} drafts right", flush=True)
        machine.print(figures)
    finally:
        for server in servers:
            server.close()


if __name__ == "__main__":
    main()
