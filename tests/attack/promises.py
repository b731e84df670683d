"""promises.py - what the documents promise around keys, logs and time-outs."""
import wire
from case import Wrong, case, must

CLOSED = [("GET", path) for path in (
    "/v1/memory", "/v1/sessions", "/v1/states", "/v1/states/a", "/v1/models", "/v1/models/a",
    "/metrics", "/props")]
CLOSED += [("DELETE", "/v1/sessions/a"), ("DELETE", "/v1/states/a")]
CLOSED += [("POST", path) for path in (
    "/v1/chat/completions", "/v1/completions", "/v1/sessions", "/v1/sessions/restore",
    "/v1/states", "/v1/states/query", "/v1/states/merge", "/v1/embeddings", "/tokenize",
    "/detokenize")]


@case("promises: every path but /health and the page needs the key", key="sk-attack", memory=128,
      settings=("sessions.dir={dir}", "states.dir={dir}/states"))
def needs_key(server):
    for method, path in CLOSED:
        body = {} if method == "POST" else None
        for fields in ([], [("Authorization", "Bearer sk-other")]):
            reply = wire.ask(server.port, method, path, body, fields)
            must(reply.status == 401, f"{method} {path} without the key: {reply.status}")
            reply.error()
        reply = server.ask(method, path, body)
        must(reply.status != 401, f"{method} {path} with the key: 401")
    must(wire.ask(server.port, "GET", "/health").status == 200, "/health needs a key")


@case("promises: a line of the log says why a prompt was not continued", ends=True)
def log_lines(server):
    text = "The quick brown fox jumps over the lazy dog. " * 12
    first, second = (server.complete(prompt=text + tail) for tail in ("One", "Two"))
    must(first.status == 200 and second.status == 200, "no completions")
    server.ask("GET", "/v1/nothing")
    server.stop()
    lines = server.log()
    done = [line for line in lines if line["path"] == "/v1/completions"]
    must(len(done) == 2, f"{len(done)} lines of 2 completions")
    for line, reply in zip(done, (first, second)):
        must(line["id"] == reply.get("x-request-id"), "the line has another id than the answer")
        must(isinstance(line.get("reuse"), str) and line["reuse"], f"no reason: {line}")
        must(line["status"] == 200 and line["method"] == "POST" and line["ms"] > 0, f"{line}")
    must(done[0]["reuse"] != "" and done[0]["tokens_cached"] == 0, f"{done[0]}")
    must(any(line["path"] == "/v1/nothing" and line["status"] == 404 and line.get("error")
             for line in lines), "no line for an error")


KEY_FILES = (
    (b"# a comment\nsk-one\n\nsk-two\r\nsk-three", ("sk-one", "sk-two", "sk-three"),
     ("# a comment", "#", "a comment", "", "sk-on", "sk-one\tsk-two", "sk-four")),
    (b"\r\n\r\n#x\r\nsk-one\r\n", ("sk-one",), ("#x", "x")),
)


@case("promises: lines of a key file", own=True)
def key_file(start):
    for text, good, bad in KEY_FILES:
        server = start(key=good[0], key_file=text)
        try:
            for key in good + bad:
                fields = [("Authorization", "Bearer " + key)]
                status = server.ask("GET", "/v1/models", None, fields).status
                must((status == 200) == (key in good), f"{key!r} of {text!r}: {status}")
                must(status in (200, 401), f"{key!r} of {text!r}: {status}")
            server.stop()
        finally:
            server.close()


@case("promises: a key file without a key, or with too many, does not start a server", own=True)
def bad_key_files(start):
    for text in (b"\n", b"# sk-one\n", b"\r\n#\n\n", b"sk-a\n" * 2000):
        try:
            server = start(key="sk-a", key_file=text)
        except Wrong as why:
            must("key" in str(why), f"{text[:20]!r}: {why}")
            continue
        server.close()
        raise Wrong(f"it starts with {text[:20]!r}")
