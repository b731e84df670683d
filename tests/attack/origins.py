"""origins.py - what a web page in the user's browser could send: refused, and nothing ran."""
import pathlib

import wire
from case import case, must

FOREIGN = "https://evil.example"
ATTACKS = {
    "a foreign Origin": [("Origin", FOREIGN)],
    "Origin null": [("Origin", "null")],
    "an Origin on another port": [("Origin", "http://127.0.0.1:1")],
    "an Origin that begins like ours": [("Origin", "http://127.0.0.1.evil.example")],
    "Sec-Fetch-Site cross-site": [("Sec-Fetch-Site", "cross-site")],
    "Host after DNS rebinding": [("Host", "evil.example")],
    "Host that ends like ours": [("Host", "evil.localhost.example:80")],
    "two Origins": [("Origin", "http://127.0.0.1"), ("Origin", FOREIGN)],
}
TYPES = {
    "text/plain": [("Content-Type", "text/plain")],
    "no content type": [("Content-Type", None)],
    "a form": [("Content-Type", "application/x-www-form-urlencoded")],
    "multipart": [("Content-Type", "multipart/form-data; boundary=application/json")],
    "a type that begins like JSON": [("Content-Type", "application/jsonp")],
    "text/plain with JSON as parameter": [("Content-Type", "text/plain; a=application/json")],
}
CHAT = {"model": "weir-demo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
PROMPT = {"model": "weir-demo", "prompt": "evil", "max_tokens": 2}
SETTINGS = ("sessions.dir={dir}/sessions", "states.dir={dir}/states", "sessions.autosave=false")


def routes(state):
    return [
        ("POST", "/v1/chat/completions", {**CHAT, "session": "talk"}),
        ("POST", "/v1/completions", {**PROMPT, "session": "talk"}),
        ("POST", "/v1/sessions", {"name": "talk", "prompt": "evil"}),
        ("POST", "/v1/sessions/restore", {"name": "talk"}),
        ("DELETE", "/v1/sessions/talk", None),
        ("POST", "/v1/states", {"label": "evil", "prompt": "evil text"}),
        ("POST", "/v1/states/query", {"question": "a"}),
        ("POST", "/v1/states/merge", {"earlier": state, "later": state, "label": "evil"}),
        ("DELETE", "/v1/states/" + state, None),
        ("POST", "/tokenize", {"content": "a"}),
        ("POST", "/detokenize", {"tokens": [5]}),
        ("POST", "/v1/embeddings", {"input": "a"}),
    ]


def prepare(server):
    (server.dir / "sessions").mkdir(exist_ok=True)
    prompt = "The quick brown fox jumps over the lazy dog and goes home."
    reply = server.post("/v1/completions", {**PROMPT, "prompt": prompt, "session": "talk"})
    must(reply.status == 200, f"no completion: {reply.body[:200]!r}")
    reply = server.post("/v1/sessions", {"name": "talk"})
    must(reply.status == 200, f"no session: {reply.body[:200]!r}")
    reply = server.post("/v1/states", {"label": "mine", "prompt": prompt})
    must(reply.status in (200, 201), f"no state: {reply.body[:200]!r}")
    return reply.json()["id"]


def what_is_kept(server):
    files = {}
    for folder in ("sessions", "states"):
        for path in sorted(pathlib.Path(server.dir / folder).rglob("*")):
            if path.is_file():
                files[str(path)] = path.read_bytes()
    return (server.ask("GET", "/v1/sessions").json(), server.ask("GET", "/v1/states").json(), files)


def counted(server):
    """Tokens that were computed: nothing that is refused may move it."""
    names = ("prompt_tokens_total", "generation_tokens_total")
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    return [line for line in lines if line[:1] != "#" and line.split("{")[0].split(" ")[0]
            .endswith(names)]


def is_refused(server, method, path, body, fields, wanted, problems, what):
    reply = server.ask(method, path, body, fields)
    if reply.status not in wanted:
        problems.append(f"{what}: {method} {path} answered {reply.status}")
    elif not reply.error():
        problems.append(f"{what}: {method} {path} without an error")
    if reply.get("access-control-allow-origin") not in (None,):
        problems.append(f"{what}: {method} {path} lets a foreign page read the answer")


@case("cross-site: every route that changes something", settings=SETTINGS, memory=128)
def cross_site(server):
    state = prepare(server)
    before, computed, problems = what_is_kept(server), counted(server), []
    for method, path, body in routes(state):
        for what, fields in ATTACKS.items():
            wanted = (400, 403, 421) if "Host" in what else (403, 400) if "two" in what else (403,)
            is_refused(server, method, path, body, fields, wanted, problems, what)
        for what, fields in TYPES.items() if method == "POST" else ():
            is_refused(server, method, path, body, fields, (400, 403, 415), problems, what)
    after = what_is_kept(server)
    must(before[0] == after[0], "the list of sessions changed")
    must(before[1] == after[1], "the list of states changed")
    must(before[2] == after[2], "files changed: " + ", ".join(
        name for name in {*before[2], *after[2]} if before[2].get(name) != after[2].get(name)))
    must(not problems, f"{len(problems)} got through: " + "; ".join(problems[:6]))
    must(counted(server) == computed, "tokens were computed")


@case("cross-site: the user's own page and programs go on", settings=SETTINGS, memory=128)
def own(server):
    port = server.port
    for fields in ([], [("Origin", f"http://127.0.0.1:{port}")],
                   [("Origin", f"http://localhost:{port}"), ("Host", f"localhost:{port}")],
                   [("Origin", f"http://127.0.0.1:{port}"), ("Sec-Fetch-Site", "same-origin")],
                   [("Sec-Fetch-Site", "none")],
                   [("Content-Type", "application/json; charset=utf-8")],
                   [("Content-Type", "Application/JSON")]):
        reply = server.post("/v1/completions", PROMPT, fields)
        must(reply.status == 200, f"{fields}: {reply.status} {reply.body[:200]!r}")


@case("cross-site: preflights give nothing away", settings=SETTINGS, memory=128)
def preflight(server):
    for path in ("/v1/chat/completions", "/v1/sessions/talk", "/v1/memory", "/health"):
        fields = [("Origin", FOREIGN), ("Access-Control-Request-Method", "POST"),
                  ("Access-Control-Request-Headers", "content-type"),
                  ("Access-Control-Request-Private-Network", "true")]
        reply = server.ask("OPTIONS", path, None, fields)
        for name, value in reply.fields:
            must(not name.startswith("access-control-allow"), f"{path}: {name}: {value}")


@case("cross-site: reading with a foreign page", settings=SETTINGS, memory=128)
def reading(server):
    for path in ("/v1/sessions", "/v1/states", "/v1/memory", "/metrics", "/props", "/v1/models"):
        reply = server.ask("GET", path, None, [("Origin", FOREIGN)])
        must(reply.get("access-control-allow-origin") is None, f"{path} may be read")
        reply = server.ask("GET", path, None, [("Host", "evil.example")])
        must(400 <= reply.status < 500, f"{path} with a foreign Host: {reply.status}")


@case("cross-site: headers that keep a browser from guessing and framing")
def page(server):
    for path in ("/", "/health", "/v1/models", "/v1/nothing", "/metrics"):
        reply = server.ask("GET", path)
        must(reply.get("x-content-type-options") == "nosniff", f"{path} without nosniff")
    policy = server.ask("GET", "/").get("content-security-policy") or ""
    must("frame-ancestors 'none'" in policy, f"the page can be framed: {policy}")


def rebind(server, host):
    data = b"GET /v1/models HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    reply = wire.ask_raw(server.port, data)
    must(400 <= reply.status < 500, f"Host {host!r} is answered {reply.status}")
    reply.error()


@case("cross-site: forged hosts")
def hosts(server):
    for host in (b"127.0.0.1\0.evil.example", b"127.0.0.1.evil.example", b"localhost.evil.example",
                 b"evil.example:%d" % server.port, b"127.0.0.1@evil.example", b"[::1].evil.example",
                 b"127.0.0.1 evil.example", b"2130706433", b"0x7f.1", b"", b"*",
                 b"127.0.0.1:abc", b"localhost,evil.example"):
        rebind(server, host)
