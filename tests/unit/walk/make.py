#!/usr/bin/env python3
"""Writes checkpoints of the table without weights, and list.tsv, which walk_test.cc reads.

    tests/unit/walk/make.py FOLDER [--tensors N] [NAME...]

--tensors: leave out files with more tensors.
"""
import argparse
import functools
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import headers  # noqa: E402
import names  # noqa: E402
import table  # noqa: E402


compiled = functools.lru_cache(maxsize=None)(lambda text: compile(text, text, "eval"))


def places(hf, gguf, condition, n):
    """The layers of a line, or [None] for a tensor of no layer."""
    has_layers = any("B." in x or "L." in x for x in (hf, gguf)) or "i ==" in condition
    layers = range(n["n_layers"] + n["drafts"]) if has_layers else [None]
    return [i for i in layers if not condition or eval(compiled(condition), n, {"i": i})]


def name_of(pattern, i, entry, n):
    draft = entry.get("draft_layers") if i is not None and i >= n["n_layers"] else None
    prefix = entry.get("prefix", "model.")
    layer = f"{draft}{i - n['n_layers']}." if draft else f"{prefix}layers.{i}."
    if pattern.startswith("L."):
        return layer + pattern[2:]
    if pattern.startswith("B."):
        return f"blk.{i}.{pattern[2:]}"
    return pattern.replace("M.", prefix, 1) if pattern.startswith("M.") else pattern


def lines_of(blocks):
    """(condition, GGUF, safetensors, shape, types) of each line; a block may have a condition."""
    for block in blocks:
        outer, text = block if isinstance(block, tuple) else ("", block)
        for line in filter(None, text.splitlines()):
            inner, _, rest = line[1:].partition("] ") if line[0] == "[" else ("", "", line)
            fields = [field.strip() for field in rest.split("|")]
            both = " and ".join(f"({c})" for c in (outer, inner) if c)
            yield both, *fields[:3], (fields[3] if len(fields) > 3 else "").split()


def gguf_type(name, shape, kind):
    if kind:
        return kind
    if len(shape) == 1 or name.endswith((".bias", "_norm.weight", "_gate_inp.weight")):
        return "F32"
    return "Q8_0" if shape[-1] % 32 == 0 else "F16"


def of_gguf(entry, n):
    out = []
    for condition, gguf, hf, shape, kinds in lines_of(entry["family"]):
        for i in places(hf, gguf, condition, n) if gguf != "-" else []:
            if i is not None and i >= n["n_layers"] and not n["drafts_in_gguf"]:
                continue
            dims = [eval(compiled(x), n, {"i": i}) for x in shape.split()]
            dims = [n["E"], *dims] if "{e}" in hf else dims
            name = name_of(gguf, i, entry, n)
            out.append((name, gguf_type(name, dims, kinds[0] if kinds else None), dims))
    return out


def joined(tensors, arch):
    """As llama.cpp's converter joins them with --fuse-qkv and, in some architectures,
    --fuse-gate-up-exps."""
    all_of, out = {name: (name, kind, shape) for name, kind, shape in tensors}, []
    rules = [(("attn_q.", "attn_k.", "attn_v."), "attn_qkv.", 0)]
    if arch in ("qwen35moe", "qwen3next"):
        rules.append((("ffn_gate_exps.", "ffn_up_exps."), "ffn_gate_up_exps.", 1))
    for parts, whole, rows in rules:
        for name in [name for name in all_of if parts[0] in name]:
            names_of_parts = [name.replace(parts[0], part) for part in parts]
            if not all(part in all_of for part in names_of_parts):
                continue
            pieces = [all_of.pop(part) for part in names_of_parts]
            shape = list(pieces[0][2])
            shape[rows] = sum(piece[2][rows] for piece in pieces)
            out.append((name.replace(parts[0], whole), pieces[0][1], shape))
    return [*all_of.values(), *out]


def is_fp8(entry, name, dims):
    kept = ("embed_tokens", "lm_head", "norm", "mlp.gate.weight", "moe.gate.weight", "eh_proj",
            "shared_head")
    return entry.get("fp8") and len(dims) == 2 and not any(part in name for part in kept)


def of_checkpoint(entry, n):
    """Tensors of safetensors files; those of FP8 have scales of blocks of 128 x 128, or one of the
    tensor and one of what is multiplied by it."""
    out = []
    for condition, gguf, hf, shape, kinds in lines_of(entry["family"]):
        pattern = {"QKV": "L.linear_attn.in_proj_qkv.weight",
                   "Z": "L.linear_attn.in_proj_z.weight"}.get(hf, hf)
        pattern = entry.get("head", "lm_head.weight") if pattern == "HEAD" else pattern
        if pattern == "-" or (hf in ("QKV", "Z") and n["qkvz"]):
            continue
        for i in places(pattern, gguf, condition, n):
            dims = [eval(compiled(x), n, {"i": i}) for x in shape.split()]
            name = name_of(pattern, i, entry, n)
            for e in range(n["E"]) if "{e}" in name else [0]:
                own = name.replace("{e}", str(e))
                if is_fp8(entry, own, dims) and entry["fp8"] == "tensor":
                    out.append((own, "F8_E4M3", dims))
                    out.append((own + "_scale_inv", "BF16", []))
                    out.append((own.replace(".weight", ".activation_scale"), "BF16", []))
                elif is_fp8(entry, own, dims):
                    out.append((own, "F8_E4M3", dims))
                    out.append((own + "_scale_inv", "F32", [-(-d // 128) for d in dims]))
                else:
                    kind = kinds[1] if len(kinds) > 1 else entry.get("dtype", "BF16")
                    out.append((own, kind, dims))
    return out


def keys_of(entry, n):
    """With a vocabulary of single bytes, which is enough to open the tokenizer."""
    arch = entry["gguf"]
    keys = {"general.architecture": arch, "general.type": "model", "general.name": entry["name"],
            "general.file_type": 7}
    for block in entry["keys"]:
        for line in filter(None, block.splitlines()):
            key, _, value = line.partition(" = ")
            value = eval(value, n)
            if value is not None:
                keys[f"{arch}.{key}"] = value
    if "E" in n and n["E"] and f"{arch}.expert_count" not in keys:
        sys.exit(f"{entry['name']}: no keys of experts")
    return keys | table.vocabulary(entry["pre"])


def value_of(entry, key, container):
    """What is expected: one value, or one of each container."""
    value = entry.get(key, entry["gguf"] if key == "arch" else 0)
    return value[container] if isinstance(value, dict) else value


def write(folder, entry, most):
    """Returns the lines of list.tsv."""
    n = names.names(entry)
    base, out = os.path.join(folder, entry["name"].replace("/", "--")), []
    makers = {"hf": lambda: of_checkpoint(entry, n)}
    if entry["gguf"]:
        makers["gguf"] = lambda: of_gguf(entry, n)
    if entry.get("joined"):
        makers["joined.gguf"] = lambda: joined(of_gguf(entry, n), entry["gguf"])
    for end, make in makers.items():
        path, container, tensors = f"{base}.{end}", end.split(".")[-1], make()
        if len(tensors) > most:
            continue
        if container == "hf":
            headers.checkpoint(path, entry["config"], tensors, entry.get("files", 1))
        else:
            headers.gguf(path, keys_of(entry, n), tensors)
        own = [value_of(entry, key, container) for key in ("arch", "count", "kv", "kv_window")]
        refusal = entry.get("refused", {}).get(container, "")
        out.append("\t".join([path, own[0], *(str(int(x)) for x in own[1:]), refusal]))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--tensors", type=int, default=sys.maxsize)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    lines = [line for entry in table.CHECKPOINTS if not args.names or entry["name"] in args.names
             for line in write(args.folder, entry, args.tensors)]
    with open(f"{args.folder}/list.tsv", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
