"""The fetch unit: it reads the instruction stream ahead, in bursts, and passes each instruction to its unit's queue."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, drive
from tilewright.hdl.queues import StreamFifo
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.units import INSN_BITS, fields, reader
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory, Opcode
from tilewright.targets.vta.timing.model import BATCHES, batch_of


class Fetch(Part):
    """Fetches `count` instructions from address `base` (a multiple of the longest burst) after a pulse of `launch`.

    The first request is made in the next cycle, each later one as soon as the buffer has room for a whole burst.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        units = {name: Out(stream.Signature(INSN_BITS)) for name in config.pipeline.units}
        super().__init__(launch=In(1), base=In(32), count=In(32), **reader(config), **units)

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        size, room = batch_of(config), BATCHES * batch_of(config)
        address, left, here = Signal(32), Signal(32), Signal(32)  # next request; left to request, to pass on
        reserved, many = Signal(range(room + 1)), Signal(range(size + 1))
        granted, sent = Signal(), Signal()
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
        insn, valid, taken = self._buffer(m, room, here)
        self._route(m, insn, valid, taken)
        m.d.comb += sent.eq(valid & taken)
        return m

    def _buffer(self, m: Module, room: int, left: Signal) -> tuple[Any, Any, Signal]:
        """Add the instruction buffer. Return its next instruction, whether there is one, and a signal to remove it."""
        bits, taken = self.config.bus_bits, Signal()
        if bits <= INSN_BITS:  # an instruction is one or more beats
            parts = INSN_BITS // bits
            m.submodules.buffer = fifo = StreamFifo(INSN_BITS, room)
            word, part = Signal(INSN_BITS), Signal(range(max(2, parts)))
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
        line, mem = self.config.pipeline, fields(insn, self.config.formats.mem)
        unit = Signal(range(len(line.units)))
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
