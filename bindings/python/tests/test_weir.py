"""The package against a built library and the demo model (WEIR_MODEL, or the installed one)."""

import gc
import os
import tempfile
import threading
import time
import unittest

import weir

MODEL = os.environ.get("WEIR_MODEL")


def new_engine(**config):
    keys = {"sampling.temperature": 0, **{key.replace("__", "."): config[key] for key in config}}
    return weir.Engine(MODEL, memory="256MiB", config=keys)


def lines(n):
    return "".join(f"The pass code of the black boat number {i} is {i * 37 + 11}.\n"
                   for i in range(n))


class WeirTest(unittest.TestCase):
    def setUp(self):
        self.engine = new_engine()
        self.addCleanup(self.engine.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "text.state")

    def synced(self, text="Once upon a time"):
        return self.engine.sequence(self.engine.tokenize(text))

    def test_info_and_version(self):
        self.assertEqual(self.engine.info.vocab_size, 2048)
        self.assertEqual(self.engine.info.architecture, "qwen35")
        self.assertEqual(weir.version(), weir.__version__)

    def test_text_and_tokens(self):
        text = "Der Preis ist 12 €. 日本"
        tokens = self.engine.tokenize(text, bos=False)
        self.assertEqual(self.engine.detokenize(tokens), text)
        self.assertEqual(self.engine.tokenize(""), [])
        self.assertEqual(self.engine.detokenize([]), "")
        special = self.engine.tokenize("<|im_end|>", special=True)
        self.assertEqual(len(special), 1)
        self.assertTrue(self.engine.is_eog(special[0]))
        self.assertGreater(len(self.engine.tokenize("<|im_end|>")), 1)

    def test_chat(self):
        messages = [{"role": "user", "content": "Hi \u00e9\u4e2d"}]
        self.assertIn("Hi \u00e9\u4e2d", self.engine.render_chat_text(messages))
        sequence = self.engine.sequence(self.engine.render_chat(messages))
        self.assertTrue(sequence.generate(max_tokens=64))
        self.assertIn(sequence.finish_reason, ("stop", "length"))

    def test_stream_is_generate(self):
        one, other = self.synced(), self.synced()
        pieces = list(one.stream(max_tokens=20, ignore_eos=1))
        self.assertEqual(len([p for p in pieces if p.token is not None]), 20)
        self.assertEqual("".join(p.text for p in pieces), other.generate(max_tokens=20,
                                                                         ignore_eos=1))
        self.assertEqual(one.tokens, other.tokens)
        self.assertEqual(one.finish_reason, "length")

    def test_closing_the_generator_ends_the_answer(self):
        sequence = self.synced()
        stream = sequence.stream(max_tokens=4000, ignore_eos=1)
        next(stream)
        with self.assertRaises(RuntimeError):
            sequence.sync([1])
        stream.close()
        self.assertLess(len(sequence), 4000)
        self.assertEqual(sequence.finish_reason, "cancelled")
        sequence.sync([1, 2, 3])
        self.assertEqual(sequence.tokens, [1, 2, 3])

    def test_logits(self):
        sequence = self.synced()
        row = sequence.logits()
        self.assertEqual(len(row), 2048)
        best = max(range(len(row)), key=lambda i: row[i])
        self.assertEqual(next(sequence.stream(max_tokens=1, ignore_eos=1)).token, best)

    def test_sync_reuses(self):
        tokens = self.engine.tokenize(lines(20))
        sequence = self.engine.sequence(tokens)
        self.assertEqual(sequence.usage()["cached_tokens"], 0)
        sequence.sync(tokens + [100, 101])
        self.assertEqual(sequence.usage()["computed_tokens"], 2)
        self.assertEqual(sequence.usage()["prompt_tokens"], len(tokens) + 2)
        with new_engine() as cold:
            row = cold.sequence(tokens + [100, 101]).logits()
            self.assertEqual(bytes(row), bytes(sequence.logits()))

    def test_save_and_restore(self):
        sequence = self.synced(lines(10))
        sequence.generate(max_tokens=5, ignore_eos=1)
        sequence.save(self.path)
        tokens = sequence.tokens
        rest = sequence.generate(max_tokens=20, ignore_eos=1)
        with new_engine() as engine:
            other = engine.sequence()
            other.restore(self.path)
            self.assertEqual(other.tokens, tokens)
            self.assertEqual(other.generate(max_tokens=20, ignore_eos=1), rest)
            self.assertEqual(other.usage()["computed_tokens"], 1)

    def http_after(self, least):
        """The engine's thread frees a job after its caller has the last event."""
        until = time.monotonic() + 20
        while True:
            http = self.engine.memory()["host"]["accounts"]["http"]
            if http <= least or time.monotonic() > until:
                return http
            time.sleep(0.01)

    def test_memory(self):
        host = self.engine.memory()["host"]
        self.assertEqual(host["limit"], 256 << 20)
        self.assertEqual(host["used"], sum(host["accounts"].values()))
        self.assertLessEqual(host["used"], host["peak"])
        before = host["accounts"]["http"]
        sequence = self.synced(lines(10))
        self.assertGreater(self.engine.memory()["host"]["accounts"]["http"], before)
        sequence.close()
        self.assertEqual(self.http_after(before), before)

    def test_errors(self):
        with self.assertRaises(weir.Error) as caught:
            weir.Engine(MODEL, config={"memory.hots": "1GiB"})
        self.assertEqual(caught.exception.name, "ECONFIG")
        self.assertIn("memory.host", str(caught.exception))
        with self.assertRaises(weir.Error) as caught:
            weir.Engine("no/such/model")
        self.assertEqual(caught.exception.name, "ENOTFOUND")
        sequence = self.engine.sequence()
        for tokens in ([-1], [2048]):
            with self.assertRaises(weir.Error) as caught:
                sequence.sync(tokens)
            self.assertEqual(caught.exception.name, "EINVAL")
        with self.assertRaises(weir.Error) as caught:
            sequence.restore(self.path)
        self.assertEqual(caught.exception.name, "ENOTFOUND")
        with self.assertRaises(TypeError):
            sequence.stream(heat=1)

    def test_closed_is_an_error(self):
        sequence = self.synced()
        self.engine.close()
        self.engine.close()
        with self.assertRaises(ValueError):
            sequence.sync([1])
        with self.assertRaises(ValueError):
            self.engine.tokenize("a")

    def test_sequences_are_collected(self):
        before = self.engine.memory()["host"]["accounts"]["http"]
        for _ in range(20):
            self.synced()
        gc.collect()
        self.assertEqual(self.http_after(before), before)

    def test_threads(self):
        texts = [lines(n) for n in (2, 4, 6)]
        alone = [self.synced(text).generate(max_tokens=10, ignore_eos=1) for text in texts]
        together = [None] * len(texts)

        def work(i):
            with new_engine() as engine:
                sequence = engine.sequence(engine.tokenize(texts[i]))
                together[i] = sequence.generate(max_tokens=10, ignore_eos=1)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_log(self):
        said = []
        weir.set_log(lambda level, text: said.append((level, text)))
        try:
            new_engine(kv__tiers__host="1MiB").close()
        finally:
            weir.set_log(None)
        self.assertEqual([level for level, _ in said], ["warning"])
        self.assertIn("kv.tiers.host", said[0][1])


if __name__ == "__main__":
    unittest.main()
