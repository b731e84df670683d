#!/usr/bin/env python3
"""Writes a Qwen3.5 GGUF of real shape with random weights, or a mixture of experts, or Gemma 3,
whose layers have windows: speed does not depend on the values. Standard library only.

usage: random_model.py OUT.gguf [--size 0.8B|2B|4B|3B-A0.6B|0.2B-A0.04B|KV-256K|gemma3-1B]
                       [--type q8_0|q4_0|bf16|f16] [--vocab N]

KV-256K: dense, with few weights and 256 KiB of KV a token in f16.
"""

import argparse
import random
import struct

SIZES = {  # hidden, layers, query heads, KV heads, linear V heads, FFN
    "0.8B": (1024, 24, 8, 2, 16, 3584),
    "2B": (2048, 24, 8, 2, 16, 6144),
    "4B": (2560, 32, 16, 4, 32, 9216),
}
# Mixtures, as Qwen3 with experts: hidden, layers, query heads, KV heads, experts, used, their FFN
MIXTURES = {
    "3B-A0.6B": (1024, 24, 16, 4, 64, 8, 512),
    "0.2B-A0.04B": (512, 8, 4, 2, 32, 4, 512),
}
# As Qwen3: hidden, layers, query heads, KV heads, FFN
DENSE = {"KV-256K": (256, 8, 64, 64, 512)}
# As Gemma 3: hidden, layers, query heads, KV heads, FFN, window
WINDOWED = {"gemma3-1B": (1152, 26, 4, 1, 6912, 512)}
QWEN3_HEAD = 128  # also of mixtures
HEAD, K_HEADS, LINEAR_DIM, TAPS, ROTARY = 256, 16, 128, 4, 64
TYPES = {
    "f32": (0, 1, 4),
    "f16": (1, 1, 2),
    "q4_0": (2, 32, 18),
    "q8_0": (8, 32, 34),
    "bf16": (30, 1, 2),
}  # number, elements, bytes
ALIGNMENT = 32
rng = random.Random(1)


def pattern(kind, columns, count=8191):
    """Bytes of `count` blocks whose values have the spread columns^-0.5, to be repeated over a
    matrix. The count is prime, so that no two rows and no two experts are the same.
    """
    spread = columns**-0.5
    if kind == "q8_0":
        return b"".join(struct.pack("<e", spread / 60) + rng.randbytes(32) for _ in range(count))
    if kind == "q4_0":
        return b"".join(struct.pack("<e", spread / 4.6) + rng.randbytes(16) for _ in range(count))
    values = [rng.gauss(0, spread) for _ in range(count)]
    if kind == "bf16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack("<%d%s" % (count, "e" if kind == "f16" else "f"), *values)


class Gguf:
    def __init__(self):
        self.meta, self.tensors = [], []

    def string(self, text):
        data = text.encode()
        return struct.pack("<Q", len(data)) + data

    def add(self, key, kind, value):
        self.meta.append(self.string(key) + struct.pack("<I", kind) + value)

    def u32(self, key, value):
        self.add(key, 4, struct.pack("<I", value))

    def f32(self, key, value):
        self.add(key, 6, struct.pack("<f", value))

    def text(self, key, value):
        self.add(key, 8, self.string(value))

    def array(self, key, kind, items):
        self.add(key, 9, struct.pack("<IQ", kind, len(items)) + b"".join(items))

    def matrix(self, name, rows, columns, kind):
        number, elements, size = TYPES[kind]
        self.tensors.append(
            (name, (columns, rows), number, rows * columns // elements * size, kind, columns)
        )

    def experts(self, name, count, rows, columns, kind):
        number, elements, size = TYPES[kind]
        bytes_of_all = count * rows * columns // elements * size
        self.tensors.append((name, (columns, rows, count), number, bytes_of_all, kind, columns))

    def vector(self, name, values):
        self.tensors.append(
            (
                name,
                (len(values),),
                0,
                4 * len(values),
                struct.pack("<%df" % len(values), *values),
                0,
            )
        )

    def write(self, path):
        header, offset = b"", 0
        for name, dims, number, size, _, _ in self.tensors:
            header += (
                self.string(name)
                + struct.pack("<I", len(dims))
                + struct.pack("<%dQ" % len(dims), *dims)
                + struct.pack("<IQ", number, offset)
            )
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        patterns = {}
        with open(path, "wb") as f:
            f.write(
                b"GGUF"
                + struct.pack("<IQQ", 3, len(self.tensors), len(self.meta))
                + b"".join(self.meta)
                + header
            )
            f.write(b"\0" * (-f.tell() % ALIGNMENT))
            for _, _, _, size, content, columns in self.tensors:
                if isinstance(content, str):
                    if (content, columns) not in patterns:
                        patterns[content, columns] = pattern(content, columns)
                    block = patterns[content, columns]
                    for _ in range(size // len(block)):
                        f.write(block)
                    f.write(block[: size % len(block)])
                else:
                    f.write(content)
                f.write(b"\0" * (-size % ALIGNMENT))


def alphabet():
    """The 256 characters that byte-level BPE writes bytes with, by byte."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(rest)) for b in range(256)]


def near(n, mean, spread):
    return [mean + spread * rng.gauss(0, 1) for _ in range(n)]


def numbers(g, arch, pairs):
    for key, value in pairs:
        g.u32(arch + "." + key, value)


def vocabulary(g, n_vocab, pre):
    names = alphabet() + ["[PAD%d]" % i for i in range(256, n_vocab)]
    g.text("tokenizer.ggml.model", "gpt2")
    g.text("tokenizer.ggml.pre", pre)
    g.array("tokenizer.ggml.tokens", 8, [g.string(n) for n in names])
    g.array(
        "tokenizer.ggml.token_type",
        5,
        [struct.pack("<i", 1 if i < 256 else 5) for i in range(n_vocab)],
    )
    g.array("tokenizer.ggml.merges", 8, [g.string("a b")])
    g.u32("tokenizer.ggml.eos_token_id", 255)
    g.add("tokenizer.ggml.add_bos_token", 7, b"\0")


def attention(g, p, hidden, heads, kv_heads, head, kind, gates):
    g.matrix(p + "attn_q.weight", gates * heads * head, hidden, kind)
    g.matrix(p + "attn_k.weight", kv_heads * head, hidden, kind)
    g.matrix(p + "attn_v.weight", kv_heads * head, hidden, kind)
    g.matrix(p + "attn_output.weight", hidden, heads * head, kind)
    g.vector(p + "attn_q_norm.weight", near(head, 1, 0.02))
    g.vector(p + "attn_k_norm.weight", near(head, 1, 0.02))


def qwen3(g, arch, size, shape, n_vocab, more=()):
    hidden, layers, heads, kv_heads, ffn = shape
    g.text("general.architecture", arch)
    g.text("general.name", "random weights, %s" % size)
    numbers(
        g,
        arch,
        (
            ("block_count", layers),
            ("context_length", 262144),
            ("embedding_length", hidden),
            ("feed_forward_length", ffn),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", QWEN3_HEAD),
            ("attention.value_length", QWEN3_HEAD),
            *more,
        ),
    )
    g.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-6)
    g.f32(arch + ".rope.freq_base", 1e6)
    vocabulary(g, n_vocab, "qwen2")


def qwen3_layers(g, shape, kind, n_vocab, ffn_of):
    hidden, layers, heads, kv_heads, _ = shape
    g.matrix("token_embd.weight", n_vocab, hidden, kind)
    g.vector("output_norm.weight", near(hidden, 1, 0.02))
    for i in range(layers):
        p = "blk.%d." % i
        g.vector(p + "attn_norm.weight", near(hidden, 1, 0.02))
        g.vector(p + "ffn_norm.weight", near(hidden, 1, 0.02))
        attention(g, p, hidden, heads, kv_heads, QWEN3_HEAD, kind, 1)
        ffn_of(p)


def dense(g, size, kind, n_vocab):
    hidden, _, _, _, ffn = shape = DENSE[size]

    def network(p):
        g.matrix(p + "ffn_gate.weight", ffn, hidden, kind)
        g.matrix(p + "ffn_up.weight", ffn, hidden, kind)
        g.matrix(p + "ffn_down.weight", hidden, ffn, kind)

    qwen3(g, "qwen3", size, shape, n_vocab)
    qwen3_layers(g, shape, kind, n_vocab, network)


def mixture(g, size, kind, n_vocab):
    hidden, layers, heads, kv_heads, experts, used, ffn = MIXTURES[size]
    shape = hidden, layers, heads, kv_heads, experts * ffn // used

    def network(p):
        g.matrix(p + "ffn_gate_inp.weight", experts, hidden, "f32")
        g.experts(p + "ffn_gate_exps.weight", experts, ffn, hidden, kind)
        g.experts(p + "ffn_up_exps.weight", experts, ffn, hidden, kind)
        g.experts(p + "ffn_down_exps.weight", experts, hidden, ffn, kind)

    more = (
        ("expert_count", experts),
        ("expert_used_count", used),
        ("expert_feed_forward_length", ffn),
    )
    qwen3(g, "qwen3moe", size, shape, n_vocab, more)
    qwen3_layers(g, shape, kind, n_vocab, network)


def head(g, shape, kind):
    """The draft head of Qwen3.5, behind the layers."""
    hidden, layers, heads, kv_heads, _, ffn = shape
    p = "blk.%d." % layers
    for name in ("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"):
        g.vector(p + name + ".weight", near(hidden, 1, 0.02))
    g.matrix(p + "nextn.eh_proj.weight", hidden, 2 * hidden, kind)
    g.vector(p + "attn_norm.weight", near(hidden, 1, 0.02))
    g.vector(p + "post_attention_norm.weight", near(hidden, 1, 0.02))
    attention(g, p, hidden, heads, kv_heads, HEAD, kind, 2)
    g.matrix(p + "ffn_gate.weight", ffn, hidden, kind)
    g.matrix(p + "ffn_up.weight", ffn, hidden, kind)
    g.matrix(p + "ffn_down.weight", hidden, ffn, kind)


def hybrid(g, size, kind, n_vocab, has_head):
    hidden, layers, heads, kv_heads, v_heads, ffn = SIZES[size]
    inner, channels = v_heads * LINEAR_DIM, 2 * K_HEADS * LINEAR_DIM + v_heads * LINEAR_DIM
    g.text("general.architecture", "qwen35")
    g.text("general.name", "random weights of Qwen3.5-%s's shape" % size)
    numbers(
        g,
        "qwen35",
        (
            ("block_count", layers + has_head),
            ("nextn_predict_layers", int(has_head)),
            ("context_length", 262144),
            ("embedding_length", hidden),
            ("feed_forward_length", ffn),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
            ("rope.dimension_count", ROTARY),
            ("full_attention_interval", 4),
            ("ssm.conv_kernel", TAPS),
            ("ssm.state_size", LINEAR_DIM),
            ("ssm.group_count", K_HEADS),
            ("ssm.time_step_rank", v_heads),
            ("ssm.inner_size", inner),
        ),
    )
    g.f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6)
    g.f32("qwen35.rope.freq_base", 1e7)
    g.array("qwen35.rope.dimension_sections", 5, [struct.pack("<i", n) for n in (11, 11, 10, 0)])
    vocabulary(g, n_vocab, "qwen35")
    g.matrix("token_embd.weight", n_vocab, hidden, kind)
    g.vector("output_norm.weight", near(hidden, 1, 0.02))
    for i in range(layers):
        p = "blk.%d." % i
        g.vector(p + "attn_norm.weight", near(hidden, 1, 0.02))
        g.vector(p + "post_attention_norm.weight", near(hidden, 1, 0.02))
        if (i + 1) % 4 == 0:
            attention(g, p, hidden, heads, kv_heads, HEAD, kind, 2)
        else:
            g.matrix(p + "attn_qkv.weight", channels, hidden, kind)
            g.matrix(p + "attn_gate.weight", inner, hidden, kind)
            g.matrix(p + "ssm_alpha.weight", v_heads, hidden, kind)
            g.matrix(p + "ssm_beta.weight", v_heads, hidden, kind)
            g.matrix(p + "ssm_conv1d.weight", channels, TAPS, "f32")
            g.vector(p + "ssm_a", [-(2.718281828 ** rng.uniform(-1, 1)) for _ in range(v_heads)])
            g.vector(p + "ssm_dt.bias", near(v_heads, 0, 0.5))
            g.vector(p + "ssm_norm.weight", near(LINEAR_DIM, 1, 0.02))
            g.matrix(p + "ssm_out.weight", hidden, inner, kind)
        g.matrix(p + "ffn_gate.weight", ffn, hidden, kind)
        g.matrix(p + "ffn_up.weight", ffn, hidden, kind)
        g.matrix(p + "ffn_down.weight", hidden, ffn, kind)
    if has_head:
        head(g, SIZES[size], kind)


def windowed(g, size, kind, n_vocab):
    hidden, layers, heads, kv_heads, ffn, window = WINDOWED[size]
    g.text("general.architecture", "gemma3")
    g.text("general.name", "random weights, %s" % size)
    numbers(
        g,
        "gemma3",
        (
            ("block_count", layers),
            ("context_length", 131072),
            ("embedding_length", hidden),
            ("feed_forward_length", ffn),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
            ("attention.sliding_window", window),
        ),
    )
    g.f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
    g.f32("gemma3.rope.freq_base", 1e6)
    vocabulary(g, n_vocab, "qwen2")
    g.matrix("token_embd.weight", n_vocab, hidden, kind)
    g.vector("output_norm.weight", near(hidden, 1, 0.02))
    for i in range(layers):
        p = "blk.%d." % i
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            g.vector(p + name + ".weight", near(hidden, 1, 0.02))
        attention(g, p, hidden, heads, kv_heads, HEAD, kind, 1)
        g.matrix(p + "ffn_gate.weight", ffn, hidden, kind)
        g.matrix(p + "ffn_up.weight", ffn, hidden, kind)
        g.matrix(p + "ffn_down.weight", hidden, ffn, kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--size", default="0.8B", choices=[*SIZES, *MIXTURES, *DENSE, *WINDOWED])
    parser.add_argument("--type", default="q8_0", choices=[t for t in TYPES if t != "f32"])
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--mtp", action="store_true", help="with a draft head (Qwen3.5)")
    args = parser.parse_args()
    g = Gguf()
    if args.size in MIXTURES:
        mixture(g, args.size, args.type, args.vocab or 151936)
    elif args.size in DENSE:
        dense(g, args.size, args.type, args.vocab or 1024)
    elif args.size in WINDOWED:
        windowed(g, args.size, args.type, args.vocab or 262144)
    else:
        hybrid(g, args.size, args.type, args.vocab or 248320, args.mtp)
    g.write(args.out)


main()
