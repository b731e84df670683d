#!/usr/bin/env python3
"""tests/gpu/kernel_gate_test.py - the gate sees what it is there for: kernels with a local array,
with spills, with too much shared memory, without vectors.
"""

import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # no folder next to the sources
import kernel_gate as gate  # noqa: E402

SEED = r"""
extern "C" __global__ void seed_array(float *out, const float *in, int n, int at)
{
    float row[64];
    for (int i = 0; i < 64; i++) row[i] = in[i * n];
    for (int i = 0; i < n; i++) row[(at + i) % 64] += row[i % 64];
    out[0] = row[at];
}
extern "C" __global__ void seed_spill(float *out, const float *in)
{
    float row[128];
#pragma unroll
    for (int i = 0; i < 128; i++) row[i] = in[threadIdx.x + i * 32];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 128; i++)
        out[threadIdx.x + i * 32] = fmaf(row[i], row[127 - i], row[(i * 7) % 128]);
}
extern "C" __global__ void seed_shared(float *out)
{
    __shared__ float all[12 * 1024];
    all[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = all[threadIdx.x ^ 1];
}
"""


def nvcc(folder, *flags):
    command = [
        "/usr/local/cuda/bin/nvcc",
        "-ccbin",
        "gcc-12",
        "-O3",
        *flags,
        str(folder / "seed.cu"),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "seed.cu").write_text(SEED)
        log = nvcc(
            folder,
            "-arch=sm_90",
            "-maxrregcount=32",
            "-Xptxas",
            "-v",
            "-cubin",
            "-o",
            str(folder / "seed.cubin"),
        )
        nvcc(folder, "-arch=compute_80", "-ptx", "-o", str(folder / "seed.ptx"))
        ptx = (folder / "seed.ptx").read_text()
    file = "kernels/cuda/attention_seed.cu"
    found = gate.check_registers(
        gate.kernels_of(file, log), gate.Exceptions(gate.ARCHS)
    ) + gate.check_attention({file: ptx}, gate.Exceptions(gate.ARCHS))
    wanted = [
        "seed_array on sm_90: 256 bytes of stack",
        "seed_spill on sm_90",
        "bytes of spill",
        "seed_shared on sm_90: 49152",
        "accesses to local memory",
        "no load of 16 bytes",
    ]
    gate.SHARED_LIMIT = 48 * 1024 - 1
    found += gate.check_registers(gate.kernels_of(file, log), gate.Exceptions(gate.ARCHS))
    idle = gate.Exceptions(gate.ARCHS).problems()
    missed = [text for text in wanted if not any(text in problem for problem in found)]
    if len(idle) != len(gate.EXCEPTIONS):
        missed.append("exceptions that nothing needs")
    for text in missed:
        print(f"  not found: {text}")
    if missed:
        print("\n".join(f"  found: {problem}" for problem in found + idle))
    print(f"  {len(wanted) + 1 - len(missed)} of {len(wanted) + 1} seeded faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
