#!/usr/bin/env python3
"""tests/gpu/check.py - what check.sh runs on the machine with the GPU: one JSON object on stdout,
progress on stderr.

    check.py DIR [--seconds N] [MODEL...]

DIR holds what check.sh --pack collected. The kernels come first: parity of every row with ref, then
the benches, with the share of the device's memory bandwidth and peaks, and how much faster the CUDA
rows are than the single source. Then the engine, as far as the seconds reach: what there was no
time for is said to be skipped. Exit code 0: every row agrees with ref and nothing of the engine
failed.
"""

import argparse
import array
import collections
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

from cost_model import DEVICES

CPU, GPU = ["--set", "kernels.device=cpu"], ["--set", "kernels.device=gpu:0"]
FELL_BACK = "the CPU does the work"  # what a program says that was asked for a device and has none
HOST_ONLY = "on the host only"  # why, where a model has what no device computes


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def run(command, seconds, environment=None):
    """Exit code (124: out of time), stdout, the end of stderr."""
    print("+ " + " ".join(map(str, command)), file=sys.stderr, flush=True)
    if seconds < 1:
        return 124, "", "no time left"
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, **(environment or {})},
        )
        return done.returncode, done.stdout, done.stderr[-1000:]
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace"), "out of time"
    except OSError as error:
        return 127, "", str(error)


# ---- kernels -------------------------------------------------------------------------------------
def parity(folder, seconds):
    code, out, err = run([folder / "gpu_parity", folder / "libweir_gpu.so"], seconds)
    rows = [
        {"row": name, "cases": int(cases), "ok": not rest}
        for name, cases, rest in re.findall(r"^(\S+)\s+(\d+) cases(.*)$", out, re.M)
    ]
    total = re.search(r"^(.*): (\d+) cases, (\d+) failed$", out, re.M)
    failures = re.findall(r"^FAIL (.*)$", out, re.M)
    result = {"exit": code, "rows": rows, "failures": failures[:50]}
    if total:
        result.update(cases=int(total.group(2)), failed=int(total.group(3)))
    else:
        result["text"] = (out + err)[-1000:]
    return (total.group(1) if total else ""), result


def benches(folder, device, seconds):
    code, out, err = run([folder / "gpu_parity", folder / "libweir_gpu.so", "--bench"], seconds)
    cases = []
    for row, case, us, gbps, gflops in re.findall(
        r"^(\S+\.\S+)\s+(\S+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)$", out, re.M
    ):
        entry = {
            "row": row,
            "case": case,
            "us": float(us),
            "gb_per_s": float(gbps),
            "gflop_per_s": float(gflops),
        }
        if device:
            entry["of_memory"] = round(entry["gb_per_s"] * 1e9 / device.bytes_per_s, 4)
            entry["of_f32"] = round(entry["gflop_per_s"] * 1e9 / device.f32, 4)
            entry["of_tensor"] = round(entry["gflop_per_s"] * 1e9 / device.bf16, 4)
        cases.append(entry)
    result = {"exit": code, "complete": code == 0, "cases": cases}
    if code not in (0, 124):
        result["text"] = err
    return result


def ratios(cases):
    """Time of the single source over time of the override, per op: above 1 the override is faster.
    """
    times = collections.defaultdict(dict)
    for entry in cases:
        backend, op = entry["row"].split(".")[:2]
        times[op, entry["case"]].setdefault(
            backend, entry["us"]
        )  # the first row of a backend is the preferred one
    found = collections.defaultdict(dict)
    for (op, case), by in times.items():
        if by.get("omp") and by.get("cuda"):
            found[op][case] = round(by["omp"] / by["cuda"], 3)
    summary = {}
    for op, by_case in found.items():
        mean = math.exp(sum(math.log(value) for value in by_case.values()) / len(by_case))
        summary[op] = {
            "mean": round(mean, 3),
            "least": min(by_case.values()),
            "most": max(by_case.values()),
            "cases": by_case,
        }
    return summary


# ---- engine: everything that needs the key kernels.device ----------------------------------------
def tokens_of(weir, model, device, seconds):
    command = [
        weir,
        "generate",
        "--model",
        model,
        "--tokens",
        ",".join(map(str, range(1, 33))),
        "--max-tokens",
        "48",
        "--temperature",
        "0",
        "--json",
    ]
    code, out, err = run(command + device, seconds)
    if FELL_BACK in err:
        return None, err[-300:]
    try:
        return json.loads(out)["tokens"], ""
    except (ValueError, KeyError):
        return None, f"exit {code}: {err[-300:]}"


def greedy(weir, models, clock):
    """The same answer from CPU and GPU."""
    results = []
    for model in models:
        cpu, why_cpu = tokens_of(weir, model, CPU, min(30, clock.left()))
        gpu, why_gpu = tokens_of(weir, model, GPU, min(30, clock.left()))
        if HOST_ONLY in why_gpu:
            continue
        same = next(
            (i for i, (a, b) in enumerate(zip(cpu or [], gpu or [])) if a != b), len(cpu or [])
        )
        entry = {"model": model.name, "ok": cpu is not None and cpu == gpu, "equal_tokens": same}
        if why_cpu or why_gpu:
            entry["why"] = {"cpu": why_cpu, "gpu": why_gpu}
        results.append(entry)
    return results


def logits_of(weir, model, settings, seconds):
    """The logits of 100 tokens, the last 8 decoded one by one, as one array; or None and why."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "logits.safetensors"
        tokens = ",".join(str(i * 31 % 250) for i in range(100))
        code, _, err = run(
            [
                weir,
                "logits",
                "--model",
                model,
                "--tokens",
                tokens,
                "--decode-from",
                92,
                "--out",
                path,
            ]
            + settings,
            seconds,
        )
        if code != 0 or FELL_BACK in err:
            return None, f"exit {code}: {err[-300:]}"
        data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:start])["logits"]["data_offsets"]
    values = array.array("f")
    values.frombytes(data[start + begin : start + end])
    return values, ""


# KV format, activations, how far logits may be off in the mean. Fast activations round elsewhere
# than on CPUs (docs/decisions/0028), which random weights carry far. These are what tensor cores
# and attention over codes are compared by: the goldens are f32.
NEAR = [
    ("f16", "f32", 1e-3),
    ("bf16", "f32", 1e-3),
    ("q8_0", "f32", 1e-3),
    ("turbo4", "f32", 1e-3),
    ("f16", "fast", 0.2),
    ("q8_0", "fast", 0.2),
]


def near(weir, models, clock):
    results = []
    for model in models:
        for kv_format, activations, tolerance in NEAR:
            settings = ["--kv-format", kv_format, "--activations", activations]
            cpu, why_cpu = logits_of(weir, model, settings + CPU, min(30, clock.left()))
            if cpu is None and "takes head widths" in why_cpu:
                continue  # heads too narrow for these codes
            gpu, why_gpu = logits_of(weir, model, settings + GPU, min(30, clock.left()))
            if HOST_ONLY in why_gpu or "has no kernel for some op of this model" in why_gpu:
                continue  # likewise, on the device
            entry = {
                "model": model.name,
                "kv_format": kv_format,
                "activations": activations,
                "ok": False,
            }
            if cpu is not None and gpu is not None and len(cpu) == len(gpu):
                entry["mean"] = sum(abs(a - b) for a, b in zip(cpu, gpu)) / len(cpu)
                entry["ok"] = entry["mean"] < tolerance  # no number is not less
            else:
                entry["why"] = {"cpu": why_cpu, "gpu": why_gpu}
            results.append(entry)
    return results


def engine_bench(weir, model, clock):
    """The model is loaded once for all depths, which are filled with noise: 128K tokens would take
    longer to compute than there is.
    """
    results = {}
    for name, options in {
        "prefill": ["--prompt", 4096, "--gen", 32, "--chunk", 4096],
        "decode": ["--depth", "0,8192,32768,131072", "--gen", 64, "--synthetic-kv"],
    }.items():
        command = [weir, "bench", "--json", "--model", model, "--repeat", 3] + options
        code, out, err = run(command + GPU, min(90, clock.left()))
        try:
            results[name] = {"fell_back": err[-300:]} if FELL_BACK in err else json.loads(out)
        except ValueError:
            results[name] = (
                {"skipped": "no time left"}
                if clock.left() < 1
                else {"exit": code, "text": err[-300:]}
            )
    return results


# Contexts that the device's budget holds in part: what is asked of them stands in docs/gpu.md. Of
# the shapes, those whose pages fit.
LONG = {
    "200K tokens in 16 GiB": (
        200_000,
        [
            "--set",
            "memory.device=16GiB",
            "--set",
            "kv.tiers.host=16GiB",
            "--set",
            "model.context=204800",
        ],
    ),
    "1M tokens, 8-bit pages of the host": (
        1_000_000,
        [
            "--set",
            "memory.device=8GiB",
            "--set",
            "kv.tiers.host=24GiB",
            "--set",
            "kv.format=q8_0",
            "--set",
            "model.context=1048576",
        ],
    ),
}


def long_contexts(weir, model, clock):
    results = {}
    for name, (depth, settings) in LONG.items():
        command = [
            weir,
            "bench",
            "--json",
            "--model",
            model,
            "--depth",
            depth,
            "--gen",
            16,
            "--repeat",
            1,
            "--synthetic-kv",
        ]
        code, out, err = run(command + GPU + settings, min(60, clock.left()))
        try:
            results[name] = {"fell_back": err[-300:]} if FELL_BACK in err else json.loads(out)
        except ValueError:
            results[name] = (
                {"skipped": "no time left"}
                if clock.left() < 1
                else {"exit": code, "text": err[-300:]}
            )
    return results


def engine(folder, models, clock):
    weir, cases = folder / "weir", folder / "golden"
    if not weir.exists():
        return {"skipped": "no weir in the package"}
    tiny = sorted(path.parent for path in (cases / "models").glob("*/model.safetensors"))
    code, out, err = run(
        [folder / "golden_runner", "--dir", cases, "--device", "gpu:0"], min(90, clock.left())
    )
    result = {
        "goldens": {"exit": code, "last_line": (out.strip().splitlines() or [err[-300:]])[-1]},
        "greedy": greedy(weir, tiny, clock),
        "near": near(weir, tiny, clock),
        "bench": {pathlib.Path(model).name: engine_bench(weir, model, clock) for model in models},
        "long": {pathlib.Path(model).name: long_contexts(weir, model, clock) for model in models},
    }
    result["ok"] = code == 0 and all(entry["ok"] for entry in result["greedy"] + result["near"])
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seconds", type=float, default=470)
    parser.add_argument("--no-engine", action="store_true")
    options = parser.parse_args()
    clock = Clock(options.seconds)
    name, agreed = parity(options.folder, min(200, clock.left()))
    device = next((facts for part, facts in DEVICES.items() if part in name), None)
    report = {"device": name, "peaks": device._asdict() if device else None, "parity": agreed}
    if name:
        report["bench"] = benches(options.folder, device, min(150, clock.left()))
        report["omp_over_cuda"] = ratios(report["bench"]["cases"])
    report["engine"] = (
        {"skipped": "no device, or not asked for"}
        if options.no_engine or not name
        else engine(options.folder, options.models, clock)
    )
    report["seconds"] = round(options.seconds - clock.left(), 1)
    report["ok"] = agreed["exit"] == 0 and report["engine"].get("ok", True)
    json.dump(report, sys.stdout, indent=1)
    print()
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
