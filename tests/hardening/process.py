"""A server with API keys, one that outlives its terminal, one that a service manager started.

    process.py PROGRAM        one line for each failure, "N passed, N failed" at the end
"""
import os
import signal
import socket
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
    said = server.said("NOTIFY_SOCKET")
    tell("NOTIFY_SOCKET /no/manager cannot be reached" in said, f"no service manager: {said}")
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


def told(manager, seconds):
    """The lines of the next datagram."""
    manager.settimeout(seconds)
    try:
        return manager.recv(4096).decode().split("\n")
    except TimeoutError:
        return []


def service_manager(server, tell):
    """The sandbox, which forbids connections, is entered before the first datagram is sent."""
    tell("READY=1" in told(MANAGER, 30), "does not say READY=1 within 30 s")
    tell(server.call("GET", "/health") is not None, "was not ready when it said so")
    server.process.terminate()
    tell("STOPPING=1" in told(MANAGER, 10), "does not say STOPPING=1")
    tell(ended(server, 30) == 0, "did not end with 0 under a service manager")


# An abstract socket, as systemd's of a container.
MANAGER = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
MANAGER.bind(f"\0weir-hardening-{os.getpid()}")
NOTIFY = f"@weir-hardening-{os.getpid()}"

CASES = [
    (keys_on_the_command_line, ["--api-key", "sk-old", "--set", f'server.api_key="{KEY}"'], {}),
    (key_in_the_environment, [],
     {"env": {**os.environ, "WEIR_API_KEY": KEY, "NOTIFY_SOCKET": "/no/manager"}}),
    (no_key, [], {}),
    (hangup_is_ignored, [], {"preexec_fn": ignore_hangup}),
    (service_manager, [], {"env": {**os.environ, "NOTIFY_SOCKET": NOTIFY}}),
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
