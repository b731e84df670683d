#!/usr/bin/env python3
"""What tools/figures.py takes for complete, and that the program gives all of it."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest

SCRIPT = "tools/figures.py"
spec = importlib.util.spec_from_file_location("figures", SCRIPT)
figures = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(figures)

FOLDER = pathlib.Path(os.environ["TEST_TMPDIR"])
RATE = {"median": 2.0, "min": 1.0, "max": 3.0}
TIMES = {"p50": 1.0, "p90": 2.0, "p95": 3.0, "p99": 4.0, "max": 5.0}
BENCH = {
    "model": "m", "arch": "a", "threads": 2, "prompt": 8, "gen": 4, "weight_bytes": 10,
    "peak_rss_bytes": 20,
    "rows": [{"bandwidth_gb_per_second": 5.0, "bandwidth_share": 0.5, "kv_bytes": 30,
              "prefill_tokens_per_second": RATE, "decode_tokens_per_second": RATE}],
}
STREAMS = {
    "rows": [{"streams": 1, "prefill_tokens_per_second": RATE, "decode_tokens_per_second": RATE,
              "decode_tokens_per_second_per_stream": 2.0, "ttft_ms": TIMES, "itl_ms": TIMES,
              "peak_rss_bytes": 20, "kv_bytes": 30, "bandwidth_gb_per_second": 5.0,
              "bandwidth_share": 0.5, "batch_efficiency": None}],
}
LOAD = {"requests_ok": 4, "answer_tokens_per_second": 9.0, "ttft_ms": TIMES, "tpot_ms": TIMES,
        "itl_ms": TIMES, "e2e_ms": TIMES,
        "server_memory": {"peak_bytes": 5, "kv_pool_bytes": 4, "kv_bytes_per_token": 1}}
PERPLEXITY = {"perplexity": 37.2, "nll": 3.6}
WHERE = {"cpu": "a processor", "cores": 2, "memory_bytes": 1 << 30, "load_before": 0.0}


def sample():
    """Without parts that are the same object."""
    parts = (BENCH, STREAMS, LOAD, PERPLEXITY)
    return json.loads(json.dumps(figures.assemble("c" * 40, True, WHERE, *parts)))


def put(tree, path, value):
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


class Check(unittest.TestCase):
    def test_a_complete_file_has_no_problem(self):
        self.assertEqual(figures.problems_of(sample()), [])

    def test_every_missing_figure_is_named(self):
        paths = figures.TEXTS + figures.NUMBERS
        self.assertGreater(len(paths), 30)
        for path in paths:
            for value in (None, "", float("nan"), float("inf"), 0, -1, True, [], {}):
                tree = sample()
                put(tree, path, value)
                problems = figures.problems_of(tree)
                self.assertEqual(len(problems), 1, (path, value))
                self.assertTrue(problems[0].startswith(".".join(path) + ":"), problems)

    def test_every_missing_figure_of_a_row_is_named(self):
        for path in figures.ROW:
            tree = sample()
            put(tree["streams"][0], path, None)
            problems = figures.problems_of(tree)
            self.assertEqual(len(problems), 1, path)
            self.assertIn("streams[0]." + ".".join(path), problems[0])
        for rows in ([], None, {}, "x"):
            tree = sample()
            tree["streams"] = rows
            self.assertEqual(figures.problems_of(tree), ["streams: there is no row"])

    def test_no_object_and_other_formats(self):
        for tree in (None, [], 3, "x"):
            self.assertEqual(figures.problems_of(tree), ["no object"])
        tree = sample()
        tree["format"] = 2
        self.assertEqual(len(figures.problems_of(tree)), 1)

    def test_noise_is_no_problem(self):
        for factor in (0.001, 1000.0):
            tree = sample()
            for path in set(figures.NUMBERS) - {("bandwidth_share",)}:
                put(tree, path, figures.value_at(tree, path) * factor)
            self.assertEqual(figures.problems_of(tree), [])

    def test_more_than_the_bandwidth_is_a_problem(self):
        for path in (("bandwidth_share",), ("streams", 0, "bandwidth_share")):
            for value, n in ((1.0, 0), (1.05, 0), (1.06, 1), (1.335, 1)):
                tree = sample()
                put(tree, path, value)
                problems = figures.problems_of(tree)
                self.assertEqual(len(problems), n, (path, value))
                for problem in problems:
                    self.assertIn("bandwidth_share: %.3f is more than" % value, problem)

    def test_such_a_row_is_measured_again(self):
        for shares, n_asked in (([0.5], 1), ([1.3, 0.5], 2), ([1.3, 1.2, 1.4], 3)):
            asked = []

            def ask(*words):
                asked.append(words)
                rows = json.loads(json.dumps(STREAMS["rows"]))
                rows[0]["bandwidth_share"] = shares[len(asked) - 1]
                return {"rows": rows}

            before, figures.ask = figures.ask, ask
            try:
                got = figures.ask_quiet(figures.MOST_SHARE, "weir", "bench")
            finally:
                figures.ask = before
            self.assertEqual(asked, [("weir", "bench")] * n_asked)
            self.assertEqual(got["rows"][0]["bandwidth_share"], shares[-1])

    def test_what_a_program_lacks_is_missing(self):
        for lacks in ("bench", "streams", "load", "perplexity"):
            parts = {"bench": BENCH, "streams": STREAMS, "load": LOAD, "perplexity": PERPLEXITY}
            parts[lacks] = {}
            tree = figures.assemble("c" * 40, True, WHERE, **parts)
            self.assertNotEqual(figures.problems_of(tree), [], lacks)


def run(*words):
    return subprocess.run(
        [sys.executable, "-B", SCRIPT, *words], capture_output=True, text=True, timeout=120
    )


class Command(unittest.TestCase):
    def test_the_program_gives_every_figure(self):
        text = FOLDER / "text"
        text.write_text("The harbour was quiet, and the boats lay in the sun. " * 40)
        done = run("--out", str(FOLDER), "--text", str(text), "--commit", "1" * 40, "--streams",
                   "1,2", "--prompt", "96", "--gen", "6", "--repeat", "1", "--requests", "4",
                   "--most-share", "1000")  # six tokens, next to other tests
        self.assertEqual(done.returncode, 0, done.stderr)
        path = FOLDER / "figures" / ("1" * 40 + ".json")
        self.assertEqual(done.stdout.strip(), str(path))
        tree = json.loads(path.read_text())
        self.assertEqual(figures.problems_of(tree, 1000), [])
        self.assertEqual([row["streams"] for row in tree["streams"]], [1, 2])
        self.assertEqual(tree["http"]["requests_ok"], 4)
        self.assertEqual(tree["model"], "weir-demo")
        again = run("--check", str(path), "--most-share", "1000")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, "1 passed, 0 failed\n")

    def test_a_name_is_no_path(self):
        for name in ("../x", "a/b", "", ".x"):
            done = run("--out", str(FOLDER), "--program", "/bin/false", "--name", name)
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("--name", done.stderr)

    def test_a_bad_file_fails_the_check(self):
        bad, torn = FOLDER / "bad.json", FOLDER / "torn.json"
        tree = sample()
        del tree["perplexity"]
        bad.write_text(json.dumps(tree))
        torn.write_text("{")
        done = run("--check", str(bad), str(torn), str(FOLDER / "none.json"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("perplexity", done.stderr)
        self.assertEqual(done.stdout, "0 passed, 3 failed\n")

    def test_a_program_without_a_figure_writes_nothing(self):
        program = FOLDER / "weir"
        server = "echo listening on http://127.0.0.1:1 >&2; exec sleep 60"
        program.write_text(
            "#!/bin/sh\ncase \"$1$2\" in\nserve*) %s ;;\nbench--streams) echo '%s' ;;\n"
            "bench*) echo '%s' ;;\nload*) echo '%s' ;;\neval*) echo '{\"nll\": 1}' ;;\nesac\n"
            % (server, json.dumps(STREAMS), json.dumps(BENCH), json.dumps(LOAD))
        )
        program.chmod(0o755)
        out = FOLDER / "nothing"
        done = run("--out", str(out), "--program", str(program), "--commit", "2" * 40)
        self.assertEqual(done.returncode, 1)
        self.assertIn("perplexity: None is no positive number", done.stderr)
        self.assertFalse(out.exists())

    def test_more_than_the_bandwidth_fails_the_check(self):
        path = FOLDER / "loaded.json"
        tree = sample()
        tree["streams"][0]["bandwidth_share"] = 1.335
        path.write_text(json.dumps(tree))
        done = run("--check", str(path))
        self.assertEqual(done.returncode, 1)
        self.assertIn("streams[0].bandwidth_share: 1.335 is more than 1.05", done.stderr)

    def test_a_program_that_fails_is_named(self):
        done = run("--out", str(FOLDER), "--program", "/bin/false", "--commit", "3" * 40)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("weir bench", done.stderr)


if __name__ == "__main__":
    unittest.main()
