"""Fuzz targets: a plain test over the corpus and mutations of it, and a libFuzzer binary to be run
by hand.
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_test")
load("//toolchain:weir.bzl", "WARNINGS")

def _instrumented_transition_impl(settings, _attr):
    checks = [
        "-fsanitize=address,undefined",
        "-fno-sanitize=vptr,function",  # need the C++ runtime of UBSan
        "-fno-sanitize-recover=undefined",
    ]
    return {
        "//command_line_option:copt": settings["//command_line_option:copt"] + [
            "-fsanitize=fuzzer-no-link",
            "-g",
        ] + checks,
        "//command_line_option:linkopt": settings["//command_line_option:linkopt"] + checks,
    }

_instrumented_transition = transition(
    implementation = _instrumented_transition_impl,
    inputs = ["//command_line_option:copt", "//command_line_option:linkopt"],
    outputs = ["//command_line_option:copt", "//command_line_option:linkopt"],
)

def _instrumented_impl(ctx):
    binary = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = binary,
        target_file = ctx.attr.binary[0][DefaultInfo].files_to_run.executable,
        is_executable = True,
    )
    return [
        DefaultInfo(
            executable = binary,
            runfiles = ctx.attr.binary[0][DefaultInfo].default_runfiles,
        ),
    ]

# The binary with everything it links compiled for coverage feedback and with AddressSanitizer and
# UBSan.
_instrumented = rule(
    implementation = _instrumented_impl,
    attrs = {
        "binary": attr.label(cfg = _instrumented_transition, mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    executable = True,
)

def fuzz_target(name, srcs, corpus, deps, mutations = 5000, seeds = None, size = "medium"):
    """`srcs` define LLVMFuzzerTestOneInput.

    Args:
      name: the test; NAME_libfuzzer is the libFuzzer binary.
      srcs: C files.
      corpus: a folder of this package with the seed inputs.
      deps: what srcs include.
      mutations: how many of each seed the test runs.
      seeds: labels of the inputs when they are no files of this package; `corpus` is then their
        folder from the root.
      size: of the test.
    """
    cc_test(
        name = name,
        srcs = srcs + ["//tests/fuzz:replay.c"],
        args = [str(mutations), corpus if seeds else native.package_name() + "/" + corpus],
        copts = WARNINGS,
        data = seeds or native.glob([corpus + "/*"]),
        features = ["layering_check"],
        size = size,
        deps = deps + ["//engine/base"],
    )
    cc_binary(
        name = name + "_for_libfuzzer",
        srcs = srcs,
        copts = WARNINGS,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
    _instrumented(name = name + "_libfuzzer", binary = name + "_for_libfuzzer", tags = ["manual"])
