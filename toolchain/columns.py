#!/usr/bin/env python3
"""Finds lines of more than 100 columns.

    toolchain/columns.py FILE...

A comment that says "longer than 100 columns" allows them up to the next empty line: tables of data,
and options that cannot be split. Prints "not formatted: FILE:LINE: N columns" for each other one,
and fails when there is any.
"""
import re
import sys

LIMIT = 100
# Copies of files from outside.
COPIES = ("tests/golden/", "tests/wire/suite/")
ALLOWED = re.compile(r"(#|//|/\*) .*\blonger than 100 columns")
# To be wrapped.
NOT_YET = frozenset(
    """
    engine/kv/policy/budget.h
    engine/kv/policy/calibration.h
    engine/kv/policy/calibration_file.c
    engine/kv/policy/calibration_internal.h
    engine/kv/policy/policy.h
    engine/kv/policy/policy_options.inc
    engine/kv/policy/turn.h
    engine/kv/pool/sequence.h
    engine/kv/pool/store.c
    engine/kv/pool/store.h
    engine/kv/pool/table_snapshot.h
    engine/kv/prefix/prefix.c
    engine/kv/prefix/prefix.h
    engine/kv/prefix/pruned_cache.h
    engine/kv/prefix/pruned_cache_internal.h
    engine/kv/prune/apply_policy.h
    engine/kv/prune/evict.h
    engine/kv/prune/evict_cold.c
    engine/kv/prune/evict_internal.h
    engine/kv/prune/evict_products.c
    engine/kv/prune/evict_room.c
    engine/kv/prune/policy_run.c
    engine/kv/prune/policy_run.h
    engine/kv/tiers/lower_tier.h
    engine/kv/tiers/prefetch.h
    engine/open/identity.c
    engine/open/plan.c
    engine/open/plan_least.c
    engine/open/plan_print.c
    engine/open/policy.c
    engine/open/saved_text.c
    engine/schedule/reuse.c
    engine/schedule/runner.h
    engine/session/file/session_file.h
    engine/session/file/session_file_internal.h
    engine/session/file/write.c
    engine/states/states.h
    engine/text/chat.c
    engine/text/jinja/access.c
    engine/text/jinja/expression.c
    engine/text/jinja/filters.c
    engine/text/jinja/lexer.c
    engine/text/jinja/methods.c
    engine/text/jinja/operators.c
    engine/text/jinja/parser.c
    engine/text/jinja/print.c
    engine/text/jinja/run.c
    engine/text/jinja/sequences.c
    engine/text/jinja/string.c
    engine/text/jinja/value.c
    engine/text/pretokenizer_kinds.c
    kernels/cuda/cublas.h
    tools/measure/kv_quality.c
    tools/measure/quality.h
    tools/measure/run_eval.c
    tools/measure/run_eval_generate.c
    tools/measure/run_eval_matrix.c
    tools/measure/run_report.c
    tools/measure/state_quality.c
    """.split()
)


def long_lines(path):
    allowed = False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip("\n")
            allowed = text != "" and (allowed or ALLOWED.search(text) is not None)
            if len(text) > LIMIT and not allowed:
                yield number, len(text)


def main(paths):
    found = 0
    for path in paths:
        if path.startswith(COPIES) or path in NOT_YET:
            continue
        for number, columns in long_lines(path):
            print("not formatted: %s:%d: %d columns" % (path, number, columns))
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
