"""One layer of CoDA-GQA-L, Weir and the package coda-gqa-l: run by peer_coda.sh, in turns, so
that both see the machine as it is at the time.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time

import torch
from coda_gqa_l import CoDAGQALandmarkPerf2

import coda_layer

WINDOW, BANK, TOKENS, STEPS, REPEATS = 256, 64, 2048, 64, 3


def run_weir(options, model, archs, dtype, block):
    """Prefill from an empty state, decoding after as many tokens."""
    report = coda_layer.run_bench(
        options.weir,
        model,
        archs,
        (
            "--context",
            2 * TOKENS + 64,
            "--prompt",
            TOKENS,
            "--depth",
            f"0,{TOKENS}",
            "--gen",
            STEPS,
            "--chunk",
            block,
            "--kv-format",
            dtype,
            "--threads",
            options.threads,
            "--repeat",
            REPEATS,
            "--set",
            "kernels.activations=" + ("f32" if dtype == "f32" else "fast"),
        ),
    )
    first, last = report["rows"]
    return {
        "prefill": first["prefill_tokens_per_second"]["median"],
        "decode": last["decode_tokens_per_second"]["median"],
        "bandwidth": last["bandwidth_gb_per_second"],
    }


def count_steps(layer, steps, state):
    begin = time.perf_counter()
    for step in steps:
        _, state = layer.step(step, state)
    return len(steps) / (time.perf_counter() - begin)


def run_package(shape, dtype, block, threads):
    """In inference mode. Its steps are many small operations: they are counted on all threads and
    on one, the better counts.
    """
    width, heads, kv_heads, head_dim = shape
    torch.manual_seed(1)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    layer = (
        CoDAGQALandmarkPerf2(
            embed_dim=width,
            num_heads=heads,
            num_kv_heads=kv_heads,
            window=WINDOW,
            num_landmarks_exact=BANK,
            num_landmarks_summary=BANK,
        )
        .to(kind)
        .eval()
    )
    x, steps = torch.randn(1, TOKENS, width, dtype=kind), torch.randn(
        STEPS, 1, 1, width, dtype=kind
    )
    rates = {"prefill": [], "decode": [], "decode_one_thread": []}
    with torch.inference_mode():
        for repeat in range(REPEATS + 1):
            torch.set_num_threads(threads)
            state = layer.init_state(batch_size=1, device=torch.device("cpu"), dtype=kind)
            begin = time.perf_counter()
            _, state = layer.prefill_chunked(x, state, block_size=block)
            prefill = TOKENS / (time.perf_counter() - begin)
            decode = count_steps(layer, steps, state)
            torch.set_num_threads(1)
            one = count_steps(layer, steps, state)
            if repeat > 0:
                for name, rate in (
                    ("prefill", prefill),
                    ("decode", decode),
                    ("decode_one_thread", one),
                ):
                    rates[name].append(rate)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "prefill": middle["prefill"],
        "decode": max(middle["decode"], middle["decode_one_thread"]),
    }


def layer_bytes(shape, dtype):
    """What a step has to read: the weights of the layer and its state, once; and what it reads
    for the rest of the model.
    """
    size = 4 if dtype == "f32" else 2
    of_layer, others = coda_layer.matrices(shape)
    state = 2 * (WINDOW + 2 * BANK) * shape[2] * shape[3]
    count = [
        sum(rows * (columns[0] if columns else 1) for rows, *columns in matrices.values())
        for matrices in (of_layer, others)
    ]
    return size * (count[0] + state), size * count[1]


def summary(ours, theirs):
    ratios = [a / b for a, b in zip(ours, theirs)]
    return {
        "weir": ours,
        "package": theirs,
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
    }


def measure(options, text, dtype, block):
    shape = coda_layer.parse_shape(text)
    model, archs = os.path.join(options.work, text.replace("/", "_") + "_" + dtype), os.path.join(
        options.work, f"archs_{block}"
    )
    if not os.path.isdir(model):
        coda_layer.write_model(model, shape, dtype)
    coda_layer.write_arch(archs, options.arch, "coda", (WINDOW, BANK, BANK), block)
    turns = []
    for turn in range(options.turns):
        print(
            f"{text} {dtype} {block}: turn {turn + 1} of {options.turns}",
            file=sys.stderr,
            flush=True,
        )
        turns.append(
            (
                run_weir(options, model, archs, dtype, block),
                run_package(shape, dtype, block, options.threads),
            )
        )
    bound, others = layer_bytes(shape, dtype)
    bandwidth = [weir["bandwidth"] for weir, _ in turns]
    shares = [weir["decode"] * bound / (weir["bandwidth"] * 1e9) for weir, _ in turns]
    return {
        "shape": text,
        "dtype": dtype,
        "block": block,
        "bandwidth_gb_per_second": bandwidth,
        "bytes_per_step": bound,
        "bytes_outside_the_layer": others,
        "decode_share_of_bandwidth": shares,
        **{
            name: summary(*([turn[side][name] for turn in turns] for side in (0, 1)))
            for name in ("prefill", "decode")
        },
    }


def print_table(rows):
    print(
        f"{'shape':<16} {'type':<5} {'block':>5}  {'prefill tok/s':>22} {'ratio':>20}  "
        f"{'steps/s':>18} {'ratio':>20}  {'GB/s':>6} {'of bound':>8}"
    )
    for row in rows:
        cells = []
        for name, width in (("prefill", 22), ("decode", 18)):
            ours, theirs = (statistics.median(row[name][side]) for side in ("weir", "package"))
            cells.append(f"{f'{ours:.0f} : {theirs:.0f}':>{width}}")
            cells.append(
                "{:>20}".format(
                    "%.2f (%.2f..%.2f)"
                    % tuple(row[name][key] for key in ("ratio", "least_ratio", "most_ratio"))
                )
            )
        bandwidth, share = statistics.median(row["bandwidth_gb_per_second"]), statistics.median(
            row["decode_share_of_bandwidth"]
        )
        print(
            f"{row['shape']:<16} {row['dtype']:<5} {row['block']:>5}  {cells[0]} {cells[1]}  "
            f"{cells[2]} {cells[3]}  {bandwidth:>6.1f} {100 * share:>6.0f} %"
        )


def main():
    parser = argparse.ArgumentParser()
    for name in ("weir", "arch", "work"):
        parser.add_argument("--" + name, required=True)
    for name in ("threads", "turns"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--shapes", nargs="+", required=True)
    parser.add_argument("--dtypes", nargs="+", choices=["f32", "bf16"], required=True)
    parser.add_argument("--blocks", nargs="+", type=int, required=True)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = [
        measure(options, *case)
        for case in itertools.product(options.shapes, options.dtypes, options.blocks)
    ]
    if options.json:
        print(
            json.dumps(
                {
                    "torch": torch.__version__,
                    "threads": options.threads,
                    "load": load,
                    "turns": options.turns,
                    "rows": rows,
                },
                indent=2,
            )
        )
        return
    print(
        f"Weir : coda-gqa-l (PyTorch {torch.__version__}), {options.threads} threads, medians of "
        f"{options.turns} turns, load before {load:.2f}"
    )
    print_table(rows)


main()
