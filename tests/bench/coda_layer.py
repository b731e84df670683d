"""A model of one layer with random weights, as coda.py and peer_coda.py measure it: speed hardly
depends on the values. Standard library only.
"""

import array
import json
import os
import random
import struct
import subprocess
import sys

VOCABULARY, HIDDEN = 32, 16  # the rest of the model: 16 hidden units, few logits
PATTERN = 1048583  # values that repeat; prime, so that no two rows of a matrix are alike
MIXERS = {"coda": "coda", "differential": "differential_attention", "attention": "attention"}

_drawn = array.array("f")


def _pattern():
    if not _drawn:
        rng = random.Random(1)
        _drawn.extend(rng.uniform(-1, 1) for _ in range(PATTERN))
    return _drawn


def _coded(values, dtype):
    raw = array.array("f", values).tobytes()
    if dtype == "f32":
        return raw
    if dtype == "f16":
        return struct.pack("<%de" % len(values), *values)
    return array.array("H", array.array("H", raw)[1::2]).tobytes()  # bf16 by truncation


def parse_shape(text):
    parts = tuple(int(x) for x in text.split("/")) if text.replace("/", "").isdigit() else ()
    if len(parts) != 4 or parts[1] * parts[3] != parts[0] or parts[1] % parts[2] != 0:
        sys.exit(f"{text} is no WIDTH/HEADS/KV_HEADS/HEAD_DIM with WIDTH = HEADS * HEAD_DIM")
    return parts


def matrices(shape):
    """Names and sizes of all weights: those of the layer, then those of the rest."""
    width, heads, kv_heads, head_dim = shape
    at = "model.layers.0."
    of_layer = {
        at + "self_attn.q_proj.weight": (width, width),
        at + "self_attn.k_proj.weight": (kv_heads * head_dim, width),
        at + "self_attn.v_proj.weight": (kv_heads * head_dim, width),
        at + "self_attn.o_proj.weight": (width, width),
        at + "self_attn.lambda_proj.weight": (heads, width),
        at + "self_attn.write_proj.weight": (1, width),
    }
    others = {
        "model.embed_tokens.weight": (VOCABULARY, width),
        "model.norm.weight": (width,),
        at + "input_layernorm.weight": (width,),
        at + "post_attention_layernorm.weight": (width,),
        at + "mlp.gate_proj.weight": (HIDDEN, width),
        at + "mlp.up_proj.weight": (HIDDEN, width),
        at + "mlp.down_proj.weight": (width, HIDDEN),
    }
    return of_layer, others


def write_weights(folder, shape, dtype):
    patterns, header, offset = {}, {}, 0
    size = 4 if dtype == "f32" else 2
    of_layer, others = matrices(shape)
    with open(os.path.join(folder, "data"), "wb") as data:
        for name, dims in {**of_layer, **others}.items():
            if dims[-1] not in patterns:
                patterns[dims[-1]] = _coded([x * dims[-1] ** -0.5 for x in _pattern()], dtype)
            count = dims[0] if len(dims) == 1 else dims[0] * dims[1]
            if len(dims) == 1:
                raw = _coded([1.0] * count, dtype)
            elif "write_proj" in name:
                raw = bytes(count * size)  # as a new layer has it: the gate is its bias
            else:
                raw = (patterns[dims[-1]] * (count // PATTERN + 1))[: count * size]
            header[name] = {
                "dtype": dtype.upper(),
                "shape": list(dims),
                "data_offsets": [offset, offset + len(raw)],
            }
            offset += len(raw)
            data.write(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file, open(
        os.path.join(folder, "data"), "rb"
    ) as data:
        file.write(struct.pack("<Q", len(text)) + text)
        while block := data.read(1 << 24):
            file.write(block)
    os.remove(os.path.join(folder, "data"))


def write_model(folder, shape, dtype):
    """Weights and config.json; the mixer is said by an arch file."""
    width, heads, kv_heads, head_dim = shape
    os.makedirs(folder, exist_ok=True)
    write_weights(folder, shape, dtype)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(
            {
                "model_type": "one_layer",
                "hidden_size": width,
                "num_hidden_layers": 1,
                "num_attention_heads": heads,
                "num_key_value_heads": kv_heads,
                "head_dim": head_dim,
                "intermediate_size": HIDDEN,
                "rms_norm_eps": 1e-6,
                "max_position_embeddings": 1 << 20,
                "rope_theta": 10000,
                "vocab_size": VOCABULARY,
                "tie_word_embeddings": True,
            },
            file,
        )


def write_arch(folder, llama, mixer, banks=(), block=256):
    """An arch file from that of Llama; banks: window, exact and summary landmarks of `coda`."""
    os.makedirs(folder, exist_ok=True)
    with open(llama) as file:
        arch = file.read()
    options = f'[block.layer]\nmixer = "{MIXERS[mixer]}"\nrope = "pairs"\n'
    tensors = {}
    skipped = []
    if mixer == "coda":
        options += (
            "window = %d\nlandmarks_exact = %d\nlandmarks_summary = %d\n" % tuple(banks)
            + f"block_rows = {block}\n"
        )
        tensors["coda.write"] = "write_proj.weight"
    else:
        skipped.append("write_proj.weight")
    if mixer == "attention":
        skipped.append("lambda_proj.weight")
    else:
        tensors["coda.lambda"] = "lambda_proj.weight"
    skip = "".join(f', "model.layers.{{i}}.self_attn.{name}"' for name in skipped)
    for old, new in (
        ('name     = "llama"', 'name     = "one_layer"'),
        ('gguf = ["llama"], hf = ["llama"]', 'hf = ["one_layer"]'),
        ('pattern = ["attn"]', 'pattern = ["layer"]'),
        ('rotary_emb."]', f'rotary_emb."{skip}]'),
        ("[ffn]", options + "\n[ffn]"),
    ):
        if old not in arch:
            sys.exit(f"{llama} has no {old}")
        arch = arch.replace(old, new)
    for name, tensor in tensors.items():
        arch += f'"{name}" = {{ hf = "layers.{{i}}.self_attn.{tensor}", optional = true }}\n'
    with open(os.path.join(folder, "one_layer.toml"), "w") as file:
        file.write(arch)


def run_bench(weir, model, archs, arguments):
    """The report of `weir bench`."""
    command = [weir, "bench", "--model", model, "--arch-dir", archs, "--json"] + [
        str(x) for x in arguments
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(" ".join(command) + "\n" + run.stderr)
    return json.loads(run.stdout)
