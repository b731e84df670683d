#!/usr/bin/env python3
"""Compares what tests skipped with tests/expected_skips.txt.

    tests/skips.py [--with CONDITION]... [--failed RUNNER]... [--list FILE] [--tests FILE]
        LOGDIR...

LOGDIR is a folder of logs, searched with its subfolders, or one log: Bazel's testlogs (test.xml of
GoogleTest, test.log of others), and NAME.log of a runner that prints lines "skipped CASE: why".
A skip that the list does not expect on this machine fails, and so does an expected one that did not
happen, when its log is there. Prints "N passed, M failed"; the exit status is 0 when M is 0.

--tests names a file of Bazel's labels, one a line: test.xml and test.log of other tests are not
read. Bazel keeps the logs of tests that no longer exist. --failed names a runner that failed: it
may have ended before it skipped what it should, so its log need not have all that is listed.

Conditions are read from this machine. --with adds those that it cannot show: `sanitized` (logs of
--config=asan or tsan), `slow` (of tests/wire/run.sh --slow).
"""
import argparse
import ctypes
import os
import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

V2 = {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
GIVEN = ("sanitized", "slow")
# Programs that tests under Bazel use where they are installed; its tests have this PATH.
PROGRAMS = ("fish", "groff", "helm", "mandoc", "systemd-analyze", "zsh")
PROGRAMS_PATH = "/usr/bin:/bin"
SKIPPED = re.compile(r"^skipped(?:\s+(\S+?))?:?\s+(.*\S)\s*$")


def cpu_flags(path="/proc/cpuinfo"):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()


def has_landlock():
    create_ruleset, version = 444, 1
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(create_ruleset, None, ctypes.c_size_t(0), version) > 0


def has_memory_cgroup():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().with_name("attack")))
    import group  # pylint: disable=import-outside-toplevel
    made = group.Group(1 << 26)
    made.remove()
    return made.path is not None


def conditions(flags, given):
    """{name: whether it holds here}"""
    gpu = os.path.exists("/dev/nvidia0")
    here = {
        "always": True,
        "no-avx2": not flags >= V3,
        "no-avx512": not flags >= V4,
        "no-avx-vnni": not flags >= V3 | {"avx_vnni"},
        "no-vnni": not flags >= V4 | {"avx512_vnni"},
        "no-bf16": not flags >= V4 | {"avx512_bf16"},
        "no-amx": not flags >= V4 | {"avx512_vnni", "amx_int8"},
        "no-amx-bf16": not flags >= V4 | {"avx512_bf16", "amx_bf16"},
        "gpu": gpu,
        "no-gpu": not gpu,
        "no-landlock": not has_landlock(),
        "no-cuda": not os.path.isdir("/usr/local/cuda"),
        "no-chromium": shutil.which("chromium") is None,
        "no-cgroup": not has_memory_cgroup(),
    }
    here.update(("no-" + name, shutil.which(name, path=PROGRAMS_PATH) is None)
                for name in PROGRAMS)
    here.update((name, name in given) for name in GIVEN)
    here["not-slow"] = "slow" not in given
    return here


class Expected:
    """A line of the list: SOURCE:CASE  CONDITION  WORDS; a * of CASE stands for any text."""

    def __init__(self, number, line):
        parts = re.split(r"\s{2,}", line.strip(), maxsplit=2)
        if len(parts) != 3 or ":" not in parts[0]:
            raise ValueError("line %d: want SOURCE:CASE  CONDITION  WORDS" % number)
        self.name, self.condition, self.words = parts
        self.source, case = self.name.split(":", 1)
        self.pattern = re.compile(re.escape(case).replace(r"\*", ".*"))
        self.seen = 0

    def matches(self, source, case):
        return source == self.source and self.pattern.fullmatch(case) is not None


def read_list(path):
    return [Expected(n, line) for n, line in enumerate(path.read_text().splitlines(), 1)
            if line.strip() and not line.startswith("#")]


def cases_of_xml(path):
    """[(case, why it was skipped or None)] of GoogleTest, None of another kind of test."""
    cases = []
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            if case.get("result") is None:
                return None
            skipped = case.find("skipped")
            why = None if skipped is None else skipped.get("message") or ""
            cases.append(("%s.%s" % (case.get("classname"), case.get("name")), why))
    return cases


def cases_of_text(path):
    found = []
    for line in path.read_text(errors="replace").splitlines():
        match = SKIPPED.match(line)
        if match:
            found.append((match.group(1) or "", match.group(2)))
    return found


def source_of(path):
    """tests/unit/kv/prefix_test of .../testlogs/tests/unit/kv/prefix_test/shard_1_of_2/test.xml"""
    if path.name not in ("test.xml", "test.log"):
        return path.stem
    parts = [p for p in path.parent.parts if not re.fullmatch(r"shard_\d+_of_\d+|run_\d+.*", p)]
    return "/".join(parts[parts.index("tests"):] if "tests" in parts else parts[-1:])


def logs_of(place):
    if place.is_file():
        return [place]
    found = []
    for folder, _, names in os.walk(place, followlinks=True):
        found += [pathlib.Path(folder, n) for n in names if n.endswith(".log") or n == "test.xml"]
    return sorted(found)


def read_labels(path):
    """{tests/unit/kv/prefix_test} of a file of labels: //tests/unit/kv:prefix_test"""
    return {line.strip().removeprefix("//").replace(":", "/")
            for line in path.read_text().splitlines() if line.strip()}


def read_logs(places, tests=None):
    """{source: [(case, why or None)]}; of a test of GoogleTest all cases, of others the skipped.
    tests: sources of Bazel's logs to read, None for all."""
    sources = {}
    for path in sorted({log for place in places for log in logs_of(place)}):
        is_xml = path.name == "test.xml"
        if tests is not None and path.name in ("test.xml", "test.log") and \
                source_of(path) not in tests:
            continue
        if path.name == "test.log" and path.with_name("test.xml").exists() and \
                cases_of_xml(path.with_name("test.xml")) is not None:
            continue
        cases = cases_of_xml(path) if is_xml else cases_of_text(path)
        if cases is not None:
            sources.setdefault(source_of(path), []).extend(cases)
    return sources


def listed_as(holds, lines):
    """What the list says of a case that was skipped against it."""
    if holds:
        return "listed for another reason (%s)" % ", ".join(e.words for e in holds)
    if lines:
        return "listed for a machine with %s" % ", ".join(sorted({e.condition for e in lines}))
    return "not listed"


def check(expected, sources, here, failed=()):
    """(skips as expected, problems). failed: sources whose expected skips may be missing."""
    passed, problems = 0, []
    for source, cases in sorted(sources.items()):
        for case, why in cases:
            lines = [e for e in expected if e.matches(source, case)]
            holds = [e for e in lines if e.condition == "sometimes" or here[e.condition]]
            must = [e for e in holds if e.condition != "sometimes"]
            name = "%s:%s" % (source, case)
            if why is None:
                problems += ["%s ran, and is listed as skipped here (%s)" % (name, e.condition)
                             for e in must]
                for e in lines:
                    e.seen += 1
                continue
            for e in lines:
                e.seen += 1
            if any(e.words in why for e in holds):
                passed += 1
                continue
            problems.append("%s was skipped, and is %s: %s" % (
                name, listed_as(holds, lines), " ".join(why.split())))
    for e in expected:
        cases = sources.get(e.source) if e.source not in failed else None
        lists_all = any(why is None for _, why in cases or [])
        if cases is not None and not e.seen and (lists_all or here.get(e.condition)):
            problems.append("%s is listed (%s), and %s" % (
                e.name, e.condition, "there is no such case" if lists_all else "was not skipped"))
    return passed, problems


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--with", dest="given", action="append", default=[], choices=GIVEN)
    parser.add_argument("--list", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("expected_skips.txt"))
    parser.add_argument("--tests", type=pathlib.Path)
    parser.add_argument("--failed", action="append", default=[], metavar="RUNNER")
    parser.add_argument("logs", nargs="+", type=pathlib.Path, metavar="LOGDIR")
    options = parser.parse_args(arguments)
    here = conditions(cpu_flags(), options.given)
    try:
        tests = read_labels(options.tests) if options.tests else None
        expected = read_list(options.list)
        for e in expected:
            if e.condition not in here and e.condition != "sometimes":
                raise ValueError("%s: no condition %s" % (e.name, e.condition))
    except (OSError, ValueError) as error:
        print("skips: %s: %s" % (options.list, error))
        print("0 passed, 1 failed")
        return 1
    missing = [str(place) for place in options.logs if not logs_of(place)]
    passed, problems = check(expected, read_logs(options.logs, tests), here, options.failed)
    problems += ["%s: no logs here" % place for place in missing]
    print("this machine: " + ", ".join(name for name, holds in here.items() if holds))
    for problem in problems:
        print("FAILED " + problem)
    print("%d passed, %d failed" % (passed, len(problems)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
