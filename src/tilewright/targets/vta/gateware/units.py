"""Common parts of all units (instruction fields, and a dispatcher that waits for tokens), and the fetch unit.

The fetch unit reads the instruction stream ahead, in bursts, and passes each instruction to its unit's queue.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.axi import BURST
from tilewright.hdl.memory import StreamFifo, Tiles
from tilewright.hdl.parts import Part, add, drive, expose, ports
from tilewright.program.instruction import Layout
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory, Opcode
from tilewright.targets.vta.timing.model import BATCHES, batch_of

INSN_BITS = 8 * INSN_BYTES


def fields(word: Value, layout: Layout) -> dict[str, Value]:
    """Return the signal of each field of an instruction or micro-op `word`, by field name."""
    signals = {}
    for field in layout.fields:
        part = word[layout.offsets[field.name] : layout.offsets[field.name] + field.width]
        signals[field.name] = part.as_signed() if field.signed else part
    return signals


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
    """Starts a unit's instructions one by one.

    `insn` is the instruction in the cycle of `start`, `current` in later cycles.

    `start` waits for the tokens that the instruction pops. `finished`: the work of `current` is done. `may_end`: the
    unit has room for one more instruction that completes later. `ends`: `finished` and `may_end` are high, and the
    token queues have room for the tokens of `current`. When `ends` is high, the dispatcher reserves this room, and the
    next instruction may start in the same cycle. `sides`: whether the unit has a previous and a next unit. Token bits
    of a missing unit are ignored.
    """

    def __init__(self, config: Config, sides: tuple[bool, bool]) -> None:
        self.config = config
        self.sides = sides
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
        pops = Signal(2)
        pushes = Signal(2)
        held = Signal()
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
        # `start` has priority: `ends` and the next `start` can be high in the same cycle, and the unit then stays held.
        with m.If(self.start):
            m.d.sync += [held.eq(1), self.current.eq(self.insn.payload)]
        with m.Elif(self.ends):
            m.d.sync += held.eq(0)
        return m


#: The ports of every unit. `starts` and `ends` are described in top.Vta.
UNIT = {"insn": In(stream.Signature(INSN_BITS)), "tokens": Out(NEIGHBOURS), "starts": Out(1), "ends": Out(1)}


def reader(config: Config) -> dict[str, Any]:
    """Return the ports of a component that reads DRAM: burst requests, and received beats."""
    return {"client": Out(stream.Signature(BURST)), "valid": In(1), "data": In(config.bus_bits)}


def dispatched(m: Module, unit: Any, sides: tuple[bool, bool]) -> Dispatcher:
    """Add, connect and return a unit's dispatcher. The unit itself must drive its ports `ends` and `tokens.push`."""
    dispatch = add(m, "dispatch", Dispatcher(unit.config, sides), **ports(unit.tokens, "available", "room"))
    expose(m, dispatch.insn, unit.insn)
    m.d.comb += drive(unit.tokens, **ports(dispatch, "pop", "reserve"))
    m.d.comb += unit.starts.eq(dispatch.start)
    return dispatch


class Fetch(Part):
    """Fetches `count` instructions from address `base` (a multiple of the longest burst) after a `launch` pulse.

    The first request is made in the next cycle. Later requests wait until the buffer has room for a burst.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        units = {name: Out(stream.Signature(INSN_BITS)) for name in config.pipeline.units}
        super().__init__(launch=In(1), base=In(32), count=In(32), **reader(config), **units)

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        config = self.config
        size = batch_of(config)
        room = BATCHES * batch_of(config)
        # The address of the next request, the number of instructions to request, and the number of instructions to pass
        # on.
        address = Signal(32)
        left = Signal(32)
        here = Signal(32)
        reserved = Signal(range(room + 1))
        many = Signal(range(size + 1))
        granted = Signal()
        sent = Signal()
        beat_bytes = config.bus_bits // 8
        m.d.comb += [
            many.eq(Mux(left < size, left, size)),
            self.client.valid.eq((left != 0) & (reserved <= room - size)),
            *drive(self.client.payload, address=address, beats=(many * INSN_BYTES + beat_bytes - 1) // beat_bytes - 1),
            granted.eq(self.client.valid & self.client.ready),
        ]
        m.d.sync += reserved.eq(reserved + Mux(granted, many, 0) - sent)
        with m.If(granted):
            m.d.sync += [address.eq(address + size * INSN_BYTES), left.eq(left - many)]
        with m.If(self.launch):
            m.d.sync += [address.eq(self.base), left.eq(self.count), here.eq(self.count)]
        with m.Elif(sent):
            m.d.sync += here.eq(here - 1)
        # `reserved` counts requested instructions, so that the buffer has room for each arriving beat.
        insn, valid, taken = self._buffer(m, room, here)
        self._route(m, insn, valid, taken)
        m.d.comb += sent.eq(valid & taken)
        return m

    def _buffer(self, m: Module, room: int, left: Signal) -> tuple[Any, Any, Signal]:
        """Add the instruction buffer. Return the next instruction, a valid signal, and a signal that removes it."""
        bits = self.config.bus_bits
        taken = Signal()
        if bits <= INSN_BITS:  # an instruction is one or more beats
            parts = INSN_BITS // bits
            m.submodules.buffer = fifo = StreamFifo(INSN_BITS, room)
            word = Signal(INSN_BITS)
            part = Signal(range(max(2, parts)))
            m.d.comb += [
                word.eq(self.data),
                fifo.i.valid.eq(self.valid & (part == parts - 1)),
                fifo.o.ready.eq(taken),
            ]
            if parts > 1:
                before = Signal(INSN_BITS - bits)
                m.d.comb += word.eq(Cat(before, self.data))
                with m.If(self.valid):
                    m.d.sync += [before.eq(Cat(before, self.data)[bits:]), part.eq(Mux(part == parts - 1, 0, part + 1))]
            m.d.comb += fifo.i.payload.eq(word)
            return fifo.o.payload, fifo.o.valid, taken
        parts = bits // INSN_BITS
        m.submodules.buffer = fifo = StreamFifo(bits, room // parts)
        part = Signal(range(parts))
        m.d.comb += drive(fifo.i, valid=self.valid, payload=self.data)
        m.d.comb += fifo.o.ready.eq(taken & ((part == parts - 1) | (left == 1)))
        with m.If(fifo.o.valid & taken):
            m.d.sync += part.eq(Mux(left == 1, 0, part + 1))
        return fifo.o.payload.word_select(part, INSN_BITS), fifo.o.valid, taken

    def _route(self, m: Module, insn: Any, valid: Any, taken: Signal) -> None:
        line = self.config.pipeline
        mem = fields(insn, self.config.formats.mem)
        unit = Signal(range(len(line.units)))
        # In Amaranth the last assignment has priority: an opcode, then a LOAD's memory, overrides the default.
        m.d.comb += unit.eq(line.home)
        for opcode in Opcode:
            with m.If(mem["opcode"] == opcode):
                m.d.comb += unit.eq(line.unit_of(opcode))
        with m.If(mem["opcode"] == Opcode.LOAD):
            for memory in Memory:
                with m.If(mem["memory_type"] == memory):
                    m.d.comb += unit.eq(line.unit_of(Opcode.LOAD, memory))
        for number, name in enumerate(line.units):
            queue = getattr(self, name)
            m.d.comb += queue.payload.eq(insn)
            with m.If(unit == number):
                m.d.comb += [queue.valid.eq(valid), taken.eq(queue.ready)]
