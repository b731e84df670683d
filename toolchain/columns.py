#!/usr/bin/env python3
"""Finds lines of more than 100 columns, and sources of more than 500 lines.

    toolchain/columns.py FILE...

A comment that says "longer than 100 columns" allows them up to the next empty line: tables of data,
and options that cannot be split. In *.md only prose counts: no tables, code blocks, or links at a
line's end. Prints "not formatted: FILE:LINE: N columns" or "not formatted: FILE: N lines" for each
finding, and fails when there is any.
"""
import fnmatch
import re
import sys

LIMIT = 100
LINES = 500
# Copies of files from outside.
COPIES = (
    "tests/golden/families/make.py",
    "tests/golden/kv/check.py",
    "tests/golden/kv/co*.py",
    "tests/golden/kv/gold_*.py",
    "tests/golden/kv/make.py",
    "tests/golden/kv/policy_ref.py",
    "tests/golden/models/make.py",
    "tests/golden/models/verify.py",
    "tests/golden/realvocab/fetch.py",
    "tests/golden/realvocab/make.py",
    "tests/golden/text/make.py",
    "tests/wire/suite/*.py",
)
ALLOWED = re.compile(r"(#|//|/\*) .*\blonger than 100 columns")
LINK = re.compile(r"\s*\S*(\]\(|https?://)\S+$")


def prose(lines):
    """(number, line) without tables, code blocks, and links at a line's end."""
    fenced, may_be_code = False, True
    for number, line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        is_code = fenced or may_be_code and line.startswith("    ")
        if not is_code and not line.startswith("|"):
            yield number, line if len(line) <= LIMIT else LINK.sub("", line)
        may_be_code = is_code or line == ""  # within a paragraph it is the rest of a list's item


def sources(lines):
    """(number, line) without those that a comment allows."""
    allowed = False
    for number, line in lines:
        allowed = line != "" and (allowed or ALLOWED.search(line) is not None)
        if not allowed:
            yield number, line


def findings(path):
    """What is wrong with the file, as the end of a message."""
    with open(path, encoding="utf-8") as file:
        lines = [(n, line.rstrip("\n")) for n, line in enumerate(file, 1)]
    is_text = path.endswith(".md")
    for number, line in prose(lines) if is_text else sources(lines):
        if len(line) > LIMIT:
            yield "%s:%d: %d columns" % (path, number, len(line))
    if not is_text and len(lines) > LINES:
        yield "%s: %d lines" % (path, len(lines))


def main(paths):
    found = 0
    for path in paths:
        if any(fnmatch.fnmatch(path, copy) for copy in COPIES):
            continue
        for finding in findings(path):
            print("not formatted: " + finding)
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
