#!/usr/bin/env python3
"""tests/bench/streams_test.py - streams.py with programs that only say that they are servers."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # no __pycache__ in the tree
import streams  # noqa: E402

HERE = pathlib.Path(__file__).parent
FAKE = r'''#!/usr/bin/env python3
import http.server, json, sys, time

if "bench" in sys.argv:
    print(json.dumps({"rows": [{"bandwidth_gb_per_second": 12.5}]}))
    sys.exit()
if "--fails" in sys.argv:
    sys.exit("no such model")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        n = body["max_tokens"]
        tokens = n - 1 if "--short" in sys.argv and n > 4 else n
        events = [{"choices": [{"text": "", "finish_reason": None}]}] * tokens
        events.append({"choices": [{"text": "", "finish_reason": "length"}],
                       "usage": {"completion_tokens": tokens}})
        for event in [*map(json.dumps, events), "[DONE]"]:
            time.sleep(0.005)
            data = b"data: " + event.encode() + b"\n\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''


def client(answer, times):
    out = streams.Client(1, [5], answer, 1)
    out.times = times
    return out


class Figures(unittest.TestCase):
    OPTIONS = argparse.Namespace(prompt=10, answer=5)

    def test_rates(self):
        first = client(5, [101, 102, 103, 104, 105])
        second = client(5, [102, 103, 104, 105, 106])
        row = streams.figures(100, [first, second], self.OPTIONS)
        self.assertEqual(row["prefill"], 20 / 2)
        self.assertEqual(row["all"], 10 / 6)
        self.assertEqual(row["decode"], 6 / 3)  # of each 3 tokens, from 102 to 105
        self.assertEqual((row["ttft"], row["ttft_last"], row["tpot"]), (1.5, 2, 1000))

    def test_several_tokens_in_an_event(self):
        row = streams.figures(100, [client(5, [101, 105])], self.OPTIONS)
        self.assertEqual(row["decode"], 2.5 / 4)

    def test_streams_that_never_all_decode(self):
        first, second = client(5, [101, 102, 103, 104, 105]), client(5, [105, 106, 107, 108, 109])
        self.assertNotIn("decode", streams.figures(100, [first, second], self.OPTIONS))


class Whole(unittest.TestCase):
    def run_with(self, *peers):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "fake")
            fake.write_text(FAKE)
            fake.chmod(0o755)
            words = [word for peer in peers for word in ("--peer", peer.format(fake))]
            done = subprocess.run(
                [sys.executable, "-B", HERE / "streams.py", fake, "--model", "none", "--streams",
                 "1,3", "--prompt", "4", "--answer", "8", "--turns", "2", *words],
                stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0)
        rows = json.loads(done.stdout.strip().split("\n")[-1])["rows"]
        return {(row["server"], row["streams"]): row for row in rows}, done.stdout

    def test_servers_in_turns(self):
        rows, text = self.run_with("other={}")
        self.assertEqual(set(rows), {(s, n) for s in ("weir", "other") for n in (1, 3)})
        for row in rows.values():
            self.assertEqual((row["turns"], row["gb_per_second"]["median"]), (2, 12.5))
            self.assertLess(0, row["all"]["least"])
            self.assertLess(0, row["rss"]["median"])
        self.assertIn("TTFT", text)

    def test_failures_have_their_reason(self):
        rows, text = self.run_with("ends={} --fails", "short={} --short")
        self.assertEqual(rows["weir", 3]["turns"], 2)
        self.assertIn("no such model", rows["ends", 1]["failed"][0])
        self.assertIn("7 tokens", rows["short", 3]["failed"][1])
        self.assertIn("failed: does not start", text)


if __name__ == "__main__":
    unittest.main()
