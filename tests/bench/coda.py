#!/usr/bin/env python3
"""One layer of CoDA-GQA-L by length of the text: prefill and decode with banks of several sizes and
without, next to the same layer over all rows (differential attention) and plain attention. Standard
library only.

usage: coda.py [--json] [--shape WIDTH/HEADS/KV_HEADS/HEAD_DIM] [--dtype f32|bf16|f16]
               [--kv f32|bf16|f16] [--layer NAME]... [--length N]... [--turns N]

Layers: WINDOW/EXACT/SUMMARY of a bounded memory, `differential` (all rows) and `attention` (all
rows). Default: 256/64/64, 512/128/128, 128/32/32, 256/0/0, differential, attention. Prefill:
tokens/s of 2048 tokens after LENGTH others; decode: steps/s after LENGTH tokens. Layers over all
rows are measured up to 8192. Each turn runs every layer, one after the other; rates are medians of
turns, with the least and the most. Build before: bazel build --config=ci //engine:weir
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
import coda_layer  # noqa: E402 (next to this file)

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAYERS = ["256/64/64", "512/128/128", "128/32/32", "256/0/0", "differential", "attention"]
TOKENS, STEPS, REPEATS, UNBOUNDED = 2048, 64, 3, 8192


def write_archs(work, layer):
    archs = os.path.join(work, "archs_" + layer.replace("/", "_"))
    banks = tuple(int(x) for x in layer.split("/")) if "/" in layer else ()
    if layer not in coda_layer.MIXERS and len(banks) != 3:
        sys.exit(f"{layer} is none of WINDOW/EXACT/SUMMARY, differential, attention")
    coda_layer.write_arch(
        archs, os.path.join(TOP, "configs/arch/llama.toml"), "coda" if banks else layer, banks
    )
    return archs


def run(options, work, layer):
    """Rows of a report, by length."""
    lengths = [n for n in options.length if "/" in layer or n <= UNBOUNDED]
    if not lengths:
        return {}
    report = coda_layer.run_bench(
        options.weir,
        os.path.join(work, "model"),
        write_archs(work, layer),
        (
            "--context",
            lengths[-1] + TOKENS + 64,
            "--prompt",
            TOKENS,
            "--depth",
            ",".join(str(n) for n in lengths),
            "--gen",
            STEPS,
            "--kv-format",
            options.kv,
            "--threads",
            options.threads,
            "--repeat",
            REPEATS,
            "--set",
            "kernels.activations=" + ("f32" if options.dtype == "f32" else "fast"),
        ),
    )
    return dict(zip(lengths, report["rows"]))


def spread(rates):
    return {
        "median": statistics.median(x["median"] for x in rates),
        "least": min(x["min"] for x in rates),
        "most": max(x["max"] for x in rates),
    }


def combine(turns, layer):
    rows = []
    for length in turns[0][layer]:
        of_turns = [turn[layer][length] for turn in turns]
        rows.append(
            {
                "layer": layer,
                "length": length,
                "prefill": spread([row["prefill_tokens_per_second"] for row in of_turns]),
                "decode": spread([row["decode_tokens_per_second"] for row in of_turns]),
                "bandwidth_gb_per_second": statistics.median(
                    row["bandwidth_gb_per_second"] for row in of_turns
                ),
                "bytes_per_step": of_turns[0]["bytes_per_decoded_token"],
                "decode_share_of_bandwidth": statistics.median(
                    row["bandwidth_share"] for row in of_turns
                ),
            }
        )
    return rows


def print_table(rows):
    print(
        f"{'layer':<14} {'length':>7} {'prefill tok/s (least..most)':>30} "
        f"{'decode steps/s (least..most)':>30} {'MB/step':>8} {'GB/s':>6} {'of bound':>8}"
    )
    for row in rows:
        cells = [
            "{median:.1f} ({least:.1f}..{most:.1f})".format(**row[name])
            for name in ("prefill", "decode")
        ]
        print(
            f"{row['layer']:<14} {row['length']:>7} {cells[0]:>30} {cells[1]:>30} "
            f"{row['bytes_per_step'] * 1e-6:>8.1f} "
            f"{row['bandwidth_gb_per_second']:>6.1f} "
            f"{100 * row['decode_share_of_bandwidth']:>6.0f} %"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--shape", default="4096/32/8/128")
    parser.add_argument("--dtype", default="bf16", choices=["f32", "bf16", "f16"])
    parser.add_argument("--kv", default="f16", choices=["f32", "bf16", "f16"])
    parser.add_argument("--layer", action="append")
    parser.add_argument("--length", action="append", type=int)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--weir", default=os.path.join(TOP, ".bazel/bin/engine/cli/weir"))
    options = parser.parse_args()
    options.length = sorted(options.length or [2048, 8192, 65536])
    layers, load = options.layer or LAYERS, os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as work:
        coda_layer.write_model(
            os.path.join(work, "model"), coda_layer.parse_shape(options.shape), options.dtype
        )
        turns = [
            {layer: run(options, work, layer) for layer in layers} for _ in range(options.turns)
        ]
    rows = [row for layer in layers for row in combine(turns, layer)]
    if options.json:
        print(
            json.dumps(
                {
                    "shape": options.shape,
                    "dtype": options.dtype,
                    "kv": options.kv,
                    "threads": options.threads,
                    "turns": options.turns,
                    "load": load,
                    "rows": rows,
                },
                indent=2,
            )
        )
        return
    print(
        f"{options.shape}, weights {options.dtype}, KV {options.kv}, {options.threads} threads, "
        f"medians of {options.turns} turns of {REPEATS}, load before {load:.2f}"
    )
    print_table(rows)


main()
