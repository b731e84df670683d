#!/usr/bin/env python3
"""Writes the list of endpoints in docs/api.md, between two comments, from the OpenAPI document that
a program prints (openapi.c).

    bazel run //tools/openapi:endpoints
    endpoints.py [--check] PROGRAM [API_MD]

With --check it writes nothing, and fails where the list is not that of the document. API_MD is
docs/api.md of the workspace from which Bazel was called.
"""
import difflib
import json
import os
import pathlib
import subprocess
import sys
import textwrap

BEGIN = "<!-- endpoints: written by tools/openapi/endpoints.py -->"
END = "<!-- end of endpoints -->"


def list_of(document):
    """The lines of the list: paths with the same text next to each other share an entry."""
    entries = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = "`%s %s`" % (method.upper(), path)
            text = operation["summary"] + ("; no key" if "security" in operation else "")
            if entries and entries[-1][1] == text:
                entries[-1][0].append(name)
            else:
                entries.append(([name], text))
    lines = []
    for names, text in entries:
        lines += textwrap.wrap("%s: %s" % (", ".join(names), text), 100, initial_indent="- ",
                               subsequent_indent="  ", break_long_words=False,
                               break_on_hyphens=False)
    return lines


def replaced(text, lines):
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after


def main(arguments):
    check = "--check" in arguments
    files = [a for a in arguments if a != "--check"]
    document = json.loads(subprocess.run([files[0]], check=True, capture_output=True).stdout)
    top = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")
    page = pathlib.Path(files[1] if len(files) > 1 else os.path.join(top, "docs/api.md"))
    text = page.read_text()
    new = replaced(text, list_of(document))
    if not check:
        page.write_text(new)
        return 0
    for line in difflib.unified_diff(text.splitlines(), new.splitlines(), "docs/api.md",
                                     "/openapi.json", n=0, lineterm=""):
        print(line)
    if new != text:
        print("FAILED  the list is old: bazel run //tools/openapi:endpoints")
    return int(new != text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
