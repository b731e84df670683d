#!/usr/bin/env python3
"""Reference values of draft heads (multi-token prediction), in numpy (float64).

The head is that of vLLM's qwen3_next_mtp.py, deepseek_mtp.py and glm4_moe_mtp.py: with e the
embedded token at position p + 1 and h the hidden state at p after the last norm of the model,
    x = fc [norm(e); norm(h)], then one layer at position p, then g = norm(x);
    output g are the logits of the token at p + 2. As h the next draft reads g, of DeepSeek and GLM
    x. (Theirs set e to 0 at position 0, which is not done here.)

usage: make.py MODELS OUT      MODELS: tests/golden/models; ../families is read, too. Needs
                            numpy.
"""

import json, os, struct, sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import verify

D = np.float64


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, array of its bits)"""
    header, data = {}, b""
    for name, (dtype, a) in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(a.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def as_bf16(x):
    """Rounds towards zero, to what BF16 holds exactly."""
    return "BF16", (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def value(t):
    return verify.bf16(t[1].tobytes()).reshape(t[1].shape).astype(D)


def read_raw(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "BF16": np.uint16, "I32": np.int32}
    return {
        name: (
            e["dtype"],
            np.frombuffer(
                data[8 + n + e["data_offsets"][0] : 8 + n + e["data_offsets"][1]], kinds[e["dtype"]]
            ).reshape(e["shape"]),
        )
        for name, e in json.loads(data[8 : 8 + n]).items()
        if name != "__metadata__"
    }


# --- the head -------------------------------------------------------------------------------------
def attention(m, w, x):
    return verify.mla(m, w, x, {}) if m.has_latents else verify.full_attention(m, w, x, {})


def draft(m, w, tokens, hidden):
    """tokens [T], hidden [T, H] of the positions before them: what the next draft reads [T, H], and
    logits [T, V]."""
    e = verify.rms(m.w["token_embd"][tokens], w("nextn.enorm"), m.eps)
    x = np.concatenate([e, verify.rms(hidden, w("nextn.hnorm"), m.eps)], -1) @ w("nextn.eh_proj").T
    x = x + attention(m, w, verify.rms(x, w("attn_norm"), m.eps))
    x = x + verify.ffn(m, w, verify.rms(x, w("ffn_norm"), m.eps))
    g = verify.rms(x, w("nextn.shared_head_norm"), m.eps)
    return x if m.reads_stream else g, g @ m.w["output"].T


def golden(m, w, tokens, final_norm, path):
    """Rows of the prompt, then a second draft from what the first one gives."""
    g, logits = draft(m, w, tokens[1:], final_norm[:-1])
    second = int(np.argmax(logits[-1]))
    states = np.concatenate([final_norm[:-1], g[-1:]])
    logits2 = draft(m, w, np.append(tokens[1:], second), states)[1]
    f32 = lambda a: ("F32", np.asarray(a, np.float32))
    i32 = lambda a: ("I32", np.asarray(a, np.int32))
    write_safetensors(
        path,
        {
            "tokens": i32(tokens),
            "final_norm": f32(final_norm),
            "mtp.hidden": f32(g),
            "mtp.logits": f32(logits),
            "mtp.second": i32([second]),
            "mtp.second_logits": f32(logits2[-1]),
        },
    )


def of_gguf(folder, out):
    m = verify.from_gguf(f"{folder}/tq-q4_0.gguf")
    m.has_latents = m.reads_stream = False
    last = f"blk.{m.L}."
    m.w[last + "ffn_norm"] = m.w[last + "post_attention_norm"]
    w = lambda name, *default: m.w.get(last + name, *default) if default else m.w[last + name]
    tokens = verify.read_safetensors(f"{folder}/golden.safetensors")["prompt.tokens"]
    hidden = verify.forward(m, tokens, [])[0]
    golden(
        m,
        w,
        tokens,
        verify.rms(hidden[-1], m.w["output_norm"], m.eps),
        f"{out}/tq-q4_0.safetensors",
    )


# --- tq-mtp: a checkpoint with random weights -----------------------------------------------------
def random_block(c, rng):
    H, nh, nkv, hd, I = (
        c[k]
        for k in (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
        )
    )
    a, f = "mtp.layers.0.self_attn.", "mtp.layers.0.mlp."
    mats = {
        "mtp.fc": (H, 2 * H),
        a + "q_proj": (2 * nh * hd, H),
        a + "k_proj": (nkv * hd, H),
        a + "v_proj": (nkv * hd, H),
        a + "o_proj": (H, nh * hd),
        f + "gate_proj": (I, H),
        f + "up_proj": (I, H),
        f + "down_proj": (H, I),
    }
    norms = {
        "mtp.pre_fc_norm_embedding": H,
        "mtp.pre_fc_norm_hidden": H,
        "mtp.norm": H,
        "mtp.layers.0.input_layernorm": H,
        "mtp.layers.0.post_attention_layernorm": H,
        a + "q_norm": hd,
        a + "k_norm": hd,
    }
    out = {n + ".weight": as_bf16(rng.normal(0, s[1] ** -0.5, s)) for n, s in mats.items()}
    out.update({n + ".weight": as_bf16(rng.normal(0, 0.3, n_)) for n, n_ in norms.items()})
    return out


def lookup(t):
    """The block's tensors by their GGUF names; norms of safetensors are stored minus 1."""
    a, f = "mtp.layers.0.self_attn.", "mtp.layers.0.mlp."
    names = {
        "nextn.eh_proj": "mtp.fc",
        "attn_q": a + "q_proj",
        "attn_k": a + "k_proj",
        "attn_v": a + "v_proj",
        "attn_output": a + "o_proj",
        "ffn_gate": f + "gate_proj",
        "ffn_up": f + "up_proj",
        "ffn_down": f + "down_proj",
    }
    norms = {
        "nextn.enorm": "mtp.pre_fc_norm_embedding",
        "nextn.hnorm": "mtp.pre_fc_norm_hidden",
        "nextn.shared_head_norm": "mtp.norm",
        "attn_norm": "mtp.layers.0.input_layernorm",
        "ffn_norm": "mtp.layers.0.post_attention_layernorm",
        "attn_q_norm": a + "q_norm",
        "attn_k_norm": a + "k_norm",
    }
    w = {k: value(t[n + ".weight"]) for k, n in names.items()}
    w.update({k: value(t[n + ".weight"]) + 1 for k, n in norms.items()})
    return lambda name, *default: w.get(name, *default) if default else w[name]


def of_checkpoint(source, folder):
    os.makedirs(folder, exist_ok=True)
    config = json.load(open(f"{source}/config.json"))
    config["text_config"]["mtp_num_hidden_layers"] = 1
    json.dump(config, open(f"{folder}/config.json", "w"), indent=1)
    t = {
        n: a
        for n, a in read_raw(f"{source}/model.safetensors").items()
        if not n.startswith(("mtp.", "model.visual."))
    }
    block = random_block(config["text_config"], np.random.default_rng(77))
    write_safetensors(f"{folder}/model.safetensors", {**t, **block})
    g, m = verify.read_safetensors(f"{source}/golden.safetensors"), verify.from_safetensors(folder)
    m.has_latents = m.reads_stream = False
    golden(
        m,
        lookup(block),
        g["prompt.tokens"],
        g["prompt.final_norm"].astype(D),
        f"{folder}/golden.safetensors",
    )


# --- deepseek3, glm4-moe: the second layer of a checkpoint as the head ----------------------------
def of_second_layer(source, folder):
    """One dense layer is left of the model; the one after it, with experts, becomes the head's."""
    os.makedirs(folder, exist_ok=True)
    c = json.load(open(f"{source}/config.json"))
    c.update(num_hidden_layers=1, num_nextn_predict_layers=1)
    json.dump(c, open(f"{folder}/config.json", "w"), indent=1)
    H, rng = c["hidden_size"], np.random.default_rng(78)
    t = {
        n: a
        for n, a in read_raw(f"{source}/model.safetensors").items()
        if not n.startswith("model.layers.") or n.startswith(("model.layers.0.", "model.layers.1."))
    }
    own = {"eh_proj": rng.normal(0, (2 * H) ** -0.5, (H, 2 * H))}
    own.update({n: 1 + rng.normal(0, 0.3, H) for n in ("enorm", "hnorm", "shared_head.norm")})
    t.update({f"model.layers.1.{n}.weight": as_bf16(a) for n, a in own.items()})
    write_safetensors(f"{folder}/model.safetensors", t)
    c["num_hidden_layers"] = 2  # verify reads both
    json.dump(c, open(f"{folder}/config.json", "w"), indent=1)
    m = verify.from_safetensors(folder)
    c["num_hidden_layers"] = m.L = 1
    json.dump(c, open(f"{folder}/config.json", "w"), indent=1)
    m.has_latents, m.reads_stream = c["model_type"] == "deepseek_v3", True
    if not m.has_latents:
        m.R = int(m.hd * c["partial_rotary_factor"])
        m.freq, m.att, m.scale = verify.frequencies(m.R, {"rope_theta": c["rope_theta"]})
    head = {
        n: value(t[f"model.layers.1.{s}.weight"])
        for n, s in (
            ("nextn.eh_proj", "eh_proj"),
            ("nextn.enorm", "enorm"),
            ("nextn.hnorm", "hnorm"),
            ("nextn.shared_head_norm", "shared_head.norm"),
        )
    }
    head.update({n[6:]: a for n, a in m.w.items() if n.startswith("blk.1.")})
    w = lambda name, *default: head.get(name, *default) if default else head[name]
    tokens = verify.read_safetensors(f"{source}/golden.safetensors")["prompt.tokens"]
    hidden = verify.forward(m, tokens, [])[0]
    m.arch, m.mla = "deepseek_v3", c  # its routing, of GLM too
    golden(
        m,
        w,
        tokens,
        verify.rms(hidden[-1], m.w["output_norm"], m.eps),
        f"{folder}/golden.safetensors",
    )


# --- chain: a checkpoint whose drafts are right ---------------------------------------------------
def chain(folder):
    """Token t is followed by t + 1 (mod 64): the layers add nothing, the embedding of t is a unit
    vector and output row t + 1 the same. fc adds the embedded token and the hidden state moved by
    one, which are the same vector if the head's rows are those of a sequence. Else their sum has
    two elements, for which the head's norm makes token 70 the likeliest."""
    os.makedirs(folder, exist_ok=True)
    H, V, I, nh, nkv, hd = 64, 320, 32, 2, 1, 32
    c = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": V,
        "hidden_size": H,
        "num_hidden_layers": 2,
        "num_attention_heads": nh,
        "num_key_value_heads": nkv,
        "head_dim": hd,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "full_attention_interval": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "eos_token_id": V - 1,
        "intermediate_size": I,
        "layer_types": ["linear_attention", "full_attention"],
        "mtp_num_hidden_layers": 1,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
    }
    json.dump(c, open(f"{folder}/config.json", "w"), indent=1)
    rng = np.random.default_rng(7)
    zero, rand = lambda *s: as_bf16(np.zeros(s)), lambda *s: as_bf16(rng.normal(0, 0.1, s))
    embed, output, move = np.zeros((V, H)), np.zeros((V, H)), np.zeros((H, H))
    for t in range(64):
        embed[t, t], output[(t + 1) % 64, t], move[(t + 1) % 64, t] = 1, 1, 1
    output[70, :] = 0.75
    embed[64:] = rng.normal(0, 0.1, (V - 64, H))
    t = {
        "model.embed_tokens.weight": as_bf16(embed),
        "lm_head.weight": as_bf16(output),
        "model.norm.weight": zero(H),
    }
    qkv, l = 2 * 2 * 16 + 2 * 16, "model.layers.0.linear_attn."
    t.update(
        {
            l + "in_proj_qkv.weight": rand(qkv, H),
            l + "in_proj_z.weight": rand(32, H),
            l + "in_proj_a.weight": rand(2, H),
            l + "in_proj_b.weight": rand(2, H),
            l + "conv1d.weight": rand(qkv, 1, 4),
            l + "dt_bias": rand(2),
            l + "A_log": ("F32", np.zeros(2, np.float32)),
            l + "norm.weight": ("F32", np.ones(16, np.float32)),
            l + "out_proj.weight": zero(H, 32),
        }
    )
    for p in ("model.layers.1.", "mtp.layers.0."):
        a = p + "self_attn."
        t.update(
            {
                a + "q_proj.weight": rand(2 * nh * hd, H),
                a + "k_proj.weight": rand(nkv * hd, H),
                a + "v_proj.weight": rand(nkv * hd, H),
                a + "o_proj.weight": zero(H, nh * hd),
                a + "q_norm.weight": zero(hd),
                a + "k_norm.weight": zero(hd),
            }
        )
    for p in ("model.layers.0.", "model.layers.1.", "mtp.layers.0."):
        t.update(
            {
                p + "input_layernorm.weight": zero(H),
                p + "post_attention_layernorm.weight": zero(H),
                p + "mlp.gate_proj.weight": rand(I, H),
                p + "mlp.up_proj.weight": rand(I, H),
                p + "mlp.down_proj.weight": zero(H, I),
            }
        )
    t.update(
        {
            "mtp.fc.weight": as_bf16(np.concatenate([np.eye(H), move], 1)),
            "mtp.norm.weight": zero(H),
            "mtp.pre_fc_norm_embedding.weight": zero(H),
            "mtp.pre_fc_norm_hidden.weight": zero(H),
        }
    )
    write_safetensors(f"{folder}/model.safetensors", t)


if __name__ == "__main__":
    models, out = sys.argv[1:3]
    of_gguf(f"{models}/tq", out)
    of_checkpoint(f"{models}/tq-r1", f"{out}/tq-mtp")
    of_second_layer(f"{models}/deepseek3", f"{out}/deepseek3")
    of_second_layer(f"{models}/../families/glm4-moe", f"{out}/glm4-moe")
    chain(f"{out}/chain")
