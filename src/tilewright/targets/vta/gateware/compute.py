"""The compute unit in gateware. The unit runs GEMM, ALU or both, their LOADs, and FINISH, one instruction at a time.

The micro-op sequencer runs two nested loops over a list of micro-ops and computes the tile offsets of each iteration.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hdl.mac import Operation
from tilewright.hdl.memory import BeatWrite, TileRead, TileWrite
from tilewright.hdl.parts import Part, add, after, clear, drive, expose, latch, ports
from tilewright.hdl.rescale import Rescale
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.core import OPERATIONS, RESCALES, Core
from tilewright.targets.vta.gateware.moving import placed, received, row_bursts
from tilewright.targets.vta.gateware.units import OPERANDS, UNIT, Dispatcher, dispatched, fields, offsets, reader, tiles
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import ITER_BITS, Memory, Opcode
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES
from tilewright.targets.vta.timing.model import ACC_FILL_LEAD, ACC_WAIT, ALU_CORE, CORE, TILEWRIGHT


def nest(config: Config) -> data.StructLayout:
    """Return the struct layout of a loop nest. `cycles`: cycles per micro-op, minus 1; `factors`: 1 for a REQ."""
    uop = config.index_bits.uop
    return data.StructLayout(
        {
            "begin": uop,
            "end": uop + 1,
            "iter_out": ITER_BITS,
            "iter_in": ITER_BITS,
            "out": offsets(config),
            "in": offsets(config),
            "cycles": 16,
            "factors": 1,
        }
    )


class Sequencer(Part):
    """Issues the micro-ops of a loop nest from the cycle after `start` on (`index` and `offset`, if `valid` is high).

    `first` and `last` mark the first and last cycle of a micro-op, `ends` the last cycle of the nest. A nest without
    micro-ops issues nothing. The sequencer waits while `go` is low. Before each outer iteration of REQ, `factor` counts
    from 1 to 3 while `offset` steps through the three tiles of factors.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            nest=In(nest(config)),
            start=In(1),
            go=In(1, init=1),
            valid=Out(1),
            index=Out(config.index_bits.uop),
            offset=Out(offsets(config)),
            first=Out(1),
            last=Out(1),
            factor=Out(range(FACTOR_TILES + 1)),
            ends=Out(1),
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        n = Signal(nest(self.config))
        outer = Signal(offsets(self.config))
        inner_left = Signal(ITER_BITS)
        outer_left = Signal(ITER_BITS)
        phase = Signal(16)
        last_uop = Signal()
        issues = Signal()
        m.d.comb += drive(
            self,
            first=issues & (phase == 0),
            last=issues & (phase == n.cycles),
            ends=self.last & self.go & last_uop & (inner_left == 1) & (outer_left == 1),
        )
        m.d.comb += [
            issues.eq(self.valid & (self.factor == 0)),
            last_uop.eq(self.index == (n.end - 1)[: len(self.index)]),
        ]
        with m.If(issues & self.go):
            m.d.sync += phase.eq(Mux(self.last, 0, phase + 1))
        with m.If(self.last & self.go):
            m.d.sync += self.index.eq(self.index + 1)
            with m.If(last_uop):
                m.d.sync += [self.index.eq(n.begin), inner_left.eq(inner_left - 1)]
                m.d.sync += [self.offset[name].eq(self.offset[name] + n["in"][name]) for name in OPERANDS]
                with m.If(inner_left == 1):  # the next outer iteration has a new start offset
                    m.d.sync += [inner_left.eq(n.iter_in), outer_left.eq(outer_left - 1), self.factor.eq(n.factors)]
                    for name in OPERANDS:
                        following = outer[name] + n.out[name]
                        m.d.sync += [outer[name].eq(following), self.offset[name].eq(following)]
        # The tiles of factors come first. During these cycles, no micro-op is issued.
        if self.config.has_parameters:
            with m.If((self.factor != 0) & self.go):
                m.d.sync += self.factor.eq(Mux(self.factor == FACTOR_TILES, 0, self.factor + 1))
                m.d.sync += self.offset.wgt.eq(self.offset.wgt + 1)
        with m.If(self.ends):
            m.d.sync += clear(self.valid, self.factor)
        with m.If(self.start):
            new = self.nest
            some = (new.begin < new.end) & (new.iter_out != 0) & (new.iter_in != 0)
            m.d.sync += [n.eq(new), *drive(self, valid=some, index=new.begin), phase.eq(0)]
            m.d.sync += [inner_left.eq(new.iter_in), outer_left.eq(new.iter_out), *clear(self.offset, outer)]
            m.d.sync += self.factor.eq(some & new.factors)
        return m


#: The number of cycles from the start of a LOAD of acc to the start of its receiver. In these cycles, the core may
#: still write acc.
ACC_DRAIN = ACC_FILL_LEAD - 2


class ComputeUnit(Part):
    """The compute unit with number `number` in the pipeline.

    It runs GEMM, ALU or (with three stages) both. An instruction ends, and pushes its tokens, `depth` cycles after the
    unit is free for the next instruction. In these cycles, the core writes the last results.
    """

    def __init__(self, config: Config, number: int) -> None:
        self.config = config
        line = config.pipeline
        gemm = number == line.gemm
        self.sides = (number > 0, number < line.store)
        self.core = core = Core(config, gemm, number == line.alu)
        self.depth = CORE if gemm else ALU_CORE
        #: The memories that the unit loads: micro-ops, and accumulators with padding.
        self.loads = {"uop": config.uop, "acc": config.acc} if gemm else {"uop": config.alu_uop}
        super().__init__(
            **UNIT,
            **reader(config),
            **{f"{name}_base": In(32) for name in self.loads},
            **{f"{name}_beats": Out(BeatWrite(tiles(sram, config))) for name, sram in self.loads.items()},
            **{name: Out(TileRead(shape)) for name, shape in core.reads.items()},
            **{name: Out(TileWrite(shape)) for name, shape in core.writes.items()},
            launch=In(1),
            done=Out(1),
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        dispatch = dispatched(m, self, self.sides)
        computed = self._compute(m, dispatch)
        moved = self._move(m, dispatch)
        opcode = dispatch.current[:3]
        loops = (opcode == Opcode.GEMM) | (opcode == Opcode.ALU)
        m.d.comb += drive(dispatch, finished=Mux(loops, computed, moved), may_end=1)
        # Tokens and the end of an instruction follow its last write, `depth` cycles after the unit is free.
        ended: Value = Cat(dispatch.ends, dispatch.reserve, dispatch.ends & (opcode == Opcode.FINISH))
        ended = after(m, ended, self.depth - 1)
        m.d.comb += [self.ends.eq(ended[0]), self.tokens.push.eq(ended[1:3])]
        with m.If(self.launch):
            m.d.sync += self.done.eq(0)
        with m.Elif(ended[3]):
            m.d.sync += self.done.eq(1)
        return m

    def _compute(self, m: Module, dispatch: Dispatcher) -> Value:
        """Add GEMM and ALU. Return the signal that frees the unit: last issue, or `Core.drained` (extra latency)."""
        config = self.config
        core = self.core
        sequencer = Sequencer(config)
        add(m, "core", core, **ports(sequencer, "index", "offset"))
        for name in (*core.reads, *core.writes):
            expose(m, getattr(core, name), getattr(self, name))
        starts = dispatch.start & self._nest(m, dispatch.insn.payload, sequencer.nest)
        add(m, "sequencer", sequencer, go=core.go, start=starts)
        now = fields(dispatch.current, config.formats.alu)
        work = core.work
        computes = now["opcode"] == Opcode.ALU
        late = Signal()
        drains = Signal()
        m.d.comb += drive(
            work,
            reads=sequencer.first & computes & ~now["use_imm"] & (work.rescale != Rescale.REQ),
            writes=sequencer.last,
            factor=sequencer.factor,
            ends=sequencer.ends & late,
            is_alu=computes,
            reset=now["reset_reg"],
            use_imm=now["use_imm"],
            imm=now["imm"],
            op=Operation.NONE,
        )
        with m.Switch(now["alu_opcode"]):
            for code in config.alu_ops:
                with m.Case(code):
                    if code in OPERATIONS:
                        m.d.comb += work.op.eq(OPERATIONS[code])
                    elif code in RESCALES and core.extended:
                        rescale = Mux(computes, RESCALES[code], Rescale.NONE)
                        m.d.comb += [late.eq(computes), work.rescale.eq(rescale)]
            for index, operation in enumerate(config.own_alu if core.alu else (), 1):
                with m.Case(operation.opcode):
                    m.d.comb += [late.eq(computes & (operation.latency > 0)), work.own.eq(Mux(computes, index, 0))]
        latch(m, drains, work.ends, core.drained)
        # A nest without micro-ops never becomes valid, and ends at once.
        over = sequencer.ends | ~sequencer.valid
        return Mux(late, core.drained | ~(sequencer.valid | drains), over)

    def _nest(self, m: Module, word: Value, nest: Any) -> Value:
        """Set the loop nest if `word` is a GEMM or ALU instruction; return whether `word` is such an instruction."""
        config = self.config
        cycles = TILEWRIGHT.intervals(self.config)
        gemm, alu = (fields(word, layout) for layout in (config.formats.gemm, config.formats.alu))
        is_alu = gemm["opcode"] == Opcode.ALU
        opcode = alu["alu_opcode"]
        sources = {"begin": "uop_bgn", "end": "uop_end", "iter_out": "iter_out", "iter_in": "iter_in"}
        m.d.comb += drive(nest, **{name: Mux(is_alu, alu[field], gemm[field]) for name, field in sources.items()})
        for loop in ("out", "in"):
            for name in OPERANDS:
                field = f"{name}_factor_{loop}"
                m.d.comb += nest[loop][name].eq(Mux(is_alu, alu.get(field, 0), gemm[field]))
        # The sequencer counts from 0, so cycles are stored minus 1.
        of_alu = Mux(alu["use_imm"], cycles.alu_immediate, cycles.alu)
        is_req = is_alu & (opcode == AluOp.REQ)
        m.d.comb += nest.cycles.eq(Mux(is_alu, of_alu, cycles.gemm) - 1)
        if config.has_parameters:
            m.d.comb += nest.factors.eq(is_req)
            with m.If(is_req):
                m.d.comb += [nest.out.wgt.eq(alu["imm"]), nest.cycles.eq(cycles.requantise - 1)]
        for operation in config.own_alu:
            slow = [max(operation.cycles, interval) - 1 for interval in (cycles.alu_immediate, cycles.alu)]
            with m.If(is_alu & (opcode == operation.opcode)):
                m.d.comb += nest.cycles.eq(Mux(alu["use_imm"], *slow))
        return is_alu | (gemm["opcode"] == Opcode.GEMM)

    def _move(self, m: Module, dispatch: Dispatcher) -> Value:
        """Add LOADs of acc and of micro-ops (HLS: one row, no padding). Return a signal that all data is written."""
        config = self.config
        rules = self.config.rules
        mem = fields(dispatch.current, config.formats.mem)
        receiver = received(m, self, self.loads, "_beats")
        is_acc = Signal()
        rows = Signal(16)
        loads_here = Signal()
        transfers = Signal()
        bursts = row_bursts(m, self, mem, rows, self.loads, is_acc)
        placer = placed(m, self, mem, bursts, self.loads, is_acc, padded=is_acc | rules.full_loads)
        micro_ops = config.pipeline.uop_memory(alu=not self.core.gemm)
        m.d.comb += [
            is_acc.eq((mem["memory_type"] == Memory.ACC) if "acc" in self.loads else 0),
            loads_here.eq((mem["opcode"] == Opcode.LOAD) & (is_acc | (mem["memory_type"] == micro_ops))),
            rows.eq(Mux(is_acc | rules.full_loads, mem["y_size"], 1)),
            transfers.eq(loads_here & (mem["x_size"] != 0) & (rows != 0)),
        ]
        prepare = after(m, dispatch.start, 1)
        since = Signal(range(ACC_DRAIN + 2))
        works = Signal()
        begun = Signal()
        pads = placer.padded & ((mem["x_size"] != 0) | rules.empty_loads_pad)
        m.d.comb += works.eq(transfers | (loads_here & pads))
        # `since` counts the cycles of a LOAD of acc, which must wait until the core has written its last results.
        with m.If(dispatch.start):
            m.d.sync += since.eq(0)
        with m.Elif(since <= ACC_DRAIN):
            m.d.sync += since.eq(since + 1)
        asks = Mux(is_acc, since == ACC_WAIT, prepare)
        places = Mux(is_acc, since == ACC_DRAIN, prepare)
        m.d.comb += bursts.start.eq(asks & transfers)
        m.d.comb += drive(receiver.placements, valid=places & works, payload=placer.placement)
        with m.If(dispatch.start):
            m.d.sync += begun.eq(0)
        with m.Elif(places):
            m.d.sync += begun.eq(1)
        return (prepare & ~works) | (~prepare & (~works | (begun & receiver.idle)))
