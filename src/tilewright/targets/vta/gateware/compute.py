"""The unit of a core: GEMM, ALU or both, LOAD of what they need, FINISH; one after the other, the core overlapped."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.axi import BURST, RowBursts
from tilewright.hdl.mac import Operation
from tilewright.hdl.memory import BeatWrite, TileRead, TileWrite
from tilewright.hdl.rescale import Rescale
from tilewright.hdl.transfers import Placer, TileReceiver
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.core import OPERATIONS, RESCALES, Core
from tilewright.targets.vta.gateware.dispatch import Dispatcher, joined
from tilewright.targets.vta.gateware.loop import OPERANDS, Sequencer
from tilewright.targets.vta.gateware.moving import address_of, place, rows_of
from tilewright.targets.vta.gateware.words import INSN_BITS, Neighbours, fields, tiles
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.timing.tilewright import (
    ACC_FILL_LEAD,
    ACC_WAIT,
    ALU_CORE,
    CORE,
    LONGEST,
    TILEWRIGHT,
)

#: Cycles from the first of an instruction's to the one in which acc's receiver learns of it.
ACC_DRAIN = ACC_FILL_LEAD - 2


class Compute(wiring.Component):
    """Unit `number` of the line, which runs GEMM, ALU or, of three stages, both.

    Instructions end, with their tokens, `depth` cycles after the unit is free for the next: the core has written.
    """

    def __init__(self, config: Config, number: int) -> None:
        self.config, line = config, config.pipeline
        gemm, self.sides = number == line.gemm, (number > 0, number < line.store)
        self.core = core = Core(config, gemm, number == line.alu)
        self.depth = CORE if gemm else ALU_CORE
        #: What it loads: micro-ops in a row, accumulators with padding.
        self.loads = {"uop": config.uop, "acc": config.acc} if gemm else {"uop": config.alu_uop}
        super().__init__(
            {
                "insn": In(stream.Signature(INSN_BITS)),
                "tokens": Out(Neighbours()),
                **{f"{name}_base": In(32) for name in self.loads},
                "client": Out(stream.Signature(BURST)),
                "valid": In(1),
                "data": In(config.bus_bits),
                **{f"{name}_beats": Out(BeatWrite(tiles(sram, config))) for name, sram in self.loads.items()},
                **{name: Out(TileRead(shape)) for name, shape in core.reads.items()},
                **{name: Out(TileWrite(shape)) for name, shape in core.writes.items()},
                "launch": In(1),
                "done": Out(1),
                "starts": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        m.submodules.dispatch = dispatch = Dispatcher(config, self.sides)
        wiring.connect(m, dispatch.insn, wiring.flipped(self.insn))
        computed, moved = self._compute(m, dispatch), self._move(m, dispatch)
        opcode = dispatch.current[:3]
        loops = (opcode == Opcode.GEMM) | (opcode == Opcode.ALU)
        m.d.comb += [dispatch.finished.eq(Mux(loops, computed, moved)), dispatch.may_end.eq(1)]

        ended: Value = Cat(dispatch.ends, dispatch.reserve, dispatch.ends & (opcode == Opcode.FINISH))
        for _ in range(self.depth - 1):
            later = Signal.like(ended, name="ended")
            m.d.sync += later.eq(ended)
            ended = later
        m.d.comb += [self.starts.eq(dispatch.start), self.ends.eq(ended[0]), self.tokens.push.eq(ended[1:3])]
        m.d.comb += joined(self.tokens, dispatch)
        with m.If(self.launch):
            m.d.sync += self.done.eq(0)
        with m.Elif(ended[3]):
            m.d.sync += self.done.eq(1)
        return m

    def _compute(self, m: Module, dispatch: Dispatcher) -> Value:
        """GEMM and ALU; whether the last micro-op is out."""
        config = self.config
        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.core = core = self.core
        for name in (*core.reads, *core.writes):
            wiring.connect(m, getattr(core, name), wiring.flipped(getattr(self, name)))
        word = dispatch.insn.payload  # in the cycle of the start
        gemm, alu = (fields(word, layout) for layout in (config.formats.gemm, config.formats.alu))
        is_alu, own = gemm["opcode"] == Opcode.ALU, TILEWRIGHT.intervals(config)
        nest = sequencer.nest
        sources = {"begin": "uop_bgn", "end": "uop_end", "iter_out": "iter_out", "iter_in": "iter_in"}
        m.d.comb += [nest[name].eq(Mux(is_alu, alu[field], gemm[field])) for name, field in sources.items()]
        for loop in ("out", "in"):
            for name in OPERANDS:
                field = f"{name}_factor_{loop}"
                m.d.comb += nest[loop][name].eq(Mux(is_alu, alu.get(field, 0), gemm[field]))
        of_alu, is_req = Mux(alu["use_imm"], own.alu_immediate, own.alu), is_alu & (alu["alu_opcode"] == AluOp.REQ)
        m.d.comb += nest.cycles.eq(Mux(is_alu, of_alu, own.gemm) - 1)
        if config.has_parameters:
            m.d.comb += nest.factors.eq(is_req)
            with m.If(is_req):
                m.d.comb += [nest.out.wgt.eq(alu["imm"]), nest.cycles.eq(own.requantise - 1)]
        m.d.comb += [
            sequencer.go.eq(core.go),
            sequencer.start.eq(dispatch.start & (is_alu | (gemm["opcode"] == Opcode.GEMM))),
        ]
        now, work = fields(dispatch.current, config.formats.alu), core.work
        computes, rescales, drains = now["opcode"] == Opcode.ALU, Signal(), Signal()
        m.d.comb += [
            core.index.eq(sequencer.index),
            core.offset.eq(sequencer.offset),
            work.reads.eq(sequencer.first & computes & ~now["use_imm"] & (work.rescale != Rescale.REQ)),
            work.writes.eq(sequencer.last),
            work.factor.eq(sequencer.factor),
            work.ends.eq(sequencer.ends & rescales),
            work.is_alu.eq(computes),
            work.reset.eq(now["reset_reg"]),
            work.use_imm.eq(now["use_imm"]),
            work.imm.eq(now["imm"]),
            work.op.eq(Operation.NONE),
        ]
        with m.Switch(now["alu_opcode"]):
            for code, operation in OPERATIONS.items():
                with m.Case(code):
                    m.d.comb += work.op.eq(operation)
            for code, rescale in RESCALES.items() if core.extended else ():
                with m.Case(code):
                    m.d.comb += [rescales.eq(computes), work.rescale.eq(Mux(computes, rescale, Rescale.NONE))]
        with m.If(work.ends):
            m.d.sync += drains.eq(1)
        with m.Elif(core.drained):
            m.d.sync += drains.eq(0)
        over = sequencer.ends | ~sequencer.valid
        return Mux(rescales, core.drained | ~(sequencer.valid | drains), over)

    def _move(self, m: Module, dispatch: Dispatcher) -> Value:
        """LOAD of micro-ops (HLS: a row without padding) and of accumulators; whether what there is has come."""
        config, memories, rules = self.config, list(self.loads.values()), SEMANTICS[self.config.semantics]
        m.submodules.placer = placer = Placer()
        m.submodules.bursts = bursts = RowBursts(config.bus_bits, LONGEST)
        m.submodules.receiver = receiver = TileReceiver([tiles(sram, config) for sram in memories])
        wiring.connect(m, bursts.bursts, wiring.flipped(self.client))
        for number, name in enumerate(self.loads):
            wiring.connect(m, getattr(receiver, f"write{number}"), wiring.flipped(getattr(self, f"{name}_beats")))
        mem, bases = fields(dispatch.current, config.formats.mem), [getattr(self, f"{n}_base") for n in self.loads]
        is_acc, rows, known, transfers = Signal(), Signal(16), Signal(), Signal()
        address = Signal(32)
        micro_ops = config.pipeline.uop_memory(alu=not self.core.gemm)
        m.d.comb += [
            is_acc.eq((mem["memory_type"] == Memory.ACC) if "acc" in self.loads else 0),
            known.eq((mem["opcode"] == Opcode.LOAD) & (is_acc | (mem["memory_type"] == micro_ops))),
            rows.eq(Mux(is_acc | rules.full_loads, mem["y_size"], 1)),
            transfers.eq(known & (mem["x_size"] != 0) & (rows != 0)),
            address.eq(address_of(mem, bases, memories, is_acc)),
        ]
        m.d.comb += place(placer, mem, address, rows, config, memories, is_acc, padded=is_acc | rules.full_loads)
        m.d.comb += rows_of(bursts.rows, mem, address, rows, memories, is_acc)

        prepare, since = Signal(), Signal(range(ACC_DRAIN + 2))
        works, placed = Signal(), Signal()
        m.d.sync += prepare.eq(dispatch.start)
        pads = placer.padded & ((mem["x_size"] != 0) | rules.empty_loads_pad)
        m.d.comb += works.eq(transfers | (known & pads))
        with m.If(dispatch.start):
            m.d.sync += since.eq(0)
        with m.Elif(since <= ACC_DRAIN):
            m.d.sync += since.eq(since + 1)
        asks = Mux(is_acc, since == ACC_WAIT, prepare)
        places = Mux(is_acc, since == ACC_DRAIN, prepare)
        m.d.comb += [
            bursts.start.eq(asks & transfers),
            receiver.placements.valid.eq(places & works),
            receiver.placements.payload.eq(placer.placement),
            receiver.valid.eq(self.valid),
            receiver.data.eq(self.data),
        ]
        with m.If(dispatch.start):
            m.d.sync += placed.eq(0)
        with m.Elif(places):
            m.d.sync += placed.eq(1)
        return (prepare & ~works) | (~prepare & (~works | (placed & receiver.idle)))
