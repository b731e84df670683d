"""What the tests of packaging share: counting, skipping, running programs."""
import shutil
import subprocess
import sys


class Cases:
    def __init__(self):
        self.passed = self.failed = 0

    def tell(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        if not good:
            print("FAILED: " + text)

    def has(self, program):
        """Whether a program is installed; without it a case is skipped: tests/expected_skips.txt"""
        if shutil.which(program):
            return True
        print(f"skipped {program}: it is not installed")
        return False

    def quiet(self, words, text, **how):
        """The command ends with 0 and says nothing."""
        done = run(words, **how)
        said = done.stdout + done.stderr
        self.tell(done.returncode == 0 and not said, f"{text}: {done.returncode} {said[:2000]}")

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


def run(words, **how):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **how)
