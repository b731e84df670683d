#!/usr/bin/env python3
"""tests/skips_test.py - skips.py sees skips that are not listed, listed ones that did not happen,
and reads every kind of log."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # no __pycache__ in the tree
import skips  # noqa: E402

HERE = pathlib.Path(__file__).parent
XML = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Suite">
<testcase name="Runs" status="run" result="completed" classname="Suite"/>
<testcase name="Skips/v4" status="run" result="skipped" classname="Suite">
<skipped message="a_test.cc:3&#x0A;this machine stops at x86-64-v3; use auto"/></testcase>
</testsuite></testsuites>
"""
NOT_GTEST = """<testsuites><testsuite name="tests/sh"><testcase name="tests/sh" status="run"/>
</testsuite></testsuites>"""


class Logs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.logs = pathlib.Path(self.folder.name, "testlogs")
        self.put("tests/unit/a_test/test.xml", XML)
        self.put("tests/unit/a_test/test.log", "skipped: what GoogleTest says counts\n")

    def tearDown(self):
        self.folder.cleanup()

    def put(self, name, text):
        path = self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self, *lines, flags=frozenset(skips.V3), given=(), failed=()):
        """(skips as expected, problems) with these lines, on a machine with these flags."""
        expected = [skips.Expected(i, line) for i, line in enumerate(lines)]
        here = skips.conditions(set(flags), given)
        return skips.check(expected, skips.read_logs([self.logs]), here, failed)

    def test_expected_skip(self):
        line = "tests/unit/a_test:Suite.Skips/v4  no-avx512  stops at"
        self.assertEqual(self.problems(line), (1, []))

    def test_skip_that_is_not_listed(self):
        passed, problems = self.problems()
        self.assertEqual(passed, 0)
        self.assertEqual(len(problems), 1)
        self.assertIn("tests/unit/a_test:Suite.Skips/v4 was skipped, and is not listed",
                      problems[0])

    def test_condition_does_not_hold(self):
        line = "tests/unit/a_test:Suite.Skips/v4  no-avx512  stops at"
        passed, problems = self.problems(line, flags=skips.V4)
        self.assertEqual((passed, len(problems)), (0, 1))
        self.assertIn("listed for a machine with no-avx512", problems[0])

    def test_another_reason(self):
        line = "tests/unit/a_test:Suite.Skips/v4  always  no such file"
        _, problems = self.problems(line)
        self.assertEqual(len(problems), 1)
        self.assertIn("another reason", problems[0])

    def test_expected_skip_that_ran(self):
        skip = "tests/unit/a_test:Suite.Skips/v4  always  stops at"
        runs = "tests/unit/a_test:Suite.Runs  no-avx512  stops at"
        _, problems = self.problems(skip, runs)
        self.assertEqual(len(problems), 1)
        self.assertIn("Suite.Runs ran, and is listed", problems[0])
        self.assertEqual(self.problems(skip, runs, flags=skips.V4), (1, []))

    def test_no_such_case(self):
        skip = "tests/unit/a_test:Suite.*  sometimes  stops at"
        for condition in ("always", "no-avx512", "no-avx2"):
            _, problems = self.problems(skip, "tests/unit/a_test:Old.Case  %s  x" % condition)
            self.assertEqual(len(problems), 1, condition)
            self.assertIn("there is no such case", problems[0])
        self.assertEqual(self.problems(skip, "tests/unit/absent:Old.Case  always  x"), (1, []))

    def test_sometimes_is_allowed_and_not_required(self):
        self.assertEqual(self.problems("tests/unit/a_test:Suite.*  sometimes  stops at"), (1, []))

    def test_given_conditions(self):
        line = "tests/unit/a_test:Suite.Skips/v4  sanitized  stops at"
        self.assertEqual(self.problems(line, given=["sanitized"]), (1, []))
        self.assertEqual(len(self.problems(line)[1]), 1)

    def test_lines_of_runners(self):
        self.put("golden.log", "ok      kept/as: it is\nskipped models/a:trace: not seen\n"
                               "skipped chat/x no template\n  skipped not this one\n")
        self.put("gpu.log", "skipped: no CUDA toolkit in /usr/local/cuda\n")
        self.put("tests/sh/test.xml", NOT_GTEST)
        self.put("tests/sh/test.log", "skipped 1: strict: no Landlock\n")
        lines = ["tests/unit/a_test:*v4  always  stops", "golden:models/a:trace  always  not seen",
                 "golden:chat/x  always  no template", "gpu:  always  no CUDA",
                 "tests/sh:1  always  strict"]
        self.assertEqual(self.problems(*lines), (5, []))
        _, problems = self.problems(*lines, "golden:models/b  always  gone")
        self.assertIn("golden:models/b is listed (always), and was not skipped", problems)

    def test_runner_that_failed_need_not_skip_all(self):
        self.put("wire.log", "skipped with-key/a no such server\nskipped with-key/b why\n")
        skip = "tests/unit/a_test:*v4  always  stops"
        lines = [skip, "wire:with-key/a  always  no such", "wire:with-key/c  always  no such"]
        _, problems = self.problems(*lines, failed=["wire"])
        self.assertEqual(problems, ["wire:with-key/b was skipped, and is not listed: why"])
        self.assertEqual(len(self.problems(*lines)[1]), 2)

    def test_logs_of_tests_that_are_gone(self):
        self.put("tests/unit/old_test/shard_1_of_2/test.xml", XML)
        self.put("golden.log", "skipped models/a: not seen\n")
        labels = pathlib.Path(self.folder.name, "tests.txt")
        labels.write_text("//tests/unit:a_test\n//tests/unit:b_test\n")
        tests = skips.read_labels(labels)
        read = sorted(skips.read_logs([self.logs], tests))
        self.assertEqual(read, ["golden", "tests/unit/a_test"])
        self.assertIn("tests/unit/old_test", skips.read_logs([self.logs]))

    def test_list_of_this_tree_is_sound(self):
        here = skips.conditions(set(), ())
        for e in skips.read_list(HERE / "expected_skips.txt"):
            self.assertTrue(e.condition in here or e.condition == "sometimes", e.name)

    def test_program(self):
        listed = pathlib.Path(self.folder.name, "list")
        run = [sys.executable, str(HERE / "skips.py"), "--list", str(listed), str(self.logs)]
        listed.write_text("# a comment\n\ntests/unit/a_test:Suite.Skips/v4  always  stops at\n")
        good = subprocess.run(run, capture_output=True, text=True)
        self.assertEqual((good.returncode, good.stdout.splitlines()[-1]), (0, "1 passed, 0 failed"))
        for text in ("", "no columns\n", "tests/unit/a_test:Suite.Skips/v4  unknown  stops at\n"):
            listed.write_text(text)
            bad = subprocess.run(run, capture_output=True, text=True)
            self.assertEqual(bad.returncode, 1, text)
            self.assertRegex(bad.stdout.splitlines()[-1], r"^\d+ passed, 1 failed$")
        listed.write_text("tests/unit/a_test:Suite.Skips/v4  always  stops at\n"
                          "golden:b  always  not seen\n")
        self.put("golden.log", "ok a\n")
        for failed, code in (["wire"], 1), (["golden"], 0):
            some = subprocess.run(run + ["--failed", *failed], capture_output=True, text=True)
            self.assertEqual(some.returncode, code, some.stdout)
        listed.write_text("")
        absent = subprocess.run(run + [str(self.logs / "absent")], capture_output=True, text=True)
        self.assertIn("absent: no logs here", absent.stdout)


if __name__ == "__main__":
    unittest.main()
