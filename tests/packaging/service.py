"""A server that a service manager started: it says when it is ready, and when it stops."""
import json
import os
import pathlib
import socket
import subprocess
import urllib.error
import urllib.request

# Long enough to be kept: pages have 64 tokens.
CHAT = {"messages": [{"role": "user", "content": "The boat is black. " * 40}], "max_tokens": 4}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Service:
    """Starts `words` with the port and the settings as further arguments."""

    def __init__(self, words, folder, settings, key=None):
        self.port, self.key = free_port(), key
        self.log = pathlib.Path(folder, "log")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        name = f"weir-packaging-{os.getpid()}-{self.port}"
        self.manager.bind("\0" + name)
        env = {**os.environ, "NOTIFY_SOCKET": "@" + name, "OMP_NUM_THREADS": "1"}
        if key:
            env["WEIR_API_KEY"] = key
        settings = [f"server.port={self.port}", "memory.host=96MiB", *settings]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*words, *(word for setting in settings for word in ("--set", setting))],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=env)

    def told(self, state, seconds):
        """Whether this state is among the lines of the next datagram."""
        self.manager.settimeout(0.2)
        for _ in range(seconds * 5):
            try:
                return state in self.manager.recv(4096).decode().split("\n")
            except TimeoutError:
                if self.process.poll() is not None:
                    return False
        return False

    def call(self, path, body=None, host=None):
        """The answer as text, None unless its status is 2xx."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        if host:
            headers["Host"] = host
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers,
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.URLError as error:
            print(f"{path}: {error}")
            return None

    def stop(self):
        """The exit code after SIGTERM, and whether it said that it stops. One signal: a second one
        ends it at once."""
        self.process.terminate()
        stopping = self.told("STOPPING=1", 10)
        return self.wait(), stopping

    def wait(self):
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.manager.close()
        return code

    def said(self):
        return self.log.read_text()
