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
        if path.startswith(COPIES):
            continue
        for number, columns in long_lines(path):
            print("not formatted: %s:%d: %d columns" % (path, number, columns))
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
