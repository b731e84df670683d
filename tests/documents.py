#!/usr/bin/env python3
"""Checks that the files which documents name exist, and the documents that sources name.

    tests/documents.py [--top FOLDER]

Reads what git tracks: of *.md all paths (in backticks, as targets of links, and other words that
begin with a folder of the top), of other texts those below docs/. A path may be relative to the
document or to engine/; a name alone is that of any file; an extension may be left out; a word in
capitals stands for any name. Prints "FAILED FILE:LINE: NAME is not there" for each that is missing
and "N passed, M failed" with the number of files; the exit status is 0 when M is 0.
"""
import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

# Copies of files from outside, and what names files of others.
LEFT_OUT = ("CHANGELOG.md", "models/*", "tests/documents_test.py", "tests/golden/*",
            "tests/unit/serve/clients/*", "tests/wire/suite/*", "third_party/*")
# What programs write.
WRITTEN = ("docs/results/figures*",)
BINARY = (".gguf", ".safetensors", ".ptx", ".png", ".npy")
NAME = re.compile(r"[\w.+-]+\.(bzl|c|cc|cu|h|html|inc|js|map|md|nix|py|sh|toml|txt)")
CAPITALS = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2,}(?![a-z0-9])")
QUOTED = re.compile(r"`([^`\s]+)`|\]\(([^)#\s]+)")
TOPS = ("bindings", "configs", "docs", "engine", "examples", "include", "kernels", "models", "nix",
        "offload", "packaging", "tests", "third_party", "toolchain", "tools")
PLAIN = re.compile(r"(?<![\w./:$-])((?:%s)/[\w./+-]*[\w/])" % "|".join(TOPS))
CITED = re.compile(r"(?<![\w./-])(docs/[\w./+-]*\w)")


class Tree:
    def __init__(self, files):
        self.paths = set(files)
        for file in files:
            self.paths.update(str(p) for p in pathlib.PurePosixPath(file).parents)
        self.names = {os.path.basename(p) for p in self.paths}
        self.stems = {p[:i] for p in files for i, c in enumerate(p) if c in ".-"}

    def has(self, path, document):
        """Whether a path or name that this document gives is one of the tree."""
        path = path.rstrip("/").removeprefix("./")
        if "/" not in path and path in self.names:
            return True
        for start in ("", os.path.dirname(document), "engine"):
            whole = os.path.normpath(os.path.join(start, path))
            if whole in self.paths or whole in self.stems:
                return True
            pattern = CAPITALS.sub("*", whole)
            if pattern != whole and fnmatch.filter(self.paths, pattern):
                return True
        return any(fnmatch.fnmatch(path, written) for written in WRITTEN)


def is_path(word):
    if word.startswith(("/", "http:", "https:", "//")) or re.search(r"[*{}<>$=()\"|:@,]", word):
        return False
    return NAME.fullmatch(word) is not None or word.split("/")[0] in TOPS and "/" in word or \
        "/" in word and NAME.fullmatch(os.path.basename(word)) is not None


def paths_of(line, is_document):
    """The paths that a line names."""
    found = set(PLAIN.findall(line) if is_document else CITED.findall(line))
    if is_document:
        words = (a or b for a, b in QUOTED.findall(line))
        found.update(word for word in words if is_path(word))
    return sorted(found)


def check(tree, file, text):
    """(how many paths the file names, [problems])"""
    n, problems = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        for path in paths_of(line, file.endswith(".md")):
            n += 1
            if not tree.has(path, file):
                problems.append("%s:%d: %s is not there" % (file, number, path))
    return n, problems


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--top", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    top = parser.parse_args(arguments).top
    files = subprocess.run(["git", "-C", str(top), "ls-files"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    tree = Tree(files)
    n_passed, n_failed = 0, 0
    for file in files:
        if file.endswith(BINARY) or any(fnmatch.fnmatch(file, left) for left in LEFT_OUT):
            continue
        n, problems = check(tree, file, (top / file).read_text(errors="replace"))
        n_passed += n > 0 and not problems
        n_failed += len(problems) > 0
        for problem in problems:
            print("FAILED " + problem)
    print("%d passed, %d failed" % (n_passed, n_failed))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
