#!/usr/bin/env python3
"""tests/gpu/kernel_gate.py - what ptxas and the PTX say of every kernel of the GPU plugin, from the
reports of its build.

    kernel_gate.py [--archs LIST] [--reports DIR] [--json FILE]

Prints one line per kernel, registers / static shared memory / stack / spills for each architecture
of LIST, a list of toolchain/gpu.bzl (ARCHS), and fails when

  - an op of kernels/list.inc or a file of kernels/cuda has no report, or an architecture is missing
    from it;
  - a kernel has a stack frame, spills registers or takes more static shared memory than every
    device has;
  - an attention kernel reads local memory, reads K and V by generic loads, or by fewer bytes per
    load than its layout allows;
  - an exception below is not needed any more.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = {
    name: json.loads(archs)
    for name, archs in re.findall(
        r"^(\w*ARCHS) = (\[.*\])$", (ROOT / "toolchain/gpu.bzl").read_text(), re.M
    )
}
ARCHS = LISTS["ARCHS"]
SHARED_LIMIT = 48 * 1024  # what a kernel has without asking for more

# (file, kernel, what) -> (architectures, reason). `kernel` is a part of its name; what: stack,
# spill, or generic: loads of K and V by addresses that may be of any memory, found in the PTX.
EXCEPTIONS = {
    ("kernels/omp/attention.c", "attention", "stack"): (
        set(ARCHS),
        "255 registers: 4 query rows by 512 dims of V, the unit's plan and a soft cap's terms; "
        "without the cap sm_90 and up fit",
    ),
    ("kernels/omp/attention.c", "attention", "spill"): (set(ARCHS), "as its stack"),
    ("kernels/omp/attention.c", "attention", "generic"): (
        {"ptx"},
        "told that pages are global memory, ptxas keeps more addresses and spills on sm_90 too",
    ),
    ("kernels/omp/attention_mass.c", "attention_mass", "generic"): ({"ptx"}, "as attention.c"),
    ("kernels/omp/kv_write.c", "kv_write", "stack"): (
        set(ARCHS),
        "kv_encode.h keeps the 32 codes of a group in an array that loops index; once per "
        "written row",
    ),
}

# Attention by vectors of 16 bytes, but for the single source: thread = token of a tile, so that 32
# neighbours read 64 bytes of f16 in one transaction; 16 bytes a thread would need another layout of
# pages.
COALESCED = {"kernels/omp/attention.c", "kernels/omp/attention_mass.c"}
VECTOR_BYTES = 16

Kernel = collections.namedtuple("Kernel", "file name arch registers shared stack spill barriers")


def readable(name):
    offload = re.fullmatch(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_(.*)", name)
    if offload:
        return re.sub(r"^weir_k_omp_(.*?)_nvptx", r"\1", offload.group(1))
    return name


def demangled(names):
    text = subprocess.run(
        ["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout
    return dict(zip(names, text.split("\n")))


def kernels_of(file, log):
    """Entry functions only: the runtime's own helpers have frames that no hot path enters."""
    found, name, arch, stack, spill = [], None, None, 0, 0
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)a?'", line):
            name, arch, current = m.group(1), m.group(2), None
        elif m := re.search(r"Function properties for (\S+)", line):
            current = m.group(1)
        elif (
            (
                m := re.search(
                    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                    line,
                )
            )
            and name
            and current == name
        ):
            stack, spill = int(m.group(1)), int(m.group(2)) + int(m.group(3))
        elif (m := re.search(r"Used (\d+) registers", line)) and name:
            shared, barriers = re.search(r"(\d+) bytes smem", line), re.search(
                r"used (\d+) barriers", line
            )
            number = lambda match: int(match.group(1)) if match else 0
            found.append(
                Kernel(
                    file,
                    name,
                    arch,
                    int(m.group(1)),
                    number(shared),
                    stack,
                    spill,
                    number(barriers),
                )
            )
            name = None
    return found


def read_reports(folder, archs):
    """Kernels by file, and PTX by file; the build flattens paths: kernels_omp_add.c.sm_90.log."""
    omp = [
        f"kernels/omp/{op}.c"
        for op in re.findall(
            r"^WEIR_OMP_KERNEL\((\w+)\)", (ROOT / "kernels/list.inc").read_text(), re.M
        )
    ]
    cuda = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "kernels/cuda").glob("*.cu"))]
    kernels, ptx, problems = [], {}, []
    for file in omp + cuda:
        flat = file.replace("/", "_")
        logs = (
            [folder / f"{flat}.sm_{arch}.log" for arch in archs]
            if file in omp
            else [folder / f"{flat}.log"]
        )
        source = folder / f"{flat}.ptx"
        missing = [log.name for log in logs + [source] if not log.exists()]
        if missing:
            problems.append(f"{file}: no report {', '.join(missing)}")
            continue
        ptx[file] = source.read_text()
        found = [kernel for log in logs for kernel in kernels_of(file, log.read_text())]
        entries = set(re.findall(r"\.entry\s+([\w$]+)", ptx[file]))
        if file in omp and not entries:
            problems.append(f"{file}: no kernel")
        for arch in archs:
            lost = entries - {kernel.name for kernel in found if kernel.arch == arch}
            if lost:
                problems.append(f"{file}: sm_{arch} has no report of {', '.join(sorted(lost))}")
        kernels += found
    return kernels, ptx, problems


class Exceptions:
    """Which of them were needed, of those for `archs` and the PTX."""

    def __init__(self, archs):
        self.archs = {*archs, "ptx"}
        self.used = collections.defaultdict(set)

    def excuse(self, file, name, what, arch):
        for key, (archs, _) in EXCEPTIONS.items():
            if key[0] == file and key[1] in name and key[2] == what and arch in archs:
                self.used[key].add(arch)
                return True
        return False

    def problems(self):
        unused = [
            (key, (archs & self.archs) - self.used[key]) for key, (archs, _) in EXCEPTIONS.items()
        ]
        return [
            f"{key[0]}: the exception for {key[2]} of {key[1]} is not needed on "
            f"{', '.join(sorted(archs))}: remove it"
            for key, archs in unused
            if archs
        ]


def check_registers(kernels, exceptions):
    problems = []
    for k in kernels:
        for what, value in (("stack", k.stack), ("spill", k.spill)):
            if value > 0 and not exceptions.excuse(k.file, k.name, what, k.arch):
                problems.append(
                    f"{k.file}: {readable(k.name)} on sm_{k.arch}: {value} bytes of {what}"
                )
        if k.shared > SHARED_LIMIT:
            problems.append(
                f"{k.file}: {readable(k.name)} on sm_{k.arch}: {k.shared} bytes of shared "
                f"memory, the limit is {SHARED_LIMIT}"
            )
    return problems


def bodies(ptx):
    """Name and text of every entry function."""
    for part in re.split(
        r"(?m)^(?=\.(?:weak|visible|extern|func|entry)|\t?// -- Begin function)", ptx
    ):
        if m := re.match(r"\.(?:weak|visible)\s+\.entry\s+([\w$]+)", part):
            yield m.group(1), part


def bytes_of(access):
    """Bytes of one load: .v4.f32 is 16; cp.async says it in an operand."""
    vector = re.search(r"\.v([248])", access)
    width = int(re.search(r"\.[busf](\d+)", access).group(1)) // 8
    return width * (int(vector.group(1)) if vector else 1)


def check_attention(ptx, exceptions):
    problems = []
    for file, text in ptx.items():
        if not re.fullmatch(r"kernels/(omp|cuda)/attention\w*\.cu?", file):
            continue
        for name, body in bodies(text):
            where = f"{file}: {readable(name)}"
            local = len(re.findall(r"\b(?:ld|st)\.local\b", body))
            if local:
                problems.append(f"{where}: {local} accesses to local memory")
            loads = re.findall(r"\bld\.global(?:\.[a-z]+(?:::\w+)*)*(?:\.v\d)?\.[busf]\d+", body)
            copies = [
                int(n)
                for n in re.findall(
                    r"cp\.async\.c[ga]\.shared\.global[^;]*?,\s*(\d+)\s*(?:,[^;]*)?;", body
                )
            ]
            bulk = "cp.async.bulk" in body
            halves = re.findall(r"\bld\.(?:b|u|s)16\b", body)
            widest = max(
                [bytes_of(load) for load in loads] + copies + [16 if bulk else 0], default=0
            )
            print(
                f"  ptx {where}: {len(loads)} loads from global memory, {len(copies)} copies to "
                f"shared, widest {widest} bytes; {len(halves)} generic 16-bit loads"
            )
            if halves and not exceptions.excuse(file, name, "generic", "ptx"):
                problems.append(
                    f"{where}: {len(halves)} 16-bit loads are generic: pages are global memory"
                )
            if file not in COALESCED and widest < VECTOR_BYTES and is_hot(body):
                problems.append(
                    f"{where}: no load of {VECTOR_BYTES} bytes, the widest has {widest}"
                )
    return problems


def is_hot(body):
    """Kernels with a loop that multiplies; merges and copies of a few values are not."""
    return len(re.findall(r"\bfma\.rn|\bmma\.sync|\bwgmma", body)) >= 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--reports", type=pathlib.Path, default=ROOT / ".bazel/bin/offload/_gpu/weir_gpu"
    )
    parser.add_argument("--json", type=pathlib.Path, help="what the cost model reads")
    parser.add_argument("--archs", choices=LISTS, default="ARCHS")
    options = parser.parse_args()
    archs = LISTS[options.archs]
    kernels, ptx, problems = read_reports(options.reports, archs)
    names = demangled(sorted({k.name for k in kernels}))
    rows = collections.defaultdict(dict)
    for k in kernels:
        rows[k.file, k.name][k.arch] = k
    print(
        f"  {'registers/shared/stack/spills':48s}"
        + "".join(f"{'sm_' + arch:>18s}" for arch in archs)
    )
    for (file, name), by_arch in rows.items():
        label = (
            re.sub(r"\(.*", "", names[name]).replace("void ", "")
            if file.endswith(".cu")
            else readable(name)
        )
        cells = [
            f"{k.registers}/{k.shared}/{k.stack}/{k.spill}" if (k := by_arch.get(arch)) else "-"
            for arch in archs
        ]
        print(f"  {label[:48]:48s}" + "".join(f"{cell:>18s}" for cell in cells))
    exceptions = Exceptions(archs)
    problems += (
        check_registers(kernels, exceptions)
        + check_attention(ptx, exceptions)
        + exceptions.problems()
    )
    if options.json:
        listed = [
            dict(k._asdict(), label=names[k.name] if k.file.endswith(".cu") else readable(k.name))
            for k in kernels
        ]
        options.json.write_text(json.dumps(listed, indent=1) + "\n")
    for problem in problems:
        print(f"  FAIL {problem}")
    print(
        f"  {len(rows)} kernels on {len(archs)} architectures, {len(EXCEPTIONS)} exceptions, "
        f"{len(problems)} problems"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
