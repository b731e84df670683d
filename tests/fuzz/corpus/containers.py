"""Bytes of GGUF and safetensors files, for make.py."""

import json
import os
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {
    U8: "<B",
    I8: "<b",
    U16: "<H",
    I16: "<h",
    U32: "<I",
    I32: "<i",
    F32: "<f",
    BOOL: "<B",
    U64: "<Q",
    I64: "<q",
    F64: "<d",
}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, x):
    if kind == STRING:
        return text(x)
    if kind == ARRAY:
        element, items = x
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, i) for i in items)
    return struct.pack(PACK[kind], x)


def gguf(keys, tensors, version=3, alignment=32):
    """tensors: name, ne (fastest first), type, bytes."""
    out = struct.pack("<IIQQ", 0x46554747, version, len(tensors), len(keys))
    for key, kind, x in keys:
        out += text(key) + struct.pack("<I", kind) + value(kind, x)
    offset, data = 0, b""
    for name, ne, kind, size in tensors:
        out += (
            text(name)
            + struct.pack("<I", len(ne))
            + b"".join(struct.pack("<Q", n) for n in ne)
            + struct.pack("<IQ", kind, offset)
        )
        data += bytes(i % 251 for i in range(size)) + bytes(-size % alignment)
        offset = len(data)
    return out + bytes(-len(out) % alignment) + data


def safetensors(entries, metadata=None, pad=0):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, size in entries:
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), len(data) + size],
        }
        data += bytes(i % 251 for i in range(size))
    raw = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(raw)) + raw + data


def write(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}", "wb") as f:
        f.write(data)
