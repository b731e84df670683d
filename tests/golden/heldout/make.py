#!/usr/bin/env python3
"""A model of an architecture that is in no release (archs/heldout.toml), and its results, in numpy
(float64). The formulas are those of the papers that the blocks name, and of no engine's code.

usage: make.py OUT
"""
import json, os, struct, sys

import numpy as np

CONFIG = dict(
    model_type="heldout", vocab_size=160, hidden_size=48, num_hidden_layers=5,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, qk_rope_head_dim=8,
    qk_nope_head_dim=12, v_head_dim=20, kv_lora_rank=24, intermediate_size=64, n_routed_experts=6,
    num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=1, routed_scaling_factor=1.5,
    first_k_dense_replace=1, max_position_embeddings=512, sliding_window=5, rms_norm_eps=1e-6,
    rope_theta=10000.0, rope_local_base_freq=500.0, residual_multiplier=0.5, gate_multiplier=1.5,
    attn_logit_softcapping=4.0, final_logit_softcapping=6.0,
    layers_block_type=["sliding", "latent", "full", "sliding", "latent"])
T = 44


def bf16(x):
    """Values that BF16 holds."""
    return (np.asarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def weights(c, rng):
    d, f, h, g, hd = (c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads",
                                     "num_key_value_heads", "head_dim"))
    nope, rope, v, rank = (c[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                          "kv_lora_rank"))
    e, fe, fs = c["n_routed_experts"], c["moe_intermediate_size"], c["moe_intermediate_size"]
    out = {}

    def matrix(name, *shape, inputs=-1):
        out[name] = bf16(rng.normal(0, 1.2 / np.sqrt(shape[inputs]), shape))

    def norm(name, n, mean=1):
        out[name] = bf16(rng.normal(mean, 0.3, n))

    matrix("model.embed_tokens.weight", c["vocab_size"], d)
    out["model.embed_tokens.weight"] = bf16(out["model.embed_tokens.weight"] * 0.8)
    matrix("lm_head.weight", c["vocab_size"], d)
    norm("model.norm.weight", d)
    for i, kind in enumerate(c["layers_block_type"]):
        at = f"model.layers.{i}."
        norm(at + "input_norm.weight", d, 0)
        for name in ("mixer_norm", "pre_ffn_norm", "post_ffn_norm"):
            norm(at + name + ".weight", d)
        if kind == "latent":
            matrix(at + "attn.q.weight", h * (nope + rope), d)
            matrix(at + "attn.kv_a.weight", rank + rope, d)
            norm(at + "attn.kv_a_norm.weight", rank)
            matrix(at + "attn.kv_b.weight", h * (nope + v), rank)
            matrix(at + "attn.out.weight", d, h * v)
        else:
            for name, n in (("q", h), ("k", g), ("v", g)):
                matrix(f"{at}attn.{name}.weight", n * hd, d)
            matrix(at + "attn.out.weight", d, h * hd)
            norm(at + "attn.q_norm.weight", hd if kind == "sliding" else h * hd)
            norm(at + "attn.k_norm.weight", hd if kind == "sliding" else g * hd)
        if kind == "sliding":
            out[at + "attn.sinks"] = bf16(rng.normal(0, 1, h))
        if i < c["first_k_dense_replace"]:
            matrix(at + "ffn.gate_up.weight", 2 * f, d)
            matrix(at + "ffn.down.weight", d, f)
            continue
        out[at + "moe.router.weight"] = bf16(rng.normal(0, 0.4, (e, d)))
        out[at + "moe.bias"] = rng.normal(0, 0.3, e).astype(np.float32)
        matrix(at + "moe.gate_up", e, d, 2 * fe, inputs=1)
        for j in range(e):
            matrix(f"{at}moe.{j}.down.weight", d, fe)
        matrix(at + "moe.shared.gate.weight", fs, d)
        matrix(at + "moe.shared.up.weight", fs, d)
        matrix(at + "moe.shared.down.weight", d, fs)
    return out


def rms(x, w, eps):
    return w * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rotate(x, theta, pairs):
    """x [T, heads, R]: all R dimensions, by pairs of neighbours or of halves."""
    n = x.shape[-1]
    angle = np.arange(len(x))[:, None] * theta ** (-np.arange(0, n, 2) / n)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = np.empty_like(x)
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs else (x[..., : n // 2], x[..., n // 2 :])
    first, second = a * c - b * s, b * c + a * s
    if pairs:
        out[..., 0::2], out[..., 1::2] = first, second
    else:
        out[..., : n // 2], out[..., n // 2 :] = first, second
    return out


def attend(q, k, v, scale, cap, window=0, sinks=None):
    """q [T, H, *], k and v [T, H, *]: capped scores, causal, within a window."""
    t = np.arange(len(q))
    seen = (t[None, :] <= t[:, None]) & ((window == 0) | (t[None, :] > t[:, None] - window))
    out = np.empty(q.shape[:2] + v.shape[2:])
    for head in range(q.shape[1]):
        s = cap * np.tanh(q[:, head] @ k[:, head].T * scale / cap)
        p = np.where(seen, np.exp(s), 0)
        total = p.sum(1, keepdims=True) + (0 if sinks is None else np.exp(sinks[head]))
        out[:, head] = p / total @ v[:, head]
    return out.reshape(len(q), -1)


def grouped(c, w, at, x, kind):
    h, g, hd = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q, k, v = (x @ w[f"{at}{name}.weight"].T for name in "qkv")
    eps, rope, cap = c["rms_norm_eps"], c["qk_rope_head_dim"], c["attn_logit_softcapping"]
    if kind == "full":  # one norm over all heads, and no rotation
        q, k = rms(q, w[at + "q_norm.weight"], eps), rms(k, w[at + "k_norm.weight"], eps)
    q, k, v = (y.reshape(len(x), -1, hd) for y in (q, k, v))
    if kind == "sliding":
        q, k = rms(q, w[at + "q_norm.weight"], eps), rms(k, w[at + "k_norm.weight"], eps)
        theta = c["rope_local_base_freq"]
        q, k = (np.concatenate([rotate(y[..., :rope], theta, False), y[..., rope:]], -1)
                for y in (q, k))
    k, v = np.repeat(k, h // g, 1), np.repeat(v, h // g, 1)
    window, sinks = (c["sliding_window"], w[at + "sinks"]) if kind == "sliding" else (0, None)
    return attend(q, k, v, hd**-0.5, cap, window, sinks) @ w[at + "out.weight"].T


def latent(c, w, at, x):
    """Expanded: keys and values of all heads."""
    h, nope, rope, v = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim",
                                       "qk_rope_head_dim", "v_head_dim"))
    rank, theta = c["kv_lora_rank"], c["rope_theta"]
    q = (x @ w[at + "q.weight"].T).reshape(len(x), h, nope + rope)
    both = x @ w[at + "kv_a.weight"].T
    kv = rms(both[:, :rank], w[at + "kv_a_norm.weight"], 1e-5) @ w[at + "kv_b.weight"].T
    kv = kv.reshape(len(x), h, nope + v)
    key = np.repeat(rotate(both[:, None, rank:], theta, True), h, 1)
    q = np.concatenate([q[..., :nope], rotate(q[..., nope:], theta, True)], -1)
    k = np.concatenate([kv[..., :nope], key], -1)
    cap = c["attn_logit_softcapping"]
    return attend(q, k, kv[..., nope:], (nope + rope)**-0.5, cap) @ w[at + "out.weight"].T


def experts(c, w, at, x):
    score = sigmoid(x @ w[at + "router.weight"].T)
    order = np.argsort(-(score + w[at + "bias"]), 1)
    ranked = np.take_along_axis(score + w[at + "bias"], order, 1)
    n = c["num_experts_per_tok"]
    gap = float((ranked[:, n - 1] - ranked[:, n]).min())
    f = c["moe_intermediate_size"]
    shared = silu(x @ w[at + "shared.gate.weight"].T) * (x @ w[at + "shared.up.weight"].T)
    out = shared @ w[at + "shared.down.weight"].T
    for t in range(len(x)):
        chosen = order[t, :n]
        weight = score[t, chosen] / score[t, chosen].sum() * c["routed_scaling_factor"]
        for e, by in zip(chosen, weight):
            y = x[t] @ w[at + "gate_up"][e]
            out[t] += by * (w[f"{at}{e}.down.weight"] @ (silu(y[:f]) * y[f:]))
    return out, gap


def dense(c, w, at, x):
    y = x @ w[at + "gate_up.weight"].T
    f = c["intermediate_size"]
    return gelu(c["gate_multiplier"] * y[:, :f]) * y[:, f:] @ w[at + "down.weight"].T


def forward(c, w, tokens):
    """Returns the logits of all tokens, the rows after each layer, the closest choice."""
    eps, r = c["rms_norm_eps"], c["residual_multiplier"]
    x = w["model.embed_tokens.weight"][tokens] * np.sqrt(c["hidden_size"])
    hidden, gap = [x], np.inf
    for i, kind in enumerate(c["layers_block_type"]):
        at = f"model.layers.{i}."
        y = rms(x, 1 + w[at + "input_norm.weight"], eps)
        y = latent(c, w, at + "attn.", y) if kind == "latent" else grouped(c, w, at + "attn.", y,
                                                                          kind)
        x = x + r * rms(y, w[at + "mixer_norm.weight"], eps)
        y = rms(x, w[at + "pre_ffn_norm.weight"], eps)
        if i < c["first_k_dense_replace"]:
            y = dense(c, w, at + "ffn.", y)
        else:
            y, own = experts(c, w, at + "moe.", y)
            gap = min(gap, own)
        x = x + r * rms(y, w[at + "post_ffn_norm.weight"], eps)
        hidden.append(x)
    cap = c["final_logit_softcapping"]
    logits = cap * np.tanh(rms(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T / cap)
    return logits, hidden, gap


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, array of its bits)"""
    header, data = {}, b""
    for name, (dtype, a) in sorted(tensors.items()):
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": dtype, "shape": list(a.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    out, rng = sys.argv[1], np.random.default_rng(81)
    w = weights(CONFIG, rng)
    tokens = rng.integers(0, CONFIG["vocab_size"], T)
    logits, hidden, gap = forward(CONFIG, {k: v.astype(np.float64) for k, v in w.items()}, tokens)
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/config.json", "w") as f:
        f.write(json.dumps(CONFIG, indent=1) + "\n")
    stored = {k: ("F32", v) if k.endswith(".bias") else
              ("BF16", (v.view(np.uint32) >> 16).astype(np.uint16)) for k, v in w.items()}
    write_safetensors(f"{out}/model.safetensors", stored)
    write_safetensors(f"{out}/reference.safetensors", {
        "tokens": ("I32", tokens.astype(np.int32)),
        "logits": ("F32", logits.astype(np.float32)),
        "hidden": ("F32", np.stack(hidden).astype(np.float32))})
    print(f"closest choice of experts {gap:.2e}, largest logit {np.abs(logits).max():.2f}")


if __name__ == "__main__":
    main()
