#!/usr/bin/env python3
"""Small SentencePiece vocabularies with byte fallback, texts, their ids and decoded texts.

usage: tokenizers.py --out DIR [--seed N] [--set NAME]
Writes DIR/tokenizers/NAME.json. spm-*: ids by sentencepiece (merges by score). ranks-*: ids by the
tokenizers library (merges by rank, spaces replaced), with the merges.
"""
import argparse
import hashlib
import json
import os

import numpy as np

TEXTS = [
    "", " ", "  ", "a", "the cat", "the  cat ", " the", "théâtre", "naïve café", "日本語テキスト",
    "🙂 ok 👩‍👩‍👧", "line\nbreak\r\n\ttab", "12345 3.14", "don't", "AAAA aaaa", "▁under",
    "<s> no special", "\x00\x7f", "e\u0301 combining", "mixed 漢字 and ascii", "ababababab",
    "aaaaaaa", "\u00a0nbsp", "end.",
]
WORDS = "the cat sat on the mat and the hat then that thing in the inner another nation onto other"
BASE = [("<unk>", 2), ("<s>", 3), ("</s>", 3)] + [(f"<0x{b:02X}>", 6) for b in range(256)]


def generator(seed, *names):
    digest = hashlib.sha256("/".join(map(str, (seed,) + names)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest[:16], dtype=np.uint32).tolist())


def pieces_for(rng, n):
    """Parts of words, and the characters that occur."""
    parts = set()
    for word in WORDS.split():
        for i in range(len(word) + 1):
            for j in range(i + 2, min(len(word) + 1, i + 6) + 1):
                parts.add(("▁" + word)[i:j])
    parts = sorted(parts)
    picked = [parts[i] for i in rng.permutation(len(parts))[:n]]
    return picked, sorted(set("▁abcdefghijklmnopqrstuvwxyz.'é日本") | set("".join(picked)))


def scored(picked, characters, prefix, texts):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback = 2, True
    trainer.unk_id, trainer.bos_id, trainer.eos_id = 0, 1, 2
    normalizer.name, normalizer.add_dummy_prefix = "identity", prefix
    normalizer.remove_extra_whitespaces = False
    scores = {text: -float(i) for i, text in enumerate(picked)}
    scores |= {text: -1000.0 - i for i, text in enumerate(characters)}
    rows = [(text, 0.0, kind) for text, kind in BASE] + [(t, s, 1) for t, s in scores.items()]
    for text, score, kind in rows:
        piece = model.pieces.add()
        piece.piece, piece.score, piece.type = text, score, kind
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    cases = [dict(text=t, ids=sp.encode(t), decoded=sp.decode(sp.encode(t))) for t in texts]
    pieces = [dict(piece=t, score=s, type=k) for t, s, k in rows]
    return dict(format=1, model="llama", add_space_prefix=prefix, pieces=pieces, cases=cases)


def ranked(picked, characters, texts):
    from tokenizers import Tokenizer, decoders, models, normalizers
    tokens, merges = [text for text, _ in BASE] + characters, []
    have = set(tokens)
    for piece in sorted(picked, key=len):  # a chain of merges from the left
        for j in range(2, len(piece) + 1):
            if piece[:j] not in have:
                have.add(piece[:j])
                tokens.append(piece[:j])
                merges.append((piece[:j - 1], piece[j - 1]))
    ids = {text: i for i, text in enumerate(tokens)}
    tk = Tokenizer(models.BPE(vocab=ids, merges=merges, byte_fallback=True, fuse_unk=True,
                              unk_token="<unk>"))
    tk.normalizer = normalizers.Replace(" ", "▁")
    tk.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                    decoders.Fuse()])
    cases = [dict(text=t, ids=tk.encode(t).ids, decoded=tk.decode(tk.encode(t).ids))
             for t in texts]
    pieces = [dict(piece=t, score=0.0, type=dict(BASE).get(t, 1)) for t in tokens]
    return dict(format=1, model="gemma4", add_space_prefix=False,
                merges=[" ".join(m) for m in merges], pieces=pieces, cases=cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", default="shared")
    args = parser.parse_args()
    os.makedirs(f"{args.out}/tokenizers", exist_ok=True)
    for name, prefix in (("spm-prefix", True), ("spm-plain", False), ("ranks-plain", None)):
        rng = generator(args.seed, args.set, "tok", name)
        picked, characters = pieces_for(rng, 60)
        letters = list("abehint  oé日.\n🙂")
        texts = TEXTS + ["".join(rng.choice(letters, rng.integers(1, 24))) for _ in range(40)]
        out = (ranked(picked, characters, texts) if prefix is None
               else scored(picked, characters, prefix, texts))
        with open(f"{args.out}/tokenizers/{name}.json", "w") as f:
            json.dump(out, f, indent=0, ensure_ascii=True)
        print(name, len(out["pieces"]), len(out["cases"]))


if __name__ == "__main__":
    main()
