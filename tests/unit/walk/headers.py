"""Files of models without weights: headers with real names and shapes, then a hole of the data's
size. Shapes are slowest first."""
import json
import math
import os
import struct

# Type: number in GGUF, elements and bytes of a block.
GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q8_0": (8, 32, 34),
        "MXFP4": (39, 32, 17)}
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1}
ALIGNMENT = 32


def write(path, head, data):
    """The head, then `data` bytes that take no space on disk."""
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + data)


def safetensors(path, tensors):
    """tensors: (name, dtype, shape)"""
    at, entries = 0, {}
    for name, dtype, shape in tensors:
        end = at + math.prod(shape) * BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    head = json.dumps(entries, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    write(path, struct.pack("<Q", len(head)) + head, at)


def checkpoint(folder, config, tensors, n_files):
    """A folder with config.json, and an index if there is more than one file."""
    os.makedirs(folder)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        file.write(json.dumps(config))
    if n_files == 1:
        safetensors(f"{folder}/model.safetensors", tensors)
        return
    index, per_file = {}, -(-len(tensors) // n_files)
    for i in range(n_files):
        name = f"model-{i + 1:05}-of-{n_files:05}.safetensors"
        part = tensors[i * per_file : (i + 1) * per_file]
        safetensors(f"{folder}/{name}", part)
        index.update((tensor, name) for tensor, _, _ in part)
    with open(f"{folder}/model.safetensors.index.json", "w", encoding="utf-8") as file:
        file.write(json.dumps({"metadata": {}, "weight_map": index}))


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def value_of(value):
    """Type and bytes of a value in GGUF."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return (4, struct.pack("<I", value)) if value >= 0 else (5, struct.pack("<i", value))
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    kind = value_of(value[0])[0]
    return 9, struct.pack("<IQ", kind, len(value)) + b"".join(value_of(x)[1] for x in value)


def gguf(path, keys, tensors):
    """keys: name to value; tensors: (name, type, shape). Factors of RoPE are read for a plan: 1."""
    factors = []
    head, at = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))], 0
    for key, value in keys.items():
        kind, data = value_of(value)
        head.append(text(key) + struct.pack("<I", kind) + data)
    for name, kind, shape in tensors:
        number, elements, size = GGML[kind]
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head.append(text(name) + dims + struct.pack("<IQ", number, at))
        if name.startswith("rope_f"):
            factors.append((at, shape[0]))
        at += math.prod(shape) // elements * size
        at += -at % ALIGNMENT
    head = b"".join(head)
    head += bytes(-len(head) % ALIGNMENT)
    write(path, head, at)
    with open(path, "r+b") as file:
        for begin, count in factors:
            file.seek(len(head) + begin)
            file.write(struct.pack(f"<{count}f", *[1.0] * count))
