#!/usr/bin/env python3
"""tests/mutation/mutate_test.py - a list that does not fit the tree fails before anything is built;
else each change is made, tested and undone."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Notices that a.c has no "one" any more, and keeps a line of each call.
BAZEL = "#!/bin/sh\necho \"$@\" >>calls\ngrep -q one a.c || exit 3\n"


class Lists(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.tree = pathlib.Path(self.folder.name)
        (self.tree / "a.c").write_text("one two three\n")
        (self.tree / "bazel").write_text(BAZEL)
        (self.tree / "bazel").chmod(0o700)

    def tearDown(self):
        self.folder.cleanup()

    def run_on(self, lines, *before):
        (self.tree / "list").write_text("# FILE | OLD | NEW | TARGETS\n" + lines)
        words = [sys.executable, "-B", HERE / "mutate.py", *before, self.tree / "list", self.tree]
        path = f"{self.tree}:{os.environ['PATH']}"
        done = subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True,
                              text=True, check=False)
        self.assertEqual((self.tree / "a.c").read_text(), "one two three\n")
        calls = self.tree / "calls"
        return done.returncode, done.stdout, len(calls.read_text().split("\n")) - 1 if \
            calls.exists() else 0

    def test_a_change_that_is_noticed(self):
        code, text, n_calls = self.run_on("a.c | one | 1 | //t\n")
        self.assertEqual((code, n_calls), (0, 1), text)
        self.assertIn("1 passed, 0 failed", text)

    def test_a_change_that_nothing_notices(self):
        code, text, n_calls = self.run_on("a.c | one | 1 | //t\na.c | two | 2 | //t\n")
        self.assertEqual((code, n_calls), (1, 2), text)
        self.assertIn("FAILED a.c: two no test notices it", text)

    def test_a_change_that_does_not_fit(self):
        for line, why in (("a.c | four | 4 | //t", "stands 0 times"), ("a.c | t | 4 | //t", "2"),
                          ("b.c | one | 1 | //t", "cannot be read"),
                          ("a.c | two | two | //t", "changes nothing")):
            for before in ((), ("--check",)):
                code, text, n_calls = self.run_on(f"a.c | one | 1 | //t\n{line}\n", *before)
                self.assertEqual((code, n_calls), (1, 0), text)
                self.assertIn(why, text)
                self.assertIn("1 passed, 1 failed", text)

    def test_a_list_that_fits_is_only_checked(self):
        code, text, n_calls = self.run_on("a.c | one | 1 | //t\n", "--check")
        self.assertEqual((code, n_calls, text), (0, 0, "1 passed, 0 failed\n"))


if __name__ == "__main__":
    unittest.main()
