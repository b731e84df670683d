"""GPU builds: the single source with an nvptx image, CUDA files by nvcc, and the shared library that holds both.

CUDA files use no unnamed namespace: nvcc would put a hash of the folder it runs in into every name there, and so into the bits.

Only --config=gpu analyses these targets; everywhere else they are incompatible and skipped.
"""

CLANG = "/usr/lib/llvm-19/bin/clang"
CUDA = "/usr/local/cuda"
OFFLOAD = [
    "-fopenmp",
    "--offload-arch=sm_90",
    "--cuda-path=" + CUDA,
    "--libomptarget-nvptx-bc-path=/usr/lib/llvm-19/lib/libomptarget-nvptx-sm_90.bc",
]
COMMON = ["-O3", "-fPIC", "-DNDEBUG", "-g0", "-fvisibility=hidden", "-Wdate-time", "-Werror=date-time", "-ffile-prefix-map=/proc/self/cwd=.", "-I."]
# -openmp-opt-max-iterations: past 256 rounds the optimiser gives up on a large kernel, and its locals become allocations that the backend cannot select.
C_FLAGS = ["-mllvm", "-openmp-opt-max-iterations=4000"] + ["-std=c17", "-D_GNU_SOURCE", "-march=x86-64-v2", "-Wall", "-Wextra", "-Wno-pass-failed", "-fno-math-errno", "-ffp-contract=fast"]

# The runtimes lie beside the plugin in a package, in Debian's folder here.
LINK = [
    "-shared",
    "-Wl,-soname,libweir_gpu.so",
    "-Wl,-rpath,$ORIGIN:/usr/lib/llvm-19/lib",
    "-Wl,-z,defs",
    "-Wl,--build-id=sha1",
    "-Wl,--discard-all",  # see .bazelrc
    "-L" + CUDA + "/lib64",
    "-lcudart_static",  # opens the driver itself: no libcuda in DT_NEEDED
    "-lstdc++",
    "-lm",
    "-ldl",
    "-lrt",
    "-lpthread",
]

def _compile_offload(ctx, source, headers):
    out = ctx.actions.declare_file("_gpu/%s/%s.o" % (ctx.label.name, source.short_path.replace("/", "_")))
    shim = ctx.file._shim
    stable = [source.short_path] + [header.short_path for header in ctx.files.hdrs]  # headers have target regions too
    args = ctx.actions.args()
    args.add_all(COMMON + C_FLAGS + OFFLOAD + ctx.attr.copts)
    args.add("-c", source)
    args.add("-o", out)
    ctx.actions.run(
        executable = CLANG,
        arguments = [args],
        inputs = depset([source, shim] + ctx.files._tools, transitive = [headers]),
        outputs = [out],
        mnemonic = "OffloadCompile",
        progress_message = "Compiling %s for host and sm_90" % source.short_path,
        env = {"PATH": CUDA + "/bin:/usr/bin:/bin", "PWD": "/proc/self/cwd", "LD_PRELOAD": shim.path, "STABLE_SRC": ":".join(stable)},
    )
    return out

def _compile_cuda(ctx, source, headers):
    out = ctx.actions.declare_file("_gpu/%s/%s.o" % (ctx.label.name, source.short_path.replace("/", "_")))
    args = ctx.actions.args()
    args.add_all(["-ccbin", "gcc-12", "-O3", "-std=c++17", "-gencode=arch=compute_90,code=sm_90", "--objdir-as-tempdir", "-I."])
    args.add("-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wextra,-ffile-prefix-map=./=")
    args.add("-c", source)
    args.add("-o", out)
    ctx.actions.run(
        executable = CUDA + "/bin/nvcc",
        arguments = [args],
        inputs = depset([source] + ctx.files._tools, transitive = [headers]),
        outputs = [out],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % source.short_path,
        env = {"PATH": CUDA + "/bin:/usr/bin:/bin", "SOURCE_DATE_EPOCH": "0"},
    )
    return out

def _gpu_library_impl(ctx):
    headers = depset(ctx.files.hdrs, transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])
    objects = [_compile_offload(ctx, source, headers) for source in ctx.files.srcs]
    objects += [_compile_cuda(ctx, source, headers) for source in ctx.files.cuda_srcs]
    library = ctx.actions.declare_file(ctx.attr.library)
    args = ctx.actions.args()
    args.add_all(objects)
    args.add_all(OFFLOAD + LINK)
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
    return [DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library]))]

_gpu_library = rule(
    implementation = _gpu_library_impl,
    attrs = {
        "library": attr.string(mandatory = True, doc = "file name of the shared library"),
        "srcs": attr.label_list(allow_files = [".c"], doc = "compiled for the host and for sm_90"),
        "cuda_srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo], doc = "headers only"),
        "copts": attr.string_list(),
        "_tools": attr.label(default = "//toolchain:tools", doc = "versions of the compilers: they belong to the action keys"),
        "_shim": attr.label(default = "//toolchain:libstable_ino.so", allow_single_file = True, cfg = "exec"),
    },
)

def gpu_library(name, **kwargs):
    _gpu_library(
        name = name,
        target_compatible_with = select({"//:gpu": [], "//conditions:default": ["@platforms//:incompatible"]}),
        **kwargs
    )
