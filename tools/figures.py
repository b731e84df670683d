#!/usr/bin/env python3
"""Measures this commit and writes its figures to OUT/figures/NAME.json: tokens/s, TTFT, ITL, peak
RSS, KV bytes and perplexity, with the machine and its bandwidth.

    bazel run //tools:figures -- --out docs/results [--name NAME]          measures
    bazel run //tools:figures -- --check docs/results/figures/*.json

NAME is the commit, or, for a file that is kept, the processor and the date.

A figure that is missing, or is no positive number, is an error and nothing is written. So is a
bandwidth_share of more than 1.05: memory gives no more than was measured, so other programs ran
during one of the two, or the weights are in a cache. Such rows are measured again, three times in
all. A figure that is worse than that of another commit is none: machines differ, and their
bandwidth changes from run to run.

docs/benchmarks.md describes the file.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

FORMAT = 1
SECONDS = 1800  # for each program that measures
START_SECONDS = 300  # of the server
MOST_SHARE = 1.05  # of the bandwidth: more is no figure
TRIES = 3

RATE = ("median", "min", "max")
TIMES = ("p50", "p90", "p95", "p99")
ROW = (
    [("prefill_tokens_per_second", key) for key in RATE]
    + [("decode_tokens_per_second", key) for key in RATE]
    + [("ttft_ms", key) for key in TIMES]
    + [("itl_ms", key) for key in TIMES]
    + [
        (key,)
        for key in (
            "streams",
            "decode_tokens_per_second_per_stream",
            "peak_rss_bytes",
            "kv_bytes",
            "bandwidth_gb_per_second",
            "bandwidth_share",
        )
    ]
)
# What a file has, as paths of keys: texts, then positive numbers.
TEXTS = [("commit",), ("date",), ("model",), ("arch",), ("machine", "cpu")]
NUMBERS = (
    [("machine", key) for key in ("cores", "memory_bytes")]
    + [("prefill_tokens_per_second", key) for key in RATE]
    + [("decode_tokens_per_second", key) for key in RATE]
    + [("http", "ttft_ms", key) for key in TIMES]
    + [("http", "tpot_ms", key) for key in TIMES]
    + [("http", "e2e_ms", key) for key in TIMES]
    + [("http", "itl_ms", key) for key in TIMES]
    + [("http", "server_memory", key) for key in ("peak_bytes", "kv_pool_bytes")]
    + [("http", key) for key in ("requests_ok", "answer_tokens_per_second")]
    + [
        (key,)
        for key in (
            "bandwidth_gb_per_second",
            "bandwidth_share",
            "weight_bytes",
            "peak_rss_bytes",
            "kv_bytes",
            "perplexity",
            "nll",
        )
    ]
)


def value_at(figures, path):
    for key in path:
        figures = figures.get(key) if isinstance(figures, dict) else None
    return figures


def is_figure(value):
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )


def problems_of(figures, most_share=MOST_SHARE):
    """Names what is missing or is no figure; [] if nothing is."""
    if not isinstance(figures, dict):
        return ["no object"]
    problems = []
    if figures.get("format") != FORMAT:
        problems.append("format: %r instead of %d" % (figures.get("format"), FORMAT))
    for path in TEXTS:
        value = value_at(figures, path)
        if not isinstance(value, str) or not value.strip():
            problems.append("%s: %r is no text" % (".".join(path), value))
    for path in NUMBERS:
        value = value_at(figures, path)
        if not is_figure(value):
            problems.append("%s: %r is no positive number" % (".".join(path), value))
    rows = figures.get("streams")
    if not isinstance(rows, list) or not rows:
        return problems + ["streams: there is no row"]
    for i, row in enumerate(rows):
        for path in ROW:
            if not is_figure(value_at(row, path)):
                problems.append(
                    "streams[%d].%s: %r is no positive number"
                    % (i, ".".join(path), value_at(row, path))
                )
    return problems + shares_over(figures, most_share)


def shares_over(figures, most):
    """Names the shares of the bandwidth that cannot be."""
    rows = figures.get("streams")
    named = [("bandwidth_share", figures)] + [
        ("streams[%d].bandwidth_share" % i, row)
        for i, row in enumerate(rows if isinstance(rows, list) else [])
    ]
    return [
        "%s: %.3f is more than %.2f: other programs used the memory, or the weights are in a cache"
        % (name, value_at(row, ("bandwidth_share",)), most)
        for name, row in named
        if is_figure(value_at(row, ("bandwidth_share",)))
        and value_at(row, ("bandwidth_share",)) > most
    ]


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.M)
    return {
        "cpu": name.group(1).strip() if name else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "load_before": os.getloadavg()[0],
    }


def commit_of(folder):
    """The commit that is checked out, and whether files differ from it."""
    def git(*words):
        return subprocess.run(
            ["git", "-C", folder, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no") == ""


def assemble(commit, is_clean, where, bench, streams, load, perplexity):
    """One object from what the programs printed; what they lack is missing here too."""
    row = (bench.get("rows") or [{}])[0]
    http = ("requests_ok", "answer_tokens_per_second", "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms",
            "server_memory")
    return {
        "format": FORMAT,
        "commit": commit,
        "tree_is_clean": is_clean,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": where,
        "model": bench.get("model"),
        "arch": bench.get("arch"),
        "threads": bench.get("threads"),
        "prompt": bench.get("prompt"),
        "gen": bench.get("gen"),
        "bandwidth_gb_per_second": row.get("bandwidth_gb_per_second"),
        "bandwidth_share": row.get("bandwidth_share"),
        "prefill_tokens_per_second": row.get("prefill_tokens_per_second"),
        "decode_tokens_per_second": row.get("decode_tokens_per_second"),
        "weight_bytes": bench.get("weight_bytes"),
        "peak_rss_bytes": bench.get("peak_rss_bytes"),
        "kv_bytes": row.get("kv_bytes"),
        "streams": streams.get("rows"),
        "http": {key: load.get(key) for key in http},
        "perplexity": perplexity.get("perplexity"),
        "nll": perplexity.get("nll"),
    }


# ---- the programs --------------------------------------------------------------------------------
def ask(program, *words):
    """The JSON that a command prints."""
    done = subprocess.run(
        [program, *words, "--json", "--quiet"], stdout=subprocess.PIPE, timeout=SECONDS, text=True
    )
    if done.returncode != 0:
        sys.exit("figures: weir %s: exit code %d" % (" ".join(words), done.returncode))
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as error:
        sys.exit("figures: weir %s: no JSON: %s" % (" ".join(words), error))


def ask_quiet(most_share, *words):
    """The same, again while its rows have more of the bandwidth than there is."""
    for _ in range(TRIES):
        figures = ask(*words)
        rows = figures.get("rows") or []
        if not any(shares_over(row, most_share) for row in rows):
            break
    return figures


def address_of(server, log):
    """The URL that the server writes to its log when it listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        is_over = server.poll() is not None
        text = pathlib.Path(log).read_text(errors="replace")
        found = re.search(r"listening on (http://[0-9.]+:[0-9]+)", text)
        if found:
            return found.group(1)
        if is_over:
            break
        time.sleep(0.05)
    sys.exit("figures: the server did not start: " + text[-2000:])


def measure_http(program, model, options):
    """A load on a server of this machine, with as many clients as the middle count of streams."""
    clients = sorted(options.streams)[len(options.streams) // 2]
    words = [program, "serve", "--port", "0", "--host", "127.0.0.1", "--max-sequences",
             str(clients), *model]
    with tempfile.NamedTemporaryFile() as log:
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)
        try:
            return ask(
                program, "load", address_of(server, log.name), "--requests",
                str(options.requests), "--concurrency", str(clients), "--prompt",
                str(options.prompt), "--answer", str(options.gen)
            )
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def measure(options, commit, is_clean):
    program = options.program
    model = ["--model", options.model] if options.model else []
    where = machine()
    lengths = ["--prompt", str(options.prompt), "--gen", str(options.gen),
               "--repeat", str(options.repeat)]
    bench = ask_quiet(options.most_share, program, "bench", *lengths, *model)
    streams = ask_quiet(
        options.most_share, program, "bench", "--streams", ",".join(map(str, options.streams)),
        *lengths, *model
    )
    perplexity = ask(program, "eval", "perplexity", "--text", options.text, *model)
    return assemble(
        commit, is_clean, where, bench, streams, measure_http(program, model, options), perplexity
    )


# ---- the command ---------------------------------------------------------------------------------
def check_files(paths, most_share):
    failed = 0
    for path in paths:
        try:
            problems = problems_of(json.loads(pathlib.Path(path).read_text()), most_share)
        except (OSError, ValueError) as error:
            problems = [str(error)]
        for problem in problems:
            print("%s: %s" % (path, problem), file=sys.stderr)
        failed += bool(problems)
    print("%d passed, %d failed" % (len(paths) - failed, failed))
    return 1 if failed else 0


def write(figures, out, name):
    folder = pathlib.Path(out) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name + ".json")
    part = path.with_suffix(".part")
    part.write_text(json.dumps(figures, indent=1) + "\n")
    part.rename(path)
    print(path)


def read_options(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="folder of results; the file is in its folder figures")
    parser.add_argument("--name", help="of the file; default: the commit")
    parser.add_argument("--check", nargs="+", metavar="FILE", help="only look at these files")
    parser.add_argument("--model", help="default: the bundled demo")
    parser.add_argument("--text", default="models/weir-demo/eval/val_novel.txt",
                        help="text for the perplexity")
    parser.add_argument("--program", default="engine/cli/weir", help="the program weir")
    parser.add_argument("--commit", help="default: what is checked out")
    parser.add_argument("--streams", default="1,4,16", help="requests at a time")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--requests", type=int, default=64, help="of the load over HTTP")
    parser.add_argument("--most-share", type=float, default=MOST_SHARE,
                        help="of the bandwidth, of any row")
    options = parser.parse_args(words)
    options.streams = [int(count) for count in options.streams.split(",")]
    if not options.out and not options.check:
        parser.error("--out DIR or --check FILE is needed")
    if options.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", options.name):
        parser.error("--name: letters, digits, '.', '_' and '-', the first a letter or digit")
    return options


def of_caller(path):
    """A path as the user wrote it: bazel run changes the folder."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def main(words):
    options = read_options(words)
    if options.check:
        return check_files([of_caller(path) for path in options.check], options.most_share)
    if options.model:
        options.model = of_caller(options.model)
    is_clean = True
    commit = options.commit
    if commit is None:
        commit, is_clean = commit_of(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    # The programs take relative paths from the folder that this script runs in.
    out = of_caller(options.out)
    os.environ.pop("BUILD_WORKING_DIRECTORY", None)
    figures = measure(options, commit, is_clean)
    problems = problems_of(figures, options.most_share)
    for problem in problems:
        print("figures: " + problem, file=sys.stderr)
    if problems:
        return 1
    write(figures, out, options.name or commit)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
