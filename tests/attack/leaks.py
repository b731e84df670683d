"""leaks.py - requests that cost memory before a key is looked at."""
import wire
from case import case, must
from clients import COOKIES, EMPTY_FIELDS, QUERY, stays_flat

@case("leak: cookies without a value, 10,000 requests", settings=("server.header_limit=32KiB",))
def cookies(server):
    stays_flat(server, wire.request("GET", "/", server.port, fields=COOKIES), 10000, 20)


@case("leak: arguments without a value, 10,000 requests")
def arguments(server):
    stays_flat(server, wire.request("GET", QUERY, server.port), 10000, 20)


@case("leak: cookies without a key", key="sk-attack")
def cookies_without_key(server):
    stays_flat(server, wire.request("GET", "/v1/models", server.port, fields=COOKIES), 4000, 20)


@case("leak: fields without a value")
def fields(server):
    stays_flat(server, wire.request("GET", "/", server.port, fields=EMPTY_FIELDS), 4000, 20)


@case("leak: paths that are not there")
def paths(server):
    stays_flat(server, wire.request("GET", "/" + "a/" * 1500, server.port), 4000, 20)


@case("leak: one request with cookies, then SIGTERM", ends=True)
def then_end(server):
    with wire.connect(server.port) as sock:
        sock.sendall(wire.request("GET", "/", server.port, fields=COOKIES))
        wire.talk(sock, seconds=0.5, replies=1)
    must(server.end() == 0, "SIGTERM did not end it with 0")


@case("leak: one request with arguments, then SIGTERM", ends=True)
def arguments_then_end(server):
    with wire.connect(server.port) as sock:
        wire.talk(sock, wire.request("GET", QUERY, server.port), seconds=0.5, replies=1)
        must(server.end() == 0, "SIGTERM did not end it with 0")
