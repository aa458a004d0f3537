"""The compute core: GEMM and tensor ALU in one pipeline, one micro-op per cycle, no gap between instructions.

Pipeline stages, in cycles from the issue of a micro-op: 0 fetches the micro-op, 1 computes tile indices, 2 reads inp
and wgt, 3 multiplies, 4 adds and reads acc, 5 writes acc and out. Without GEMM, acc is read in stage 2 and written in
stage 3. acc forwards writes to reads, so a micro-op can read the result of the micro-op before it.

MULH, RSHR and REQ write EXTENDED cycles later, an own operation `latency` cycles later. If a micro-op reads a tile with
such a pending write, this micro-op and all later micro-ops stall before acc.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.errors import ConfigError
from tilewright.hdl.mac import MacArray, Operation, TensorAlu
from tilewright.hdl.memory import TileRead, TileWrite
from tilewright.hdl.parts import Part, add, after, drive, split
from tilewright.hdl.rescale import Rescale, Rescaler
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.units import OPERANDS, fields, offsets, tiles
from tilewright.targets.vta.isa.alu import RESCALING, AluOp
from tilewright.targets.vta.isa.own import OwnOperation
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES
from tilewright.targets.vta.timing.model import ALU_CORE, CORE, EXTENDED, drained

#: The opcodes that the ALU's lanes execute. Other opcodes do not change acc (MUL, as in upstream's HLS design).
OPERATIONS = {op: Operation.__members__[op.name] for op in AluOp if op.name in Operation.__members__}
RESCALES = {op: Rescale.__members__[op.name] for op in RESCALING}


def work_of(config: Config) -> data.StructLayout:
    """Return the control signals of a micro-op in the pipeline.

    `reads`: acc[src] is the second operand. `writes`: the micro-op writes acc and out. `factor`: the micro-op reads a
    tile of factors and writes nothing. `ends`: the micro-op is the last of an instruction with extra latency. `own`:
    the number of the operation among own operations, from 1 on; 0 for other operations.
    """
    return data.StructLayout(
        {"reads": 1, "writes": 1, "is_alu": 1, "reset": 1, "use_imm": 1, "op": Operation, "imm": 16}
        | {"rescale": Rescale, "factor": range(FACTOR_TILES + 1), "ends": 1}
        | ({"own": range(len(config.own_alu) + 1)} if config.own_alu else {})
    )


class Core(Part):
    """The compute core, which starts micro-op `index`, with `offset` added to its tiles, if `work` and `go` allow.

    `work`: the micro-op's control signals (work_of). `drained`: whether the last delayed write of an instruction with
    extra latency is so near that the next instruction may be issued.
    """

    def __init__(self, config: Config, gemm: bool = True, alu: bool = True) -> None:
        self.config = config
        self.gemm = gemm
        self.alu = alu
        self.extended = alu and config.rescales
        latencies = {number: operation.latency for number, operation in enumerate(config.own_alu, 1)}
        #: The extra latency of the ALU's results, by number of the own operation; key 0 is for MULH, RSHR and REQ.
        self.latency = ({0: EXTENDED} if self.extended else {}) | (latencies if alu else {})
        self.longest = max(self.latency.values(), default=0)
        acc = tiles(config.acc, config)
        out = tiles(config.out, config)
        reads = {"uop": config.uop if gemm else config.alu_uop, "acc": config.acc}
        reads |= {"inp": config.inp, "wgt": config.wgt} if gemm else {}
        reads |= {"par": config.par} if alu and config.has_parameters else {}
        #: The memories that the core reads, by port.
        self.reads = {name: tiles(sram, config) for name, sram in reads.items()}
        self.writes = {"acc_write": acc} | ({"out_write": out} if alu else {})
        super().__init__(
            work=In(work_of(config)),
            go=Out(1, init=1),
            drained=Out(1),
            index=In(config.index_bits.uop),
            offset=In(offsets(config)),
            **{name: Out(TileRead(shape)) for name, shape in self.reads.items()},
            **{name: Out(TileWrite(shape)) for name, shape in self.writes.items()},
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        config = self.config
        rules = self.config.rules
        write = CORE if self.gemm else ALU_CORE
        read = write - 1
        go = Signal()
        work = self._stages(m, go, write)
        # Stages 0, 1: the micro-op, and its tile indices.
        offset = Signal(offsets(config))
        index = Signal(offsets(config))
        uop = fields(self.uop.data, config.formats.uop)
        m.d.comb += drive(self.uop, index=self.index, en=go & (work[0].reads | work[0].writes | (work[0].factor != 0)))
        with m.If(go):
            m.d.sync += offset.eq(self.offset)
            m.d.sync += [index[name].eq(uop[name] + offset[name]) for name in OPERANDS]
        # Stages 2, 3: operands and products of GEMM.
        sums: Value | None = None
        if self.gemm:
            sums = self._products(m, index, work[2])
        # Stage 4 (without GEMM 2): read the accumulator.
        # One port reads acc: src in the first cycle of a micro-op, dst in its last.
        reads_source = work[2].reads | (work[2].is_alu & work[2].use_imm & rules.immediate_reads_src)
        at: Value = Mux(reads_source, index.src, index.dst)[: config.index_bits.acc]
        to = index.dst
        factors = index.wgt
        biases = index.src
        for _ in range(2, read):
            at, to, factors, biases = (_held(m, value, go) for value in (at, to, factors, biases))
        m.d.comb += drive(self.acc, index=at, en=go & (work[read].reads | work[read].writes))
        # Stage 5 (without GEMM 3): write the result.
        now = work[write]
        written = Signal(config.index_bits.acc)
        operand = Signal(8 * config.acc.tile_bytes)
        m.d.sync += written.eq(to)
        with m.If(now.reads):
            m.d.sync += operand.eq(self.acc.data)
        result = Signal(8 * config.acc.tile_bytes)
        clear = now.reset & ~now.is_alu
        m.d.comb += drive(
            self.acc_write,
            index=written,
            en=now.writes & ~self._among(now, [kind for kind, latency in self.latency.items() if latency]),
            data=Mux(clear, 0, result),
        )
        m.d.comb += [result.eq(self._result(m, now, sums, operand)), self.go.eq(go)]
        # The delayed writes come last, because they override the assignments above.
        m.d.comb += go.eq(self._extended(m, work, write, at, written, operand, result) if self.latency else 1)
        if self.alu and config.has_parameters:
            is_factor = work[read].factor != 0
            m.d.comb += self.par.index.eq(Mux(is_factor, factors, biases))
            m.d.comb += self.par.en.eq(go & (is_factor | work[read].writes))
        if self.alu:
            m.d.comb += drive(
                self.out_write,
                index=self.acc_write.index,
                en=self.acc_write.en & ~(clear & (not rules.reset_writes_out)),
                data=Cat(part[: config.out.width] for part in split(result, config.acc.width)),
            )
        return m

    def _stages(self, m: Module, go: Signal, write: int) -> list[Any]:
        """Return the control signals of the micro-op in each stage. The stages before `write` wait for `go`."""
        work: list[Any] = [self.work]
        for stage in range(1, write + self.longest + 1):
            following = Signal(work_of(self.config), name=f"work{stage}")
            if stage > write:
                m.d.sync += following.eq(work[-1])
            elif stage == write:
                m.d.sync += following.eq(Mux(go, work[-1], 0))
            else:
                with m.If(go):
                    m.d.sync += following.eq(work[-1])
            work.append(following)
        return work

    def _result(self, m: Module, now: Any, sums: Value | None, operand: Value) -> Value:
        """Return the result of micro-op `now` for the acc tile that was read. Only this core's operations are built."""
        config = self.config
        width = config.acc.width
        count = config.batch * config.block
        added: Value | None = None
        if sums is not None:
            pairs = zip(split(self.acc.data, width), split(sums, len(sums) // count), strict=True)
            added = Cat((a.as_signed() + b.as_signed())[:width] for a, b in pairs)
            if not self.alu:
                return added
        immediate = Signal(width)
        amounts = config.rules.shift == "low_signed"
        m.d.comb += immediate.eq(now.imm.as_signed())
        second = Mux(now.use_imm, immediate.replicate(count), operand)
        alu = TensorAlu(count, config.LOG_ACC_WIDTH, amounts)
        add(m, "alu", alu, op=now.op, left=now.imm[-1], first=self.acc.data, second=second)
        return alu.result if added is None else Mux(now.is_alu, alu.result, added)

    def _products(self, m: Module, index: Any, work: Any) -> Value:
        """Return the sums of a GEMM micro-op, valid two cycles after `work` starts to read its inp and wgt tiles."""
        config = self.config
        multiplies = work.writes & ~work.is_alu
        m.d.comb += drive(self.inp, index=index.src, en=multiplies)
        m.d.comb += drive(self.wgt, index=index.wgt, en=multiplies)
        mac = MacArray(config.batch, config.block, config.inp.width, config.wgt.width, config.multipliers)
        sums: Value = add(m, "mac", mac, inp=self.inp.data, wgt=self.wgt.data).sums
        return sums

    def _among(self, work: Any, kinds: Iterable[int]) -> Value:
        """Return a signal that is high if a micro-op's operation is in `kinds` (keys of `latency`)."""
        matches = [work.own == kind if kind else work.rescale != Rescale.NONE for kind in kinds]
        return reduce(or_, matches, Const(0))

    def _extended(
        self, m: Module, work: list[Any], write: int, at: Value, written: Value, operand: Value, result: Value
    ) -> Value:
        """Add MULH, RSHR, REQ and own operations, whose results reach tile `written` late.

        Return a signal that is high if tile `at` has no pending write.
        """
        config = self.config
        now = work[write]
        results = dict[int, Value]()
        if self.extended:
            results[0] = self._rescaled(m, now, operand)
        for number, operation in enumerate(config.own_alu, 1):
            imm = now.imm.as_signed()
            # Sign-extend the immediate field to the width of an accumulator.
            immediate = Cat(imm, imm[-1].replicate(config.acc.width - len(imm)))
            second = Mux(now.use_imm, immediate.replicate(config.batch * config.block), operand)
            results[number] = add_lanes(m, operation, self.acc.data, second, imm, now.writes & (now.own == number))
        pending: list[Value] = []
        # In stage `write + late`, `late` cycles after the usual write, results with this extra latency are written.
        # Results with a longer latency are still pending, and a micro-op that reads such a tile must wait.
        for late in range(self.longest + 1):
            stage = work[write + late]
            for kind, value in results.items():
                if self.latency[kind] == late:
                    with m.If(stage.writes & self._among(stage, [kind])):
                        m.d.comb += [result.eq(value), *drive(self.acc_write, index=written, en=1, data=value)]
            later = [kind for kind, latency in self.latency.items() if latency > late]
            pending.append(stage.writes & self._among(stage, later) & (written == at))
            written = after(m, written, 1)
        by_drain: dict[int, list[int]] = {}
        for kind, latency in self.latency.items():
            by_drain.setdefault(drained(config, latency), []).append(kind)
        ends = (work[cycles].ends & self._among(work[cycles], kinds) for cycles, kinds in by_drain.items())
        m.d.comb += self.drained.eq(reduce(or_, ends, Const(0)))
        reads = work[write - 1].reads | work[write - 1].writes
        return ~(reads & reduce(or_, pending))

    def _rescaled(self, m: Module, now: Any, operand: Value) -> Value:
        config = self.config
        count = config.batch * config.block
        rescaler = add(m, "rescaler", Rescaler(config.batch, config.block, config.alu == "float"))
        immediate = Signal(32)
        # The immediate of MULH is the upper half of the factor.
        m.d.comb += immediate.eq(Mux(now.rescale == Rescale.MULH, now.imm << 16, now.imm.as_signed()))
        second = Mux(now.use_imm, immediate.replicate(count), operand)
        if config.has_parameters:
            second = Mux(now.rescale == Rescale.REQ, Cat([self.par.data] * config.batch), second)
            for number, name in enumerate(("multiplier", "scaling", "bounds"), 1):
                kept = Signal(8 * config.par.tile_bytes, name=name)
                with m.If(now.factor == number):
                    m.d.sync += kept.eq(self.par.data)
                m.d.comb += getattr(rescaler, name).eq(kept)
        m.d.comb += drive(rescaler, op=now.rescale, first=self.acc.data, second=second)
        rescaled: Value = rescaler.result
        return rescaled


def _held(m: Module, value: Value, go: Any) -> Value:
    """Return `value` delayed by one cycle. The register keeps its value while `go` is low."""
    later = Signal.like(value, name="held")
    with m.If(go):
        m.d.sync += later.eq(value)
    return later


#: The ports of a lane of an own operation. A lane is a user's component for one value. Only `result` is required.
#: `valid` is high in the cycle of new operands.
PORTS = {"dst": In(signed(32)), "src": In(signed(32)), "imm": In(signed(16)), "valid": In(1), "result": Out(signed(32))}


def add_lanes(m: Module, operation: OwnOperation, dst: Value, src: Value, imm: Value, valid: Value) -> Value:
    """Add a lane for each 32 bits of `dst`. Return the results, which appear `operation.latency` cycles later.

    Raises ConfigError if the operation has no lane, or if the ports of its lane are wrong.
    """
    results = []
    for number, at in enumerate(range(0, len(dst), 32)):
        lane = operation.component()
        given = {"dst": dst[at : at + 32], "src": src[at : at + 32], "imm": imm, "valid": valid}
        inputs = {name: given[name] for name in lane_ports(operation, lane) if name != "result"}
        add(m, f"{operation.name}{number}", lane, **inputs)
        results.append(lane.result)
    return Cat(results)


def lane_ports(operation: OwnOperation, lane: Any) -> list[str]:
    """Return the names of a lane's ports. Raises ConfigError if a port is not in PORTS, or has another shape."""
    where = operation.where
    names = ", ".join(PORTS)
    if not isinstance(lane, wiring.Component):
        raise ConfigError(where, f"{operation.lane} is not an Amaranth component", "derive it from wiring.Component")
    members = lane.signature.members
    if "result" not in members:
        raise ConfigError(where, f"{operation.lane} has no port 'result'", f"the ports of a lane are {names}")
    for name, member in members.items():
        if name not in PORTS:
            raise ConfigError(where, f"{operation.lane} has a port '{name}'", f"the ports of a lane are {names}")
        wanted = PORTS[name]
        if not member.is_port or (member.flow, Shape.cast(member.shape)) != (wanted.flow, Shape.cast(wanted.shape)):
            raise ConfigError(where, f"port '{name}' of {operation.lane} is {member!r}", f"declare it as {wanted!r}")
    return list(members)
