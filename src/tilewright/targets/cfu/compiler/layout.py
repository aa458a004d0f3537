"""The format of the model data that the firmware reads: a header, operator records, then constants.

Header and records consist of 32-bit words. This module is the only description of the format. It packs and checks model
data, and generates the C header `layout.h`. Offsets are in bytes. The offset of a constant is from the beginning of the
model data (the blob), and the offset of an activation is from the beginning of the arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, IntFlag

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.cfu.isa.dma import CHANNEL_BYTES
from tilewright.targets.cfu.isa.state import CHANNELS

MAGIC = 0x4D575431
VERSION = 1  # "1TWM"
LANES = 16  # n of the published array
ALIGN = 64  # alignment of constants and activations, in bytes: two lines of the L1 caches
#: The gap after each activation in bytes. The data cache is direct mapped, and the size of an activation is often a
#: multiple of the cache size. Without a gap, the same element of two tensors would map to the same cache line, and an
#: addition would miss at every element.
GAP = 1024
STACK_BYTES = 1 << 16  # reserved by main.c at the end of memory


class Kind(IntEnum):
    """The kind of operator in a record."""

    CONV = 1
    DEPTHWISE = 2
    FULLY_CONNECTED = 3
    ADD = 4
    AVERAGE_POOL = 5
    MAX_POOL = 6
    COPY = 7
    SOFTMAX = 8


#: Words of the header. `bytes` is the size of the blob, `ops` the number of operators.
HEADER = ("magic", "version", "bytes", "ops", "arena_bytes")

#: Words of an operator, all int32. `*_multiplier` (q) and `*_shift` encode a tensor's factor q * 2**(shift - 31).
RECORD = (
    "kind",
    *("input", "input2", "output"),  # activations
    *("weights", "bias", "multiplier", "shift"),  # constants; multiplier and shift are per channel
    *("in_h", "in_w", "in_c", "out_h", "out_w", "out_c", "filter_c"),
    *("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "pad_h", "pad_w"),
    *("input_offset", "input2_offset", "output_offset", "low", "high"),  # offsets that are added to codes
    *("input_multiplier", "input_shift", "input2_multiplier", "input2_shift", "output_multiplier", "output_shift"),
    "diff_min",  # softmax: the exponential of a smaller difference is 0
    *("coupled", "rows_at"),  # flags of Coupled; the first row of the weights in B
)


class Coupled(IntFlag):
    """Flags of an operator that uses the CFU's image memory. The weights of such an operator are rows of buffer B."""

    HERE = 1  # the operator runs on the image memory
    PUSH = 2  # the input must be pushed from main memory
    PUSH2 = 4  # the second input must be pushed
    READ = 8  # the output must be read back to main memory
    LATE = 16  # the constants can be loaded only after the end of the previous convolution
    FETCH = 32  # the input must be fetched from main memory by DMA
    FETCH2 = 64  # the second input must be fetched
    TABLE = 128  # bias, multipliers and shifts are one table of rows, for DMA


def c_header() -> str:
    """Return the text of `layout.h`: the words of the model's header and of operator records as C structures."""
    kinds = "".join(f"  KIND_{kind.name} = {int(kind)},\n" for kind in Kind)
    kinds += "".join(f"  COUPLED_{flag.name} = {int(flag)},\n" for flag in Coupled)
    fields = ["".join(f"  int32_t {name};\n" for name in names) for names in (HEADER, RECORD)]
    return (
        "// Made from layout.py.\n#pragma once\n#include <stdint.h>\n\n"
        f"#define MODEL_MAGIC 0x{MAGIC:08x}\n#define MODEL_VERSION {VERSION}\n#define MODEL_ALIGN {ALIGN}\n"
        f"#define TABLE_ENTRIES {CHANNELS}\n\n"
        f"enum {{\n{kinds}}};\n\nstruct header {{\n{fields[0]}}};\n\nstruct op {{\n{fields[1]}}};\n"
    )


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def pack(records: Sequence[Mapping[str, int]], constants: bytes, arena_bytes: int) -> Array:
    """Return the model data, uint8: header, operator records, and constants (at byte `constants_at`)."""
    words = [MAGIC, VERSION, constants_at(len(records)) + len(constants), len(records), arena_bytes]
    for record in records:
        words += [record.get(name, 0) for name in RECORD]
    head = np.array(words, np.int64).astype("<i4").tobytes()
    blob = head.ljust(constants_at(len(records)), b"\0") + constants
    return np.frombuffer(blob, np.uint8)


def constants_at(ops: int) -> int:
    return aligned(4 * (len(HEADER) + ops * len(RECORD)))


def unpack(blob: Array) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Return header and operator records of model data. Raises ProgramError for damaged data or another version."""
    words = np.frombuffer(blob.tobytes()[: len(blob) // 4 * 4], "<i4").tolist()
    header = dict(zip(HEADER, words, strict=False))
    if len(header) < len(HEADER) or header["magic"] != MAGIC:
        raise ProgramError("model data", "does not begin with the header of a model", "compile the model again")
    if header["version"] != VERSION:
        reason = f"has version {header['version']}; this Tilewright reads {VERSION}"
        raise ProgramError("model data", reason, "compile the model again")
    if header["bytes"] != len(blob) or not 0 <= header["ops"] <= (len(words) - len(HEADER)) // len(RECORD):
        reason = f"declares {header['bytes']} bytes and {header['ops']} operators, but has {len(blob)} bytes"
        raise ProgramError("model data", reason, "compile the model again")
    starts = range(len(HEADER), len(HEADER) + header["ops"] * len(RECORD), len(RECORD))
    return header, [dict(zip(RECORD, words[at : at + len(RECORD)], strict=True)) for at in starts]


def check(header: Mapping[str, int], records: Sequence[Mapping[str, int]]) -> None:
    """Check all operators. Raises ProgramError for accesses outside of the model data or the arena."""
    for index, record in enumerate(records):
        where = f"operator {index}"
        if record["kind"] not in set(Kind):
            raise ProgramError(where, f"has the unknown kind {record['kind']}", "compile the model again")
        if header["arena_bytes"] < 0 or any(not 0 <= record[name] < 1 << 24 for name in _EXTENTS):
            raise ProgramError(where, "has an impossible shape", "compile the model again")
        for names, limit, sizes in (
            (_ACTIVATIONS, header["arena_bytes"], activation_bytes(record)),
            (_CONSTANTS, header["bytes"], constant_bytes(record)),
        ):
            for name in names:
                if name in sizes and not 0 <= record[name] <= limit - sizes[name]:
                    raise ProgramError(where, f"has {name} outside of the model's memory", "compile the model again")


_ACTIVATIONS = RECORD[1:4]
_CONSTANTS = RECORD[4:8]
_EXTENTS = RECORD[RECORD.index("in_h") : RECORD.index("pad_w") + 1]
LINEAR = (Kind.CONV, Kind.DEPTHWISE, Kind.FULLY_CONNECTED)


def activation_bytes(record: Mapping[str, int]) -> dict[str, int]:
    read = record["in_h"] * record["in_w"] * record["in_c"]
    sizes = {"input": read, "output": record["out_h"] * record["out_w"] * record["out_c"]}
    return sizes | ({"input2": read} if record["kind"] == Kind.ADD else {})


def constant_bytes(record: Mapping[str, int]) -> dict[str, int]:
    channels = record["out_c"]
    if record["kind"] not in LINEAR:
        return {}
    in_rows = record["coupled"] and record["kind"] != Kind.DEPTHWISE
    weights = LANES * rows_of_b(record) if in_rows else channels * _factors(record)
    if record["coupled"] & Coupled.TABLE:
        return {"weights": weights, "bias": CHANNEL_BYTES * channels}
    return {"weights": weights, **dict.fromkeys(("bias", "multiplier", "shift"), 4 * channels)}


def _factors(record: Mapping[str, int]) -> int:
    window = record["kernel_h"] * record["kernel_w"]
    factors = {Kind.CONV: window * record["filter_c"], Kind.DEPTHWISE: window, Kind.FULLY_CONNECTED: record["in_c"]}
    return factors.get(Kind(record["kind"]), 0)


def rows_of_b(record: Mapping[str, int]) -> int:
    """Return the number of rows of buffer B for a convolution's weights. A row has LANES channels of a weight."""
    return -(-record["out_c"] // LANES) * record["kernel_h"] * record["kernel_w"] * record["in_c"]


def macs(record: Mapping[str, int]) -> int:
    """Return the number of multiply-accumulates of an operator, including those on padding (the usual convention)."""
    return record["out_h"] * record["out_w"] * record["out_c"] * _factors(record)
