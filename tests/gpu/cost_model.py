#!/usr/bin/env python3
"""tests/gpu/cost_model.py - what the kernels of the GPU plugin can reach at best on H100, H200 and
RTX 4090, without running one.

    cost_model.py --kernels FILE [--cases FILE] [--ptx DIR] [--self-test]

`kernels` is kernel_gate.py --json, `cases` the output of //tests/gpu:case_costs. Two tables:

  occupancy   per kernel: threads of a block, blocks and warps on a multiprocessor, and which
      resource runs out first
  bounds      per bench case: bytes, flops, flops per byte, and the least time, by memory, by f32
      units, and by bf16 tensor cores if it used them

Static shared memory only: what a CUDA kernel asks for at launch is not in its image. Launches
(about 3 us each) are not counted.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

# Sources: NVIDIA H100 Tensor Core GPU Architecture (v1.04, table 1, SXM5); NVIDIA H200 data sheet;
# NVIDIA Ada GPU Architecture (v2.1, RTX 4090); limits per multiprocessor: CUDA C++ Programming
# Guide, table of compute capabilities 8.9 and 9.0. Peaks are dense, at boost clock.
Device = collections.namedtuple(
    "Device", "arch bytes_per_s f32 bf16 multiprocessors registers shared warps blocks"
)
DEVICES = {
    "H100": Device("90", 3.35e12, 66.9e12, 989.4e12, 132, 65536, 228 * 1024, 64, 32),
    "H200": Device("90", 4.80e12, 66.9e12, 989.4e12, 132, 65536, 228 * 1024, 64, 32),
    "4090": Device("89", 1.008e12, 82.6e12, 165.2e12, 128, 65536, 100 * 1024, 48, 24),
}
WARP, REGISTER_UNIT, SHARED_UNIT, SHARED_OF_BLOCK = (
    32,
    256,
    128,
    1024,
)  # registers are given to warps by 256, shared memory to blocks by 128 and 1 KiB each
LANE_THREADS = 128  # kernels/omp/lanes.h


def round_up(value, unit):
    return -(-value // unit) * unit


def occupancy(device, threads, registers, shared):
    """Blocks on a multiprocessor, and what limits them."""
    warps = round_up(threads, WARP) // WARP
    by = {
        "blocks": device.blocks,
        "warps": device.warps // warps,
        "registers": device.registers // round_up(max(registers, 1) * WARP, REGISTER_UNIT) // warps,
        "shared": device.shared // (round_up(shared, SHARED_UNIT) + SHARED_OF_BLOCK),
    }
    limit = min(by, key=by.get)
    return by[limit], by[limit] * warps, limit


def block_threads(folder):
    """Threads of CUDA kernels, from __launch_bounds__."""
    found = {}
    for path in folder.glob("*.cu.ptx"):
        for name, threads in re.findall(
            r"\.entry\s+([\w$]+)\([^)]*\)\s*\.maxntid\s+(\d+)", path.read_text()
        ):
            found[name] = int(threads)
    return found


def print_occupancy(kernels, threads_of):
    print(
        f"  {'kernel':44s}{'threads':>8s}"
        + "".join(f"{name + ' blocks, warps, limit':>30s}" for name in DEVICES)
    )
    for name in dict.fromkeys((k["file"], k["name"]) for k in kernels):
        by_arch = {k["arch"]: k for k in kernels if (k["file"], k["name"]) == name}
        label = re.sub(r"\(.*", "", next(iter(by_arch.values()))["label"]).replace("void ", "")
        threads = LANE_THREADS if name[0].endswith(".c") else threads_of.get(name[1], LANE_THREADS)
        cells = []
        for device in DEVICES.values():
            k = by_arch.get(device.arch)
            if k is None:  # the plugin has no image for it
                cells.append("-")
                continue
            blocks, warps, limit = occupancy(device, threads, k["registers"], k["shared"])
            cells.append(f"{blocks}, {warps} ({100 * warps // device.warps} %), {limit}")
        print(f"  {label[:44]:44s}{threads:8d}" + "".join(f"{cell:>30s}" for cell in cells))


def bound(device, n_bytes, flops):
    times = {"memory": n_bytes / device.bytes_per_s, "f32": flops / device.f32}
    limit = max(times, key=times.get)
    return times[limit], limit, max(times["memory"], flops / device.bf16)


def print_bounds(cases):
    print(
        f"  {'op':18s}{'case':52s}{'MB':>9s}{'MFLOP':>10s}{'flop/B':>8s}"
        + "".join(f"{name + ' us, by, tensor us':>28s}" for name in DEVICES)
    )
    for line in cases.splitlines():
        op, case, n_bytes, flops = line.split("\t")
        n_bytes, flops = float(n_bytes), float(flops)
        cells = []
        for device in DEVICES.values():
            time, limit, tensor = bound(device, n_bytes, flops)
            cells.append(f"{time * 1e6:.2f}, {limit}, {tensor * 1e6:.2f}")
        intensity = flops / n_bytes if n_bytes else 0
        print(
            f"  {op:18s}{case[:51]:52s}{n_bytes / 1e6:9.3f}{flops / 1e6:10.2f}{intensity:8.2f}"
            + "".join(f"{cell:>28s}" for cell in cells)
        )


def self_test():
    h100, ada = DEVICES["H100"], DEVICES["4090"]
    checks = [
        (
            occupancy(h100, 128, 255, 0),
            (2, 8, "registers"),
        ),  # 8192 registers a warp, 4 warps: 2 blocks of 32768
        (occupancy(h100, 128, 32, 0), (16, 64, "warps")),
        (occupancy(h100, 256, 32, 48 * 1024), (4, 32, "shared")),  # 49 KiB of 228
        (occupancy(ada, 128, 40, 0), (12, 48, "warps")),
        (occupancy(ada, 32, 16, 0), (24, 24, "blocks")),
        (bound(h100, 3.35e6, 0)[:2], (1e-6, "memory")),
        (bound(ada, 0, 82.6e6)[:2], (1e-6, "f32")),
    ]
    wrong = [(got, wanted) for got, wanted in checks if got != wanted]
    for got, wanted in wrong:
        print(f"  FAIL {got}, wanted {wanted}")
    print(f"  cost model: {len(checks) - len(wrong)} of {len(checks)} checks")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--cases", type=pathlib.Path)
    parser.add_argument("--ptx", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test and self_test():
        return 1
    if options.kernels:
        print_occupancy(
            json.loads(options.kernels.read_text()),
            block_threads(options.ptx) if options.ptx else {},
        )
    if options.cases:
        print_bounds(options.cases.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
