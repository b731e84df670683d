"""pytest plugin of run.sh: the cases in expected_failures.txt may fail; one that passes is reported, so that the list shrinks."""
import pathlib

import pytest

LISTED = [line.strip() for line in (pathlib.Path(__file__).parent / "expected_failures.txt").read_text().splitlines()
          if line.strip() and not line.startswith("#")]
ALLOWED = ("cached", "cache_salt")


def name_of(nodeid):
    return nodeid.rsplit("/", 1)[-1]


def pytest_collection_modifyitems(items):
    wrong = [name for name in LISTED if not any(word in name for word in ALLOWED)]
    known = {name_of(item.nodeid) for item in items}
    wrong += [name for name in LISTED if name not in known]
    if wrong:
        raise pytest.UsageError("expected_failures.txt may not list, or the suite does not have: " + ", ".join(wrong))
    for item in items:
        if name_of(item.nodeid) in LISTED:
            item.add_marker(pytest.mark.xfail(reason="listed in expected_failures.txt", strict=False))


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("xpassed", []):
        terminalreporter.write_line("listed in expected_failures.txt, but passes: " + name_of(report.nodeid))
