"""end_server.py PID [SECONDS]: sends SIGTERM to a server and waits until it has ended, for at most
60 s. One that goes on is described, thread by thread, and killed; then the exit code is 1.

Its parent learns with which code it ended."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time


def has_ended(pid):
    """Its parent may not have waited for it yet: then it is a zombie."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] in "ZX"


def describe(pid):
    """What its threads wait for; their stacks where gdb is installed."""
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        said = {}
        for name in ("comm", "wchan", "syscall", "stack"):
            try:
                said[name] = (task / name).read_text(errors="replace").strip()
            except OSError as error:
                said[name] = error.strerror
        print(f"thread {task.name} {said['comm']}: {said['wchan']}, {said['syscall']}")
        print(said["stack"])
    if shutil.which("gdb"):
        subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt"],
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)


def main(pid, seconds):
    if has_ended(pid):
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if has_ended(pid):
            return 0
        time.sleep(0.05)
    print(f"FAILED  server {pid} did not end within {seconds:g} s of SIGTERM", flush=True)
    try:
        describe(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60))
