"""Seeds of the targets that read calibrations, states of policies and state databases."""

import struct

from containers import write


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


def state(position, observed, layers):
    """A saved state of the policies of policy_state_fuzz.c: two layers; digest and checksum are put
    right by the target.
    """
    return (
        struct.pack("<II16xqqq", 0x4C4F5057, 1, 3, position, observed) + b"".join(layers) + bytes(8)
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


def write_all():
    write("calibration", "weir", statistics(2, 2, 1, 8, 3, True))
    write("calibration", "all-rotated", statistics(1, 4, 2, 4, 2, True))
    write("calibration", "plain", statistics(1, 2, 2, 4, 2, False, magnitude=0.0))
    write("calibration", "header", statistics(1, 1, 1, 2, 1, True)[:64])

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
    sums = struct.pack("<q", 0) + struct.pack("<9d", *[2.5] * 9)
    write("policy_state", "sums", state(9, 9, [sums] * 2))

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
