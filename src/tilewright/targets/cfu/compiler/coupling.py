"""Which operators run on the CFU's own image memory, what has to be moved for it, and weights as rows of B."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import IMAGE_BYTES
from tilewright.targets.cfu.isa.state import CHANNELS

from .layout import LANES, Coupled, Kind, activation_bytes, rows_of_b

MAX_DEPTH = 1023  # of a launch: 10 bits, as start_GEMM has

Record = Mapping[str, int]


def couple(
    records: Sequence[Record],
    activations: Sequence[Mapping[str, str]],
    leaving: Collection[str],
    extensions: Collection[str],
    buffer_rows: int,
) -> list[dict[str, int]]:
    """For each operator the words `coupled` and `rows_at`. `activations` names its tensors by field.

    An activation has the same place in the image memory as in the arena. With `resident` it is pushed once, when an
    operator first needs it there, and read back only for operators that run on the CPU and for the host.
    """
    here = [_takes(record, extensions, buffer_rows) for record in records]
    resident = "resident" in extensions
    cpu = {name for mine, names in zip(here, activations, strict=True) if not mine for name in _inputs(names)}
    there: set[str] = set()
    found, row, rows_before = [], 0, 0
    for mine, record, names in zip(here, records, activations, strict=True):
        if not mine:
            found.append({"coupled": 0, "rows_at": 0})
            continue
        flags = Coupled.HERE
        for field, flag in (("input", Coupled.PUSH), ("input2", Coupled.PUSH2)):
            if field in names and names[field] not in there:
                flags |= flag
                if resident:
                    there.add(names[field])
        if resident:
            there.add(names["output"])
        if not resident or names["output"] in cpu or names["output"] in leaving:
            flags |= Coupled.READ
        if record["kind"] == Kind.CONV and "dma" in extensions:
            # At the first and the last rows in turn, so that the next layer's may come while this one is computed.
            rows = rows_of_b(record)
            flags |= Coupled.LATE if rows + rows_before > buffer_rows else 0
            row, rows_before = 0 if row else buffer_rows - rows, rows
            found.append({"coupled": int(flags), "rows_at": row})
        else:
            found.append({"coupled": int(flags), "rows_at": 0})
    return found


def _inputs(names: Mapping[str, str]) -> list[str]:
    return [name for field, name in names.items() if field != "output"]


def _takes(record: Record, extensions: Collection[str], buffer_rows: int) -> bool:
    """Whether the machine's extensions compute this operator, and its activations lie within the image memory."""
    kind = record["kind"]
    sizes = activation_bytes(record)
    if any(record[field] + size > IMAGE_BYTES for field, size in sizes.items()):
        return False
    if kind == Kind.CONV:
        dense = record["filter_c"] == record["in_c"] and (record["dilation_h"], record["dilation_w"]) == (1, 1)
        depth = record["kernel_h"] * record["kernel_w"] * record["in_c"]
        fits = depth <= MAX_DEPTH and record["out_c"] <= CHANNELS and rows_of_b(record) <= buffer_rows
        return "im2col" in extensions and dense and fits
    if kind == Kind.ADD:
        return "add" in extensions
    if kind == Kind.AVERAGE_POOL:
        whole = (record["kernel_h"], record["kernel_w"]) == (record["in_h"], record["in_w"])
        return "pool" in extensions and whole and record["out_h"] * record["out_w"] == 1
    return False


def packed_rows(weights: Array) -> Array:
    """int8 (O, KH, KW, C) as rows of 16 output channels, each word's bytes backwards: what set_matrixB takes."""
    channels = weights.shape[0]
    flat = weights.reshape(channels, -1)
    padded = np.zeros((-(-channels // LANES) * LANES, flat.shape[1]), np.int8)
    padded[:channels] = flat
    rows = padded.reshape(-1, LANES // 4, 4, flat.shape[1])[:, :, ::-1]
    return np.ascontiguousarray(rows.transpose(0, 3, 1, 2)).reshape(-1)
