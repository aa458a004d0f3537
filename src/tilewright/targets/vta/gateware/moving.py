"""LOAD and STORE as the blocks for 2-D transfers take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Mux, Signal, Value
from amaranth.utils import ceil_log2

from tilewright.hdl.transfers import Placer, chosen
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.gateware.words import log_bytes, tiles


def place(
    placer: Placer,
    mem: Mapping[str, Value],
    address: Signal,
    rows: Any,
    config: Config,
    memories: Sequence[Sram],
    which: Value,
    padded: Value,
) -> list[Any]:
    """The window of a LOAD into one of some memories; pads count where `padded`."""

    def offset(sram: Sram) -> Any:
        """Tiles before the first in its beat."""
        lanes = ceil_log2(tiles(sram, config).lanes)
        return address[log_bytes(sram) : log_bytes(sram) + lanes] if lanes else 0

    window = placer.window
    pads = {"top": "y_pad_0", "bottom": "y_pad_1", "left": "x_pad_0", "right": "x_pad_1"}
    return [
        placer.which.eq(which),
        window.index.eq(mem["sram_base"]),
        window.rows.eq(rows),
        window.columns.eq(mem["x_size"]),
        window.offset.eq(chosen(which, [offset(sram) for sram in memories])),
        window.step.eq(mem["x_stride"]),
        *(window[name].eq(Mux(padded, mem[field], 0)) for name, field in pads.items()),
    ]


def rows_of(
    target: Any, mem: Mapping[str, Value], address: Value, rows: Any, memories: Sequence[Sram], which: Value
) -> list[Any]:
    """Assignments to a ROWS."""

    def scaled(name: str) -> Value:
        return chosen(which, [mem[name] << log_bytes(sram) for sram in memories])

    return [
        target.address.eq(address),
        target.stride.eq(scaled("x_stride")),
        target.rows.eq(rows),
        target.row_bytes.eq(scaled("x_size")),
    ]


def address_of(mem: Mapping[str, Value], bases: Sequence[Value], memories: Sequence[Sram], which: Value) -> Value:
    """The byte that a LOAD or STORE begins with."""
    places = zip(bases, memories, strict=True)
    return chosen(which, [base + (mem["dram_base"] << log_bytes(sram)) for base, sram in places])
