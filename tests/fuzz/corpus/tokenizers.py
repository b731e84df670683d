"""Seeds of the targets that read tokenizers, their pieces and text."""

import json
import struct

from containers import write


QWEN = (
    r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer(name, merges, **sections):
    vocab = {c: i for i, c in enumerate("abchtes\u0120\u010a1<|x>")}
    for merge in merges:
        vocab.setdefault("".join(merge.split(" ") if isinstance(merge, str) else merge), len(vocab))
    root = {
        "added_tokens": [
            {"id": 200, "content": "<|x|>", "special": True},
            {"id": 201, "content": "\u00e9", "normalized": True},
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        "bos_token": "<|x|>",
        "eos_token": {"content": "a"},
        **sections,
    }
    write("tokenizer", name, json.dumps(root, ensure_ascii=False, separators=(",", ":")).encode())


def split(pattern, behavior="Isolated", kind="Regex", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {
        "type": "Sequence",
        "pretokenizers": [
            *steps,
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
    }


def pieces(name, flags, charsmap, entries, sample):
    out = struct.pack("<BH", flags, len(charsmap)) + charsmap + bytes([len(entries)])
    for kind, score, piece in entries:
        out += bytes([kind, score, len(piece.encode())]) + piece.encode()
    write("pieces", name, out + sample.encode())


def write_all():
    tokenizer("strings", ["t h", "th e", "a b"])
    tokenizer(
        "pairs",
        [["t", "h"], ["th", "e"], ["\u0120", "the"]],
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    )
    tokenizer(
        "regex",
        [["a", "b"]],
        normalizer={"type": "NFC"},
        pre_tokenizer=sequence(split(QWEN)),
        add_bos_token=True,
    )
    tokenizer(
        "steps",
        [],
        pre_tokenizer=sequence(
            {"type": "Digits", "individual_digits": True},
            split(r"\s+$"),
            split(" ", kind="String"),
            split(r"[\u4e00-\x{9fa5}]+|\p{Han}.", behavior="Removed", invert=True),
        ),
    )
    tokenizer(
        "post",
        [],
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|x|>"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<|x|>": {"ids": [200]}},
        },
    )
    tokenizer(
        "config",
        [],
        added_tokens_decoder={"202": {"content": "<y>", "special": False}},
        chat_template=[{"name": "default", "template": "{{x}}"}],
    )

    forms = ["Nmt", "NFD", "StripAccents", "NFKC", "Lowercase", "NFKD", "NFC"]
    tokenizer(
        "normal",
        ["a b"],
        normalizer={
            "type": "Sequence",
            "normalizers": [
                {"type": "Sequence", "normalizers": [{"type": t} for t in forms]},
                {"type": "Strip", "strip_left": True, "strip_right": False},
                {"type": "Replace", "pattern": {"String": "na"}, "content": "xx"},
                {"type": "Prepend", "prepend": "_"},
            ],
        },
        added_tokens=[
            {"id": 200, "content": "<|x|>", "special": True, "single_word": True, "rstrip": True},
            {"id": 201, "content": "IT", "normalized": True, "single_word": True},
            {"id": 202, "content": "\u00c9", "normalized": True, "lstrip": True},
            {"id": 203, "content": "End", "normalized": True, "special": True},
        ],
    )

    symbol = "\u2581"
    space_steps = {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": symbol},
                {"type": "Replace", "pattern": {"String": " "}, "content": symbol},
            ],
        },
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": symbol}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    }
    metaspace = {"type": "Metaspace", "replacement": symbol, "prepend_scheme": "first"}
    fallback = {"a": 0, "b": 1, "ab": 2, symbol: 3, "<unk>": 4}
    fallback |= {f"<0x{b:02X}>": 5 + b for b in range(256)}
    tokenizer(
        "fallback",
        [],
        model={
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": fallback,
            "merges": ["a b"],
        },
        **space_steps,
    )
    tokenizer(
        "unigram",
        [],
        model={
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [["<unk>", 0], [symbol, -2.5], ["a", -3], ["en", -4], [symbol + "e", -1]],
        },
        normalizer={
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhAA=="},
                {"type": "Strip", "strip_left": True, "strip_right": True},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": symbol},
            ],
        },
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        decoder=metaspace,
        added_tokens=[],
        bos_token=None,
        eos_token=None,
    )

    units = [0] * 768  # one key: "x", which becomes "ab"
    units[0], units[256 ^ 0x78] = 256 << 10, ((256 ^ 0x78) ^ 512) << 10 | 256 | 0x78
    units[512] = 1 << 31
    mapped = struct.pack("<I768I", 4 * 768, *units) + b"ab\0"
    letters = [(1, 40, c) for c in "abct" + symbol]
    words = [(1, 4, "ab"), (1, 4, "bc"), (1, 6, "abc"), (4, 0, symbol * 2), (4, 0, "<u>")]
    for name, flags in (("scores", 12), ("unigram", 9), ("ranks", 6), ("squeeze", 28)):
        pieces(name, flags, b"", letters + words, "abcab  ab <s><u> \u00e9\u4f60 <u>abc ")
    pieces("charsmap", 4, mapped, letters + words, "xxab cx <u>x")
    unused = letters + [(5, 1, "ab"), (1, 2, "abc"), (5, 3, "abca")]
    pieces("unused", 4, b"", unused, "abcababca ab")
    pieces("unknown", 16, b"", letters, "  abz\u00e9\u00e9z  a ")

    write("text", "prose", b"\0\x04The river weir's 1234 the\xc3\xa9 aaaa  \r\n\n <|x|> end ")
    write(
        "text",
        "marks",
        b"\1\x09e\xcc\x81\xcc\xa3 \xe1\x84\x80\xe1\x85\xa1 "
        b"<|x|>\xcc\xb8 \xe0\xbd\xb3\xe0\xbd\xb1",
    )
    write(
        "text",
        "forms",
        "\1\x09\ufdfa\u1e9b\u0323\u0130\uff76\uff9e\u0f73\u0f71\u1100\u1161\u11a8\u09c7\u09be"
        "\U00011935\U00011930\u00a8\u0301\u2581\x8f\ufeff\u212b\u24b6".encode(),
    )
    write(
        "text",
        "broken",
        b"\2\x01\xff\xc3\xe2\x82\xed\xa0\x80\xf0\x9f\x98\x80\x00\xf4\x90 <|x\xff|>",
    )
    write(
        "text",
        "spaces",
        b"\7\x20 \t\xe3\x80\x80\xe1\xa0\x8e\xc2\x85\n \n  x \xe2\x80\xa8 "
        b"\xe4\xbd\xa0\xe5\xa5\xbd 12",
    )
    write(
        "text",
        "code",
        b"\6\x00if (x) {\n\treturn a->b[0];\n}\n/* UPPERlower CamelCase */ 3.14 'S 're",
    )
