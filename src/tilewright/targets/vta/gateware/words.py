"""Instruction words and memories of one config, as the gateware sees them."""

from __future__ import annotations

from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.memory import Tiles
from tilewright.program.instruction import Layout
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.fields import INSN_BYTES

INSN_BITS = 8 * INSN_BYTES


def fields(word: Value, layout: Layout) -> dict[str, Value]:
    """Each field of an instruction or micro-op."""
    found = {}
    for field in layout.fields:
        part = word[layout.offsets[field.name] : layout.offsets[field.name] + field.width]
        found[field.name] = part.as_signed() if field.signed else part
    return found


def tiles(sram: Sram, config: Config) -> Tiles:
    return Tiles(8 * sram.tile_bytes, config.bus_bits, sram.depth)


def log_bytes(sram: Sram) -> int:
    """log2 of the bytes of a tile."""
    return ceil_log2(sram.tile_bytes)


class Neighbours(wiring.Signature):
    """A unit's side of its token queues; bit 0 the unit before, bit 1 the unit behind."""

    def __init__(self) -> None:
        super().__init__({"available": In(2), "room": In(2), "pop": Out(2), "reserve": Out(2), "push": Out(2)})
