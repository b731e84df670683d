"""A running server with each server.sandbox: it answers every kind of request, and the kernel says
what its threads can no longer do.

server.py PROGRAM         one line for each failure, "N passed, N failed" at the end
"""

import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TEXT = (
    "Keys and values of a text stay in pages; pages that no request reads move to the disk. " * 40
)


def thread_states(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as file:
            yield dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)


def every_thread(pid, key, value):
    return all(state.get(key) == value for state in thread_states(pid))


def spoiled_mappings(lines):
    """Writable and executable ones."""
    return [line for line in lines if "w" in line.split()[1] and "x" in line.split()[1]]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, program, folder, sandbox, arguments=(), **how):
        """`how`: as of Popen, env and preexec_fn."""
        self.port = free_port()
        self.log = f"{folder}/err"
        os.mkdir(f"{folder}/pages")
        settings = [
            f"server.port={self.port}",
            f"server.sandbox={sandbox}",
            f"sessions.dir={folder}/sessions",
            f"states.dir={folder}/states",
            "memory.host=80MiB",
            "memory.disk=256MiB",
            f"memory.disk_dir={folder}/pages",
        ]
        with open(self.log, "w") as log:
            words = [program, *arguments] + [word for s in settings for word in ("--set", s)]
            self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, **how)

    def started(self):
        for _ in range(300):
            if self.process.poll() is not None:
                return False
            try:
                return self.call("GET", "/health") is not None
            except OSError:
                time.sleep(0.1)
        return False

    def said(self, word):
        """What it has logged, once the word is there: it may answer before it has logged."""
        for _ in range(50):
            with open(self.log) as log:
                text = log.read()
            if word in text or self.process.poll() is not None:
                break
            time.sleep(0.1)
        return text

    def call(self, method, path, body=None):
        """The answer's bytes, None unless its status is 2xx."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            headers={"Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            print(f"{method} {path}: {error.code} {error.read()[:200]}")
            return None

    def long_completion(self, i):
        return self.call(
            "POST",
            "/v1/completions",
            {"prompt": f"{i} {TEXT}", "max_tokens": 200, "ignore_eos": True},
        )

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                return self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def requests(server):
    """Yields (what, answer) for every kind of request, the disk's pages among them."""
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    for path in ("/", "/health", "/metrics", "/props", "/v1/models", "/v1/memory"):
        yield path, server.call("GET", path)
    yield "tokenize", server.call("POST", "/tokenize", {"content": "Hello"})
    yield "chat", server.call("POST", "/v1/chat/completions", chat)
    yield "stream", server.call("POST", "/v1/chat/completions", {**chat, "stream": True})
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        yield "many at once", all(pool.map(server.long_completion, range(12)))
    memory = json.loads(server.call("GET", "/v1/memory") or b"{}")
    yield "pages went to the disk", memory.get("kv", {}).get("disk", {}).get("bytes_out", 0) > 0
    yield "a named session", server.call(
        "POST", "/v1/completions", {"prompt": TEXT, "max_tokens": 8, "session": "talk"}
    )
    yield "save", server.call("POST", "/v1/sessions", {"name": "talk"})
    yield "restore", server.call("POST", "/v1/sessions/restore", {"name": "talk"})
    yield "list", server.call("GET", "/v1/sessions")
    yield "delete", server.call("DELETE", "/v1/sessions/talk")
    state = server.call("POST", "/v1/states", {"label": "document", "prompt": TEXT})
    yield "a state", state
    yield "states", server.call("GET", "/v1/states")
    yield "query", server.call(
        "POST", "/v1/states/query", {"question": "Where do pages go?", "top_k": 1}
    )
    name = json.loads(state or b'{"id": "none"}')["id"]
    yield "one state", server.call("GET", f"/v1/states/{name}")
    yield "no state", server.call("DELETE", f"/v1/states/{name}")


def main():
    program = sys.argv[1]
    passed = failed = 0

    def tell(good, text):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print("FAILED: " + text)

    tell(spoiled_mappings(["7f0000000000-7f0000010000 rwxp 0 00:00 0"]), "writable code passes")
    for mode in ("strict", "auto", "off"):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            server = Server(program, folder, mode)
            try:
                started = server.started()
                said = server.said("sandbox" if mode != "off" else "")
                if not started and mode == "strict" and "Landlock" in said:
                    print("skipped 1: strict: this kernel has no Landlock")
                    continue
                tell(started, f"{mode}: the server does not start: {said}")
                if not started:
                    continue
                boxed = mode != "off" and "no sandbox" not in said
                tell(
                    bool(re.search("sandbox: Landlock ABI [1-9]", said)) == boxed,
                    f"{mode}: the log says {said}",
                )
                if mode == "auto" and not boxed:
                    print("skipped 1: auto: this kernel has no Landlock")
                for what, answer in requests(server):
                    tell(answer, f"{mode}: {what}")
                pid = server.process.pid
                tell(every_thread(pid, "NoNewPrivs", "1"), f"{mode}: a thread can gain privileges")
                tell(
                    every_thread(pid, "Seccomp", "2") == (mode == "strict"),
                    f"{mode}: the filter of system calls",
                )
                with open(f"/proc/{pid}/maps") as maps:
                    bad = spoiled_mappings(maps)
                tell(not bad, f"{mode}: writable and executable: {bad}")
            finally:
                code = server.stop()
            tell(code == 0, f"{mode}: ended with {code}")
            tell(
                any(name.endswith(".session") for name in os.listdir(f"{folder}/sessions")),
                f"{mode}: no session was saved at the end",
            )
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
