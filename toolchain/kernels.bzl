"""The single-source OpenMP kernels: each file compiled once per x86-64 level, chosen at run time by
offload/dispatch.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//toolchain:layers.bzl", "check_layers")
load("//toolchain:weir.bzl", "WARNINGS")

# Like build:asan in .bazelrc, before the options of a level.
_ADDRESS_SANITIZER = [
    "-O1",
    "-UNDEBUG",
    "-gline-tables-only",
    "-fsanitize=address,undefined",
    "-fno-sanitize=function",
    "-fno-sanitize-recover=undefined",
    # The checks of ACCESS_CHECKS in place of the sanitizer's own, called: clang takes 22 instead of
    # 35 s for attention of v4, 6 instead of 17 for tiles, and attention_test runs as long.
    "-mllvm",
    "-asan-memory-access-callback-prefix=weir_asan_",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=1",
]

# For targets with OPTIMISED or KERNEL_COPTS.
ACCESS_CHECKS = select({
    "//:sanitized_kernels": ["//kernels/checks:accesses"],
    "//conditions:default": [],
})

# With --config=asan alone kernels are those of other builds: docs/decisions/0101. Sanitizers see
# what -O3 does as well after -O1, in half the time to compile.
OPTIMISED = select({
    "//:sanitized_kernels": _ADDRESS_SANITIZER,
    "//:threads": ["-O1"],
    "//conditions:default": ["-O3"],
})

# Exact IEEE semantics stay, but for errno and contraction into fused multiply-adds.
KERNEL_COPTS = ["-fno-math-errno", "-ffp-contract=fast", "-Wno-pass-failed"] + OPTIMISED

# Lanes of a device that is this CPU wait for each other most of the time, and clang takes 1 s for
# attention instead of 33, for the offload image of it 2 instead of 71.
LANES_COPTS = KERNEL_COPTS + ["-O0"]

# Kernels see arrays that were checked before. Their large arrays on the stack are written before
# they are read, in the innermost loops.
NOT_HARDENED = [
    "-U_FORTIFY_SOURCE",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-ftrivial-auto-var-init=uninitialized",
]

# -mprefer-vector-width: clang would use half registers (measured 176 against 303 GFLOP/s).
ISA_COPTS = {
    "v2": ["-march=x86-64-v2"],
    "v3": ["-march=x86-64-v3"],
    "v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}

# One source, three levels. With --config=asan_kernels addresses are checked in v3 and v4, undefined
# behaviour in v3. Threads divide the work of all levels alike, so races are looked for in the level
# that this machine would choose, or in both (.bazelrc). The others run little, so they are not
# optimised: clang takes a tenth of the time.
_NOT = ["-fno-sanitize=all", "-O0"]
_ADDRESSES = ["-fno-sanitize=undefined"]
_NOT_V2 = select({
    "//:sanitized_kernels": _NOT,
    "//:threads": _NOT,
    "//conditions:default": [],
})
_NOT_V3 = select({
    "//:threads_avx512": _NOT,
    "//conditions:default": [],
})
_LIKE_V3 = select({
    "//:sanitized_kernels": _ADDRESSES,
    "//:threads_avx512": _NOT,
    "//conditions:default": [],
})
_NOT_AVX512 = select({
    "//:sanitized_kernels": _ADDRESSES,
    "//:threads_avx512": [],
    "//:threads_all": [],
    "//:threads": _NOT,
    "//conditions:default": [],
})
NOT_SANITIZED = {
    "v2": _NOT_V2,
    "v3": _NOT_V3,
    "avxvnni": _LIKE_V3,
    "v4": _NOT_AVX512,
    "vnni": _NOT_AVX512,
    "amx": _NOT_AVX512,
}

def omp_kernels(
    name,
    srcs,
    hdrs = [],
    textual_hdrs = [],
    deps = [],
    copts = [],
    isa_copts = ISA_COPTS,
    testonly = False,
    visibility = None,
):
    """One library with the rows weir_kernel_omp_<op>_{v2,v3,v4} of every source, or of the levels
    in isa_copts; WEIR_ISA names the level inside.

    Sources must not be compiled for the baseline: `name` only gathers the three builds. The rows
    are referenced by offload/table.c, so nothing needs alwayslink.
    """
    check_layers(name, deps)
    for isa, march in isa_copts.items():
        cc_library(
            name = "%s_%s" % (name, isa),
            testonly = testonly,
            srcs = srcs,
            hdrs = hdrs,
            textual_hdrs = textual_hdrs,
            copts = WARNINGS + KERNEL_COPTS + NOT_HARDENED + march + [
                "-DWEIR_ISA=" + isa,
            ] + copts + NOT_SANITIZED.get(isa, []),
            features = ["layering_check"],
            deps = deps + ACCESS_CHECKS,
            visibility = ["//visibility:private"],
        )
    cc_library(
        name = name,
        testonly = testonly,
        deps = [":%s_%s" % (name, isa) for isa in isa_copts],
        visibility = visibility,
    )

def omp_emulated_kernels(
    name,
    srcs,
    lanes = 8,
    hdrs = [],
    textual_hdrs = [],
    deps = [],
    copts = [],
    visibility = None,
):
    """The device's lane mapping with host threads as GPU threads, real barriers included: rows
    weir_kernel_omp_<op>_emulated.
    """
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        textual_hdrs = textual_hdrs,
        copts = WARNINGS + LANES_COPTS + NOT_HARDENED + [
            "-march=x86-64-v2",
            "-DWEIR_ISA=emulated",
            "-DWEIR_EMULATE_LANES=%d" % lanes,
        ] + copts,
        deps = deps + ACCESS_CHECKS,
        visibility = visibility,
    )

OFFLOAD_X86 = ["-fopenmp-targets=x86_64-pc-linux-gnu"]

def omp_offload_kernels(
    name,
    srcs,
    lanes = 8,
    hdrs = [],
    textual_hdrs = [],
    deps = [],
    copts = [],
    visibility = None,
):
    """A real offload build whose device is this CPU: separate images, mapping and device pointers;
    rows weir_kernel_omp_<op>_offload.
    """
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        textual_hdrs = textual_hdrs,
        copts = WARNINGS + LANES_COPTS + NOT_HARDENED + OFFLOAD_X86 + [
            "-DWEIR_ISA=offload",
            "-DWEIR_EMULATE_LANES=%d" % lanes,
        ] + copts,
        linkopts = OFFLOAD_X86 + ["-Wl,-rpath,/usr/lib/llvm-19/lib"],
        alwayslink = True,  # the linker looks for device images in whole archives only
        linkstatic = True,
        tags = ["manual"],
        deps = deps + ACCESS_CHECKS,
        visibility = visibility,
    )
