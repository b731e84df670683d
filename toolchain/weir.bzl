"""The project's own C and C++ targets: strict warnings, layering checked, C headers usable from C++
tests.
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load("//toolchain:layers.bzl", "check_layers")

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
TEST_WARNINGS = ["-Wall", "-Wextra", "-Werror"]

def weir_library(name, copts = [], deps = [], chosen_deps = [], features = [], **kwargs):
    """chosen_deps: those of a select, which has no list to check the layers of."""
    check_layers(name, deps)
    cc_library(
        name = name,
        copts = WARNINGS + copts,
        features = ["layering_check"] + features,
        deps = deps + chosen_deps,
        **kwargs
    )

def weir_binary(name, copts = [], **kwargs):
    """A program: above all layers, wherever it is declared."""
    cc_binary(name = name, copts = WARNINGS + copts, features = ["layering_check"], **kwargs)

# Bazel runs as many tests at a time as there are cores: teams of threads of two tests would wait
# for each other. Tests of threads set their number.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

# GoogleTest and the standard library are two thirds of the time to compile a test without
# optimisation, half of it with.
_PRECOMPILED = [
    "-include-pch",
    "$(GENDIR)/tests/precompiled/gtest_precompiled.inc",
    "-Xclang",
    "-fno-validate-pch",
]

def weir_test(name, copts = [], deps = [], size = "medium", env = {}, **kwargs):
    """A GoogleTest in C++ (gtest's main)."""
    cc_test(
        name = name,
        copts = TEST_WARNINGS + _PRECOMPILED + copts,
        deps = deps + ["@gtest//:gtest", "//tests/precompiled:gtest"],
        env = dict(ONE_THREAD, **env),
        size = size,
        **kwargs
    )

def weir_test_library(name, copts = [], deps = [], **kwargs):
    """C++ that tests share."""
    cc_library(
        name = name,
        copts = TEST_WARNINGS + _PRECOMPILED + copts,
        deps = deps + ["//tests/precompiled:gtest"],
        **kwargs
    )
