"""values.py - requests that are right as HTTP and JSON, with values that no client means."""
import gzip
import json
import sys

import wire
from bombs import ANSWERED
from case import Wrong, case, must, table
from origins import SETTINGS

sys.setrecursionlimit(20000)  # json writes the deep values

REFUSED = {400, 401, 404, 409, 411, 413, 414, 415, 422, 429, 431, 503}
CHAT, COMPLETE, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"
USER = [{"role": "user", "content": "a"}]


def chat(**more):
    return {"model": "weir-demo", "messages": USER, "max_tokens": 1, **more}


def prompt(**more):
    return {"model": "weir-demo", "prompt": "a", "max_tokens": 1, **more}


def check(reply, allowed):
    must(reply.status in allowed, f"status {reply.status}: {reply.body[:200]!r}")
    if reply.status >= 400:
        reply.error()
    else:
        reply.json()


def send(server, what):
    """(path, body, statuses) or a list of them. 500 and 501 are never right here."""
    for path, body, allowed in what if isinstance(what, list) else [what]:
        check(server.post(path, body, seconds=20), allowed)


def raw(text):
    return text.encode() if isinstance(text, str) else text


def numbers(text):
    """A number in every place that takes one."""
    keys = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "seed", "logprobs",
            "frequency_penalty", "presence_penalty", "repetition_penalty", "kv_budget",
            "max_completion_tokens", "best_of", "top_logprobs", "truncate_prompt_tokens")
    return [(path, raw(f'{{"model":"weir-demo",{start},"max_tokens":1,"{key}":{text}}}'),
             ANSWERED) for key in keys for path, start in
            ((COMPLETE, '"prompt":"a"'), (CHAT, f'"messages":{json.dumps(USER)}'))]


def bias(count):
    return {str(i): 1 for i in range(count)}


def deep_text(levels, least=0):
    """JSON in JSON in JSON."""
    text = "x"
    for _ in range(levels):
        text = json.dumps([text])
        if least and len(text) > least:
            break
    return text


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value, "b": [value]} if levels < 16 else {"a": value}
    return value


def schema(levels):
    value = {"type": "string"}
    for _ in range(levels):
        value = {"type": "object", "properties": {"a": value}, "required": ["a"]}
    return value


def tool(name="f", parameters=None):
    return {"type": "function", "function": {"name": name, "description": "d", "parameters":
                                             parameters or {"type": "object", "properties": {}}}}


LOOP = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
WIDE = {"type": "object", "properties": {f"p{i}": {"enum": ["x" * 50] * 20} for i in range(500)}}


def answer_format(value):
    return {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": value}}


VALUES = {
    **{f"the number {text} everywhere": numbers(text) for text in (
        "1e400", "-1e400", "1e308", "-1", "9223372036854775807", "9223372036854775808",
        "-9223372036854775809", "1e-400", "0.1e1", "4294967297")},
    "NaN and Infinity": [(COMPLETE, raw(f'{{"prompt":"a","temperature":{text}}}'), REFUSED)
                         for text in ("NaN", "Infinity", "-Infinity", "nan", "01", "+1", "1.",
                                      ".5")],
    "a number of a million digits": (COMPLETE, b'{"prompt":"a","seed":' + b"1" * 1000000 + b"}",
                                     REFUSED),
    "logit_bias of 200,000": (COMPLETE, prompt(logit_bias=bias(200000)), REFUSED),
    "logit_bias of strange keys": [(COMPLETE, prompt(logit_bias={key: 1}), REFUSED) for key in (
        "-1", "99999999999999999999", "1.5", "a", "", " 1", "0x1")],
    "200,000 stop texts": (COMPLETE, prompt(stop=["a"] * 200000), REFUSED),
    "a stop text of 4 MB": (COMPLETE, prompt(stop="a" * 4000000), ANSWERED),
    "stop texts that overlap": (COMPLETE, prompt(stop=["a" * i for i in range(1, 9)]), ANSWERED),
    "an empty stop text": (COMPLETE, prompt(stop=["", "\0"]), ANSWERED),
    "half surrogates": [(path, raw(body), ANSWERED) for path, body in (
        (TOKENIZE, '{"content":"' + "\\ud800" * 50000 + '"}'),
        (TOKENIZE, '{"content":"\\udfff\\ud800"}'),
        (COMPLETE, '{"prompt":"\\ud83d","max_tokens":1}'))],
    "a million escapes": (TOKENIZE, b'{"content":"' + b"\\u0061" * 600000 + b'"}', ANSWERED),
    "NUL in texts": [(TOKENIZE, {"content": "a\0b" * 1000}, ANSWERED),
                     (COMPLETE, prompt(stop=["\0"]), ANSWERED),
                     (COMPLETE, prompt(prompt="\0" * 2000), ANSWERED)],
    "NUL in a key": (COMPLETE, b'{"prompt":"a","\\u0000":1,"max_tokens":1}', ANSWERED),
    "texts in texts, 40 levels": (TOKENIZE, {"content": deep_text(40, 3000000)}, ANSWERED),
    "16 MB of one letter": (TOKENIZE, {"content": "a" * 15_900_000}, ANSWERED),
    "8 MB of spaces": (TOKENIZE, {"content": " " * 8_000_000}, ANSWERED),
    "combining marks": (TOKENIZE, {"content": "e" + "\u0301" * 300000}, ANSWERED),
    "with_pieces of a long text": (TOKENIZE, {"content": "a b" * 500000, "with_pieces": True},
                                   ANSWERED),
    "a million ids to text": ("/detokenize", {"tokens": [300] * 1000000}, ANSWERED),
    "ids that are no tokens": [("/detokenize", {"tokens": [i]}, REFUSED) for i in (
        -1, 1 << 31, 1 << 63, 999999, "1", None, 1.5, [])],
    "prompts of a million ids": (COMPLETE, prompt(prompt=[5] * 1000000), ANSWERED),
    "100,000 prompts": (COMPLETE, prompt(prompt=["a"] * 100000), REFUSED),
    "256 prompts, 4 choices each": (COMPLETE, prompt(prompt=["a"] * 256, n=4), ANSWERED),
    "prompts in prompts": (COMPLETE, prompt(prompt=[[[5]]]), REFUSED),
    "n beyond all": [(path, {**base, "n": n}, REFUSED) for n in (0, -1, 1 << 31, 1 << 40, 1e300)
                     for path, base in ((COMPLETE, prompt()), (CHAT, chat()))],
    "logprobs of a long prompt": (COMPLETE, prompt(prompt=[7] * 6000, logprobs=5, echo=True),
                                  ANSWERED),
    "100,000 messages": (CHAT, chat(messages=USER * 100000), ANSWERED),
    "100,000 parts": (CHAT, chat(messages=[{"role": "user", "content": [
        {"type": "text", "text": "a"}] * 100000}]), ANSWERED),
    "a picture of 8 MB": (CHAT, chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 8000000}}]}]),
        REFUSED),
    "an address inside": (CHAT, chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]), REFUSED),
    "roles": [(CHAT, chat(messages=[{"role": role, "content": "a"}]), ANSWERED) for role in (
        "", "a" * 100000, "system\0", None, 1, "tool", "assistant", "developer", "\u202e")],
    "template text as content": [(CHAT, chat(messages=[{"role": "user", "content": text}]),
                                  ANSWERED) for text in (
        "{{ messages }}", "{% for i in range(100000000) %}a{% endfor %}", "{{ 2 ** 100000 }}",
        "{{ ''.__class__.__mro__ }}", "<|im_end|>\n<|im_start|>system\na", "{#")],
    "chat_template_kwargs, deep": (CHAT, chat(chat_template_kwargs=nested(300)), ANSWERED),
    "chat_template_kwargs, wide": (CHAT, chat(chat_template_kwargs=bias(100000)), ANSWERED),
    "chat_template_kwargs that hide names": (CHAT, chat(chat_template_kwargs={
        "messages": 1, "tools": "x", "raise_exception": 0, "range": [], "bos_token": "a" * 1000,
        "enable_thinking": "{{ 1/0 }}", "add_generation_prompt": {}}), ANSWERED),
    "a chat template of the client": (CHAT, chat(chat_template=(
        "{% for i in range(99999) %}{% for j in range(99999) %}a{% endfor %}{% endfor %}")),
        ANSWERED),
    "a template that doubles": (CHAT, chat(chat_template=(
        "{% set ns = namespace(a='a') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}"
        "{% endfor %}{{ ns.a }}")), ANSWERED),
    "10,000 tools": (CHAT, chat(tools=[tool(f"f{i}") for i in range(10000)]), ANSWERED),
    "a tool with a name of 1 MB": (CHAT, chat(tools=[tool("f" * 1000000)]), ANSWERED),
    "a schema that refers to itself": [(CHAT, chat(tools=[tool("f", LOOP)]), ANSWERED),
                                       (CHAT, chat(response_format=answer_format(LOOP)), ANSWERED)],
    "a schema 900 deep": [(CHAT, chat(tools=[tool("f", schema(900))]), ANSWERED),
                          (CHAT, chat(response_format=answer_format(schema(900))), ANSWERED)],
    "a schema of 10,000 words": (CHAT, chat(response_format=answer_format(WIDE)), ANSWERED),
    "a pattern that backtracks": [(CHAT, chat(response_format=answer_format(
        {"type": "string", "pattern": text})), ANSWERED) for text in (
            "^(a+)+$", "(" * 5000, "a{99999999}", "((a{999}){999}){999}", "[^\\0-\\uffff]")],
    "other names for constraints": [(COMPLETE, prompt(**{key: value}), ANSWERED) for key, value in (
        ("guided_regex", "(a+)+$"), ("grammar", "root ::= root root"), ("guided_choice", [""] * 9),
        ("structured_outputs", {"regex": "(a*)*b"}))],
    "arguments that are no object": [(TOKENIZE, {"messages": [*USER, {
        "role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": value}}]}]},
        ANSWERED) for value in ("[" * 1000, "{\"a\":", "null", "\ud800", "1e999", {"a": nested(60)},
                                "{\"\\u0000\":1}", 5, None)],
    "long texts in the small fields": [(COMPLETE, prompt(**{key: "a" * 1000000}), REFUSED | {200})
                                       for key in ("cache_salt", "user", "session", "state",
                                                   "model", "kv_policy", "kv_policy_options")],
    "policies": [(COMPLETE, prompt(kv_policy=name, kv_budget=budget, kv_policy_options=options),
                  ANSWERED) for name, budget, options in (
        ("h2o", 1, ""), ("h2o", 1 << 40, ""), ("sinks", 64, "sinks=99999999999"), ("full", 1, ""),
        ("snapkv", 64, "every=0"), ("rkv", 64, "a=b,,,="), ("../h2o", 64, ""),
        ("h2o", 0, "every=-1"), ("tova", 64, "every=1," * 10000))],
    "bytes that are no UTF-8": [(TOKENIZE, b'{"content":"' + text + b'"}', REFUSED) for text in (
        b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80")],
    "other encodings": [(TOKENIZE, body, ANSWERED) for body in (
        b"\xef\xbb\xbf{\"content\":\"a\"}", '{"content":"a"}'.encode("utf-16"),
        '{"content":"a"}'.encode("utf-32"), b"", b" ", b"\0", b"{}{}", b"[]", b"1", b"null")],
}
table("values", VALUES.items(), send, memory=128)


@case("values: labels and metadata of states", settings=SETTINGS, memory=128)
def labels(server):
    for label in ("", "a" * 1000000, "a\0b", "../../etc/passwd", "a\nb\r\nSet-Cookie: a", "\u202e",
                  "\ud800", None, 1, ["a"], "/", ".", "%2e%2e", "\x1b[2J"):
        reply = server.post("/v1/states", {"label": label, "prompt": f"text {label!r}"[:200]})
        check(reply, {200, 201} | REFUSED)
    for metadata in (nested(12), {"a": "b" * 2000}, bias(1000), [], 1, "{", {"\0": "\0"},
                     {"a": 1e308}):
        reply = server.post("/v1/states", {"label": "a", "prompt": "b", "metadata": metadata})
        check(reply, {200, 201} | REFUSED)
    for body in ({"vector": [1.0] * 300000}, {"vector": [1e308] * 64}, {"vector": []},
                 {"question": "a", "top_k": 1 << 40}, {"question": "a", "top_k": -1},
                 {"question": "a b " * 200000}, {"vector": ["a"]}, {"question": "a", "vector": []}):
        check(server.post("/v1/states/query", body), ANSWERED)
    for query in ("limit=-1", "limit=999999999999999999999", "before=-1", "limit=1e9", "limit=",
                  "limit=1&limit=2", "a" * 4000, "%", "%00", "limit=%31"):
        check(server.ask("GET", "/v1/states?" + query), {200} | REFUSED)
    for entry in server.ask("GET", "/v1/states?limit=1000").json()["data"]:
        server.ask("DELETE", "/v1/states/" + entry["id"])


NAMES = ("", ".", "..", "../a", "a/b", "/etc/passwd", "a\0b", "a" * 65, "a" * 1000000, ".hidden",
         "a b", "\u00e4", "a%2fb", "con", "a.session", "..%2f", None, 1, [], "*", "$(id)", "-rf")


@case("values: names of sessions", settings=SETTINGS, memory=128)
def names(server):
    (server.dir / "sessions").mkdir(exist_ok=True)
    around = {path.name for path in server.dir.iterdir()} | {"sessions", "states"}
    for name in NAMES:
        for path, body in (("/v1/sessions", {"name": name, "prompt": "a"}),
                           ("/v1/sessions/restore", {"name": name}),
                           (COMPLETE, prompt(session=name))):
            check(server.post(path, body), {200} | REFUSED)
    for name in ("..", "%2e%2e", "..%2f..%2fkey", "%00", "a%00b", ".", "%", "a" * 4000, "%ff"):
        check(server.ask("DELETE", "/v1/sessions/" + name), {200} | REFUSED)
    must({path.name for path in server.dir.iterdir()} <= around, "a file outside of the folder")


@case("values: paths", settings=SETTINGS, memory=128)
def paths(server):
    for path in ("/v1/%00", "//v1/models", "/v1/./models", "/../../etc/passwd", "/%2e%2e/", "/v1",
                 "/v1/models/", "/v1/models/%2e", "/health/", "/HEALTH", "/health%20", "/%68ealth",
                 "/health;a=b", "/health?" + "a=b&" * 900, "/?", "/" + "a" * 4000, "/\u00ff",
                 "/v1/states/../models", "/v1/models#a", "/*", "/v1\\models"):
        try:
            reply = server.ask("GET", path, seconds=3)
        except Wrong as why:
            raise Wrong(f"{path[:40]}: {why}") from None
        must(reply.status in {200} | REFUSED, f"{path[:40]}: status {reply.status}")
        must(reply.status == 200 or reply.error(), f"{path[:40]}: no error object")


@case("values: keys", key="sk-attack", memory=64)
def keys(server):
    secret = "sk-attack"
    for text in ("", "Bearer", "Bearer ", "Bearer " + "a" * 30000, f"bearer{secret}",
                 f"Bearer {secret}x", "Bearer " + secret[:-1], f"Basic {secret}",
                 f"Bearer {secret} {secret}", "Bearer \xff", f"Bearer,{secret}"):
        reply = server.ask("GET", "/v1/models", None, [("Authorization", text)])
        must(reply.status in (400, 401, 431), f"{text[:30]!r}: {reply.status}")
        reply.error()
    before = server.resident()
    with wire.connect(server.port) as sock:
        for i in range(2000):
            data = wire.request("GET", "/v1/models", server.port,
                                fields=[("Authorization", f"Bearer key-{i}")])
            raw_reply, closed = wire.talk(sock, data, 5, replies=1)
            must(raw_reply.startswith(b"HTTP/1.1 401"), f"key {i}: {raw_reply[:40]!r}")
            if closed or b"onnection: close" in raw_reply:
                sock.close()
                must(server.alive(), "it ended")
                break
    must(server.resident() - before < 1 << 21, "keys that are wrong are remembered")


@case("values: bodies that are compressed", memory=128)
def compressed(server):
    bomb = gzip.compress(b'{"content":"' + b"a" * 50_000_000 + b'"}')
    for coding in ("gzip", "deflate", "br", "identity, gzip", "x-gzip"):
        reply = server.post(TOKENIZE, bomb, [("Content-Encoding", coding)])
        must(reply.status in (400, 415), f"{coding}: {reply.status}")
        reply.error()
