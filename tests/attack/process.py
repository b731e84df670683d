"""process.py - descriptors, pipes, signals and files around the server."""
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import threading
import time

import wire
from case import Skipped, case, must
from origins import PROMPT, SETTINGS

TEXT = "The quick brown fox jumps over the lazy dog and goes home again."


def state_of(server, label):
    reply = server.post("/v1/states", {"label": label, "prompt": f"{label}: {TEXT}"})
    must(reply.status in (200, 201), f"no state: {reply.status} {reply.body[:200]!r}")
    return reply.json()["id"]


@case("descriptors: 0 to 2 are closed, the database of states stays whole", memory=128, own=True)
def closed_descriptors(start):
    with tempfile.TemporaryDirectory(prefix="weir-attack-") as folder:
        settings = ("states.dir={dir}/states",)
        server = start(settings=settings, closed=True, dir=folder)
        try:
            made = [state_of(server, f"text {i}") for i in range(3)]
            for _ in range(50):
                server.ask("GET", "/v1/nothing")
            server.check()
            server.stop()
        finally:
            server.close()
        for path in pathlib.Path(folder, "states").rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                must(b'"method"' not in data and b"weir: " not in data,
                     f"{path.name} holds lines of a log")
        server = start(settings=settings, dir=folder)
        try:
            listed = {item["id"] for item in server.ask("GET", "/v1/states").json()["data"]}
            must(listed == set(made), f"{len(listed & set(made))} of {len(made)} states are left")
            server.stop()
        finally:
            server.close()


def ask_many(server, count, seconds):
    """On connections that are kept; each answered within 3 s."""
    data = wire.request("GET", "/v1/models", server.port)
    until, sock = time.monotonic() + seconds, wire.connect(server.port, timeout=3)
    for i in range(count):
        must(time.monotonic() < until, f"{i} of {count} requests in {seconds} s")
        try:
            sock.sendall(data)
            raw = sock.recv(1 << 16)
        except OSError:
            raw = b""
        must(raw.startswith(b"HTTP/1.1 200"), f"request {i + 1} of {count} was not answered")
    sock.close()


def stuck(start, names, **settings):
    """The pipes `names` are not read while the server runs."""
    server = start(**{name: subprocess.PIPE for name in names}, **settings)
    try:
        ask_many(server, 2000, 30)
        for _ in range(4):  # work of workers and of the engine
            must(server.complete().status == 200, "no completion")
            must(server.post("/tokenize", {"content": "a"}).status == 200, "no tokens")
        server.check()
        server.stop()
    finally:
        server.close()
        for name in names:
            getattr(server.process, name).close()


@case("pipes: stdout is not read", own=True)
def unread_stdout(start):
    stuck(start, ["stdout"])


@case("pipes: stdout and stderr are not read", own=True)
def unread_both(start):
    stuck(start, ["stdout", "stderr"])


@case("pipes: stderr is not read, and requests write to it", own=True, memory=128)
def unread_stderr(start):
    server = start(stderr=subprocess.PIPE, settings=SETTINGS)
    try:
        (server.dir / "sessions").mkdir(exist_ok=True)
        body = {**PROMPT, "max_tokens": 1}
        for i in range(700):  # a warning of 150 bytes each: the session is damaged
            (server.dir / "sessions" / f"bad{i}.session").write_bytes(b"damaged")
            reply = server.post("/v1/completions", {**body, "session": f"bad{i}"}, seconds=5)
            must(reply.status == 200, f"completion {i}: {reply.status}")
        server.check()
        server.stop()
    finally:
        server.close()
        server.process.stderr.close()


@case("pipes: the reader of stdout is gone", own=True)
def broken_pipe(start):
    server = start(stdout=subprocess.PIPE)
    try:
        server.process.stdout.close()
        ask_many(server, 500, 20)
        must(server.complete().status == 200, "no completion")
        server.check()
        server.stop()
    finally:
        server.close()


@case("pipes: stdout is a full disk", own=True)
def full_disk(start):
    if not os.path.exists("/dev/full"):
        raise Skipped("no /dev/full here")
    with open("/dev/full", "wb") as full:
        server = start(stdout=full)
        try:
            ask_many(server, 500, 20)
            server.check()
            server.stop()
        finally:
            server.close()


def named(server, name="talk"):
    reply = server.post("/v1/completions", {**PROMPT, "prompt": TEXT, "session": name})
    must(reply.status == 200, f"no completion: {reply.status} {reply.body[:200]!r}")


def ends_and_saves(server, number):
    (server.dir / "sessions").mkdir(exist_ok=True)
    named(server)
    code = server.end(number)
    must(code == 0, f"signal {number} ended it with {code}")
    files = list((server.dir / "sessions").iterdir())
    must(files, "the session was not saved")


for _number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    case(f"signals: {_number.name} saves the sessions and ends", ends=True,
         settings=("sessions.dir={dir}/sessions",))(
             lambda server, number=_number: ends_and_saves(server, number))


class Long(threading.Thread):
    """A stream that would run for long, and what became of it."""

    def __init__(self, server):
        super().__init__(daemon=True)
        body = {"model": "weir-demo", "prompt": "a", "max_tokens": 8000, "ignore_eos": True,
                "stream": True}
        self.sock = wire.connect(server.port)
        self.sock.sendall(wire.request("POST", "/v1/completions", server.port, body))
        self.first, self.raw, self.closed = self.sock.recv(4096), b"", False
        self.start()

    def run(self):
        self.raw, self.closed = wire.talk(self.sock, seconds=8)
        self.raw = self.first + self.raw


@case("signals: SIGTERM while answers run ends them with a word", ends=True, memory=128)
def running(server):
    streams = [Long(server) for _ in range(3)]
    code = server.end()
    must(code == 0, f"it ended with {code}")
    for stream in streams:
        stream.join(10)
        must(stream.closed, "a stream was left open")
        text = stream.raw
        must(b"[DONE]" in text[-200:] or b'"error"' in text[-1500:],
             f"a stream ends without a word: {text[-100:]!r}")


@case("signals: the second one ends at once", own=True, memory=128)
def second(start):
    server = start(settings=("server.drain_timeout=30s",))
    try:
        stream = Long(server)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        must(server.alive(), "the first signal did not let the answer run")
        code = server.end(signal.SIGTERM, 1)
        must(code == 128 + signal.SIGTERM, f"it ended with {code}")
        stream.join(10)
    finally:
        server.close()


@case("files: sessions and states are for their owner only", settings=SETTINGS, memory=128)
def modes(server):
    (server.dir / "sessions").mkdir(mode=0o700, exist_ok=True)
    named(server)
    must(server.post("/v1/sessions", {"name": "talk"}).status == 200, "no session")
    state_of(server, "mine")
    problems, seen = [], 0
    for folder in ("sessions", "states"):
        for path in (server.dir / folder).rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            seen += path.is_file()
            if mode & 0o077:
                problems.append(f"{path.name} is {mode:04o}")
    must(seen >= 2, f"only {seen} files were written")
    must(not problems, ", ".join(problems))


def provoke(server):
    """Errors whose text knows a path inside."""
    sessions, states = server.dir / "sessions", server.dir / "states"
    named(server)
    server.post("/v1/sessions", {"name": "talk"})
    state = state_of(server, "mine")
    replies = [server.post("/v1/sessions/restore", {"name": "absent"}),
               server.post("/v1/sessions", {"name": "absent"}),
               server.ask("DELETE", "/v1/sessions/absent"),
               server.ask("GET", "/v1/states/absent"),
               server.ask("DELETE", "/v1/states/absent"),
               server.post("/v1/completions", {**PROMPT, "session": "absent"}),
               server.post("/v1/completions", {**PROMPT, "state": "absent"})]
    for damage in (b"", b"WEIR", b"\0" * 4096, os.urandom(9000)):
        for path in sessions.iterdir():
            if path.is_file():
                path.write_bytes(damage)
        replies += [server.post("/v1/sessions/restore", {"name": "talk"}),
                    server.ask("GET", "/v1/sessions"),
                    server.post("/v1/completions", {**PROMPT, "session": "talk"})]
    for path in states.rglob("*"):
        if path.is_file() and path.name != "states.log":
            path.write_bytes(b"damaged")
    replies += [server.post("/v1/completions", {**PROMPT, "state": state}),
                server.ask("GET", "/v1/states/" + state),
                server.post("/v1/states/query", {"question": "a"})]
    sessions.rename(server.dir / "away")
    replies += [server.post("/v1/sessions", {"name": "talk", "prompt": TEXT}),
                server.post("/v1/sessions/restore", {"name": "talk"}),
                server.ask("GET", "/v1/sessions")]
    (server.dir / "away").rename(sessions)
    return replies


@case("files: no answer names a path of the server", settings=SETTINGS, memory=128)
def paths(server):
    (server.dir / "sessions").mkdir(exist_ok=True)
    replies = provoke(server)
    errors = [reply for reply in replies if reply.status >= 400]
    must(len(errors) >= 8, f"only {len(errors)} of {len(replies)} were errors")
    for reply in replies:
        text = reply.body.decode("utf-8", "replace")
        for path in (str(server.dir), "/tmp", "/var", "/home", "/root", "/usr", "/proc", "/dev"):
            must(path not in text, f"status {reply.status}: {text[:300]}")


@case("files: kill -9 while sessions and states are written", own=True, memory=128)
def killed(start):
    with tempfile.TemporaryDirectory(prefix="weir-attack-") as folder:
        pathlib.Path(folder, "sessions").mkdir()
        for i in range(6):
            server = start(settings=SETTINGS, dir=folder)
            try:
                for item in server.ask("GET", "/v1/sessions").json()["data"]:
                    must(item["problem"] is None, f"round {i}: {item['problem']}")
                named(server)
                bodies = [("/v1/sessions", {"name": f"talk{i}", "prompt": TEXT}),
                          ("/v1/states", {"label": f"round {i}", "prompt": f"{i} {TEXT}"})]
                socks = [wire.connect(server.port) for _ in bodies]
                for sock, (path, body) in zip(socks, bodies):
                    sock.sendall(wire.request("POST", path, server.port, body))
                time.sleep(0.003 * i)
                server.kill()
                for sock in socks:
                    sock.close()
            finally:
                server.close()


