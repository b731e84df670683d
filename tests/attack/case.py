"""case.py - the list of cases, and what a case says when it fails."""
import dataclasses
import typing

CASES = []


class Wrong(Exception):
    """The server did what it must not do."""


class Skipped(Exception):
    """The case cannot run on this machine."""


@dataclasses.dataclass
class Case:
    name: str
    run: typing.Callable
    memory: int = 64  # MiB of memory.host and of the control group
    settings: tuple = ()  # KEY=VALUE of --set; {dir} is a fresh folder
    key: str = ""  # server.api_key
    share: str = ""  # cases in a row with the same word use one server
    server: dict = dataclasses.field(default_factory=dict)  # more arguments of Server
    own: bool = False  # it starts its server itself: run(start), not run(server)
    ends: bool = False  # it ends the server itself: nothing is checked afterwards


def case(name, **options):
    def add(run):
        CASES.append(Case(name, run, **options))
        return run

    return add


def table(prefix, entries, run, **options):
    """One case of each entry (name, what): run(server, what) on one server for all."""
    for name, what in entries:
        CASES.append(Case(f"{prefix}: {name}", lambda server, what=what: run(server, what),
                          share=prefix, **options))


def must(holds, text):
    if not holds:
        raise Wrong(text)
