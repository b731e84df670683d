"""connections.py - connections that are cut, flooded, or never end."""
import random
import socket
import time

import wire
from case import Wrong, case, must
from clients import drip, hold, wait_closed
from server import MIB

STREAM = {"model": "weir-demo", "prompt": "a", "max_tokens": 2000, "ignore_eos": True,
          "stream": True}
JSON_TYPE = ("Content-Type", "application/json")
CHUNKED = ("Transfer-Encoding", "chunked")


def flat(server, before, slack=4 * MIB):
    grown = server.resident() - before
    must(grown <= slack, f"it holds {grown / MIB:.1f} MiB more than before")


TAKEN = 96 * MIB  # more than a server reads away after its answer, so that the answer arrives


def pour(server, first, piece, seconds=6.0):
    """`piece` again and again after `first` until the server closes. (answer, bytes sent)."""
    with wire.connect(server.port, timeout=1) as sock:
        sent, until = 0, time.monotonic() + seconds
        try:
            sock.sendall(first)
            while sent < TAKEN and time.monotonic() < until:
                sock.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        raw, closed = wire.talk(sock, seconds=5)
    must(closed, f"still open after {sent} bytes")
    return raw, sent


def endless(server, first, piece, statuses=(400, 413, 414, 431, 408)):
    before = server.resident()
    raw, sent = pour(server, first, piece)
    must(sent < TAKEN, f"{sent >> 20} MiB were taken")
    if raw:  # the answer may be lost when the server closes before all is read
        taken = wire.take_reply(raw, True)
        if first.endswith(b"\r\n\r\n") and taken is not None and taken[0].status == 200:
            taken = wire.take_reply(taken[1], True)  # of what is pipelined after it
        must(taken is not None and taken[0].status in statuses, f"answered {raw[:60]!r}")
        taken[0].error()
    flat(server, before)


HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNK_HEAD = (b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n")
ENDLESS = {
    "empty lines before the first": (b"", b"\r\n" * 4096),
    "a first line": (b"GET /", b"a" * 8192),
    "a method": (b"G", b"E" * 8192),
    "a name": (HEAD + b"X", b"a" * 8192),
    "a value": (HEAD + b"X: ", b"a" * 8192),
    "spaces before a value": (HEAD + b"X:", b" " * 8192),
    "fields": (HEAD, b"X-A: b\r\n" * 1024),
    "the same cookie": (HEAD, b"Cookie: a=b\r\n" * 512),
    "hosts": (HEAD, b"Host: 127.0.0.1\r\n" * 512),
    "a chunk size": (CHUNK_HEAD, b"0" * 8192),
    "a chunk extension": (CHUNK_HEAD + b"1;", b"a" * 8192),
    "trailers": (CHUNK_HEAD + b"f\r\n{\"content\":\"a\"}\r\n0\r\n", b"X-A: b\r\n" * 1024),
    "chunks of a byte": (CHUNK_HEAD, b"1\r\n \r\n" * 1024),
    "pipelined garbage": (HEAD + b"\r\n", b"\0garbage\xff\r\n" * 512),
}
for _what, _pieces in ENDLESS.items():
    case(f"endless: {_what}", settings=("server.body_limit=1MiB", "server.read_timeout=2s"))(
        lambda server, pieces=_pieces: endless(server, *pieces))


@case("connections: 20,000 fields in a head")
def many_fields(server):
    data = wire.head("GET", "/health", server.port, [(f"x{i}", "a") for i in range(20000)])
    reply = wire.ask_raw(server.port, data)
    must(reply.status in (400, 413, 431), f"status {reply.status}")
    reply.error()


@case("connections: a body in 20,000 chunks of one byte")
def tiny_chunks(server):
    body = b'{"content":"' + b"a" * 20000 + b'"}'
    data = wire.head("POST", "/tokenize", server.port, [JSON_TYPE, CHUNKED])
    data += b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    reply = wire.ask_raw(server.port, data, 15)
    must(reply.status == 200 and reply.json()["count"] > 0, f"status {reply.status}")


@case("connections: 10,000 requests on one, then half of one", settings=("server.read_timeout=2s",))
def kept(server):
    one = wire.request("GET", "/health", server.port)
    before = None
    with wire.connect(server.port, timeout=5) as sock:
        for i in range(100):
            raw, closed = wire.talk(sock, one * 100, seconds=10, replies=100)
            must(not closed and wire.count_replies(raw) == 100, f"it ended in round {i}")
            before = before or server.resident()
        sock.setblocking(True)
        sock.sendall(one[:-3])
        raw, closed = wire.talk(sock, seconds=6)
        must(closed, "half a head is still waited for")
    flat(server, before, MIB)


@case("connections: 2,000 pipelined requests whose answers are not read")
def pipelined(server):
    before = server.resident()
    with wire.connect(server.port, receive=4096) as sock:
        sock.settimeout(2)
        try:
            sock.sendall(wire.request("GET", "/v1/memory", server.port) * 2000)
        except OSError:
            pass
        must(server.ask("GET", "/health").status == 200, "/health")
        flat(server, before)


def shot(server, data, how):
    """Connects, sends, goes."""
    sock = wire.connect(server.port, timeout=5)
    try:
        sock.sendall(data)
    except OSError:
        pass
    how(sock)


@case("connections: 5,000 connected and closed")
def connect_and_close(server):
    before = server.resident()
    for _ in range(5000):
        wire.connect(server.port).close()
    flat(server, before)


@case("connections: 5,000 connected and reset")
def connect_and_reset(server):
    before = server.resident()
    for _ in range(5000):
        wire.reset(wire.connect(server.port))
    flat(server, before)


@case("connections: 500 resets in bodies")
def reset_bodies(server):
    fields = [JSON_TYPE, ("Content-Length", "200000")]
    data = wire.head("POST", "/v1/completions", server.port, fields) + b'{"prompt":"' + b"a" * 4000
    for i in range(500):
        shot(server, data[:len(data) - i * 7], wire.reset)


@case("connections: 300 resets right after a request")
def reset_answers(server):
    body = {"model": "weir-demo", "prompt": "a", "max_tokens": 50}
    for i in range(300):
        shot(server, wire.request("POST", "/v1/completions", server.port, body),
             wire.reset if i % 2 else socket.socket.close)


@case("connections: 100 streams that are reset in the middle")
def reset_streams(server):
    rng = random.Random(1)
    for _ in range(100):
        with wire.connect(server.port) as sock:
            sock.sendall(wire.request("POST", "/v1/completions", server.port, STREAM))
            sock.settimeout(3)
            try:
                sock.recv(rng.choice((1, 100, 2000)))
            except OSError:
                pass
            wire.reset(sock)


@case("connections: 16 streams whose readers stop", settings=("server.write_timeout=2s",))
def stuck_readers(server):
    socks = []
    for _ in range(16):
        sock = wire.connect(server.port, receive=2048)
        sock.sendall(wire.request("POST", "/v1/completions", server.port, STREAM))
        socks.append(sock)
    until = time.monotonic() + 20
    while True:
        reply = server.complete()
        must(reply.status in (200, 429, 503), f"a client that reads got {reply.status}")
        if reply.status == 200:
            break
        must(time.monotonic() < until, "clients that do not read keep others out for 20 s")
        time.sleep(0.2)
    for sock in socks:
        sock.close()


@case("connections: half-close after a request")
def half_close(server):
    for path, body in (("/health", None), ("/tokenize", {"content": "a"})):
        with wire.connect(server.port) as sock:
            data = wire.request("POST" if body else "GET", path, server.port, body)
            raw, closed = wire.talk(sock, data, seconds=5, half_close=True)
        must(closed, f"{path}: still open")
        taken = wire.take_reply(raw, True) if raw else None
        must(taken is None or taken[0].status in (200, 400), f"{path}: {raw[:60]!r}")


@case("connections: half-close in a head and in a body", settings=("server.read_timeout=2s",))
def half_close_inside(server):
    fields = [JSON_TYPE, ("Content-Length", "100")]
    for data in (b"GE", b"GET /health HTTP/1.1\r\nHost: a",
                 wire.head("POST", "/tokenize", server.port, fields) + b"{",
                 wire.head("POST", "/tokenize", server.port, [JSON_TYPE, CHUNKED]) + b"5\r\n{"):
        with wire.connect(server.port) as sock:
            raw, closed = wire.talk(sock, data, seconds=5, half_close=True)
        must(closed, f"still open after {data[-20:]!r}")
        if raw:
            status = wire.take_reply(raw, True)[0].status
            must(status in (400, 408), f"status {status} for {data[-20:]!r}")


@case("connections: Expect: 100-continue without a body", settings=("server.read_timeout=2s",))
def expect(server):
    data = wire.head("POST", "/tokenize", server.port,
                     [JSON_TYPE, ("Content-Length", "100"), ("Expect", "100-continue")])
    socks = hold(server, 20, data)
    for sock, raw in wait_closed(socks, 6).items():
        taken = wire.take_reply(raw, True)
        must(taken is not None and taken[0].status == 408, f"told {raw[:60]!r}")
        sock.close()


@case("connections: Expect: 100-continue before a body that is refused", key="sk-attack")
def expect_refused(server):
    cases = ((401, "/tokenize", "100", ()), (413, "/tokenize", str(1 << 40), server.fields()),
             (404, "/nothing", "100", server.fields()))
    for status, path, length, key in cases:
        fields = [JSON_TYPE, ("Content-Length", length), ("Expect", "100-continue"), *key]
        with wire.connect(server.port) as sock:
            raw, _ = wire.talk(sock, wire.head("POST", path, server.port, fields), 3, replies=1)
        must(raw.startswith(b"HTTP/1.1 %d" % status), f"{status} expected: {raw[:60]!r}")


@case("connections: unknown expectations")
def expectations(server):
    for text in ("200-ok", "a" * 8000, "100-continue, 100-continue"):
        reply = server.ask("GET", "/health", None, [("Expect", text)])
        must(reply.status in (200, 400, 417), f"Expect: {text[:20]}: {reply.status}")


@case("connections: 3,000 HEAD and 3,000 OPTIONS on one")
def floods(server):
    for method in ("HEAD", "OPTIONS"):
        data = wire.request(method, "/v1/models", server.port)
        with wire.connect(server.port) as sock:
            for _ in range(30):
                raw, closed = wire.talk(sock, data * 100, 10, replies=100, bodiless=True)
                must(not closed, f"{method}: it closed the connection")
                must(wire.count_replies(raw, True) == 100, f"{method}: a body, or no answers")


@case("connections: urgent data in heads and bodies")
def urgent(server):
    data = wire.request("POST", "/tokenize", server.port, {"content": "a"})
    for at in range(0, len(data), 5):
        with wire.connect(server.port) as sock:
            sock.sendall(data[:at])
            sock.send(b"!", socket.MSG_OOB)
            try:
                sock.sendall(data[at:])
                raw, _ = wire.talk(sock, seconds=2, replies=1)
            except OSError:
                raw = b""
            must(not raw or raw[9:10] in (b"2", b"4"), f"answered {raw[:40]!r}")


def refused_unread(server, method, path, fields, statuses):
    """Refused by its head: of a body of 12 MB most is not taken."""
    before = server.resident()
    data = wire.request(method, path, server.port, b"[" * 12_000_000, fields)
    try:
        reply = wire.ask_raw(server.port, data, 10)
    except (Wrong, OSError):
        reply = None  # a reset that overtook the answer
    if reply is not None:
        must(reply.status in statuses, f"{method} {path}: {reply.status}")
        must(reply.status == 200 or reply.error(), "no error object")
    flat(server, before)


@case("connections: large bodies to paths that take none", key="sk-attack")
def large_bodies(server):
    key = server.fields()
    for _ in range(3):
        refused_unread(server, "POST", "/v1/nothing", key, (404,))
        refused_unread(server, "POST", "/health", key, (405,))
        refused_unread(server, "POST", "/v1/completions", [], (401,))
        refused_unread(server, "PUT", "/v1/completions", key, (405,))
        refused_unread(server, "GET", "/health", key, (200, 400, 413))
        refused_unread(server, "DELETE", "/v1/sessions/a", key, (400, 404, 413, 501))


@case("connections: 64 promises of large bodies that never come", settings=(
    "server.read_timeout=3s",))
def promises(server):
    fields = [JSON_TYPE, ("Content-Length", "15000000")]
    socks = hold(server, 64, wire.head("POST", "/v1/completions", server.port, fields))
    must(server.ask("GET", "/health").status == 200, "/health")
    reply = server.complete()
    must(reply.status in (200, 429, 503), f"another client got {reply.status}")
    for sock in socks:
        sock.close()


@case("connections: 60 half bodies of 500 KB each", memory=64)
def half_bodies(server):
    fields = [JSON_TYPE, ("Content-Length", "600000")]
    head = wire.head("POST", "/v1/completions", server.port, fields)
    data = head + b'{"prompt":"' + b"a" * 500000
    socks = hold(server, 60, data)
    must(server.ask("GET", "/health").status == 200, "/health")
    for sock in socks:
        wire.reset(sock)


@case("connections: a slow reader of a long answer", settings=("server.write_timeout=2s",))
def slow_reader(server):
    body = {"content": "a b " * 20000, "with_pieces": True}
    with wire.connect(server.port, receive=2048) as sock:
        sock.sendall(wire.request("POST", "/tokenize", server.port, body))
        time.sleep(3.5)
        must(server.ask("GET", "/health").status == 200, "/health")
        raw, closed = wire.talk(sock, seconds=5)
        must(closed or wire.take_reply(raw) is not None, "neither closed nor answered")


@case("connections: random bytes, 400 times", settings=("server.read_timeout=2s",))
def random_bytes(server):
    rng = random.Random(15)
    good = wire.request("POST", "/tokenize", server.port, {"content": "a"})
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            data[at:at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        with wire.connect(server.port) as sock:
            raw, _ = wire.talk(sock, bytes(data), seconds=0.05, replies=1)
        must(not raw or raw[9:10] in (b"2", b"4") or raw[9:12] == b"505",
             f"{bytes(data)!r} got {raw[:40]!r}")
        taken = wire.take_reply(raw) if raw else None
        if taken is not None and taken[0].status >= 400:
            taken[0].error()


@case("connections: bodies that come a chunk at a time", settings=("server.read_timeout=2s",))
def slow_big_chunks(server):
    head = wire.head("POST", "/tokenize", server.port, [JSON_TYPE, CHUNKED])
    drip(server, hold(server, 20, head + b"ffff\r\n"), b" ", 6)
