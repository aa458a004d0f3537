"""Common parts of all units: instruction fields, and a dispatcher that waits for tokens."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.axi import BURST
from tilewright.hdl.memory import Tiles
from tilewright.hdl.parts import Part, add, drive, expose, ports
from tilewright.program.instruction import Layout
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.fields import INSN_BYTES

INSN_BITS = 8 * INSN_BYTES


def fields(word: Value, layout: Layout) -> dict[str, Value]:
    """Return the signal of each field of an instruction or micro-op `word`, by field name."""
    found = {}
    for field in layout.fields:
        part = word[layout.offsets[field.name] : layout.offsets[field.name] + field.width]
        found[field.name] = part.as_signed() if field.signed else part
    return found


#: The operands of a micro-op.
OPERANDS = ("dst", "src", "wgt")


def offsets(config: Config) -> data.StructLayout:
    """Return a struct layout with one tile offset for each operand of a micro-op: dst, src, wgt."""
    bits = config.index_bits
    return data.StructLayout({"dst": bits.acc, "src": max(bits.acc, bits.inp), "wgt": bits.wgt})


def tiles(sram: Sram, config: Config) -> Tiles:
    return Tiles(8 * sram.tile_bytes, config.bus_bits, sram.depth)


def log_bytes(sram: Sram) -> int:
    """Return log2 of the bytes of one tile of a memory, rounded up."""
    return ceil_log2(sram.tile_bytes)


#: The ports of a unit to its token queues. Bit 0 of each port is for the previous unit, bit 1 for the next unit.
NEIGHBOURS = wiring.Signature({"available": In(2), "room": In(2), "pop": Out(2), "reserve": Out(2), "push": Out(2)})


class Dispatcher(Part):
    """Starts a unit's instructions one by one. The instruction is on `insn` in the cycle of `start`, then in `current`.

    `start` waits for the tokens that the instruction pops. `finished`: the work of `current` is done. `may_end`: the
    unit has room for one more instruction that completes later. `ends`: `finished` and `may_end` are high, and the
    token queues have room for the tokens of `current`. The dispatcher then reserves that room, and the next instruction
    may start in the same cycle. `sides` says whether the unit has a previous and a next unit; token bits of a missing
    unit are ignored.
    """

    def __init__(self, config: Config, sides: tuple[bool, bool]) -> None:
        self.config, self.sides = config, sides
        super().__init__(
            insn=In(stream.Signature(INSN_BITS)),
            available=In(2),
            room=In(2),
            pop=Out(2),
            reserve=Out(2),
            finished=In(1),
            may_end=In(1),
            start=Out(1),
            ends=Out(1),
            current=Out(INSN_BITS),
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        coming, now = (fields(word, self.config.formats.plain) for word in (self.insn.payload, self.current))
        sides = Cat(*self.sides)
        pops, pushes, held = Signal(2), Signal(2), Signal()
        m.d.comb += drive(
            self,
            ends=held & self.finished & self.may_end & ((pushes & ~self.room) == 0),
            start=(~held | self.ends) & self.insn.valid & ((pops & ~self.available) == 0),
            pop=pops & self.start.replicate(2),
            reserve=pushes & self.ends.replicate(2),
        )
        m.d.comb += [
            pops.eq(Cat(coming["pop_prev"], coming["pop_next"]) & sides),
            pushes.eq(Cat(now["push_prev"], now["push_next"]) & sides),
            self.insn.ready.eq(self.start),
        ]
        with m.If(self.start):
            m.d.sync += [held.eq(1), self.current.eq(self.insn.payload)]
        with m.Elif(self.ends):
            m.d.sync += held.eq(0)
        return m


#: The ports of every unit. `starts` and `ends` are described in top.Vta.
UNIT = {"insn": In(stream.Signature(INSN_BITS)), "tokens": Out(NEIGHBOURS), "starts": Out(1), "ends": Out(1)}


def reader(config: Config) -> dict[str, Any]:
    """Return the ports of a component that reads DRAM: its burst requests, and the beats that it receives."""
    return {"client": Out(stream.Signature(BURST)), "valid": In(1), "data": In(config.bus_bits)}


def dispatched(m: Module, unit: Any, sides: tuple[bool, bool]) -> Dispatcher:
    """Add a dispatcher to a unit, connect its ports, and return it.

    The unit itself must drive its ports `ends` and `tokens.push`.
    """
    dispatch = add(m, "dispatch", Dispatcher(unit.config, sides), **ports(unit.tokens, "available", "room"))
    expose(m, dispatch.insn, unit.insn)
    m.d.comb += drive(unit.tokens, **ports(dispatch, "pop", "reserve"))
    m.d.comb += unit.starts.eq(dispatch.start)
    return dispatch
