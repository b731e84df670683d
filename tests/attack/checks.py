"""tests/attack/checks.py - what programs that check one server print of their results."""


def report(checks):
    """Prints (text, holds) pairs and their count; returns the exit status."""
    for text, holds in checks:
        print(("ok      " if holds else "FAILED  ") + text)
    failed = sum(not holds for _, holds in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0
