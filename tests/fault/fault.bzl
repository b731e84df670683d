"""Tests whose program has the calls that fail."""

load("//toolchain:weir.bzl", "weir_test")

def fault_test(name, srcs, deps, **kwargs):
    """A GoogleTest with tests/fault's drivers; calls.c stands in the program, before all libraries."""
    weir_test(
        name = name,
        srcs = srcs + [
            "calls.c",
            "calls.h",
            "drive.cc",
            "drive.h",
            "events.h",
            "power_loss.cc",
            "power_loss.h",
        ],
        # Headers of a fortified libc define some of the calls themselves.
        copts = ["-U_FORTIFY_SOURCE"],
        linkopts = ["-ldl"],
        deps = deps,
        **kwargs
    )
