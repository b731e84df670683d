"""pytest plugin of run.sh: holds each body that the suite sends against what the server says of
itself in /openapi.json. A body that was accepted must be valid there, for a path that is listed.
Prints how many were looked at."""
import json
import re
import urllib.parse

import httpx
import jsonschema
import pytest

MOST_BYTES = 1 << 20 # a body over this is about limits, not about fields
DOCUMENT = {}
SEEN = {} # {path of the document: bodies}
PROBLEMS = []


def load(base_url):
    """Reads the document, and makes a validator for each path with a body."""
    reply = httpx.get(base_url.rstrip("/") + "/openapi.json", trust_env=False)
    assert reply.status_code == 200, "GET /openapi.json: %s" % reply.text[:200]
    document = reply.json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            schema = {**body["schema"], "components": document["components"]} if body else None
            if schema:
                jsonschema.Draft202012Validator.check_schema(schema)
            pattern = re.compile(re.escape(path).replace(r"\{id\}", "[^/]+"))
            DOCUMENT[method.upper(), pattern] = (
                path, schema and jsonschema.Draft202012Validator(schema))


def find(method, path):
    for (known, pattern), found in DOCUMENT.items():
        if known == method and pattern.fullmatch(path):
            return found
    return None


def look(request, response):
    method, path = request.method, urllib.parse.unquote(request.url.path)
    if not DOCUMENT or method not in ("POST", "GET", "DELETE") or response.status_code >= 400:
        return
    found = find(method, path)
    if found is None:
        PROBLEMS.append("%s %s is not described" % (method, path))
        return
    name, validator = found
    try:
        text = request.content
    except httpx.RequestNotRead:
        return
    if not validator or not text or len(text) > MOST_BYTES:
        return
    SEEN[name] = SEEN.get(name, 0) + 1
    for error in validator.iter_errors(json.loads(text)):
        PROBLEMS.append("%s takes what is not described: %s at %s: %s" % (
            name, error.message[:200], list(error.absolute_path), text[:300]))


def wrap(client, is_async):
    send = client.send

    def seen(self, request, **options):
        response = send(self, request, **options)
        look(request, response)
        return response

    async def seen_async(self, request, **options):
        response = await send(self, request, **options)
        look(request, response)
        return response

    client.send = seen_async if is_async else seen


def pytest_configure(config):
    wrap(httpx.Client, False)
    wrap(httpx.AsyncClient, True)
    load(config.getoption("--base-url"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if PROBLEMS and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter):
    for problem in sorted(set(PROBLEMS)):
        terminalreporter.write_line("FAILED  " + problem)
    terminalreporter.write_line("described: %d bodies of %d paths" % (
        sum(SEEN.values()), len(SEEN)))
