"""pytest plugin of run.sh: holds each body that the suite sends against what the server says of
itself in /openapi.json. A body that was accepted must be valid there, for a path that is listed;
one that was refused for a field of HELD must not be. Prints how many were looked at."""
import json
import re
import urllib.parse

import httpx
import jsonschema
import pytest

MOST_BYTES = 1 << 20 # a body over this is about limits, not about fields
# Fields that are refused for nothing but what a schema can say. Others depend on the model, the
# server and each other.
HELD = {"cache_salt", "frequency_penalty", "max_completion_tokens", "max_tokens", "min_p",
        "presence_penalty", "priority", "repetition_penalty", "seed", "stream", "temperature",
        "top_p"}
DOCUMENT = {}
SEEN = {} # {path of the document: bodies}
REFUSED = set() # (path of the document, field)
PROBLEMS = []


def check_bytes(validator, most, text, schema):
    if isinstance(text, str) and len(text.encode("utf-8", "surrogatepass")) > most:
        yield jsonschema.ValidationError("%r has more than %d bytes" % (text[:40], most))


def is_integer(checker, value):
    """1.0 is one for JSON Schema."""
    return isinstance(value, int) and not isinstance(value, bool)


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"x-weir-max-bytes": check_bytes},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer))


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
                Validator.check_schema(schema)
            pattern = re.compile(re.escape(path).replace(r"\{id\}", "[^/]+"))
            DOCUMENT[method.upper(), pattern] = (
                path, schema and Validator(schema))


def find(method, path):
    for (known, pattern), found in DOCUMENT.items():
        if known == method and pattern.fullmatch(path):
            return found
    return None


def refused_field(validator, response):
    """The field of a 400 if the schema should say why; None: it may be for other reasons."""
    try:
        param = response.json()["error"]["param"]
    except (httpx.ResponseNotRead, ValueError, KeyError, TypeError):
        return None
    name = validator.schema["$ref"].rsplit("/", 1)[1]
    field = validator.schema["components"]["schemas"][name]["properties"].get(param)
    return param if field and param in HELD else None


def look_at_refused(name, validator, text, response):
    field = validator and text and refused_field(validator, response)
    try:
        body = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return
    if not field or not isinstance(body, dict):
        return
    value = body.get(field)
    if isinstance(value, int) and not -2**63 <= value < 2**63:
        return  # the document has no limits of 64 bits
    REFUSED.add((name, field))
    if validator.is_valid(body):
        PROBLEMS.append("%s refuses what is described: %s: %s" % (name, field, text[:300]))


def look(request, response):
    method, path = request.method, urllib.parse.unquote(request.url.path)
    status = response.status_code
    if not DOCUMENT or method not in ("POST", "GET", "DELETE") or (status >= 400 and status != 400):
        return
    found = find(method, path)
    if found is None:
        if status < 400:
            PROBLEMS.append("%s %s is not described" % (method, path))
        return
    name, validator = found
    try:
        text = request.content
    except httpx.RequestNotRead:
        return
    if status == 400:
        look_at_refused(name, validator, text, response)
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
    terminalreporter.write_line("described: %d bodies of %d paths, %d refused fields" % (
        sum(SEEN.values()), len(SEEN), len(REFUSED)))
