#!/usr/bin/env python3
"""tests/limit/experts.py - a mixture of experts twice its budget: a server in a memory cgroup whose
limit is its memory.host, with memory.experts for a part of the experts.

    experts.py PROGRAM [--experts MIB] [--room MIB] [--set KEY=VALUE]...

PROGRAM is the serve binary. A mixture with random weights (random_model.py, 212 MiB) is made, and
the same requests are answered with all experts in memory, and then in a group of `experts` (44) MiB
for experts and `room` (60) for all else, half of the file:

1. Answers and log-probabilities have the same bits. The peak is within the limit, nothing is
   killed, experts were read, and /v1/memory has the counts.
2. The last expert of the last layer is cut off the file: requests that need it fail with an error
   that names the file, the others have the same bits, the server lives.
3. The file is whole again: every answer has the same bits again.

Prints the speed of decoding and "N passed, N failed"."""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import limit
from checks import report
from group import Group, drop_cache, field
from resident import Server

MIB = 1 << 20
HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "bench" / "random_model.py"
N_PROMPTS, N_TOKENS, N_LONG = 12, 4, 96


def prompts():
    """Short ones, of which some do not need the last expert, and a long one."""
    short = [[5 + (i * 37 + j * 11) % 200 for j in range(1 + i % 3)] for i in range(N_PROMPTS)]
    return [*short, [5 + j * 7 % 200 for j in range(300)]]


def ask(server, ids, n_tokens):
    """The status, and what must be the same."""
    body = {"prompt": ids, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0,
            "logprobs": 1}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        return answer.status, text.decode(errors="replace")
    choice = json.loads(text)["choices"][0]
    return 200, (choice["text"], choice["logprobs"]["token_logprobs"])


def answers(server):
    return [ask(server, ids, N_TOKENS) for ids in prompts()]


def serve(program, model, memory, group=None, more=()):
    settings = [f"model.path={model}", "kv.reuse=off", "batch.max_sequences=2",
                "model.context=512", "server.workers=2", "kernels.threads=2", *more]
    return Server(program, memory, group, settings)


def cut(path, n_bytes):
    """Cuts bytes off the end of a file and returns them."""
    with open(path, "r+b") as file:
        file.seek(-n_bytes, os.SEEK_END)
        tail = file.read()
        file.seek(-n_bytes, os.SEEK_END)
        file.truncate()
    return tail


def check_errors(server, model, want):
    """Without the last expert of the last layer (its last matrix ends the file)."""
    tail = cut(model, 64 * 1024)
    try:
        got = answers(server)
    finally:
        with open(model, "ab") as file:
            file.write(tail)
    failed = [text for status, text in got if status != 200]
    kept = [i for i, (status, _) in enumerate(got) if status == 200]
    print(f"{len(failed)} of {len(got)} requests needed an expert that was cut off")
    whole = answers(server)
    return [
        ("a request that needs an expert that is cut off fails", bool(failed)),
        ("its error names the file", all(os.path.basename(model) in text for text in failed)),
        ("others have the same bits", bool(kept) and all(got[i] == want[i] for i in kept)),
        ("with the whole file all have the same bits again", whole == want),
        ("the server is alive", server.process.poll() is None),
    ]


def check_budget(server, group, most, want, reads_ahead):
    got = answers(server)
    begin = time.monotonic()
    status, _ = ask(server, [7, 8, 9], N_LONG)
    seconds = time.monotonic() - begin
    memory = server.memory()
    experts = memory["experts"]
    layers = experts.pop("layers")
    metrics = server.get("/metrics")[1].decode()
    peak = group.peak() or field(server.process.pid, "VmHWM")
    anonymous = group.anonymous(server.process.pid)
    print(f"{N_LONG / seconds:.1f} tokens/s; peak {peak / MIB:.1f} of {most / MIB:.1f} MiB, "
          f"{anonymous / MIB:.1f} without the page cache; experts: {experts}")
    return [
        ("answers have the same bits", got == want),
        ("a long answer is decoded", status == 200),
        ("the peak is within the limit", 0 < peak <= most),
        ("the ledger's peak is within its cap", memory["tiers"]["host"]["peak"] <= most),
        ("it was not killed for memory", group.kills() == 0),
        ("half of the experts are in memory", 0 < experts["in_memory"] * 2 <= experts["total"]),
        ("experts were read from the file", experts["misses"] > experts["in_memory"] and
         experts["bytes_read"] > 0 and experts["read_errors"] == 0),
        ("some were in memory", experts["hits"] > 0),
        ("most of what was read ahead was needed",
         0 < experts["prefetched"] < 2 * experts["prefetch_used"] or not reads_ahead),
        ("the layers' counts are the sums", all(
            sum(layer[name] for layer in layers) == experts[name]
            for name in ("hits", "misses", "prefetched", "prefetch_used", "prefetch_unused",
                         "bytes_read", "pinned"))),
        ("the metrics have the layers", all(
            re.search(rf'^weir:expert_layer_{name}_total{{[^}}]*layer="{layer["layer"]}"}} '
                      rf'{layer[name]}$', metrics, re.M)
            for layer in layers for name in ("hits", "misses"))),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--experts", type=int, default=44, help="memory.experts in MiB")
    parser.add_argument("--room", type=int, default=60, help="of memory.host for the rest, in MiB")
    parser.add_argument("--set", action="append", default=[], help="more settings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-experts-", dir="/var/tmp") as folder:
        model = f"{folder}/mixture.gguf"
        subprocess.run([sys.executable, MODEL, model, "--size", "0.2B-A0.04B", "--vocab", "1024"],
                       check=True)
        print(f"the file has {os.path.getsize(model) / MIB:.1f} MiB")
        whole = serve(options.program, model, 1024, more=options.set)
        want = answers(whole)
        whole.end()
        drop_cache(model)
        most = (options.experts + options.room) * MIB
        group = Group(most)
        group.say()
        server = None
        try:
            server = serve(options.program, model, options.experts + options.room, group,
                           [f"memory.experts={options.experts}MiB", *options.set])
            checks = [("all in memory, every request is answered",
                       all(status == 200 for status, _ in want)),
                      ("the file is twice memory.host",
                       os.path.getsize(model) > 2 * most)]
            checks += check_budget(server, group, most, want,
                                   "memory.expert_prefetch=false" not in options.set)
            checks += check_errors(server, model, want)
            server.process.send_signal(signal.SIGTERM)
            checks.append(("it ends when it is asked to", server.process.wait(60) in (0, 143)))
        finally:
            if server is not None:
                server.end()
            group.remove()
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
