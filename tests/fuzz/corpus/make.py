"""Writes the seed inputs of the fuzz targets: small files that reach every branch of the readers.
Run in this folder.
"""

import json

import answers
import hubs
import load_replies
import responses
import states
import tokenizers
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
# A row of one block of each type of ggml_types with blocks.
blocks = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84)}
blocks |= {11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66)}
blocks |= {17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110)}
blocks |= {22: (256, 82), 23: (256, 136), 29: (256, 56), 34: (256, 54), 35: (256, 66)}
blocks |= {39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18)}
write(
    "gguf",
    "blocks",
    gguf([architecture], [(f"t{kind}", [n, 1], kind, size) for kind, (n, size) in blocks.items()]),
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
write(
    "router",
    "query",
    b"\x00GET /slots?model=a%2Fb&x=1&model=&y=%zz HTTP/1.1\r\nHost: a\r\nX-Api-Key:k\r\n\r\n",
)
write(
    "router",
    "sized",
    b"\x06" + json_head + b"Content-Encoding:identity\r\nX-Request-Id:r\r\nContent-Length: 79"
    b"\r\n\r\n "
    b'{"a":[{"model":"n"},"]}"],"b\\u0041":{"c":"\\\\\\",\\""} , "model" : "a\\/\\u0062\\n"}',
)
write(
    "router",
    "chunks",
    b"\x02" + json_head + b"Authorization: Bearer k\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5;a=b\r\n{"mod\r\n6\r\nel":"b\r\n1\r\n"\r\n0\r\n\r\n',
)
write(
    "router",
    "long",
    b"\x05GET /?model=" + b"m" * 140 + b" HTTP/1.0\r\n\r\n" + b'{"model":"' + b"m" * 140 + b'"}',
)
write("router", "body", b'\x01{"models":1,"model":"\\ud83d\\ude00"}')
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

answers.write_all()
hubs.write_all()
load_replies.write_all()
responses.write_all()
states.write_all()
tokenizers.write_all()
