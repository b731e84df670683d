"""pytest plugin of run.sh: cases named in expected_failures.txt must fail. One that passes fails
the run, so that the list shrinks with what is built. Cases that are skipped are printed for
tests/skips.py, one a line."""
import os
import pathlib

import pytest

FILE = pathlib.Path(__file__).parent / "expected_failures.txt"
# Files whose client is not installed: the cases of other environments.
NOT_IMPORTED = set()
# What these files check is there: none of their cases may be listed.
BUILT = ("test_0", "test_17")


def listed():
    """{name: reason}; a name without [...] stands for all cases of its function."""
    names = {}
    for line in FILE.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            names[name.strip()] = reason.strip()
    return names


def names_of(item):
    case = "%s::%s" % (item.path.name, item.nodeid.split("::", 1)[1])
    return case, case.split("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    names, seen = listed(), set()
    for item in items:
        for name in names_of(item):
            if name in names:
                seen.add(name)
                reason = "listed in expected_failures.txt: " + names[name]
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    wrong = [n for n in names if n.split("::")[0] not in NOT_IMPORTED and n not in seen
             or n.startswith(BUILT) or not names[n]]
    if wrong:
        raise pytest.UsageError("expected_failures.txt: unknown, built already, or without a "
                                "reason: " + ", ".join(wrong))


SKIPPED = []


def note(report):
    """A case, or a file that cannot be imported; not one that is expected to fail."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    place, _, name = report.nodeid.partition("::")
    case = "::".join(part for part in (pathlib.Path(place).name, name) if part)
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    SKIPPED.append("skipped %s/%s: %s" % (os.environ.get("WEIR_WIRE_LABEL", "wire"),
                                          case.replace(" ", "_"), " ".join(reason.split())))


def pytest_runtest_logreport(report):
    note(report)


def pytest_collectreport(report):
    if report.skipped:
        NOT_IMPORTED.add(pathlib.Path(report.nodeid).name)
    note(report)


def pytest_terminal_summary(terminalreporter):
    for line in SKIPPED:
        terminalreporter.write_line(line)
