"""Applies each change of a list to a copy of the tree, and asks whether a test notices.

    mutate.py LIST COPY [BAZEL-OPTION...]

COPY is a checkout that may be changed. Prints a line for each mutation and "N passed, N failed":
one that no test notices has failed, and so has one that does not fit the tree any more.
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


def verdict(copy, options, mutation):
    name, old, new, targets = mutation
    path = f"{copy}/{name}"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(old) != 1:
        return f"stands {text.count(old)} times in {name}, must be once"
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))
        code = bazel(copy, options, targets)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return {0: "no test notices it", 3: ""}.get(code, f"does not build ({code})")


def main():
    path, copy, *options = sys.argv[1:]
    passed = failed = 0
    for mutation in mutations(path):
        wrong = verdict(copy, options, mutation)
        passed, failed = passed + (not wrong), failed + bool(wrong)
        first = mutation[1].split("\n", maxsplit=1)[0]
        print("FAILED" if wrong else "ok", f"{mutation[0]}: {first}", wrong, flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
