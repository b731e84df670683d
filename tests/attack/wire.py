"""wire.py - HTTP as bytes on a socket: what http.client would not send, and would not show."""
import dataclasses
import json
import select
import socket
import struct
import time

from case import Wrong

ADDRESS = "127.0.0.1"


def connect(port, source=None, timeout=5.0, receive=0):
    """`source`: the client's address; `receive`: bytes of its receive buffer, 0: as usual."""
    sock = socket.socket()
    sock.settimeout(timeout)
    if receive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    if source:
        sock.bind((source, 0))
    try:
        sock.connect((ADDRESS, port))
    except OSError:
        sock.close()
        raise
    return sock


def reset(sock):
    """Closes with RST instead of FIN."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        sock.close()


@dataclasses.dataclass
class Reply:
    status: int
    fields: list
    body: bytes

    def get(self, name):
        return next((v for n, v in self.fields if n == name.lower()), None)

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            raise Wrong(f"status {self.status} with a body that is no JSON: "
                        f"{self.body[:120]!r}") from None

    def error(self):
        """The error object, whose four keys must be there."""
        error = self.json().get("error") if self.body[:1] == b"{" else None
        if not isinstance(error, dict) or not {"message", "type", "param", "code"} <= set(error):
            raise Wrong(f"status {self.status} without the JSON error object: "
                        f"{self.body[:120]!r}")
        return error


def read_chunks(raw, at):
    """(body, end), or None while something is missing."""
    body = b""
    while True:
        line = raw.find(b"\r\n", at)
        if line < 0:
            return None
        size = int(raw[at:line].split(b";")[0], 16)
        if len(raw) < line + 2 + size + 2:
            return None
        body += raw[line + 2:line + 2 + size]
        at = line + 2 + size + 2
        if size == 0:
            return body, at


def take_reply(raw, closed=False, bodiless=False):
    """(Reply, rest), or None while something is missing. Answers 1xx are passed over."""
    while True:
        end = raw.find(b"\r\n\r\n")
        if end < 0:
            return None
        lines = raw[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise Wrong(f"no HTTP answer: {raw[:80]!r}")
        status = int(words[1])
        if status >= 200:
            break
        raw = raw[end + 4:]
    fields = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:])]
    reply = Reply(status, fields, b"")
    at = end + 4
    if bodiless or status in (204, 304):
        return reply, raw[at:]
    if reply.get("transfer-encoding") == "chunked":
        chunks = read_chunks(raw, at)
        if chunks is None:
            return None
        reply.body, at = chunks
        return reply, raw[at:]
    length = reply.get("content-length")
    if length is None:
        if not closed:
            return None
        reply.body = raw[at:]
        return reply, b""
    if len(raw) < at + int(length):
        return None
    reply.body = raw[at:at + int(length)]
    return reply, raw[at + int(length):]


def talk(sock, data=b"", seconds=5.0, replies=0, bodiless=False, half_close=False):
    """Sends while it reads. Returns (bytes, closed) when the connection ends, when `replies` whole
    replies have arrived, or when the time is over. If `replies` is 1, sending ends with the first
    bytes that arrive: the server has decided."""
    until = time.monotonic() + seconds
    raw, view = bytearray(), memoryview(data)
    sock.setblocking(False)
    while time.monotonic() < until:
        wants = [sock] if len(view) and not (replies == 1 and raw) else []
        readable, writable, _ = select.select([sock], wants, [], 0.05)
        try:
            if writable:
                view = view[sock.send(view[:1 << 16]):]
                if not len(view) and half_close:
                    sock.shutdown(socket.SHUT_WR)
        except OSError:
            view = memoryview(b"")
        if not readable:
            continue
        try:
            part = sock.recv(1 << 16)
        except OSError:
            part = b""
        if not part:
            return bytes(raw), True
        raw += part
        if replies and count_replies(bytes(raw), bodiless) >= replies:
            return bytes(raw), False
    return bytes(raw), False


def count_replies(raw, bodiless=False):
    n = 0
    while raw:
        taken = take_reply(raw, bodiless=bodiless)
        if taken is None:
            break
        n, raw = n + 1, taken[1]
    return n


def head(method, path, port, fields=()):
    lines = [f"{method} {path} HTTP/1.1"]
    if not any(name.lower() == "host" for name, _ in fields):
        lines.append(f"Host: {ADDRESS}:{port}")
    lines += [f"{name}: {value}" for name, value in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def request(method, path, port, body=None, fields=()):
    """A whole request; a body that is no bytes is sent as JSON."""
    fields = list(fields)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        names = {name.lower() for name, _ in fields}
        if "content-type" not in names:
            fields.append(("Content-Type", "application/json"))
        fields.append(("Content-Length", str(len(body))))
    fields = [(name, value) for name, value in fields if value is not None]
    return head(method, path, port, fields) + (body or b"")


def ask(port, method, path, body=None, fields=(), seconds=10.0, source=None):
    """One request on a connection of its own."""
    data = request(method, path, port, body, fields)
    return ask_raw(port, data, seconds, source, method == "HEAD")


def ask_raw(port, data, seconds=10.0, source=None, bodiless=False):
    with connect(port, source) as sock:
        raw, closed = talk(sock, data, seconds, replies=1, bodiless=bodiless)
    taken = take_reply(raw, closed, bodiless)
    if taken is None:
        how = "closed" if closed else f"after {seconds:.0f} s"
        raise Wrong(f"no whole answer ({how}): {raw[:80]!r}")
    return taken[0]
