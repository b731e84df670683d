#!/usr/bin/env python3
"""tests/attack/attack.py - a server under attack: each case sends what an enemy would, then the
server must be alive, within its memory, with the ledger where it was, and end when it is asked to.

    attack.py PROGRAM [--only TEXT] [--long] [--list]

PROGRAM is the serve binary with its bundled model. Where no memory control group can be made, the
peak resident memory takes its place, and the output says so. Prints "N passed, N failed"."""
import argparse
import importlib
import sys
import time

from case import CASES, Skipped, Wrong
from group import Group
from server import Server

MODULES = ("leaks", "bombs", "origins", "process", "places", "framing", "connections", "values",
           "promises")
SECONDS_MAX = 230


class Runner:
    def __init__(self, program):
        self.program, self.server, self.share = program, None, ""
        self.passed, self.failed = 0, []

    def say(self, word, name, why="", seconds=0.0):
        line = f"{word:8}{name}"
        print(line + (f" ({seconds:.1f} s)" if seconds >= 2 else "") +
              (": " + why.replace("\n", " ") if why else ""), flush=True)

    def start(self, item):
        return Server(self.program, item.memory, item.settings, item.key, **item.server)

    def leave(self):
        """Ends the server that cases shared; that is one more check."""
        server, self.server = self.server, None
        if server is None:
            return
        name = f"{self.share}: the server ends"
        try:
            server.stop()
            self.passed += 1
            self.say("ok", name)
        except (Wrong, OSError) as error:
            self.failed.append(name)
            self.say("FAILED", name, str(error))
        finally:
            server.close()

    def attack(self, item):
        if item.own:
            item.run(lambda **more: Server(self.program, **{"memory": item.memory,
                                                           "settings": item.settings, **more}))
            return
        if item.share and self.server is not None:
            server = self.server
        else:
            server = self.start(item)
        try:
            item.run(server)
            if item.ends:
                server.close()
                return
            server.check()
            if item.share:
                self.server = server
                return
            server.stop()
        except BaseException:
            self.server = None
            server.close()
            raise
        server.close()

    def run(self, item):
        if item.share != self.share:
            self.leave()
            self.share = item.share
        began = time.monotonic()
        try:
            self.attack(item)
            self.passed += 1
            self.say("ok", item.name, seconds=time.monotonic() - began)
        except Skipped as why:
            self.say("skipped", item.name, str(why))
        except Exception as error:  # pylint: disable=broad-except
            self.failed.append(item.name)
            text = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            self.say("FAILED", item.name, text, time.monotonic() - began)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--only", default="", help="cases whose name holds TEXT")
    parser.add_argument("--long", action="store_true",
                        help="a million abusive requests instead of the cases")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    return parser.parse_args()


def main():
    options = arguments()
    for module in ("long",) if options.long else MODULES:
        importlib.import_module(module)
    if options.list:
        print("\n".join(item.name for item in CASES))
        return 0
    group = Group(1 << 26)
    group.say()
    group.remove()
    runner, began = Runner(options.program), time.monotonic()
    for item in CASES:
        if options.only not in item.name:
            continue
        if not options.long and time.monotonic() - began > SECONDS_MAX:
            runner.failed.append(item.name)
            runner.say("FAILED", item.name, f"not begun: {SECONDS_MAX} s are over")
            continue
        runner.run(item)
    runner.leave()
    print(f"{runner.passed} passed, {len(runner.failed)} failed")
    return 1 if runner.failed or not runner.passed else 0


if __name__ == "__main__":
    sys.exit(main())
