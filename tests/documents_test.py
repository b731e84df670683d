#!/usr/bin/env python3
"""tests/documents_test.py - documents.py sees every way in which a document names a file."""
import sys
import unittest

sys.dont_write_bytecode = True  # no __pycache__ in the tree
import documents  # noqa: E402

TREE = documents.Tree(["docs/gpu.md", "docs/decisions/0007-memory.md", "engine/kv/pool/store.h",
                       "engine/serve/loop.c", "tests/bench/step_bench.cc",
                       "configs/arch/llama.toml"])


class Documents(unittest.TestCase):
    def problems(self, file, text):
        return [p.split(": ")[1] for p in documents.check(TREE, file, text)[1]]

    def test_what_is_there(self):
        text = """
| word | `engine/kv/pool/store.h` | `store.h` | `engine/kv/pool/` | [GPU](gpu.md) | docs/gpu.md.
`serve/loop.c`, `tests/bench/step_bench`, docs/decisions/0007, `configs/arch/NAME.toml`, `loop.c`
`//engine:serve`, `engine/kv/{pool,tiers}`, `https://a.example/b.md`, `a.b`, `/page.js`
"""
        self.assertEqual(self.problems("docs/kernels.md", text), [])
        self.assertEqual(documents.check(TREE, "docs/kernels.md", text)[0], 11)

    def test_what_is_not(self):
        for name in ("engine/kv/store.h", "stores.h", "engine/kv/tiers", "docs/decisions/0025",
                     "configs/arch/NAME.json", "schedule/loop.c"):
            self.assertEqual(self.problems("docs/kernels.md", "see `%s`." % name),
                             [name + " is not there"])
        self.assertEqual(self.problems("README.md", "[GPU](gpus.md)"), ["gpus.md is not there"])
        self.assertEqual(self.problems("README.md", "see engine/kv/heap.c"),
                         ["engine/kv/heap.c is not there"])

    def test_sources_cite_documents(self):
        self.assertEqual(self.problems("a.c", "/* docs/gpu.md, docs/decisions/0007 */"), [])
        self.assertEqual(self.problems("a.c", "/* docs/cpu.md; x/y.c */"),
                         ["docs/cpu.md is not there"])


if __name__ == "__main__":
    unittest.main()
