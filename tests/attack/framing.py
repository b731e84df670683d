"""framing.py - heads and bodies that are not HTTP, or that two programs could read differently:
one head, a status 4xx with the JSON error object, and the end of the connection."""
import wire
from case import must, table

BODY = b'{"content":"a"}'
REFUSED, EITHER, OPEN = "refused", "either", "open"


def get(*lines, target=b"/health", method=b"GET", version=b"HTTP/1.1", end=b"\r\n"):
    first = method + b" " + target + b" " + version
    return end.join((first, b"Host: 127.0.0.1", *lines, b"", b""))


def post(*lines, body=BODY):
    return get(b"Content-Type: application/json", *lines, method=b"POST",
               target=b"/tokenize") + body


def chunked(data, *lines):
    return post(b"Transfer-Encoding: chunked", *lines, body=data)


def length(text, body=BODY):
    return post(b"Content-Length: " + text, body=body)


SIZE = b"Content-Length: %d" % len(BODY)
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(1, 200))
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)

HEADS = {
    "NUL in a value": (REFUSED, get(b"X-A: a\0b")),
    "NUL in the path": (REFUSED, get(target=b"/health\0.html")),
    "NUL in a name": (REFUSED, get(b"X\0A: b")),
    "NUL in the host": (REFUSED, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\0.evil\r\n\r\n"),
    "NUL in the method": (REFUSED, get(method=b"G\0ET")),
    "obsolete folding": (REFUSED, get(b"X-A: a", b" b")),
    "obsolete folding with a tab": (REFUSED, get(b"X-A: a", b"\tb")),
    "folding of the first field": (REFUSED, b"GET /health HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n"),
    "bare LF everywhere": (REFUSED, get(end=b"\n")),
    "bare LF after a field": (REFUSED, get(b"X-A: a\nX-B: b")),
    "bare LF at the end": (REFUSED, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\n" + SMUGGLED),
    "bare LF after the first line": (REFUSED, b"GET /health HTTP/1.1\nHost: 127.0.0.1\r\n\r\n"),
    "CR alone in a value": (REFUSED, get(b"X-A: a\rX-B: b")),
    "CR alone in the first line": (REFUSED, get(target=b"/health\r/a")),
    "CR CR LF": (REFUSED, get(b"X-A: a\r")),
    "space before the colon": (REFUSED, get(b"X-A : a")),
    "tab before the colon": (REFUSED, get(b"X-A\t: a")),
    "space before the colon of a length": (REFUSED, post(b"Content-Length : 15")),
    "an empty name": (REFUSED, get(b": a")),
    "a line without a colon": (REFUSED, get(b"X-A")),
    "a space in a name": (REFUSED, get(b"X A: b")),
    "brackets in a name": (REFUSED, get(b"X(A): b")),
    "bytes above 127 in a name": (REFUSED, get(b"X-\xc3\xa4: b")),
    "a bell in a value": (REFUSED, get(b"X-A: \x07")),
    "DEL in a value": (REFUSED, get(b"X-A: \x7f")),
    "an empty head": (REFUSED, b"\r\n" * 64),
    "no host": (REFUSED, b"GET /health HTTP/1.1\r\n\r\n"),
    "an empty host": (REFUSED, b"GET /health HTTP/1.1\r\nHost: \r\n\r\n"),
    "two hosts": (REFUSED, get(b"Host: 127.0.0.1")),
    "two different hosts": (REFUSED, get(b"Host: evil.example")),
    "no spaces in the first line": (REFUSED, b"GET/healthHTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    "two spaces in the first line": (REFUSED, get(target=b" /health")),
    "a tab in the first line": (REFUSED, get(method=b"GET\t", target=b"/health")),
    "a space in the target": (REFUSED, get(target=b"/health /a")),
    "a first line that ends with a space": (REFUSED, get(version=b"HTTP/1.1 ")),
    "an empty target": (REFUSED, b"GET  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    "a relative target": (REFUSED, get(target=b"health")),
    "HTTP/0.9": (REFUSED, b"GET /health\r\n"),
    "HTTP/1.2 in small letters": (REFUSED, get(version=b"http/1.2")),
    "HTTP/1.10": (REFUSED, get(version=b"HTTP/1.10")),
    "HTTP/11": (REFUSED, get(version=b"HTTP/11")),
    "HTTP/2.0": (REFUSED, get(version=b"HTTP/2.0")),
    "the preface of HTTP/2": (REFUSED, H2_PREFACE),
    "a TLS hello": (REFUSED, TLS_HELLO),
    "zeros": (REFUSED, bytes(4096)),
    "bytes of all values": (REFUSED, bytes(range(256)) * 8 + b"\r\n\r\n"),
    "a first line of 64 KiB": (REFUSED, get(target=b"/" + b"a" * (64 << 10))),
    "a field of 64 KiB": (REFUSED, get(b"X-A: " + b"a" * (64 << 10))),
    "a name of 64 KiB": (REFUSED, get(b"a" * (64 << 10) + b": b")),
    "a method of 64 KiB": (REFUSED, get(method=b"A" * (64 << 10))),
    "a method in small letters": (OPEN, get(method=b"get")),
    "an unknown method": (OPEN, get(method=b"BREW")),
    "CONNECT, authority form": (REFUSED, get(method=b"CONNECT", target=b"127.0.0.1:80")),
    "authority form": (REFUSED, get(target=b"127.0.0.1:80")),
    "absolute form of another server": (REFUSED, get(target=b"http://evil.example/health")),
    "absolute form of our own": (EITHER, get(target=b"http://127.0.0.1/health")),
    "absolute form, another scheme": (REFUSED, get(target=b"file:///health")),
    "TRACE": (OPEN, get(method=b"TRACE")),
    "an upgrade to h2c": (EITHER, get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                                      b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")),
    "an upgrade to a web socket": (EITHER, get(b"Connection: Upgrade", b"Upgrade: websocket",
                                               b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
                                               b"Sec-WebSocket-Version: 13")),
}
BODIES = {
    "Content-Length 15x": (REFUSED, length(b"15x")),
    "Content-Length +15": (REFUSED, length(b"+15")),
    "Content-Length -1": (REFUSED, length(b"-1")),
    "Content-Length 0x0f": (REFUSED, length(b"0x0f")),
    "Content-Length 1e1": (REFUSED, length(b"1e1")),
    "Content-Length 15.0": (REFUSED, length(b"15.0")),
    "an empty Content-Length": (REFUSED, length(b"")),
    "Content-Length 15, 15": (REFUSED, length(b"15, 15")),
    "Content-Length with a space inside": (REFUSED, length(b"1 5")),
    "Content-Length of 30 digits": (REFUSED, length(b"9" * 30)),
    "Content-Length 2^64": (REFUSED, length(b"18446744073709551616")),
    "Content-Length 2^64 + 15": (REFUSED, length(b"18446744073709551631")),
    "Content-Length 2^63": (REFUSED, length(b"9223372036854775808")),
    "Content-Length in Arabic digits": (REFUSED, length("\u0661\u0665".encode())),
    "Content-Length twice, the same": (REFUSED, post(SIZE, SIZE)),
    "Content-Length twice, not the same": (REFUSED, post(SIZE, b"Content-Length: 0")),
    "both framings": (REFUSED, chunked(b"0\r\n\r\n" + SMUGGLED, SIZE)),
    "both framings, the length first": (REFUSED, post(SIZE, b"Transfer-Encoding: chunked")),
    "Transfer-Encoding twice": (REFUSED, chunked(b"0\r\n\r\n", b"Transfer-Encoding: chunked")),
    "Transfer-Encoding identity": (REFUSED, post(b"Transfer-Encoding: identity", SIZE)),
    "Transfer-Encoding gzip, chunked": (REFUSED, post(b"Transfer-Encoding: gzip, chunked",
                                                      body=b"0\r\n\r\n")),
    "Transfer-Encoding chunked, identity": (REFUSED, post(
        b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n")),
    "Transfer-Encoding xchunked": (REFUSED, post(b"Transfer-Encoding: xchunked",
                                                 body=b"0\r\n\r\n")),
    "Transfer-Encoding with a vertical tab": (REFUSED, post(b"Transfer-Encoding: \x0bchunked",
                                                            body=b"0\r\n\r\n")),
    "Transfer-Encoding in HTTP/1.0": (REFUSED, chunked(b"0\r\n\r\n").replace(b"1.1", b"1.0", 1)),
    "a chunk size that is no number": (REFUSED, chunked(b"zz\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk size with a sign": (REFUSED, chunked(b"+f\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a negative chunk size": (REFUSED, chunked(b"-f\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk size 0xf": (REFUSED, chunked(b"0xf\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk size of 17 digits": (REFUSED, chunked(b"1000000000000000f\r\n" + BODY)),
    "a chunk size of 2^64 - 1": (REFUSED, chunked(b"ffffffffffffffff\r\n" + BODY)),
    "a chunk size of 2^63": (REFUSED, chunked(b"8000000000000000\r\n" + BODY)),
    "a chunk size of 2 GiB": (REFUSED, chunked(b"80000000\r\n" + BODY)),
    "an empty chunk size": (REFUSED, chunked(b"\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "spaces before a chunk size": (REFUSED, chunked(b" f\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk that is longer than its size": (REFUSED, chunked(b"5\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk without its end of line": (REFUSED, chunked(b"f\r\n" + BODY + b"0\r\n\r\n")),
    "chunks with bare LF": (REFUSED, chunked(b"f\n" + BODY + b"\n0\n\n")),
    "no last chunk": (REFUSED, chunked(b"f\r\n" + BODY + b"\r\n")),
    "no end after the last chunk": (REFUSED, chunked(b"f\r\n" + BODY + b"\r\n0\r\n")),
    "chunk extensions": (EITHER, chunked(b"f;a=b;c=\"d\"\r\n" + BODY + b"\r\n0\r\n\r\n")),
    "a chunk extension of 64 KiB": (REFUSED, chunked(b"f;" + b"a" * (64 << 10) + b"\r\n" + BODY)),
    "a chunk extension with a bare LF": (REFUSED, chunked(b"f;a\nb\r\n" + BODY +
                                                          b"\r\n0\r\n\r\n")),
    "trailers": (EITHER, chunked(b"f\r\n" + BODY + b"\r\n0\r\nX-A: b\r\n\r\n")),
    "trailers of 64 KiB": (REFUSED, chunked(b"f\r\n" + BODY + b"\r\n0\r\n" +
                                            b"X-A: b\r\n" * (8 << 10))),
    "a trailer that is a length": (EITHER, chunked(b"f\r\n" + BODY +
                                                   b"\r\n0\r\nContent-Length: 5\r\n\r\n")),
    "garbage after a request": (REFUSED, post(SIZE) + b"\0\1\2garbage\r\n\r\n"),
    "less than announced, then the end": (REFUSED, length(b"100")),
}


def is_pipelined(data):
    return data.startswith(b"POST") and b"garbage" in data


def attack(server, what):
    """One head, then the end. After a request that is right there may be one more head."""
    kind, data = what
    with wire.connect(server.port) as sock:
        raw, closed = wire.talk(sock, data, seconds=1.0 if kind in (OPEN, EITHER) else 5.0,
                                half_close=data.endswith(BODY) and b"100\r\n" in data)
    must(raw, "no answer" if closed else "no answer within 5 s, still open")
    taken = wire.take_reply(raw, closed)
    must(taken is not None, f"half an answer: {raw[:80]!r}")
    reply, rest = taken
    if is_pipelined(data):
        must(reply.status == 200, f"the request that was right got {reply.status}")
        taken = wire.take_reply(rest, closed)
        must(taken is not None, "the garbage was not answered")
        reply, rest = taken
    must(not rest, f"more than one answer: {reply.status}, then {rest[:60]!r}")
    if kind == EITHER and reply.status == 200:
        return
    must(400 <= reply.status < 500 or (reply.status == 505 and b"HTTP/" in data[:200]),
         f"status {reply.status}: {reply.body[:80]!r}")
    reply.error()
    must(closed or kind != REFUSED, f"status {reply.status}, but the connection stays open")


SETTINGS = ("server.read_timeout=2s",)
table("framing", HEADS.items(), attack, settings=SETTINGS)
table("framing of bodies", BODIES.items(), attack, settings=SETTINGS)
