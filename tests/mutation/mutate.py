"""Applies each change of a list to a copy of the tree, and asks whether a test notices.

    mutate.py LIST COPY [BAZEL-OPTION...]
    mutate.py --check LIST TREE

COPY is a checkout that may be changed. Nothing is built if some change does not fit the tree any
more; --check does no more than that. Prints a line for each mutation and "N passed, N failed": one
that no test notices has failed, and so has one that does not fit.
"""

import subprocess
import sys


def mutations(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                name, old, new, targets = (part.strip(" \n") for part in line.split(" | "))
                yield name, old.replace("\\n", "\n"), new.replace("\\n", "\n"), targets.split()


def bazel(copy, options, targets):
    """0: all pass, 3: a test fails, other: it does not build."""
    command = ["bazel", "test", "--config=ci", "--test_output=summary", *options, *targets]
    result = subprocess.run(command, cwd=copy, capture_output=True, timeout=900, check=False)
    return result.returncode


def misfit(tree, mutation):
    """Why the change cannot be made; "": it can."""
    name, old, new, _ = mutation
    try:
        with open(f"{tree}/{name}", encoding="utf-8") as file:
            count = file.read().count(old)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if count != 1:
        return f"stands {count} times in {name}, must be once"
    return "changes nothing" if old == new else ""


def verdict(copy, options, mutation):
    name, old, new, targets = mutation
    path = f"{copy}/{name}"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))
        code = bazel(copy, options, targets)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return {0: "no test notices it", 3: ""}.get(code, f"does not build ({code})")


def report(found, judge, only_failures=False):
    """Prints what `judge` says of each mutation, and the sums. Returns how many failed."""
    passed = failed = 0
    for mutation in found:
        wrong = judge(mutation)
        passed, failed = passed + (not wrong), failed + bool(wrong)
        first = mutation[1].split("\n", maxsplit=1)[0]
        if wrong or not only_failures:
            print("FAILED" if wrong else "ok", f"{mutation[0]}: {first}", wrong, flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed


def main():
    only_checks = sys.argv[1] == "--check"
    path, copy, *options = sys.argv[2:] if only_checks else sys.argv[1:]
    found = list(mutations(path))
    if only_checks or any(misfit(copy, one) for one in found):
        return report(found, lambda one: misfit(copy, one), only_failures=True) > 0
    return report(found, lambda one: verdict(copy, options, one)) > 0


if __name__ == "__main__":
    sys.exit(main())
