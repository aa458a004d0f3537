"""Counted events of layers against loops over every output, tap and channel."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.targets.zynq.cases import SMALL, WINDOW, case
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.events import events
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.placement import row_blocks
from tilewright.targets.zynq.timing import service

WIDE = {"control": "pipelined", "banked": 1, "fetch": "full", "outputs": 3, "dsp_budget": 500}
LAYERS = (
    (SMALL, {"kind": Kind.CONV_OTHER, "ic": 16, "oc": 5, "rows": 10, "cols": 3}),
    (SMALL | WIDE, {"kind": Kind.CONV_OTHER, "ic": 16, "oc": 3, "rows": 10, "cols": 4}),
    (SMALL | WIDE, {"kind": Kind.CONV_1_1, "ic": 3, "oc": 4, "rows": 5, "cols": 5}),
    (SMALL, {"kind": Kind.POOL, "ic": 3, "rows": 6, "cols": 4}),
    (SMALL | WIDE, {"kind": Kind.FC, "r": 200, "l": 7}),
    (SMALL, {"kind": Kind.FC, "r": 150, "l": 4}),
)


def counted(layer: Layer) -> Counter[str]:
    """Count the reads of the stores, one word at a time."""
    reads, together = Counter[str](), layer.config.outputs
    if layer.kind == Kind.POOL:
        reads["data store"] = sum(1 for _ in range(layer["rows"] * layer["cols"] * layer["ic"]))
        return reads
    if layer.kind == Kind.FC:
        for first in range(0, layer["l"], together):
            for _ in range(layer["r"]):
                reads["data store"] += 1
                reads["weight store"] += len(range(first, min(first + together, layer["l"])))
        reads["bias store"] = layer["l"]
        return reads
    rows, cols, step = layer["rows"], layer["cols"], row_blocks(layer).step
    for _ in range(layer["oc"]):
        for top in range(0, rows, step):
            block = [(y, x) for y in range(top, min(top + step, rows)) for x in range(cols)]
            for first in range(0, len(block), together):
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        reads["weight store"] += layer["ic"]
                        for y, x in block[first : first + together]:
                            inside = 0 <= y + dy < rows and 0 <= x + dx < cols
                            reads["data store"] += layer["ic"] * inside
            reads["bias store"] += len(block)
    return reads


@pytest.mark.parametrize("keys, fields", LAYERS)
def test_counts_equal_loops_over_every_word(keys: dict[str, int | str], fields: dict[str, int]) -> None:
    layer = case(3, Config(**keys), **fields).layer  # type: ignore[arg-type]
    trace, _ = service.timed(layer, service.PAGED)
    counts, expected = events(layer, trace), counted(layer)
    assert {access.memory: access.reads for access in counts.accesses if access.memory in expected} == expected
    assert next(access.writes for access in counts.accesses if access.memory == "result store") == layer.outputs
    assert sum(work.count for work in counts.macs) == layer.macs
    moved = sum(int(bursts.moved[:, 1].sum()) for bursts in counts.bursts)
    assert moved + trace.fetch_bytes == counts.read_bytes + counts.write_bytes


@pytest.mark.parametrize("channels", [3, 32, 48])
def test_with_a_window_buffer_data_are_read_once_per_position_group_and_weight_block(channels: int) -> None:
    kind = Kind.CONV_1_1 if channels < 16 else Kind.CONV_OTHER
    fields = {"kind": int(kind), "ic": channels, "oc": 9, "rows": 7, "cols": 5}
    layer = case(3, Config(**WINDOW), **fields).layer
    trace, _ = service.timed(layer, service.PAGED)
    pixel, kernels = max(16, channels), 2048 // (9 * max(16, channels))  # a block has 2,048 words
    loaded = weights = 0
    for first in range(0, 9, kernels):
        for top in range(0, 7, row_blocks(layer).step):
            positions = 5 * min(row_blocks(layer).step, 7 - top)
            for _ in range(0, positions, 3):
                loaded += 3 * 5 * pixel
                weights += 9 * pixel * min(kernels, 9 - first)
    reads = {access.memory: access.reads for access in events(layer, trace).accesses}
    assert (reads["data store"], reads["weight store"]) == (loaded, weights)
    assert "window buffer" in events(layer, trace).missing
