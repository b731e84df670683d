#!/usr/bin/env python3
"""Finds functions that nothing but tests calls.

    tests/callers.py [--top FOLDER]

Reads the sources that git tracks outside tests/. A function that a header there declares must be
named in one of them elsewhere than in its declaration and definition, or the comment above its
declaration must begin with "For tests". Those of include/weir.h have callers outside the tree.
Prints "FAILED FILE:LINE: ..." for each that has no caller, or has one and is said to be for tests,
and "N passed, M failed" with the number of functions; the exit status is 0 when M is 0.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

SOURCES = re.compile(r"\.(c|h|inc|cc|cpp|cu)$")
LEFT_OUT = re.compile(r"^(tests|examples|third_party)/|^kernels/cuda/emulate/")
# Their callers are programs of others, or pass through tables that macros write.
LIBRARY = "include/weir.h"
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
ABOVE = re.compile(r"^[ \t]*(/\*.*?\*/)", re.M | re.S)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
WORD = re.compile(r"\b[a-z]\w*\b")
CALL = re.compile(r"\b([a-z]\w*)[ \t]*\(")
# Names that macros make: BEFORE##name##AFTER, or name##AFTER.
PASTED = re.compile(r"\b([a-z]\w*_)##\w+(?:##(\w+))?|\b\w+##(_\w+)")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(text):
    """The text without comments and strings, at the same places."""
    return TEXT.sub(blank, COMMENT.sub(blank, text))


def outermost(text):
    """(place, name) of what looks like a call outside all braces: declarations, definitions."""
    text = DIRECTIVE.sub(blank, text)
    text = re.sub(r"\b(extern\s+)(\s*)\{", lambda m: m.group(0)[:-1] + " ", text)
    depth, at, parts = 0, 0, []
    for brace in re.finditer(r"[{}]", text):
        if depth == 0:
            parts.append((at, text[at:brace.start()]))
        depth = max(depth + (1 if brace.group() == "{" else -1), 0)
        at = brace.end()
    if depth == 0:
        parts.append((at, text[at:]))
    for start, part in parts:
        for statement in re.finditer(r"[^;]+", part):
            if re.match(r"\s*typedef\b", statement.group()):
                continue
            for call in CALL.finditer(statement.group()):
                before = statement.group()[:call.start()]
                if "(" in WRAPPED.sub("", before) or "=" in before:
                    break
                yield start + statement.start() + call.start(), call.group(1)


WRAPPED = re.compile(r"\b[A-Z_]+\([^()]*\)|__attribute__\(\(.*?\)\)", re.S)


def is_for_tests(text, place):
    """Whether the comment above it says so, which may stand above several."""
    above = None
    for above in ABOVE.finditer(text, 0, place):
        pass
    between = text[above.end():place] if above else "}"
    return "}" not in between and "\n\n" not in between and \
        above.group(1).startswith("/* For tests")


def check(texts):
    """(number of functions, [problems]) of {file: text}."""
    used, declared, patterns = collections.Counter(), {}, set()
    for file, text in texts.items():
        bare = strip(text)
        used.update(WORD.findall(bare))
        patterns.update((a, b + c) for a, b, c in PASTED.findall(bare))
        for place, name in outermost(bare):
            used[name] -= 1
            if file.endswith(".h") and file != LIBRARY:
                declared.setdefault(name, (file, place))
    patterns.discard(("weir_", ""))  # any name
    pasted = re.compile("|".join(a + r"\w+" + b for a, b in sorted(patterns)) or "(?!)")
    library = set(name for _, name in outermost(strip(texts.get(LIBRARY, ""))))
    problems = []
    for name, (file, place) in sorted(declared.items(), key=lambda d: d[1]):
        if name in library:
            continue
        text = texts[file]
        where = "%s:%d: %s" % (file, text.count("\n", 0, place) + 1, name)
        for_tests = is_for_tests(text, place)
        if used[name] > 0 and for_tests:
            problems.append(where + " is called, and said to be for tests")
        if used[name] <= 0 and not for_tests and not pasted.fullmatch(name):
            problems.append(where + " has no caller")
    return len(declared), problems


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--top", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    top = parser.parse_args(arguments).top
    files = subprocess.run(["git", "-C", str(top), "ls-files"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    n, problems = check({file: (top / file).read_text(errors="replace") for file in files
                         if SOURCES.search(file) and not LEFT_OUT.search(file)})
    for problem in problems:
        print("FAILED " + problem)
    print("%d passed, %d failed" % (n - len(problems), len(problems)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
