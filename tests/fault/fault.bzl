"""Tests whose program has the calls that fail."""

load("//toolchain:weir.bzl", "weir_test")

def fault_test(name, srcs, deps, **kwargs):
    """A GoogleTest with tests/fault's drivers; calls.c is in the program, before all libraries."""
    weir_test(
        name = name,
        srcs = srcs + [
            "drive.cc",
            "drive.h",
            "power_loss.cc",
            "power_loss.h",
        ],
        deps = deps + ["//tests/fault:calls"],
        **kwargs
    )
