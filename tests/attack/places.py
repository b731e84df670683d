"""places.py - clients that take all places: health and others must still be answered."""
import time

import wire
from case import case, must
from clients import drip, health, hold, wait_closed

PLACES = 24
SETTINGS = (f"server.max_connections={PLACES}",)
BODY = b'{"model":"weir-demo","prompt":"a","max_tokens":1}'
SHORT_SECONDS = 15  # a header_timeout of 10 s, and its last words


def half_body(port):
    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(BODY)))]
    return wire.head("POST", "/v1/completions", port, fields) + BODY[:10]


def half_chunk(port):
    fields = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    return wire.head("POST", "/v1/completions", port, fields) + b"20\r\n{"


HOLDS = {
    "idle": lambda port: b"",
    "half a head": lambda port: b"GET /health HTTP/1.1\r\nHost: a",
    "half a line": lambda port: b"GE",
    "half a body": half_body,
    "half a chunk": half_chunk,
}


def answers_anyhow(server, source=None):
    """A new client is served, or told that it is not."""
    reply = server.ask("GET", "/v1/models", seconds=5, source=source)
    must(reply.status in (200, 429, 503), f"a new client got {reply.status}")
    if reply.status != 200:
        reply.error()


def full(server, what):
    socks = hold(server, 2 * PLACES, HOLDS[what](server.port))
    try:
        for _ in range(3):
            health(server, "with " + what)
        answers_anyhow(server)
        answers_anyhow(server, "127.0.0.2")
    finally:
        for sock in socks:
            sock.close()
    until = time.monotonic() + 5
    while server.ask("GET", "/v1/models").status != 200:
        must(time.monotonic() < until, "the places do not become free")
        time.sleep(0.1)


for _what in HOLDS:
    case(f"places: {2 * PLACES} connections with {_what}, {PLACES} places", settings=SETTINGS,
         memory=128)(lambda server, what=_what: full(server, what))


@case("places: 300 idle connections on the default settings", memory=128)
def many(server):
    socks = hold(server, 300, b"")
    health(server, "with 300 idle connections")
    answers_anyhow(server)
    answers_anyhow(server, "127.0.0.2")
    for sock in socks:
        sock.close()


@case("places: one address does not take the places of another", memory=128,
      settings=("server.max_connections=64",))
def address(server):
    socks = hold(server, 128, b"GET /health HTTP/1.1\r\n", "127.0.0.3")
    reply = server.ask("GET", "/v1/models", seconds=5, source="127.0.0.2")
    must(reply.status == 200, f"the other address got {reply.status}")
    for sock in socks:
        sock.close()


@case("places: half heads are closed soon, on the default settings", memory=128, key="sk-attack")
def soon(server):
    heads = hold(server, 10, HOLDS["half a head"](server.port))
    lines = hold(server, 10, HOLDS["half a line"](server.port))
    told = wait_closed(heads + lines, SHORT_SECONDS)
    for sock in heads:
        reply = wire.take_reply(told[sock], True)
        must(reply is not None and reply[0].status == 408, f"told {told[sock][:60]!r}, not 408")
        reply[0].error()
    for sock in heads + lines:
        sock.close()


@case("places: bodies without a key are not waited for", memory=128, key="sk-attack")
def not_waited(server):
    socks = hold(server, 10, half_body(server.port)) + hold(server, 10, half_chunk(server.port))
    told = wait_closed(socks, 3)
    for sock in socks:
        reply = wire.take_reply(told[sock], True)
        must(reply is not None and reply[0].status == 401, f"told {told[sock][:60]!r}, not 401")
        sock.close()


@case("places: heads that come a byte at a time", memory=128, settings=("server.read_timeout=2s",))
def slow_heads(server):
    drip(server, hold(server, 20, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "), b"a", 6)


@case("places: fields that come one at a time", memory=128, settings=("server.read_timeout=2s",))
def slow_fields(server):
    drip(server, hold(server, 20, b"GET /health HTTP/1.1\r\nHost: localhost\r\n"), b"X-A: b\r\n", 6)


@case("places: bodies that come a byte at a time", memory=128, settings=("server.read_timeout=2s",))
def slow_bodies(server):
    fields = [("Content-Type", "application/json"), ("Content-Length", "100000")]
    drip(server, hold(server, 20, wire.head("POST", "/tokenize", server.port, fields)), b" ", 6)


@case("places: chunks of one byte, slowly", memory=128, settings=("server.read_timeout=2s",))
def slow_chunks(server):
    fields = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    data = wire.head("POST", "/tokenize", server.port, fields) + b"1\r\n{\r\n"
    drip(server, hold(server, 20, data), b"1\r\n \r\n", 6)


@case("places: answers 408 to half a head and half a body", memory=128,
      settings=("server.read_timeout=1s",))
def timeouts(server):
    for data in (HOLDS["half a head"](server.port), half_body(server.port),
                 half_chunk(server.port)):
        with wire.connect(server.port) as sock:
            raw, closed = wire.talk(sock, data, seconds=5)
        must(closed, f"still open 5 s after {data[-20:]!r}")
        taken = wire.take_reply(raw, True)
        must(taken is not None and taken[0].status == 408, f"{raw[:60]!r} for {data[-20:]!r}")
        taken[0].error()
