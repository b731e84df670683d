"""GPU builds: the single source with images for every architecture, CUDA files by nvcc, and the
shared library that holds both.

A file of target regions is compiled to PTX once, for the oldest architecture: clang 19 emits the
same text for sm_80 as for sm_90, and knows nothing newer. ptxas assembles it for each architecture,
nvlink joins the files of an architecture, fatbinary packs all into one image; see
docs/decisions/0029. CUDA files are compiled by nvcc for each.

CUDA files use no unnamed namespace: nvcc would put a hash of the folder it runs in into every name
there, and so into the bits.

Only --config=gpu analyses these targets; everywhere else they are incompatible and skipped.
"""

CLANG = "/usr/lib/llvm-19/bin/clang"
CUDA = "/usr/local/cuda"
PTX_ARCH = "80"

# An image runs on devices of its major version and of no lower minor version.
ARCHS = ["80", "86", "89", "90", "100"]

# With --config=gpu_two, which .ci/run uses: the oldest, and that of the GPUs it was measured on.
TWO_ARCHS = ["80", "90"]
GPU_ARCHS = select({"//:gpu_two": TWO_ARCHS, "//conditions:default": ARCHS})
GPU_ARCHS_COPTS = select({
    "//:gpu_two": ["-DWEIR_GPU_ARCHS=" + ",".join(TWO_ARCHS)],
    "//conditions:default": ["-DWEIR_GPU_ARCHS=" + ",".join(ARCHS)],
})

# What CUDA files are compiled for instead: products of warpgroups (kernels/cuda/warpgroup.h) are
# for one architecture alone, and its image is for no other anyway.
CUDA_ARCHS = {"90": "90a"}
OFFLOAD = [
    "-fopenmp",
    "--offload-arch=sm_" + PTX_ARCH,
    "--cuda-path=" + CUDA,
]
DEVICE = [
    "--offload-device-only",
    "--libomptarget-nvptx-bc-path=/usr/lib/llvm-19/lib/libomptarget-nvptx-sm_%s.bc" % PTX_ARCH,
]
COMMON = [
    "-O3",
    "-fPIC",
    "-DNDEBUG",
    "-g0",
    "-fvisibility=hidden",
    "-Wdate-time",
    "-Werror=date-time",
    "-ffile-prefix-map=/proc/self/cwd=.",
    "-I.",
]
# -openmp-opt-max-iterations: past 256 rounds the optimiser gives up on a large kernel, and its
# locals become allocations that the backend cannot select.
C_FLAGS = ["-mllvm", "-openmp-opt-max-iterations=4000"] + [
    "-std=c17",
    "-D_GNU_SOURCE",
    "-march=x86-64-v2",
    "-Wall",
    "-Wextra",
    "-Wno-pass-failed",
    "-fno-math-errno",
    "-ffp-contract=fast",
]

# The runtimes lie next to the plugin in a package, in Debian's folder here.
LINK = [
    "-fopenmp",
    "-shared",
    "-Wl,-soname,libweir_gpu.so",
    "-Wl,-rpath,$ORIGIN:/usr/lib/llvm-19/lib",
    "-Wl,-z,defs",
    "-Wl,--build-id=sha1",
    "-Wl,--discard-all",  # see .bazelrc
    "-L" + CUDA + "/lib64",
    "-L/usr/lib/llvm-19/lib",
    "-lomptarget",
    "-lcudart_static",  # opens the driver itself: no libcuda in DT_NEEDED
    "-lstdc++",
    "-lm",
    "-ldl",
    "-lrt",
    "-lpthread",
]

# Where libomptarget's own check of a cubin looks, e_flags: "64-bit addresses, sm_80" as toolkits
# before 13 wrote it. See offload/gpu_images.c.
CARRIER_FLAGS = "\\x50\\x04\\x50\\x00"
E_FLAGS_OFFSET = 48

def _path(ctx, source, suffix):
    return ctx.actions.declare_file(
        "_gpu/%s/%s%s" % (ctx.label.name, source.short_path.replace("/", "_"), suffix),
    )

def _shell(ctx, command, mnemonic, inputs, outputs):
    ctx.actions.run_shell(
        command = "set -eu; export PATH=%s/bin:/usr/bin:/bin; %s" % (CUDA, command),
        inputs = inputs + ctx.files._tools,
        outputs = outputs,
        mnemonic = mnemonic,
    )

def _compile_c(ctx, source, headers, out, flags, mnemonic):
    """The host's half of a file, or the device's; without offload flags, a file that has no target
    regions.
    """
    # Headers have target regions too.
    stable = [source.short_path] + [header.short_path for header in ctx.files.hdrs]
    args = ctx.actions.args()
    args.add_all(COMMON + C_FLAGS + flags + ctx.attr.copts)
    args.add("-c", source)
    args.add("-o", out)
    ctx.actions.run(
        executable = CLANG,
        arguments = [args],
        inputs = depset(
            [source, ctx.file._shim, ctx.file._keep_ptx] + ctx.files._tools,
            transitive = [headers],
        ),
        outputs = [out],
        mnemonic = mnemonic,
        progress_message = "%s %s" % (mnemonic, source.short_path),
        env = {
            "PATH": CUDA + "/bin:/usr/bin:/bin",
            "PWD": "/proc/self/cwd",
            "LD_PRELOAD": ctx.file._shim.path,
            "STABLE_SRC": ":".join(stable),
        },
    )
    return out

def _assemble(ctx, source, ptx, arch):
    """A relocatable cubin, and what ptxas says of its registers and memory."""
    cubin = _path(ctx, source, ".sm_%s.cubin" % arch)
    log = _path(ctx, source, ".sm_%s.log" % arch)
    command = (
        "ptxas -m64 -O3 -v -c -arch=sm_%s %s -o %s 2>%s || { cat %s >&2; exit 1; }; " +
        "sed -i '/Compile time/d' %s"
    ) % (
        arch,
        ptx.path,
        cubin.path,
        log.path,
        log.path,
        log.path,
    )
    _shell(ctx, command, "PtxAssemble", [ptx], [cubin, log])
    return struct(cubin = cubin, log = log)

def _image(ctx, files):
    """All images as one fat binary, and the carrier that libomptarget is shown; an assembler file
    that names both for the linker.
    """
    linked = {}
    for arch in ctx.attr.archs:
        cubins = [f[arch].cubin for f in files]
        linked[arch] = ctx.actions.declare_file(
            "_gpu/%s/linked.sm_%s.cubin" % (ctx.label.name, arch),
        )
        paths = " ".join([c.path for c in cubins])
        command = "nvlink -arch=sm_%s -o %s %s" % (arch, linked[arch].path, paths)
        _shell(ctx, command, "NvLink", cubins, [linked[arch]])
    fat = ctx.actions.declare_file("_gpu/%s/images.fatbin" % ctx.label.name)
    specs = ["--image3=kind=elf,sm=%s,file=%s" % (arch, at.path) for arch, at in linked.items()]
    _shell(
        ctx,
        "fatbinary --64 --compress-all --create=%s %s" % (fat.path, " ".join(specs)),
        "FatBinary",
        linked.values(),
        [fat],
    )
    carrier = ctx.actions.declare_file("_gpu/%s/carrier.cubin" % ctx.label.name)
    command = (
        "cp %s %s; chmod u+w %s; " +
        "printf '%s' | dd of=%s bs=1 seek=%d conv=notrunc status=none"
    ) % (
        linked[PTX_ARCH].path,
        carrier.path,
        carrier.path,
        CARRIER_FLAGS,
        carrier.path,
        E_FLAGS_OFFSET,
    )
    _shell(ctx, command, "Carrier", [linked[PTX_ARCH]], [carrier])
    driver = ctx.actions.declare_file("_gpu/%s/libcuda.so" % ctx.label.name)
    flags = (
        "-std=c17 -O2 -fPIC -shared -Wall -Wextra -fvisibility=hidden " +
        "-ffile-prefix-map=/proc/self/cwd=. -isystem %s/include"
    ) % CUDA

    # The stub's name is libcuda.so.1.
    link = (
        "-Wl,-soname,libcuda.so -Wl,--build-id=none -Wl,--no-as-needed %s/lib64/stubs/libcuda.so"
    ) % CUDA
    _shell(
        ctx,
        "PWD=/proc/self/cwd %s %s %s -o %s %s" % (
            CLANG,
            flags,
            ctx.file.driver_src.path,
            driver.path,
            link,
        ),
        "GpuDriver",
        [ctx.file.driver_src],
        [driver],
    )
    blobs = {"weir_gpu_carrier": carrier, "weir_gpu_images": fat, "weir_gpu_driver": driver}
    text = ".section .rodata,\"a\"\n"
    for name, file in blobs.items():
        text += (
            ".balign 64\n.globl {0}, {0}_end\n.hidden {0}, {0}_end\n" +
            "{0}:\n.incbin \"{1}\"\n{0}_end:\n"
        ).format(name, file.path)
    assembler = ctx.actions.declare_file("_gpu/%s/blobs.s" % ctx.label.name)
    ctx.actions.write(assembler, text + ".section .note.GNU-stack,\"\"\n")
    out = ctx.actions.declare_file("_gpu/%s/blobs.o" % ctx.label.name)
    _shell(
        ctx,
        "%s -c %s -o %s" % (CLANG, assembler.path, out.path),
        "GpuBlobs",
        [assembler] + blobs.values(),
        [out],
    )
    return out

def _compile_cuda(ctx, source, headers):
    out, log, ptx = _path(ctx, source, ".o"), _path(ctx, source, ".log"), _path(ctx, source, ".ptx")
    flags = (
        "-ccbin gcc-12 -O3 -std=c++17 -I. " +
        "-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-ffile-prefix-map=./="
    )
    archs = ctx.attr.archs
    codes = " ".join([
        "-gencode=arch=compute_{0},code=sm_{0}".format(CUDA_ARCHS.get(arch, arch))
        for arch in archs
    ])

    # For devices to come.
    codes += " -gencode=arch=compute_{0},code=compute_{0}".format(archs[-1])
    inputs = depset([source] + ctx.files._tools, transitive = [headers])
    env = {"PATH": CUDA + "/bin:/usr/bin:/bin", "SOURCE_DATE_EPOCH": "0"}
    for command, outputs in [
        (
            (
                "nvcc %s %s -Xptxas -v --objdir-as-tempdir -c %s -o %s >%s 2>&1 || " +
                "{ cat %s >&2; exit 1; }; sed -i '/Compile time/d' %s"
            ) % (
                flags,
                codes,
                source.path,
                out.path,
                log.path,
                log.path,
                log.path,
            ),
            [out, log],
        ),
        (
            "nvcc %s -arch=compute_%s -ptx %s -o %s" % (flags, PTX_ARCH, source.path, ptx.path),
            [ptx],
        ),
    ]:
        ctx.actions.run_shell(
            command = command,
            inputs = inputs,
            outputs = outputs,
            env = env,
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % source.short_path,
        )
    return struct(object = out, reports = [log, ptx])

def _gpu_library_impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    objects, images, reports = [], [], []
    for source in ctx.files.srcs:
        ptx = _compile_c(
            ctx,
            source,
            headers,
            _path(ctx, source, ".ptx"),
            OFFLOAD + DEVICE + ["--ptxas-path=" + ctx.file._keep_ptx.path],
            "OffloadDevice",
        )
        objects.append(
            _compile_c(
                ctx,
                source,
                headers,
                _path(ctx, source, ".o"),
                OFFLOAD + ["--offload-host-only"],
                "OffloadHost",
            ),
        )
        files = {arch: _assemble(ctx, source, ptx, arch) for arch in ctx.attr.archs}
        images.append(files)
        reports += [ptx] + [f.log for f in files.values()]
    runtime = ctx.file._device_runtime
    images.append({arch: _assemble(ctx, runtime, runtime, arch) for arch in ctx.attr.archs})
    objects.append(_image(ctx, images))
    for source in ctx.files.host_srcs:
        objects.append(
            _compile_c(ctx, source, headers, _path(ctx, source, ".o"), ["-fopenmp"], "HostCompile"),
        )
    for source in ctx.files.cuda_srcs:
        compiled = _compile_cuda(ctx, source, headers)
        objects.append(compiled.object)
        reports += compiled.reports
    library = ctx.actions.declare_file(ctx.attr.library)
    args = ctx.actions.args()
    args.add_all(objects)
    args.add_all(LINK)
    args.add("-o", library)
    ctx.actions.run(
        executable = CLANG,
        arguments = [args],
        inputs = objects + ctx.files._tools,
        outputs = [library],
        mnemonic = "OffloadLink",
        progress_message = "Linking %s" % ctx.attr.library,
        env = {"PATH": CUDA + "/bin:/usr/bin:/bin", "PWD": "/proc/self/cwd"},
    )
    return [
        DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library])),
        OutputGroupInfo(reports = depset(reports)),
    ]

_gpu_library = rule(
    implementation = _gpu_library_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True, doc = "the oldest first"),
        "library": attr.string(mandatory = True, doc = "file name of the shared library"),
        "srcs": attr.label_list(
            allow_files = [".c"],
            doc = "compiled for the host and for the devices",
        ),
        "host_srcs": attr.label_list(allow_files = [".c"], doc = "without target regions"),
        "cuda_srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo], doc = "headers only"),
        "copts": attr.string_list(),
        "_tools": attr.label(
            default = "//toolchain:tools",
            doc = "versions of the compilers: they belong to the action keys",
        ),
        "_shim": attr.label(
            default = "//toolchain:libstable_ino.so",
            allow_single_file = True,
            cfg = "exec",
        ),
        "driver_src": attr.label(
            allow_single_file = [".c"],
            doc = "what answers libomptarget as libcuda.so",
        ),
        "_keep_ptx": attr.label(default = "//toolchain:keep_ptx.sh", allow_single_file = True),
        "_device_runtime": attr.label(
            default = "//toolchain:device_runtime.ptx",
            allow_single_file = True,
        ),
    },
)

def gpu_library(name, **kwargs):
    """The library; its output group `reports` has the PTX of every file and what ptxas said,
    file.sm_NN.log or (CUDA) file.log.
    """
    _gpu_library(
        name = name,
        archs = GPU_ARCHS,
        target_compatible_with = select(
            {"//:gpu": [], "//conditions:default": ["@platforms//:incompatible"]},
        ),
        **kwargs
    )
