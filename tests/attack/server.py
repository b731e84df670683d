"""server.py - a server in a control group, and what must hold of it after every attack."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import wire
from case import Wrong, must
from group import Group, field

MIB = 1 << 20
DRAIN_SECONDS = 1
MODEL = "weir-demo"


def free_port():
    with socket.socket() as sock:
        sock.bind((wire.ADDRESS, 0))
        return sock.getsockname()[1]


class Server:
    """stdout, stderr: as Popen takes them; None: files in `dir`. `closed`: descriptors 0 to 2 are.
    `dir`: a folder that the caller keeps, None: one of its own. `key`: what requests send;
    `key_file`: the bytes of server.api_key_file, None: the key alone."""

    def __init__(self, program, memory=64, settings=(), key="", stdout=None, stderr=None,
                 closed=False, dir=None, key_file=None):
        self.cap, self.key, self.port = memory * MIB, key, free_port()
        self.keeps = dir is not None
        self.dir = pathlib.Path(dir or tempfile.mkdtemp(prefix="weir-attack-"))
        self.group = Group(self.cap)
        words = [f"server.port={self.port}", f"memory.host={memory}MiB",
                 f"server.drain_timeout={DRAIN_SECONDS}s",
                 *(setting.replace("{dir}", str(self.dir)) for setting in settings)]
        if key:
            (self.dir / "key").write_bytes(key_file or key.encode() + b"\n")
            (self.dir / "key").chmod(0o600)
            words.append(f"server.api_key_file={self.dir}/key")
        if not any(word.startswith("batch.max_sequences") for word in words):
            words.append("batch.max_sequences=4")
        arguments = [program, *(part for word in words for part in ("--set", word))]

        def prepare():
            self.group.enter()
            for number in (0, 1, 2) if closed else ():
                os.close(number)

        self.process = None
        try:
            self.process = self.launch(arguments, prepare, stdout, stderr)
            self.pid = self.process.pid
            self.wait_ready()
            self.baseline = self.used()
        except BaseException:
            self.close()
            raise

    def launch(self, arguments, prepare, stdout, stderr):
        with open(self.dir / "stdout", "ab") as out, open(self.dir / "stderr", "ab") as err:
            return subprocess.Popen(arguments, stdin=subprocess.DEVNULL,
                                    stdout=out if stdout is None else stdout,
                                    stderr=err if stderr is None else stderr,
                                    preexec_fn=prepare)

    def wait_ready(self):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise Wrong(f"the server did not start: {self.errors()[-300:]}")
            try:
                if self.ask("GET", "/health", seconds=2).status == 200:
                    return
            except (OSError, Wrong):
                time.sleep(0.02)
        raise Wrong("the server did not start within 20 s")

    def errors(self):
        return (self.dir / "stderr").read_text(encoding="utf-8", errors="replace")

    def log(self):
        """The lines of its request log."""
        text = (self.dir / "stdout").read_text(encoding="utf-8", errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def fields(self, fields=()):
        has = any(name.lower() == "authorization" for name, _ in fields)
        key = [("Authorization", "Bearer " + self.key)] if self.key and not has else []
        return [*fields, *key]

    def ask(self, method, path, body=None, fields=(), seconds=10.0, source=None):
        return wire.ask(self.port, method, path, body, self.fields(fields), seconds, source)

    def post(self, path, body, fields=(), seconds=20.0):
        return self.ask("POST", path, body, fields, seconds)

    def complete(self, **more):
        body = {"model": MODEL, "prompt": "The river", "max_tokens": 4, "temperature": 0, **more}
        return self.post("/v1/completions", body)

    def host(self):
        """Without memory the answer is 503 until requests that were left are over."""
        until = time.monotonic() + 8
        while True:
            reply = self.ask("GET", "/v1/memory")
            if reply.status == 200:
                return reply.json()["tiers"]["host"]
            must(reply.status == 503, f"/v1/memory answers {reply.status}")
            must(time.monotonic() < until, "/v1/memory still answers 503 after 8 s")
            time.sleep(0.05)

    def used(self):
        """Without the grammars that are kept for later requests, and their vocabulary."""
        host = self.host()
        return host["used"] - host["accounts"]["tokenizer"]

    def resident(self):
        return field(self.pid, "VmRSS")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def check(self):
        """After an attack."""
        must(self.group.kills() == 0, "the kernel killed it for memory")
        must(self.alive(), f"it ended by itself with code {self.process.poll()}: "
                           f"{self.errors()[-200:]}")
        must(self.ask("GET", "/health", seconds=5).status == 200, "/health does not answer 200")
        peak = max(field(self.pid, "VmHWM"), self.group.peak())
        must(peak <= self.cap, f"its memory peaked at {peak / MIB:.1f} of {self.cap / MIB:.0f} MiB")
        until = time.monotonic() + 8
        while (used := self.used()) > self.baseline and time.monotonic() < until:
            time.sleep(0.05)
        must(used <= self.baseline,
             f"the ledger holds {used - self.baseline} bytes more than before")
        must(self.host()["peak"] <= self.cap, "the ledger's peak is above its cap")

    def end(self, number=signal.SIGTERM, seconds=DRAIN_SECONDS + 2):
        """Its exit code; it must end in time."""
        self.process.send_signal(number)
        began = time.monotonic()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Wrong(f"signal {number} did not end it within {seconds} s") from None
        finally:
            self.ended = time.monotonic() - began
        return code

    def stop(self):
        if self.alive():
            code = self.end()
            must(code in (0, 128 + signal.SIGTERM), f"SIGTERM ended it with code {code}")

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()

    def close(self):
        self.kill()
        self.group.remove()
        if not self.keeps:
            shutil.rmtree(self.dir, ignore_errors=True)
