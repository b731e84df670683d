"""clients.py - clients that several kinds of attack need."""
import select
import time

import wire
from case import Wrong, must
from server import MIB

COOKIES = [("Cookie", "a=;" * 600)]
QUERY = "/?" + "a&" * 650
EMPTY_FIELDS = [(f"x{i}", "") for i in range(95)]


def repeat(server, data, count, seconds, each=200):
    """Sends `data` `count` times, `each` on a connection at most. Every one must be answered."""
    until, sent = time.monotonic() + seconds, 0
    sock, left = None, 0
    while sent < count and time.monotonic() < until:
        if sock is None:
            sock, left = wire.connect(server.port, timeout=3), each
        try:
            sock.sendall(data)
            raw = sock.recv(1 << 16)
        except TimeoutError:
            raise_unanswered(sent)
        except OSError:
            raw = b""
        sent, left = sent + 1, left - 1
        if not raw or b"Connection: close" in raw or b"connection: close" in raw or left == 0:
            sock.close()
            sock = None
    if sock is not None:
        sock.close()
    must(sent == count, f"only {sent} of {count} requests in {seconds} s")


def raise_unanswered(sent):
    must(False, f"request {sent + 1} was not answered within 3 s")


def stays_flat(server, data, count, seconds, slack=MIB):
    """The first tenth warms up: threads and pools touch their memory once."""
    repeat(server, data, count // 10, seconds)
    before = server.resident()
    repeat(server, data, count - count // 10, seconds)
    grown = server.resident() - before
    must(grown <= slack, f"{count} requests: {grown / MIB:.1f} MiB more, "
                         f"{grown * 10 // (count * 9)} bytes for each")


def hold(server, count, data, source=None):
    """Connections that stay open. The server may close some of them at once."""
    socks = []
    for _ in range(count):
        try:
            sock = wire.connect(server.port, source, timeout=1)
            socks.append(sock)
            if data:
                sock.sendall(data)
        except OSError:
            continue
    return socks


def health(server, text, seconds=3):
    try:
        reply = server.ask("GET", "/health", seconds=seconds)
    except (Wrong, OSError) as error:
        raise Wrong(f"/health {text}: {error}") from None
    must(reply.status == 200, f"/health {text}: {reply.status}")


def wait_closed(socks, seconds):
    """Seconds until all were closed by the server, and what they were told."""
    began, told, left = time.monotonic(), {}, dict.fromkeys(socks)
    while left and time.monotonic() - began < seconds:
        for sock in select.select(list(left), [], [], 0.2)[0]:
            try:
                part = sock.recv(1 << 16)
            except OSError:
                part = b""
            told[sock] = told.get(sock, b"") + part
            if not part:
                del left[sock]
    must(not left, f"{len(left)} of {len(socks)} connections are still open after {seconds} s")
    return told


def drip(server, socks, piece, seconds):
    """A piece to every connection every 50 ms until all are closed; the health in between."""
    began, open_socks = time.monotonic(), list(socks)
    while open_socks and time.monotonic() - began < seconds:
        for sock in list(open_socks):
            try:
                sock.settimeout(0.01)
                sock.sendall(piece)
                if select.select([sock], [], [], 0)[0] and not sock.recv(1 << 16):
                    raise OSError
            except OSError:
                open_socks.remove(sock)
                sock.close()
        time.sleep(0.05)
    health(server, "with slow clients")
    must(not open_socks, f"{len(open_socks)} slow connections are open after {seconds} s")
