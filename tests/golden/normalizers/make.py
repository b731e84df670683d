#!/usr/bin/env python3
"""Reference ids of tokenizers with normalizers and with added tokens of every kind.

  python make.py --seed 1 --out .

Needs the package tokenizers and beside this folder ../text/make.py, whose text and rules it uses.
"""

import argparse, collections, importlib.util, json, math, os, random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location(
    "text_make", os.path.join(HERE, "..", "text", "make.py")
)
text = importlib.util.module_from_spec(spec)
spec.loader.exec_module(text)

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers as n,
    pre_tokenizers,
    trainers,
)

SPACE = "\u2581"


def added(content, **flags):
    return AddedToken(content, **{"normalized": False, "special": False, **flags})


# Every combination of the flags somewhere, and tokens that hold one another.
WORDS = [
    added("<w>", single_word=True),
    added("mask", single_word=True),
    added("mas", single_word=False),
    added("\u0451\u0436", single_word=True),
    added("<l>", single_word=True, lstrip=True),
    added("<r>", single_word=True, rstrip=True),
    added("<lr>", lstrip=True, rstrip=True),
    added("<b>", rstrip=True),
    added(" <q>"),
    added("<c>", special=True),
    added("the", single_word=True, lstrip=True, rstrip=True, special=True),
]
NORMAL = [
    added("MaSK", single_word=True, normalized=True),
    added("<N>", normalized=True),
    added("\ufb01N", normalized=True, single_word=True),
    added("\u0418\u0306x", normalized=True, lstrip=True),
    added("<R>", normalized=True, rstrip=True),
    added("<C>", special=True),
    added("<w>", single_word=True, lstrip=True),
]
# Weir prints a control token as it is named, tokenizers as it is normalised: this one is the same.
CONTROL = added("<|7|>", normalized=True, single_word=True, special=True)
WORD_PARTS = [
    "<w>",
    "mask",
    "mas",
    "masks",
    "\u0451\u0436",
    "<l>",
    "<r>",
    "<lr>",
    "<b>",
    " <q>",
    "<c>",
    "the",
    "them",
]
NORMAL_PARTS = [
    "MaSK",
    "mask",
    "MASK",
    "\uff2d\uff21\uff33\uff2b",
    "<N>",
    "<n>",
    "\ufb01N",
    "fin",
    "FIN",
    "\u0418\u0306x",
    "\u0439x",
    "\u0438\u0306",
    "\u0419X",
    "<R>",
    "<r>",
    "<C>",
    "<c>",
    "<w>",
    "<|7|>",
]

STEPS = {
    "words": None,
    "nfkc_lower": lambda: n.Sequence([n.NFKC(), n.Lowercase()]),
    "lower_nfd": lambda: n.Sequence([n.Lowercase(), n.NFD()]),
    "nmt_accents": lambda: n.Sequence([n.Nmt(), n.NFD(), n.StripAccents(), n.Lowercase()]),
    "accents_nfkd": lambda: n.Sequence([n.StripAccents(), n.NFKD()]),
    "nested": lambda: n.Sequence(
        [n.Strip(), n.Sequence([n.NFKD(), n.NFC()]), n.Replace("  ", " "), n.Prepend("_")]
    ),
    "pieces_nfkc": lambda: n.Sequence([n.NFKC(), n.Prepend(SPACE), n.Replace(" ", SPACE)]),
    "unigram_nmt": lambda: n.Sequence(
        [n.Nmt(), n.NFKC(), n.Strip(left=False, right=True), n.Replace(Regex(" {2,}"), SPACE)]
    ),
}


def unigram(sentences):
    """The most frequent parts of words: the trainer of tokenizers gives others on every run."""
    counts = collections.Counter()
    for word in (SPACE + w for s in sentences for w in s.split(" ") if w):
        counts.update(word[i : i + k] for k in range(1, 6) for i in range(len(word) - k + 1))
    best = sorted(counts.items(), key=lambda c: (len(c[0]) > 1, -c[1] * len(c[0]), c[0]))[:700]
    total = sum(counts.values())
    return [("<unk>", 0.0)] + [(p, round(math.log(c / total) / len(p) ** 0.5, 4)) for p, c in best]


def train(name, rng, sentences):
    rng.shuffle(sentences)
    quiet = dict(show_progress=False)
    if name == "unigram_nmt":
        tk = Tokenizer(models.Unigram(unigram(sentences), 0))
        tk.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        tk.decoder = decoders.Metaspace(prepend_scheme="always")
        trainer = None
    elif name == "pieces_nfkc":
        tk = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        tk.decoder = decoders.Sequence(
            [
                decoders.Replace(SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        specials = ["<unk>"] + ["<0x%02X>" % b for b in range(256)]
        trainer = trainers.BpeTrainer(
            vocab_size=800, special_tokens=specials, max_token_length=12, **quiet
        )
    else:
        tk = Tokenizer(models.BPE())
        tk.pre_tokenizer = text.bl(True)
        tk.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **quiet
        )
    if STEPS[name]:
        tk.normalizer = STEPS[name]()
    if trainer:
        tk.train_from_iterator(sentences, trainer)
    root = json.loads(tk.to_str())
    root["added_tokens"] = [t for t in root["added_tokens"] if not t["content"].startswith("<0x")]
    tk = Tokenizer.from_str(json.dumps(root))
    prepends = name in ("nested", "pieces_nfkc")
    tk.add_tokens(WORDS if name == "words" else NORMAL if prepends else NORMAL + [CONTROL])
    js = json.dumps(json.loads(tk.to_str()), ensure_ascii=False, separators=(",", ":"))
    return js, Tokenizer.from_str(js)


# Characters that were in Unicode 9: the tables of tokenizers' normal forms are that old.
RANGES = [
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x2B0, 0x2FF),
    (0x300, 0x34F),
    (0x370, 0x377),
    (0x386, 0x386),
    (0x391, 0x3A1),
    (0x3A3, 0x3FF),
    (0x400, 0x45F),
    (0x5D0, 0x5EA),
    (0x621, 0x652),
    (0x904, 0x94D),
    (0x995, 0x9A8),
    (0x9BE, 0x9C4),
    (0xE01, 0xE3A),
    (0xF71, 0xF7D),
    (0x1100, 0x1112),
    (0x1161, 0x1175),
    (0x11A8, 0x11C2),
    (0x1E00, 0x1EFF),
    (0x2000, 0x2064),
    (0x2070, 0x2071),
    (0x2074, 0x208E),
    (0x20A0, 0x20BE),
    (0x2100, 0x2189),
    (0x2460, 0x24FF),
    (0x3000, 0x303F),
    (0x3041, 0x3096),
    (0x30A1, 0x30FF),
    (0x3131, 0x318E),
    (0x3220, 0x32FE),
    (0x3300, 0x33FF),
    (0x4E00, 0x4E80),
    (0xAC00, 0xAC40),
    (0xF900, 0xFA6D),
    (0xFB00, 0xFB06),
    (0xFDF0, 0xFDFC),
    (0xFE30, 0xFE4F),
    (0xFF01, 0xFFBE),
    (0x10400, 0x1044F),
    (0x1D15E, 0x1D164),
    (0x1D400, 0x1D454),
    (0x1F130, 0x1F16B),
    (0x1F170, 0x1F189),
    (0x1F600, 0x1F640),
]
JOINTS = [
    "",
    "",
    "",
    " ",
    " ",
    "  ",
    "\n",
    "\t",
    "_",
    "-",
    ".",
    "a",
    "Z",
    "7",
    "\u00e9",
    "e\u0301",
    "\u0301",
    "\u4f60",
    "\u24d0",
    "\u216b",
    "\u00b2",
    "\u203f",
    "\u200d",
    "\u200b",
    "\u0660",
    "\U0001f130",
    "\U0001f600",
    "\u3000",
    "\u00a0",
    "\ufeff",
    "\x01",
    "\u0130",
    "\u03a3",
    "\ufdfa",
    "\u00a8",
    "\u093e",
    "\u20dd",
    SPACE,
]
FIXED = [
    "",
    " ",
    "\n",
    "a",
    "\u0130stanbul \u0130",
    "\u039f\u0394\u039f\u03a3 \u03a3",
    "\u01c5\u01c4",
    "\u1e9e\u00df",
    "\ufdfa",
    "\u212b\u2126\u212a",
    "\u1e9b\u0323",
    "\u1100\u1161\u11a8",
    "\u0f73\u0f71\u0f74",
    "e\u0301\u0323",
    "\x00\x01\x1f\x7f\x8f\x9f\ufffd",
    "\u200e\u2028\u2029\u1680",
    " " * 40,
    "\u0301" * 20,
    "<w>",
    "<w><w>",
    "a<w>",
    "<w>a",
    "<w> <w>",
    "\u4f60<w>",
    "<w>\u0301",
    "mask",
    "masks",
    "mask mask",
    "mask.mas",
    "<b>  <q>",
    "<b>   ",
    "<lr> \n <lr>",
    " the  the ",
    "<l> <l>",
    "<r>  a",
    "x<lr>  <q>",
    "<b> <q> <q>",
]


def strings(rng, count):
    out = list(FIXED)
    words = [w for s in text.SENT for w in s.split(" ") if w and all(ord(c) < 0x10000 for c in w)]

    def character():
        return chr(rng.randint(*rng.choice(RANGES)))

    while len(out) < count:
        parts = []
        for _ in range(rng.randint(2, 7)):
            parts.append(
                rng.choice(
                    [
                        rng.choice(WORD_PARTS),
                        rng.choice(NORMAL_PARTS),
                        rng.choice(words),
                        character(),
                        character() + character(),
                    ]
                )
            )
            parts.append(rng.choice(JOINTS))
        out.append("".join(parts))
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=HERE)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--n", type=int, default=500)
    a = ap.parse_args()
    rng = random.Random(a.seed)
    os.makedirs(os.path.join(a.out, "tok"), exist_ok=True)
    samples = strings(rng, a.n)
    text.dump(
        os.path.join(a.out, "strings.jsonl"), [{"i": i, "s": s} for i, s in enumerate(samples)]
    )
    for name in STEPS:
        js, tk = train(name, rng, list(text.SENT) * 2)
        stem = os.path.join(a.out, "tok", name)
        with open(stem + ".tokenizer.json", "w", encoding="utf-8", newline="\n") as f:
            f.write(js + "\n")
        rows = []
        for i, s in enumerate(samples):
            ids = tk.encode(s, add_special_tokens=False).ids
            row = {"i": i, "ids": ids, "d": tk.decode(ids, skip_special_tokens=False)}
            skipped = tk.decode(ids, skip_special_tokens=True)
            if skipped != row["d"]:
                row["ds"] = skipped
            rows.append(row)
        text.dump(stem + ".ids.jsonl", rows)
        print(name, len(rows))


if __name__ == "__main__":
    main()
