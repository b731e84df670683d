#!/usr/bin/env python3
"""tests/bench/experts.py - decoding with half of the experts in memory, against what the missing
bytes cost at the speed of the disk.

    experts.py SERVE [--model GGUF] [--share S] [--tokens N] [--rounds N] [--room MIB] [--json]
               [--set KEY=VALUE]...

SERVE is the serve binary; without a model a mixture with random weights is made (random_model.py,
3B-A0.6B, 3 GB; --folder for it). Each round measures, one after another:

- the disk: four threads read pieces of the size of a matrix of an expert past the page cache;
- decoding with all experts in memory;
- decoding with `share` (0.5) of the experts in memory, in a memory cgroup of memory.host where one
  can be made, so that the page cache holds no others.

The missing bytes of a token are those of experts that were not in memory before anything was read
for it: misses and right guesses. The bound is the larger of the time that they take to read and the
time of a token with all experts in memory; the figure is bound / measured. Run it on a quiet
machine: it prints the load. It also prints what other programs disturb less: the processor time of
a token, and how often and how long the engine waited for experts."""
import argparse
import http.client
import json
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "limit"))
sys.path.insert(0, str(HERE.parent / "attack"))
from group import Group, drop_cache  # noqa: E402
from resident import Server  # noqa: E402

MIB = 1 << 20
THREADS = 4  # that read, as in the engine
PIECES = 200  # of a pass
PASSES = 5


def disk_speed(path, piece):
    """The most bytes per second of several passes; each reads pieces at random places, none twice.
    """
    return max(disk_pass(path, piece, seed) for seed in range(PASSES))


def disk_pass(path, piece, seed):
    piece = -(-piece // 4096) * 4096
    places = list(range(os.path.getsize(path) // piece))
    random.Random(seed).shuffle(places)
    places = places[:PIECES]
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(mine):
        buffer = mmap.mmap(-1, piece)
        for place in mine:
            os.preadv(file, [buffer], place * piece)

    threads = [threading.Thread(target=read, args=(places[i::THREADS],)) for i in range(THREADS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(file)
    return len(places) * piece / (time.monotonic() - begin)


def processor_time(server):
    """Seconds of all threads."""
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def decode(server, n_tokens):
    """Seconds of a token of an answer, after its prompt."""
    ids = [5 + random.randrange(200) for _ in range(16)]
    body = {"prompt": ids, "max_tokens": n_tokens, "ignore_eos": True, "stream": True,
            "temperature": 1.0}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer, times = connection.getresponse(), []
    for line in answer:
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    return (times[-1] - times[0]) / (n_tokens - 1)


def start(program, model, memory, group=None, more=()):
    settings = [f"model.path={model}", "batch.max_sequences=1", "model.context=1024",
                "speculation.method=off", *more]
    return Server(program, memory, group, settings)


def round_of(options, model, memory):
    """The figures of one round; memory: MiB for all but the experts."""
    server = start(options.program, model, memory + os.path.getsize(model) * 5 // 4 // MIB)
    decode(server, 16)
    whole_time = -processor_time(server)
    whole = decode(server, options.tokens)
    whole_time += processor_time(server)
    server.end()
    drop_cache(model)  # nothing outside the group holds it
    experts = int(os.path.getsize(model) * options.share) // MIB
    group = Group((memory + experts) * MIB)
    server = None
    try:
        server = start(options.program, model, memory + experts, group,
                       [f"memory.experts={experts}MiB", *options.set])
        decode(server, options.tokens)  # what is used most is there
        before = server.memory()["experts"]
        time_used = -processor_time(server)
        seconds = decode(server, options.tokens)
        time_used += processor_time(server)
        after = server.memory()["experts"]
    finally:
        if server is not None:
            server.end()
        group.remove()
    change = {name: after[name] - before[name] for name in (
        "hits", "misses", "prefetched", "prefetch_used", "bytes_read", "waits",
        "wait_seconds")}
    size = change["bytes_read"] / max(1, change["misses"] + change["prefetched"])
    disk = disk_speed(model, int(size / 3))
    missing = size * (change["misses"] + change["prefetch_used"]) / options.tokens
    bound = max(whole, missing / disk)
    return {"disk_mb_s": disk / 1e6, "whole_tokens_s": 1 / whole, "tokens_s": 1 / seconds,
            "missing_mb": missing / 1e6, "read_mb": change["bytes_read"] / options.tokens / 1e6,
            "in_memory": after["in_memory"], "experts": after["total"],
            "whole_processor_ms": 1e3 * whole_time / options.tokens,
            "processor_ms": 1e3 * time_used / options.tokens,
            "waits": change["waits"] / options.tokens,
            "wait_ms": 1e3 * change["wait_seconds"] / options.tokens,
            "hits": change["hits"] / (change["hits"] + change["misses"]),
            "reads": after["reads"], "of_bound": bound / seconds, "of_disk": missing / disk /
            seconds, "in_group": group.path is not None, "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--model")
    parser.add_argument("--size", default="3B-A0.6B", help="of the model that is made")
    parser.add_argument("--share", type=float, default=0.5, help="of the file, for experts")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--room", type=int, default=600, help="MiB of memory.host for the rest")
    parser.add_argument("--folder", default="/var/tmp", help="for the model, on the disk")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="more settings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-experts-", dir=options.folder) as folder:
        model = options.model
        if model is None:
            model = f"{folder}/mixture.gguf"
            subprocess.run([sys.executable, str(HERE / "random_model.py"), model, "--size",
                            options.size, "--vocab", "4096"], check=True)
        rounds = [round_of(options, model, options.room) for _ in range(options.rounds)]
    if options.json:
        print(json.dumps({"rounds": rounds,
                          "of_bound": statistics.median(r["of_bound"] for r in rounds)}))
        return
    for r in rounds:
        print(f"{r['in_memory']} of {r['experts']} experts, {r['hits']:.1%} hits, reads "
              f"{r['reads']}, load {r['load']:.1f}{'' if r['in_group'] else ', no group'}: "
              f"{r['tokens_s']:.1f} tokens/s ({r['whole_tokens_s']:.1f} with all in memory); "
              f"{r['missing_mb']:.1f} MB missing, {r['read_mb']:.1f} MB read a token; disk "
              f"{r['disk_mb_s']:.0f} MB/s; {r['of_bound']:.0%} of the bound, "
              f"{r['of_disk']:.0%} of the disk's; {r['waits']:.1f} waits, {r['wait_ms']:.1f} ms, "
              f"processors {r['processor_ms']:.0f} ms ({r['whole_processor_ms']:.0f}) a token")


if __name__ == "__main__":
    main()
