"""A server with API keys, and one that outlives its terminal.

    process.py PROGRAM        one line for each failure, "N passed, N failed" at the end
"""
import os
import signal
import sys
import tempfile
import time

from server import Server

KEY = "sk-hardening-1"


def read(path):
    with open(path, "rb") as file:
        return file.read()


def core_limits(pid):
    """Soft and hard, of a process."""
    lines = read(f"/proc/{pid}/limits").splitlines()
    return next(line.split()[4:6] for line in lines if line.startswith(b"Max core file size"))


def ignore_hangup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def ended(server, seconds):
    until = time.monotonic() + seconds
    while server.process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    return server.process.poll()


def keys_on_the_command_line(server, tell):
    pid = server.process.pid
    tell(server.started(), "does not start with keys")
    arguments = read(f"/proc/{pid}/cmdline")
    tell(b"--api-key\0xxxxxx\0" in arguments, f"what is left of --api-key: {arguments!r}")
    tell(KEY.encode() not in arguments, "a key is in the list of processes")
    tell(b"list of processes" in read(server.log), "no warning of a key on the command line")
    tell(core_limits(pid) == [b"0", b"0"], f"core dumps with keys: {core_limits(pid)}")
    tell(server.stop() == 0, "did not end with 0")


def key_in_the_environment(server, tell):
    pid = server.process.pid
    tell(server.started(), "does not start with WEIR_API_KEY")
    tell(server.call("GET", "/v1/models") is None, "answers without the key of WEIR_API_KEY")
    warns = b"list of processes" in read(server.log)
    tell(not warns, "a warning of a key that is not on the command line")
    tell(core_limits(pid) == [b"0", b"0"], f"core dumps with keys: {core_limits(pid)}")
    tell(server.stop() == 0, "did not end with 0")


def no_key(server, tell):
    pid = server.process.pid
    tell(server.started(), "does not start")
    own = core_limits(os.getpid())
    tell(core_limits(pid) == own, "without keys core dumps are the user's business")
    server.process.send_signal(signal.SIGHUP)
    tell(ended(server, 30) == 0, "SIGHUP does not end it with 0")


def hangup_is_ignored(server, tell):
    tell(server.started(), "does not start with SIGHUP ignored")
    server.process.send_signal(signal.SIGHUP)
    answers = ended(server, 1) is None and server.call("GET", "/health") is not None
    tell(answers, "SIGHUP ended it, though it was started to ignore it (nohup)")
    tell(server.stop() == 0, "did not end with 0")


CASES = [
    (keys_on_the_command_line, ["--api-key", "sk-old", "--set", f'server.api_key="{KEY}"'], {}),
    (key_in_the_environment, [], {"env": {**os.environ, "WEIR_API_KEY": KEY}}),
    (no_key, [], {}),
    (hangup_is_ignored, [], {"preexec_fn": ignore_hangup}),
]


def main():
    passed = failed = 0

    def tell(good, text):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print("FAILED: " + text)

    for case, arguments, how in CASES:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            server = Server(sys.argv[1], folder, "auto", arguments, **how)
            try:
                case(server, tell)
            finally:
                server.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
