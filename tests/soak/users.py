"""users.py - clients that use all of a server, each in its own way, until the time is over."""
import collections
import http.client
import json
import random
import threading
import time

WORDS = ("river weir dam water stone bridge mill flow gate bank flood reed otter trout lock barge "
         "level sluice pool spring").split()
ALLOWED = {200, 400, 404, 409, 429, 503}
SECONDS = 300


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.kinds, self.statuses, self.problems = (
            collections.Counter(), collections.Counter(), [])

    def add(self, kind, status):
        with self.lock:
            self.kinds[kind] += 1
            self.statuses[status] += 1

    def fail(self, text):
        with self.lock:
            self.problems.append(text)


class Client:
    """Talks in sessions, keeps states, leaves streams."""

    def __init__(self, port, number, seed, window, tally):
        self.port, self.number, self.window, self.tally = port, number, window, tally
        self.random = random.Random(seed * 1000 + number)
        self.connection, self.messages, self.n_states = None, [], 0
        self.session = f"client-{number}"
        self.actions = [(self.talk, 8), (self.stream, 6), (self.leave, 5), (self.complete, 4),
                        (self.tokenize, 2), (self.save, 1), (self.restore, 1), (self.drop, 1),
                        (self.add_state, 2), (self.ask_state, 2), (self.find_state, 1),
                        (self.remove_state, 1), (self.look, 2), (self.be_wrong, 1)]

    def text(self, n):
        return " ".join(self.random.choice(WORDS) for _ in range(n))

    def send(self, method, path, body=None):
        """Its answer, which is not read yet. One request in eight has a connection of its own."""
        if self.random.randrange(8) == 0:
            self.close()
        self.connection = self.connection or http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=SECONDS)
        self.connection.request(method, path, None if body is None else json.dumps(body),
                                {"Content-Type": "application/json"})
        return self.connection.getresponse()

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def whole(self, kind, method, path, body=None):
        answer = self.send(method, path, body)
        text = answer.read()
        self.tally.add(kind, answer.status)
        if answer.status not in ALLOWED:
            self.tally.fail(f"{kind}: status {answer.status}: {text[:200]!r}")
        if answer.status in (429, 503):
            time.sleep(0.1)
        return answer.status, text

    def chat(self, n_words, **more):
        self.messages.append({"role": "user", "content": self.text(n_words)})
        if len(str(self.messages)) > 2 * self.window:
            del self.messages[:-1]
        return {"messages": self.messages, "max_tokens": self.random.choice((4, 16, 40)),
                "temperature": 0.8, "on_overflow": "truncate_middle", **more}

    def talk(self):
        body = self.chat(20, session=self.session, seed=self.random.randrange(1000))
        status, text = self.whole("chat", "POST", "/v1/chat/completions", body)
        if status == 200:
            message = json.loads(text)["choices"][0]["message"]
            self.messages.append({"role": "assistant", "content": message["content"] or "."})

    def stream(self):
        _, text = self.whole("stream", "POST", "/v1/chat/completions", self.chat(10, stream=True))
        ended = text.rstrip().endswith(b"data: [DONE]") or b'"error"' in text
        if not ended:
            self.tally.fail(f"a stream ends with {text[-80:]!r}")
        self.messages.pop()

    def leave(self):
        answer = self.send("POST", "/v1/completions",
                           {"prompt": self.text(self.random.choice((5, 80))), "stream": True,
                            "max_tokens": 200, "ignore_eos": True})
        answer.read1(self.random.choice((1, 200)))
        self.close()
        self.tally.add("left stream", answer.status)

    def complete(self):
        shared = " ".join(WORDS) * 3
        self.whole("completion", "POST", "/v1/completions",
                   {"prompt": [shared + self.text(5), self.text(30)], "max_tokens": 8,
                    "n": self.random.choice((1, 2)), "logprobs": self.random.choice((None, 2))})

    def tokenize(self):
        self.whole("tokenize", "POST", "/tokenize", {"content": self.text(200)})

    def save(self):
        self.whole("save", "POST", "/v1/sessions", {"name": self.session})

    def restore(self):
        self.whole("restore", "POST", "/v1/sessions/restore", {"name": self.session})

    def drop(self):
        self.whole("delete", "DELETE", f"/v1/sessions/{self.session}")
        self.messages = []

    def state(self):
        return f"doc-{self.number}-{self.random.randrange(3)}"

    def add_state(self):
        name = self.state()
        self.whole("delete state", "DELETE", f"/v1/states/{name}")
        self.whole("add state", "POST", "/v1/states",
                   {"label": name, "prompt": self.text(self.random.choice((30, 120)))})

    def ask_state(self):
        self.whole("ask state", "POST", "/v1/completions",
                   {"state": self.state(), "prompt": "What is it?", "max_tokens": 8})

    def find_state(self):
        self.whole("find state", "POST", "/v1/states/query", {"question": self.text(6)})

    def remove_state(self):
        self.whole("delete state", "DELETE", f"/v1/states/{self.state()}")

    def look(self):
        path = self.random.choice(("/v1/memory", "/v1/sessions", "/v1/states", "/v1/models", "/"))
        self.whole("look", "GET", path)

    def be_wrong(self):
        body = self.random.choice(({"prompt": 7}, {"prompt": "x", "max_tokens": -3},
                                   {"prompt": [1] * (self.window + 9)}, {"messages": []}))
        self.whole("wrong", "POST", "/v1/completions", body)

    def run(self, until):
        actions, weights = zip(*self.actions)
        while time.monotonic() < until:
            action = self.random.choices(actions, weights)[0]
            try:
                action()
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.close()
                self.tally.fail(f"{action.__name__}: {type(error).__name__}: {error}")
            if len(self.tally.problems) > 100:
                break
        self.close()


def start(port, count, seed, window, until, tally):
    clients = [Client(port, number, seed, window, tally) for number in range(count)]
    running = [threading.Thread(target=client.run, args=(until,)) for client in clients]
    for thread in running:
        thread.start()
    return running
