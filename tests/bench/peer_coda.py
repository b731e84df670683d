"""One layer of CoDA-GQA-L, Weir beside the package coda-gqa-l: run by peer_coda.sh, in turns, so that both see the machine as it is at the time."""
import argparse
import itertools
import json
import os
import statistics
import struct
import subprocess
import sys
import time

import numpy
import torch
from coda_gqa_l import CoDAGQALandmarkPerf2

WINDOW, BANK, TOKENS, STEPS, VOCABULARY, HIDDEN = 256, 64, 2048, 64, 256, 16


def write_model(folder, arch_file, shape, dtype, block):
    """A Llama of one layer with random weights, whose mixer is `coda`."""
    width, heads, kv_heads, head_dim = shape
    os.makedirs(os.path.join(folder, "archs"), exist_ok=True)
    draw = numpy.random.default_rng(1)

    def matrix(rows, columns):
        return draw.uniform(-1, 1, (rows, columns)).astype(numpy.float32) / numpy.sqrt(columns).astype(numpy.float32)

    at = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": matrix(VOCABULARY, width), "model.norm.weight": numpy.ones(width, numpy.float32),
        at + "input_layernorm.weight": numpy.ones(width, numpy.float32), at + "post_attention_layernorm.weight": numpy.ones(width, numpy.float32),
        at + "self_attn.q_proj.weight": matrix(heads * head_dim, width), at + "self_attn.k_proj.weight": matrix(kv_heads * head_dim, width),
        at + "self_attn.v_proj.weight": matrix(kv_heads * head_dim, width), at + "self_attn.o_proj.weight": matrix(width, heads * head_dim),
        at + "self_attn.lambda_proj.weight": matrix(heads, width), at + "self_attn.write_proj.weight": 0 * matrix(1, width),
        at + "mlp.gate_proj.weight": matrix(HIDDEN, width), at + "mlp.up_proj.weight": matrix(HIDDEN, width),
        at + "mlp.down_proj.weight": matrix(width, HIDDEN),
    }
    header, data = {}, []
    offset = 0
    for name, values in tensors.items():
        raw = values if dtype == "f32" else (values.view(numpy.uint32) + 0x8000 >> 16).astype(numpy.uint16)
        header[name] = {"dtype": dtype.upper(), "shape": list(values.shape), "data_offsets": [offset, offset + raw.nbytes]}
        offset += raw.nbytes
        data.append(raw.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"model_type": "coda_layer", "hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": heads,
                   "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": HIDDEN, "rms_norm_eps": 1e-6,
                   "max_position_embeddings": 8192, "rope_theta": 10000, "vocab_size": VOCABULARY, "tie_word_embeddings": True}, file)
    with open(arch_file) as file:
        arch = file.read()
    for old, new in (('name     = "llama"', 'name     = "coda_layer"'), ('gguf = ["llama"], hf = ["llama"]', 'hf = ["coda_layer"]'),
                     ('pattern = ["attn"]', 'pattern = ["coda"]'),
                     ("[ffn]", f'[block.coda]\nmixer = "coda"\nrope = "pairs"\nwindow = {WINDOW}\nlandmarks_exact = {BANK}\n'
                      f'landmarks_summary = {BANK}\nblock_rows = {block}\n\n[ffn]')):
        assert old in arch, f"{arch_file} has no {old}"
        arch = arch.replace(old, new)
    for name, tensor in (("lambda", "lambda_proj.weight"), ("write", "write_proj.weight")):
        arch += f'"coda.{name}" = {{ hf = "layers.{{i}}.self_attn.{tensor}", optional = true }}\n'
    with open(os.path.join(folder, "archs", "coda_layer.toml"), "w") as file:
        file.write(arch)


def run_weir(options, folder, dtype, block):
    command = [options.weir, "bench", "--model", folder, "--arch-dir", os.path.join(folder, "archs"), "--context", "4096", "--prompt", str(TOKENS),
               "--depth", str(TOKENS), "--gen", str(STEPS), "--chunk", str(max(block, 256)), "--kv-format", dtype, "--threads", str(options.threads),
               "--repeat", "3", "--json", "--set", "kernels.activations=" + ("f32" if dtype == "f32" else "fast")]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit("peer_coda.py: " + " ".join(command) + "\n" + run.stderr)
    return json.loads(run.stdout)


def run_package(shape, dtype, block, threads):
    width, heads, kv_heads, head_dim = shape
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    layer = CoDAGQALandmarkPerf2(embed_dim=width, num_heads=heads, num_kv_heads=kv_heads, window=WINDOW, num_landmarks_exact=BANK,
                                 num_landmarks_summary=BANK).to(kind).eval()
    x, steps = torch.randn(1, TOKENS, width, dtype=kind), torch.randn(STEPS, 1, 1, width, dtype=kind)
    prefill, decode = [], []
    with torch.inference_mode():
        for repeat in range(4):
            state = layer.init_state(batch_size=1, device=torch.device("cpu"), dtype=kind)
            begin = time.perf_counter()
            _, state = layer.prefill_chunked(x, state, block_size=block)
            middle = time.perf_counter()
            for step in steps:
                _, state = layer.step(step, state)
            end = time.perf_counter()
            if repeat > 0:
                prefill.append(TOKENS / (middle - begin))
                decode.append(STEPS / (end - middle))
    return statistics.median(prefill), statistics.median(decode)


def measure(options, text, dtype, block):
    shape = tuple(int(x) for x in text.split("/"))
    if len(shape) != 4 or shape[1] * shape[3] != shape[0]:
        sys.exit(f"peer_coda.py: {text} is no WIDTH/HEADS/KV_HEADS/HEAD_DIM with WIDTH = HEADS * HEAD_DIM")
    folder = os.path.join(options.work, f"{text.replace('/', '_')}_{dtype}_{block}")
    write_model(folder, options.arch, shape, dtype, block)
    turns = []
    for _ in range(options.turns):
        weir = run_weir(options, folder, dtype, block)
        package = run_package(shape, dtype, block, options.threads)
        turns.append({"weir": weir["rows"][0], "package": package, "bandwidth": weir["bandwidth_gb_per_second"]})
    middle = {}
    for name, key, index in (("prefill", "prefill_tokens_per_second", 0), ("decode", "decode_tokens_per_second", 1)):
        ours = [turn["weir"][key]["median"] for turn in turns]
        theirs = [turn["package"][index] for turn in turns]
        middle[name] = {"weir": ours, "package": theirs, "ratio": statistics.median(a / b for a, b in zip(ours, theirs))}
    return {"shape": text, "dtype": dtype, "block": block, "bandwidth_gb_per_second": [turn["bandwidth"] for turn in turns],
            "decode_share_of_bandwidth": [turn["weir"]["bandwidth_share"] for turn in turns], **middle}


def main():
    parser = argparse.ArgumentParser()
    for name in ("weir", "arch", "work"):
        parser.add_argument("--" + name, required=True)
    for name in ("threads", "turns"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--shapes", nargs="+", required=True)
    parser.add_argument("--dtypes", nargs="+", choices=["f32", "bf16"], required=True)
    parser.add_argument("--blocks", nargs="+", type=int, required=True)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = [measure(options, *case) for case in itertools.product(options.shapes, options.dtypes, options.blocks)]
    print(json.dumps({"torch": torch.__version__, "threads": options.threads, "load": load, "rows": rows}, indent=2))


main()
