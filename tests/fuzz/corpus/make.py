"""Writes the seed inputs of the fuzz targets: small files that reach every branch of the readers.
Run in this folder.
"""

import json
import struct

import load_replies
from containers import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    gguf,
    safetensors,
    text,
    write,
)

architecture = ("general.architecture", STRING, "qwen35")
numbers = [
    (f"n.{k}", k, x)
    for k, x in (
        (U8, 200),
        (I8, -3),
        (U16, 60000),
        (I16, -2),
        (U32, 7),
        (I32, -1),
        (F32, 1.5),
        (BOOL, 1),
        (U64, 1 << 62),
        (I64, -5),
        (F64, 2.5),
    )
]
arrays = [
    ("a.int", ARRAY, (I32, [11, 11, 10, 0])),
    ("a.bool", ARRAY, (BOOL, [0, 1, 1])),
    ("a.u64", ARRAY, (U64, [1, 2])),
    ("a.text", ARRAY, (STRING, ["a", "", "bc"])),
    ("a.empty", ARRAY, (STRING, [])),
    ("a.nested", ARRAY, (ARRAY, [(I32, [1, 2]), (ARRAY, [(STRING, ["x"])])])),
]
write("gguf", "empty", gguf([], []))
write("gguf", "numbers", gguf([architecture] + numbers, []))
write("gguf", "arrays", gguf([architecture] + arrays, []))
write(
    "gguf",
    "tensors",
    gguf(
        [architecture],
        [
            ("token_embd.weight", [32, 3], 8, 102),
            ("norm", [5], 0, 20),
            ("e", [4, 2, 3], 1, 48),
            ("blk.0.attn_q.weight", [256, 1], 12, 144),
            ("four", [2, 2, 2, 2], 30, 32),
        ],
    ),
)
write(
    "gguf",
    "aligned",
    gguf(
        [architecture, ("general.alignment", U32, 64)],
        [("a", [7], 24, 7), ("b", [3], 24, 3)],
        alignment=64,
    ),
)
write(
    "gguf",
    "split",
    gguf(
        [("split.no", U16, 1), ("split.count", U16, 3), ("split.tensors.count", I32, 9)],
        [("a", [8], 0, 32)],
    ),
)
write("gguf", "version2", gguf([architecture], [("a", [8], 0, 32)], version=2))

write("safetensors", "empty", safetensors([]))
write("safetensors", "one", safetensors([("a.weight", "F32", [2, 3], 24)]))
write(
    "safetensors",
    "many",
    safetensors(
        [
            (f"t.{d}", d, [2, 2], 4 * s)
            for d, s in (
                ("F64", 8),
                ("F32", 4),
                ("F16", 2),
                ("BF16", 2),
                ("I64", 8),
                ("I32", 4),
                ("I16", 2),
                ("I8", 1),
                ("U8", 1),
                ("BOOL", 1),
                ("F8_E4M3", 1),
                ("F8_E5M2", 1),
                ("U16", 2),
                ("U32", 4),
                ("U64", 8),
            )
        ],
        {"format": "pt"},
        7,
    ),
)
write(
    "safetensors",
    "shapes",
    safetensors(
        [
            ("scalar", "F32", [], 4),
            ("five", "BF16", [1, 2, 1, 2, 1], 8),
            ("one", "U8", [1], 1),
            ("none", "F32", [0, 4], 0),
        ]
    ),
)

config = {
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "eos_token_id": [1, 2],
    "x": None,
    "text_config": {
        "hidden_size": 64,
        "layer_types": ["linear_attention", "full_attention"],
        "eps": 1e-6,
        "rope_parameters": {"rope_theta": 1e4, "sections": [2, 1, 1]},
        "mixed": [1, 2.5, None, "s", {"k": []}],
    },
}
write("json", "config", json.dumps(config, indent=1).encode())
write(
    "json",
    "escapes",
    (
        '{"a\\u00e9\\n": "\\ud83d\\ude00 \\u0000 \\"\\\\", '
        '"é": [-0, 1e-3, 123456789012345678]}'
    ).encode(),
)
write("json", "nested", b"[" * 63 + b"{}" + b"]" * 63)
write("json", "scalar", b" true\n")
write(
    "json",
    "index",
    json.dumps(
        {"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    ).encode(),
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


QWEN = (
    r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
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


def pieces(name, flags, charsmap, entries, sample):
    out = struct.pack("<BH", flags, len(charsmap)) + charsmap + bytes([len(entries)])
    for kind, score, piece in entries:
        out += bytes([kind, score, len(piece.encode())]) + piece.encode()
    write("pieces", name, out + sample.encode())


units = [0] * 768  # one key: "x", which becomes "ab"
units[0], units[256 ^ 0x78] = 256 << 10, ((256 ^ 0x78) ^ 512) << 10 | 256 | 0x78
units[512] = 1 << 31
mapped = struct.pack("<I768I", 4 * 768, *units) + b"ab\0"
letters = [(1, 40, c) for c in "abct" + symbol]
words = [(1, 4, "ab"), (1, 4, "bc"), (1, 6, "abc"), (4, 0, symbol * 2), (4, 0, "<u>")]
for name, flags in (("scores", 12), ("unigram", 9), ("ranks", 6), ("squeeze", 28)):
    pieces(name, flags, b"", letters + words, "abcab  ab <s><u> \u00e9\u4f60 <u>abc ")
pieces("charsmap", 4, mapped, letters + words, "xxab cx <u>x")
pieces("unused", 4, b"", letters + [(5, 1, "ab"), (1, 2, "abc"), (5, 3, "abca")], "abcababca ab")
pieces("unknown", 16, b"", letters, "  abz\u00e9\u00e9z  a ")

write("text", "prose", b"\0\x04The river weir's 1234 the\xc3\xa9 aaaa  \r\n\n <|x|> end ")
write(
    "text",
    "marks",
    b"\1\x09e\xcc\x81\xcc\xa3 \xe1\x84\x80\xe1\x85\xa1 <|x|>\xcc\xb8 \xe0\xbd\xb3\xe0\xbd\xb1",
)
write("text", "broken", b"\2\x01\xff\xc3\xe2\x82\xed\xa0\x80\xf0\x9f\x98\x80\x00\xf4\x90 <|x\xff|>")
write(
    "text",
    "spaces",
    b"\7\x20 \t\xe3\x80\x80\xe1\xa0\x8e\xc2\x85\n \n  x \xe2\x80\xa8 \xe4\xbd\xa0\xe5\xa5\xbd 12",
)
write(
    "text", "code", b"\6\x00if (x) {\n\treturn a->b[0];\n}\n/* UPPERlower CamelCase */ 3.14 'S 're"
)


def statistics(layers, heads, kv_heads, dim, bands, added, theta=10000.0, magnitude=1.0):
    """TRIA version 2, with what Weir adds or without; checksums are put right by the target."""
    extra = struct.pack("<QQQII", 1, 2, 30, 1, 2 * bands) + struct.pack(
        f"<{bands}f", *[theta ** (-i / bands) for i in range(bands)]
    )
    extra += struct.pack(
        f"<{layers * heads * (dim - 2 * bands)}f", *[0.25] * (layers * heads * (dim - 2 * bands))
    ) + bytes(8)
    out = struct.pack("<7I2f", 0x54524941, 2, layers, heads, kv_heads, dim, bands, theta, magnitude)
    out += (struct.pack("<III", 0x52494557, 1, len(extra)) if added else b"").ljust(
        28, b"\0"
    ) + struct.pack(f"<{layers}f", *[1] * layers)
    for i in range(layers * heads):
        for x in (0.5, -0.25, 0.75, 0.745):
            out += struct.pack(f"<{bands}f", *[x * (1 + i / 8)] * bands)
    return out + (extra if added else b"")


write("calibration", "weir", statistics(2, 2, 1, 8, 3, True))
write("calibration", "all-rotated", statistics(1, 4, 2, 4, 2, True))
write("calibration", "plain", statistics(1, 2, 2, 4, 2, False, magnitude=0.0))
write("calibration", "header", statistics(1, 1, 1, 2, 1, True)[:64])


def state(position, observed, layers):
    """A saved state of the policies of policy_state_fuzz.c: two layers; digest and checksum are put
    right by the target.
    """
    return (
        struct.pack("<II16xqqq", 0x4C4F5057, 1, 3, position, observed) + b"".join(layers) + bytes(8)
    )


rows = [
    struct.pack("<q", 4) + struct.pack("<8f", *[0.5, 0.25, 0, 1, 0, 1, 2, 3]),
    struct.pack("<q", 0),
]
write("policy_state", "heavy-hitters", state(9, 9, rows))
write(
    "policy_state",
    "queries",
    state(9, 2, [struct.pack("<q", 0) + struct.pack("<16f", *[0.5] * 16)] * 2),
)
write(
    "policy_state",
    "full-ring",
    state(9, 9, [struct.pack("<q", 0) + struct.pack("<24f", *[-1.5] * 24)] * 2),
)
write(
    "policy_state", "sums", state(9, 9, [struct.pack("<q", 0) + struct.pack("<9d", *[2.5] * 9)] * 2)
)


def state_record(kind, serial, dim, name="", label="", metadata="", vector=None):
    """Without its checksum, which the target puts right."""
    out = struct.pack("<IIQq", 0x52545357, kind, serial, 1790000000)
    if kind == 1:
        out += struct.pack("<qq4QII", 100, 20480, 1, 2, 3, 4, vector is not None, len(metadata))
        out += name.encode().ljust(64, b"\0") + label.encode().ljust(256, b"\0")
        out += struct.pack("<QQ", 7, 8)
    out = (
        out.ljust(512, b"\0")
        + metadata.encode().ljust(1024, b"\0")
        + struct.pack(f"<{dim}f", *(vector or [0] * dim))
    )
    return out.ljust((len(out) + 8 + 63) // 64 * 64, b"\0")


def state_log(dim, records):
    size = (1536 + 4 * dim + 8 + 63) // 64 * 64
    out = (
        b"WEIRSTAT"
        + struct.pack("<4I5Q", 3, 512, size, dim, 77, 5, 6, 1790000000, 1)
        + b"mean_hidden"
    )
    return out.ljust(512, b"\0") + b"".join(records)


write("state_log", "empty", state_log(4, []))
write(
    "state_log",
    "two",
    state_log(
        2,
        [
            state_record(1, 1, 2, "paper", "Paper", '{"a": 1}', [1.0, 2.0]),
            state_record(1, 2, 2, "note", "Note"),
        ],
    ),
)
write(
    "state_log",
    "removed",
    state_log(
        1,
        [
            state_record(1, 3, 1, "paper-2", "Paper", vector=[-1.0]),
            state_record(2, 3, 1),
            state_record(2, 9, 1),
            state_record(1, 9, 1, "b", "b"),
        ],
    ),
)
write(
    "state_log",
    "torn",
    state_log(0, [state_record(1, 1, 0, "a", "a"), state_record(1, 2, 0, "b", "b")[:700]]),
)
write(
    "state_log",
    "damaged",
    state_log(
        0,
        [
            state_record(1, 1, 0, "a", "a"),
            state_record(1, 2, 0, "B", "b"),
            state_record(1, 3, 0, "c", "c"),
        ],
    ),
)

json_head = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\n"
    b"Content-Type: application/json\r\n"
)
write(
    "http",
    "get",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n",
)
write(
    "http",
    "sized",
    json_head + b"Authorization: Bearer k\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}",
)
write(
    "http",
    "chunks",
    json_head
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\nX-Sum: 1\r\n\r\nGET / "
      b"HTTP/1.1\r\n",
)
write(
    "http",
    "page",
    b"GET / HTTP/1.0\r\nOrigin: null\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: "
    b"navigate\r\nConnection: keep-alive, close\r\n\r\n",
)
for model in ("tq", "llama3", "mistral", "qwen2", "qwen3"):
    with open(f"../../golden/models/{model}/config.json", "rb") as file:
        write("config", model, file.read())
write(
    "config",
    "yarn",
    json.dumps(
        {
            "model_type": "qwen3",
            "text_config": {"hidden_size": 64, "num_hidden_layers": 2, "head_dim": 32},
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 96,
            "max_position_embeddings": 4096,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 1024,
                "beta_fast": 32,
                "beta_slow": 1,
                "attention_factor": 1.1,
            },
        }
    ).encode(),
)
write(
    "config",
    "linear",
    json.dumps(
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": [2, 1],
            "intermediate_size": 96,
            "max_position_embeddings": 4096,
            "rope_scaling": {"type": "linear", "factor": 2},
        }
    ).encode(),
)

write(
    "tokenizer_config",
    "tokens",
    json.dumps(
        {
            "bos_token": "<|x|>",
            "eos_token": {"content": "a", "special": True},
            "add_bos_token": True,
            "added_tokens_decoder": {"202": {"content": "<y>", "special": True, "lstrip": False}},
            "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
        }
    ).encode(),
)
write(
    "tokenizer_config",
    "templates",
    json.dumps(
        {
            "bos_token": None,
            "eos_token": "b",
            "added_tokens_decoder": {"4": {"content": "x"}},
            "chat_template": [
                {"name": "tool_use", "template": "{{x}}"},
                {"name": "default", "template": [{"name": "default", "template": "{{y}}"}]},
            ],
        }
    ).encode(),
)

load_replies.write_all()
