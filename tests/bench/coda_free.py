#!/usr/bin/env python3
"""CoDA's banks on a model that was not trained with them, compared with KV policies of the same
bytes: the tables of docs/results/coda-free.md.

  tests/bench/coda_free.py [--weir PROGRAM] [--model FOLDER] [--slots LIST] [--formats LIST]
    [--limit N] > tables.md

Every contender attends to the same number of rows of the text and, while prompts are read, to the
64 rows that are read together. The model is of the architecture qwen35: its layers with full
attention are those that differ. PROGRAM: default `weir` of the last build. FOLDER: the bundled
demo, whose questions and text are used whatever the model is."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EVAL = os.path.join(TOP, "models/weir-demo/eval")
BLOCK = 64
ARCH = """[arch]
name = "free"
base = "qwen35"
[block.attn]
mixer = "coda"
differential = false
q_gate = true
qk_norm = true
rope = "half_split"
block_rows = {block}
exact_candidates = {block}
summary_candidates = {block}
window = {window}
landmarks_exact = {exact}
landmarks_summary = {summary}
{more}
"""

# Half of the slots are the ring, as half of the rows of `landmarks` are its window; what is shared
# out is shared out alike.
BANKS = [
    ("ring only", 1, 0, 0, ""),
    ("ring and exact", 1 / 2, 1 / 2, 0, ""),
    ("ring and exact, gates from values", 1 / 2, 1 / 2, 0, 'gate = "value_norm"'),
    ("ring and prototypes", 1 / 2, 0, 1 / 2, ""),
    ("ring and prototypes from noise", 1 / 2, 0, 1 / 2, 'start = "noise"'),
    ("ring, exact and prototypes", 1 / 2, 1 / 4, 1 / 4, ""),
    ("ring, exact and prototypes from noise", 1 / 2, 1 / 4, 1 / 4, 'start = "noise"'),
]
POLICIES = ["sinks", "landmarks"]


def run(weir, arguments):
    result = subprocess.run(
        [weir, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if result.returncode != 0:
        sys.exit(f"{weir} {' '.join(arguments)}: {result.stderr.strip()}")
    return json.loads(result.stdout)


class Contender:
    """A way to hold the rows: settings of every command."""

    def __init__(self, o, fmt, settings):
        self.o = o
        self.settings = [
            "--model",
            o.model,
            "--kv-format",
            fmt,
            "--set",
            f"batch.chunk={BLOCK}",
            *settings,
        ]

    def run(self, *command):
        plan = [] if command[0] == "plan" else ["--json"]
        return run(self.o.weir, [*command, *self.settings, *plan])

    def measure(self):
        answers = self.run(
            "eval",
            "retrieval",
            "--items",
            os.path.join(EVAL, "needles.jsonl"),
            "--limit",
            str(self.o.limit),
        )
        text = self.run("eval", "perplexity", "--text", os.path.join(EVAL, "val_novel.txt"))
        return answers, text["perplexity"]


def recurrent(o, fmt, settings):
    """Bytes of one sequence's fixed memory."""
    return run(
        o.weir,
        [
            "plan",
            "--json",
            "--model",
            o.model,
            "--kv-format",
            fmt,
            "--max-sequences",
            "1",
            *settings,
        ],
    )["accounts"]["recurrent_state"]


def coda(o, fmt, folder, slots, bank):
    name, ring, exact, summary, more = bank
    gate = "" if "gate" in more else 'gate = "constant"\n'
    with open(os.path.join(folder, "free.toml"), "w", encoding="utf-8") as file:
        file.write(
            ARCH.format(
                block=BLOCK,
                window=int(slots * ring),
                exact=int(slots * exact),
                summary=int(slots * summary),
                more=gate + more,
            )
        )
    settings = ["--arch-dir", folder, "--set", "model.arch=free"]
    answers, perplexity = Contender(o, fmt, settings).measure()
    return answers, perplexity, recurrent(o, fmt, settings) - recurrent(o, fmt, [])


def policy(o, fmt, slots, name):
    """The new row is one of the slots of a ring; a policy holds it in addition to its budget."""
    settings = (
        ["--policy", name, "--budget", str(slots - 1), "--policy-options", "every=1,in_prompt=true"]
        if slots
        else []
    )
    answers, perplexity = Contender(o, fmt, settings).measure()
    return answers, perplexity, answers["bytes"]


def cells(o, answers, perplexity, n_bytes):
    low, high = answers["likely"]
    return (
        f" {answers['accuracy']:.2f} ({low:.2f} to {high:.2f}) | {perplexity:.2f} "
        f"| {n_bytes // o.layers} |"
    )


def table(o, fmt, slots, folder):
    """A line for each contender, as it is done."""
    print(
        f"\n{fmt}:\n\n| rows |" + "".join(f" {n}: questions | perplexity | bytes |" for n in slots)
    )
    print("|---|" + "---|" * (3 * len(slots)))
    print("| all |" + cells(o, *policy(o, fmt, 0, "")) + " |" * (3 * len(slots) - 3), flush=True)
    for name in POLICIES:
        print(
            f"| policy `{name}` |" + "".join(cells(o, *policy(o, fmt, n, name)) for n in slots),
            flush=True,
        )
    for bank in BANKS:
        print(
            f"| {bank[0]} |" + "".join(cells(o, *coda(o, fmt, folder, n, bank)) for n in slots),
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weir", default=os.path.join(TOP, ".bazel/bin/engine/cli/weir"))
    parser.add_argument("--model", default=os.path.join(TOP, "models/weir-demo"))
    parser.add_argument("--slots", default="64,128,256")
    parser.add_argument("--formats", default="f16,f32")
    parser.add_argument("--limit", type=int, default=100)
    o = parser.parse_args()
    with open(os.path.join(o.model, "config.json"), encoding="utf-8") as file:
        o.layers = json.load(file)["layer_types"].count("full_attention")
    for fmt in o.formats.split(","):
        with tempfile.TemporaryDirectory() as folder:
            table(o, fmt, [int(n) for n in o.slots.split(",")], folder)


if __name__ == "__main__":
    main()
