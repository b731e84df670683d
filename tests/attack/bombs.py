"""bombs.py - small texts that become large values: they are refused, or paid for in the ledger."""
import json
import threading
import time

from case import case, must
from server import MIB

ANSWERED = {200, 400, 413, 429, 503}


def escaped(text):
    """JSON's own signs as escapes: nothing in the text counts as a value."""
    return "".join(f"\\u{ord(c):04x}" if c in ",:[]{}" else c for c in text)


def with_arguments(arguments):
    """A chat whose tool call has the arguments; they are a JSON text already quoted."""
    return (b'{"model":"weir-demo","max_tokens":1,"messages":[{"role":"user","content":"a"},'
            b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":'
            b'{"name":"f","arguments":"' + arguments.encode() +
            b'"}}]},{"role":"tool","tool_call_id":"c","content":"b"}]}')


def list_of(item, bytes_wanted, width):
    return '{\\"a\\":[' + ",".join([item] * (bytes_wanted // width)) + "]}"


def send_all(server, path, bodies, seconds=25):
    """All at once; every one must be answered."""
    statuses, problems = [], []

    def send(body):
        try:
            reply = server.post(path, body, seconds=seconds)
            statuses.append(reply.status)
            if reply.status >= 400:
                reply.error()
        except Exception as error:  # pylint: disable=broad-except
            problems.append(str(error))

    threads = [threading.Thread(target=send, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    must(server.alive(), "it ended by itself: " + server.errors()[-100:])
    must(not problems, "; ".join(problems[:2]))
    must(set(statuses) <= ANSWERED, f"statuses {statuses}")
    return statuses


ITEMS = {"empty lists": "[]", "empty objects": "{}", "objects in lists": '[{}]',
         "numbers": "1", "nulls": "null"}


def add_escaped(what, item, memory):
    body = with_arguments(escaped(list_of(item, 3_900_000, len(escaped(item)) + 6)))

    @case(f"bomb: tool arguments, {what} as escapes, {memory} MiB", memory=memory)
    def run(server):
        send_all(server, "/tokenize", [body, body])
        send_all(server, "/v1/chat/completions", [body, body])


for name, text in ITEMS.items():
    add_escaped(name, text, 128)
add_escaped("empty lists", "[]", 64)
add_escaped("empty objects", "{}", 256)


@case("bomb: texts in texts in texts, each escaped")
def nested(server):
    text = "[" + "[]," * 2000 + "[]]"
    while len(text) < 400_000:
        text = json.dumps({"a": text})
    body = with_arguments(escaped(json.dumps(text)[1:-1]))
    send_all(server, "/tokenize", [body] * 2)


@case("bomb: lists 100,000 deep, plain and in arguments")
def deep(server):
    plain = b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    inner = with_arguments(escaped('{\\"a\\":' + "[" * 50_000 + "]" * 50_000 + "}"))
    objects = with_arguments(('{\\"a\\":' * 30_000) + "1" + "}" * 30_000)
    statuses = send_all(server, "/tokenize", [plain, inner, objects])
    must(400 in statuses, f"none was refused: {statuses}")


@case("bomb: a body of a million empty lists in every place", memory=64)
def everywhere(server):
    values = b"[" + b"[]," * 330_000 + b"[]]"
    bodies = [b'{"prompt":"a","' + name + b'":' + values + b"}"
              for name in (b"stop", b"logit_bias", b"tools", b"metadata", b"session", b"kv_budget")]
    send_all(server, "/v1/completions", bodies)


@case("bomb: the same key 300,000 times")
def same_key(server):
    body = b'{"prompt":"a",' + b'"a":1,' * 300_000 + b'"max_tokens":1}'
    send_all(server, "/v1/completions", [body] * 2)


@case("bomb: 200,000 keys")
def keys(server):
    body = b'{"prompt":"a",' + b"".join(b'"%d":{},' % i for i in range(200_000)) + b'"n":1}'
    send_all(server, "/v1/completions", [body] * 2)


class Sampler(threading.Thread):
    """Reads RSS against the ledger until it is told to stop."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.worst, self.process, self.over = server, 0, 0, False

    def run(self):
        while not self.over and self.server.alive():
            try:
                host = self.server.host()
                self.process = host["accounts"].get("process", 0)
                excess = self.server.resident() - (host["used"] - self.process)
                self.worst = max(self.worst, excess)
            except Exception:  # pylint: disable=broad-except
                if not self.server.alive():
                    return
            time.sleep(0.05)


@case("bomb: bodies of 400 to 750 KB with all KV pages in use, RSS against the ledger", memory=256)
def resident(server):
    for i in range(16):  # fills the KV pages
        ids = [5 + (i * 131 + j) % 900 for j in range(8000)]
        server.post("/v1/completions", {"model": "weir-demo", "prompt": ids, "max_tokens": 1})
    sampler = Sampler(server)
    sampler.start()
    seen = set()
    for i in range(36):
        size = 400_000 + (i * 73_000) % 350_000
        call = {"id": "c", "type": "function",
                "function": {"name": "f", "arguments": {"a": [{}] * (size // 4)}}}
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", "content": "b"}]
        seen.add(server.post("/tokenize", {"messages": messages}, seconds=20).status)
    sampler.over = True
    sampler.join(15)
    must(seen <= ANSWERED, f"statuses {seen}")
    must(sampler.process > 0, "the ledger has no account for the process")
    must(sampler.worst < sampler.process,
         f"RSS was {sampler.worst / MIB:.1f} MiB above the other accounts; "
         f"{sampler.process / MIB:.1f} MiB are the process's own")
