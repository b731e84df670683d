#!/usr/bin/env python3
"""tests/soak/soak.py - a server that is busy for long stays as it is.

    soak.py PROGRAM [--minutes N] [--clients N] [--memory MIB] [--seed N]

PROGRAM is the serve binary with its bundled model. Clients chat in sessions, stream, leave streams,
save and restore, add, ask and remove states for N minutes (5). Meanwhile memory, descriptors,
threads, KV in use and the engine's time outside the model are sampled. Without the first fifth,
which warms up, the second half may exceed the first by the bound of each measure (samples.py) only;
every request must be answered or refused with an expected status; at the end nothing may run, and
the server must end when it is asked to. Prints "N passed, N failed"."""
import argparse
import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
import samples  # noqa: E402
import users  # noqa: E402
from case import Wrong  # noqa: E402
from checks import report  # noqa: E402
from server import Server  # noqa: E402

SAMPLES = 240
SETTINGS = ("sessions.dir={dir}/sessions", "states.dir={dir}/states", "sessions.limit=64",
            "states.disk=256MiB", "memory.disk=128MiB", "memory.disk_dir={dir}",
            "batch.max_sequences=8", "batch.queue=64", "model.context=1024")


def watch(server, running, seconds):
    """Samples until the clients end."""
    taken, pause = [], max(0.5, seconds / SAMPLES)
    while any(thread.is_alive() for thread in running) and server.alive():
        taken.append(samples.sample(server))
        time.sleep(pause)
    for thread in running:
        thread.join()
    return taken


def wait_idle(server):
    for _ in range(300):
        now = samples.sample(server)
        if now["running"] == 0 and now["kv"] == 0:
            break
        time.sleep(0.1)
    return now


def check(server, taken, tally, before, options):
    """(text, holds) of everything that must hold."""
    checks = [("the server is alive", server.alive()),
              ("it was not killed for memory", server.group.kills() == 0),
              ("every request was answered or refused", not tally.problems),
              ("requests were answered", tally.statuses[200] > 10 * options.clients)]
    if not server.alive():
        return checks
    first, second = samples.halves(taken)
    print(f"{len(first)} and {len(second)} samples of the halves")
    print(f"| {'measure':24} | first half | second half | at most |")
    for measure in samples.MEASURES:
        a, b, most, holds = measure.judge(first, second)
        print(f"| {measure.name:24} | {a:10.1f} | {b:11.1f} | {most:7.1f} |")
        checks.append((f"{measure.name}: flat", holds))
    after = wait_idle(server)
    checks.append(("nothing runs and no KV is in use at the end",
                   after["running"] == 0 and after["kv"] == 0))
    had, has = before["descriptors"], after["descriptors"]
    checks.append((f"descriptors: {had} before, {has} at the end", has <= had + 4))
    peak = max(server.group.peak(), samples.field(server.pid, "VmHWM"))
    checks.append((f"its peak of {peak / samples.MIB:.1f} MiB is within {options.memory}",
                   peak <= server.cap))
    return checks


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--memory", type=int, default=96, help="memory.host, in MiB")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seconds = 60 * options.minutes
    server = Server(options.program, options.memory, SETTINGS, stdout=subprocess.DEVNULL)
    try:
        server.group.say()
        window = json.loads(server.ask("GET", "/props").body)["n_ctx"]
        before, tally = samples.sample(server), users.Tally()
        until = time.monotonic() + seconds
        running = users.start(server.port, options.clients, options.seed, window, until, tally)
        taken = watch(server, running, seconds)
        print(f"{sum(tally.kinds.values())} requests: {dict(tally.kinds)}; "
              f"statuses {dict(tally.statuses)}")
        for problem in tally.problems[:10]:
            print("  " + problem)
        checks = check(server, taken, tally, before, options)
        try:
            checks.append(("it ends when it is asked to", server.end(seconds=60) in (0, 143)))
        except (Wrong, OSError) as error:
            checks.append((f"it ends when it is asked to: {error}", False))
    finally:
        server.close()
    return report(checks)


if __name__ == "__main__":
    sys.exit(main())
