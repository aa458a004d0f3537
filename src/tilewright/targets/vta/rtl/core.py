"""The compute core: GEMM and tensor ALU on one pipeline, a micro-op a cycle, no gap between instructions.

Cycles from the issue of a micro-op: 0 its fetch, 1 tile indices, 2 reads of inp and wgt, 3 products, 4 sums and the
read of acc, 5 the write of acc and out. A micro-op reads what the one before it wrote: acc passes writes on to reads.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.alu import Operation, TensorAlu
from tilewright.hdl.mac import MacArray
from tilewright.hdl.memory import TileRead, TileWrite
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.rtl.loop import OPERANDS, offsets
from tilewright.targets.vta.rtl.words import fields, tiles
from tilewright.targets.vta.timing.tilewright import CORE

#: What the ALU's lanes do; others leave acc alone (MUL, as upstream's HLS design).
OPERATIONS = {
    AluOp.MIN: Operation.MIN,
    AluOp.MAX: Operation.MAX,
    AluOp.ADD: Operation.ADD,
    AluOp.SHR: Operation.SHR,
}

#: What goes with a micro-op through the pipeline. `reads`: acc[src] is taken as second operand; `writes` acc and out.
WORK = data.StructLayout({"reads": 1, "writes": 1, "is_alu": 1, "reset": 1, "use_imm": 1, "op": Operation, "imm": 16})


class Core(wiring.Component):
    """A micro-op is issued where `work` reads or writes; micro-op and offsets come with it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        acc, out = tiles(config.acc, config), tiles(config.out, config)
        super().__init__(
            {
                "work": In(WORK),
                "index": In(config.index_bits.uop),
                "offset": In(offsets(config)),
                "uop": Out(TileRead(tiles(config.uop, config))),
                "inp": Out(TileRead(tiles(config.inp, config))),
                "wgt": Out(TileRead(tiles(config.wgt, config))),
                "acc": Out(TileRead(acc)),
                "acc_write": Out(TileWrite(acc)),
                "out_write": Out(TileWrite(out)),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        m.submodules.mac = mac = MacArray(
            config.batch, config.block, config.inp.width, config.wgt.width, config.multipliers
        )
        m.submodules.alu = alu = TensorAlu(config.batch * config.block, config.LOG_ACC_WIDTH)
        work = [self.work]
        for stage in range(1, CORE + 1):
            work.append(Signal(WORK, name=f"work{stage}"))
            m.d.sync += work[stage].eq(work[stage - 1])

        # 0, 1: the micro-op, and its tiles.
        offset, index = Signal(offsets(config)), Signal(offsets(config))
        uop = fields(self.uop.data, config.formats.uop)
        m.d.comb += [self.uop.index.eq(self.index), self.uop.en.eq(_any(work[0]))]
        m.d.sync += offset.eq(self.offset)
        m.d.sync += [index[name].eq(uop[name] + offset[name]) for name in OPERANDS]
        # 2, 3: operands of GEMM.
        multiplies = work[2].writes & ~work[2].is_alu
        m.d.comb += [
            self.inp.index.eq(index.src),
            self.inp.en.eq(multiplies),
            self.wgt.index.eq(index.wgt),
            self.wgt.en.eq(multiplies),
            mac.inp.eq(self.inp.data),
            mac.wgt.eq(self.wgt.data),
        ]
        # 4: the accumulator.
        at = Signal(config.index_bits.acc)
        delayed = Signal.like(at)
        m.d.sync += [delayed.eq(Mux(work[2].reads, index.src, index.dst)), at.eq(delayed)]
        m.d.comb += [self.acc.index.eq(at), self.acc.en.eq(_any(work[4]))]
        # 5: the result.
        now, written, operand = work[5], Signal.like(at), Signal(8 * config.acc.tile_bytes)
        m.d.sync += written.eq(at)
        with m.If(now.reads):
            m.d.sync += operand.eq(self.acc.data)
        width, count = config.acc.width, config.batch * config.block
        immediate = Signal(width)
        m.d.comb += [
            immediate.eq(now.imm.as_signed()),
            alu.op.eq(now.op),
            alu.first.eq(self.acc.data),
            alu.second.eq(Mux(now.use_imm, immediate.replicate(count), operand)),
        ]
        sums = Cat(
            (a.as_signed() + b.as_signed())[:width]
            for a, b in zip(_parts(self.acc.data, width), _parts(mac.sums, mac.sum_bits), strict=True)
        )
        result = Signal(width * count)
        m.d.comb += [
            result.eq(Mux(now.is_alu, alu.result, sums)),
            self.acc_write.index.eq(written),
            self.acc_write.en.eq(now.writes),
            self.acc_write.data.eq(Mux(now.reset & ~now.is_alu, 0, result)),
            self.out_write.index.eq(written),
            self.out_write.en.eq(now.writes),
            self.out_write.data.eq(Cat(part[: config.out.width] for part in _parts(result, width))),
        ]
        return m


def _any(work: Any) -> Value:
    return work.reads | work.writes


def _parts(word: Value, bits: int) -> list[Value]:
    return [word[at : at + bits] for at in range(0, len(word), bits)]
