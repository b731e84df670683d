#!/usr/bin/env python3
"""Times llguidance on the cases of constrained decoding, and writes what constrain_bench needs.

    constrain_peer.py write GGUF CASES... --vocabulary OUT --walks OUT   for constrain_bench
    constrain_peer.py run --vocabulary FILE --walks FILE                 llguidance's times

Needs llguidance, gguf and numpy in a virtual environment outside of the tree. Both programs walk
the same tokens of the same right texts (the longest token at each place), ask for a mask before
each, and count processor time. A second walk of a text is not made: masks are those of a first
answer."""
import argparse
import json
import time


def vocabulary_of(path):
    """Returns the bytes of each token; None for those that end answers."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    field = reader.fields["tokenizer.ggml.tokens"]
    texts = [bytes(field.parts[i]).decode("utf-8") for i in field.data]
    kinds = reader.fields["tokenizer.ggml.token_type"]
    kinds = [int(kinds.parts[i][0]) for i in kinds.data]
    printed = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, extra = {chr(b): b for b in printed}, 0
    for b in range(256):
        if b not in printed:
            letters[chr(256 + extra)] = b
            extra += 1
    out = []
    for text, kind in zip(texts, kinds):
        if text in ("<|im_end|>", "<|endoftext|>"):
            out.append(None)
        elif kind != 1:
            out.append(b"")
        else:
            out.append(bytes(letters[c] for c in text))
    return out


def tokenize(text, ids, longest):
    """The longest token at each place."""
    at, out = 0, []
    while at < len(text):
        for n in range(min(longest, len(text) - at), 0, -1):
            if text[at:at + n] in ids:
                out.append(ids[text[at:at + n]])
                at += n
                break
        else:
            return None
    return out


def write(args):
    tokens = vocabulary_of(args.gguf)
    tokens += [b""] * (args.tokens - len(tokens))
    with open(args.vocabulary, "w") as out:
        for token in tokens:
            out.write(("end" if token is None else token.hex()) + "\n")
    ids = {token: i for i, token in enumerate(tokens) if token}
    longest = max(map(len, ids))
    with open(args.walks, "w") as out:
        for path in args.cases:
            for line in open(path, encoding="utf-8"):
                case = json.loads(line)
                right = [t["t"].encode() for t in case["texts"] if t["ok"]]
                walks = [w for w in (tokenize(t, ids, longest) for t in right) if w]
                if case["expect"] != "supported" or not walks:
                    continue
                keep = {k: case[k] for k in ("id", "kind", case["kind"])}
                out.write(json.dumps(dict(keep, walks=walks)) + "\n")


def summary(values):
    values = sorted(values)
    n = len(values)
    return {"n": n, "median_us": values[n // 2], "p90_us": values[n * 9 // 10],
            "p99_us": values[n * 99 // 100], "max_us": values[-1], "mean_us": sum(values) / n}


def run(args):
    import llguidance
    import llguidance.numpy

    tokens = [None if line == "end\n" else bytes.fromhex(line.strip())
              for line in open(args.vocabulary)]
    end = tokens.index(None)

    class Tokenizer:
        eos_token_id = end
        bos_token_id = None
        special_token_ids = [i for i, t in enumerate(tokens) if not t]

        def __init__(self):
            self.tokens = [t or b"<|%d|>" % i for i, t in enumerate(tokens)]

        def __call__(self, text):
            return list(text if isinstance(text, bytes) else text.encode())

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))
    mask = llguidance.numpy.allocate_token_bitmask(1, len(tokens))
    compile_us, first_us, mask_us, refused, wrong = [], [], [], 0, 0
    clock = time.thread_time_ns
    for line in open(args.walks):
        case = json.loads(line)
        if case["kind"] != "schema":
            continue
        begin = clock()
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(case["schema"]))
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
            failed = matcher.is_error()
        except ValueError:
            failed = True
        compile_us.append((clock() - begin) / 1e3)
        if failed:
            refused += 1
            continue
        for walk in case["walks"]:
            for i, token in enumerate(walk):
                begin = clock()
                llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
                (first_us if i == 0 else mask_us).append((clock() - begin) / 1e3)
                if not matcher.consume_token(token):
                    wrong += 1
                    break
            matcher.reset()
    print(json.dumps({"llguidance": llguidance.__version__ if hasattr(llguidance, "__version__")
                      else "?", "compile": summary(compile_us), "first_mask": summary(first_us),
                      "mask": summary(mask_us), "refused": refused, "wrong": wrong}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "run"))
    parser.add_argument("gguf", nargs="?")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--walks", required=True)
    parser.add_argument("--tokens", type=int, default=151936, help="padded size")
    args = parser.parse_args()
    {"write": write, "run": run}[args.what](args)


if __name__ == "__main__":
    main()
