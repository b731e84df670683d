"""long.py - a million abusive requests, for people with an hour."""
import wire
from case import case
from clients import COOKIES, EMPTY_FIELDS, QUERY, stays_flat

HOUR = 3600


@case("long: 400,000 requests with cookies")
def cookies(server):
    stays_flat(server, wire.request("GET", "/", server.port, fields=COOKIES), 400000, HOUR)


@case("long: 400,000 requests with arguments")
def arguments(server):
    stays_flat(server, wire.request("GET", QUERY, server.port), 400000, HOUR)


@case("long: 200,000 requests with empty fields and no key", key="sk-attack")
def fields(server):
    data = wire.request("GET", "/v1/models", server.port, fields=EMPTY_FIELDS)
    stays_flat(server, data, 200000, HOUR)
