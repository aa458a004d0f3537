"""What each VTA instruction costs: how a timing model is made, and the models, each number with its source.

A model is a table of the compute core's cycles and a function that says how the machine around it is simulated. There
are our own gateware, upstream's HLS design as its sources intend it (nothing measured), and a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.sim import jit
from tilewright.sim.jit import compiled
from tilewright.sim.order import Order
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.timeline import EVENT_US, Channel, Costs, Fetch, Simulated, Units, timeline, times
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import RESCALING, AluOp
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES, REQUANTISE, AluKernel

#: The key of each SRAM port of the compute core, and its memory.
PORTS = {"inp_read_bits": "inp", "wgt_read_bits": "wgt", "acc_read_bits": "acc", "acc_write_bits": "acc"}


class Port(NamedTuple):
    """Bits a cycle: what one GEMM micro-op a cycle needs, and what the memory delivers or takes."""

    needed: int
    provided: int


class Intervals(NamedTuple):
    """Cycles from one micro-op to the next."""

    gemm: int
    alu: int
    alu_immediate: int
    requantise: int

    def of(self, op: AluOp | None, immediate: bool) -> int:
        """Of GEMM (`op` None) or an ALU operation."""
        if op is None:
            return self.gemm
        if op == AluOp.REQ:
            return self.requantise
        return self.alu_immediate if immediate else self.alu


@dataclass(frozen=True)
class Timing:
    """Cycles. Intervals are the model's own; lanes and ports of the config may lengthen them."""

    gemm: int  # a GEMM micro-op
    alu: int  # an ALU micro-op
    alu_immediate: int  # an ALU micro-op whose second operand is the immediate
    requantise: int  # a REQ micro-op: ours, reads one accumulator and one bias
    dispatch: int  # an instruction, before it does anything
    pipeline: int  # a GEMM or ALU instruction, besides its micro-ops
    source: TimingModel
    channel: Callable[[Config], Channel]
    simulated: Callable[[Elaborated, Timing], Simulated]
    tokens_wait: bool = True  # a push waits while its queue is full

    def intervals(self, config: Config) -> Intervals:
        """Cycles a micro-op takes on a machine: the model's own, longer where lanes or ports are short.

        A tensor operation reads two accumulator tiles, its immediate form and REQ one; all write one.
        """
        known = ports(config)

        def cycles(key: str, tiles: int = 1) -> int:
            port = known[key]
            return -(-tiles * port.needed // port.provided)

        values = config.batch * config.block
        vectors = 1 if config.alu_lanes is None else -(-values // config.alu_lanes)
        write, read = cycles("acc_write_bits"), cycles("acc_read_bits")
        return Intervals(
            gemm=max(self.gemm, cycles("inp_read_bits"), cycles("wgt_read_bits"), read, write),
            alu=max(self.alu, vectors, write, cycles("acc_read_bits", 2)),
            alu_immediate=max(self.alu_immediate, vectors, write, read),
            requantise=max(self.requantise, vectors, write, read),
        )

    def once(self, op: AluOp | None, outer: int) -> int:
        """Cycles besides the micro-ops: REQ reads the factors of each outer iteration, a tile a cycle."""
        return self.pipeline + (FACTOR_TILES * outer if op == AluOp.REQ else 0)

    def trace(self, program: Elaborated, relation: Order) -> Trace:
        """The trace of a launch. Raises HazardError for a command or token queue that fills for good."""
        return timeline(self._table(program), relation, self.simulated(program, self))

    def traces(self, program: Elaborated, relation: Order) -> tuple[Trace, Trace | None]:
        """The trace of a launch, and the one without any overlap where there is one. Raises as `trace`."""
        return times(self._table(program), relation, self.simulated(program, self))

    def _table(self, program: Elaborated) -> StepTable:
        """The steps with token queues as deep as the machine's, or never full."""
        table = program.table
        if self.tokens_wait:
            return table
        return replace(table, queues=tuple(replace(queue, depth=len(table)) for queue in table.queues))


def ports(config: Config) -> dict[str, Port]:
    """Each port by its key; unset ones give what is needed."""
    found = {}
    for key, name in PORTS.items():
        sram: Sram = getattr(config, name)
        needed, given = 8 * sram.tile_bytes, getattr(config, key)
        found[key] = Port(needed, needed if given is None else given)
    return found


def compute(program: Elaborated, timing: Timing) -> Array:
    """Cycles of each GEMM and ALU instruction in the core, int64 [n]; 0 for others."""
    kernels = program.kernels
    once = np.full(len(kernels), timing.once(None, 0))
    requantises = kernels.form == REQUANTISE
    once[requantises] = [timing.once(AluOp.REQ, outer) for outer in kernels.column("iter_out")[requantises].tolist()]
    busy = kernels.micro_ops * np.array(timing.intervals(program.config))[kernels.form] + once
    steps: Array = np.append(busy, 0)[program.kernel]
    return steps


def stores(program: Elaborated) -> Array:
    """Which steps write DRAM, bool [n]."""
    mask: Array = (program.moves.memory == Memory.OUT) & program.moves.transfers
    return mask


def zeros(program: Elaborated) -> Array:
    """Tiles of padding that each LOAD writes, int64 [n]."""
    moved = program.moves
    return np.where(moved.memory >= 0, moved.tiles - moved.rows * moved.columns, 0)


def expect(steps: int) -> None:
    """Announce a trace of so many steps, and a serial one: each step is delivered, starts and ends."""
    jit.expect(2 * 3 * EVENT_US * steps)


# Our own gateware: every number is that of the RTL, which takes it from here. docs/gateware.md states the rules.

LONGEST = 16  # beats of a burst: AXI3's limit, which Zynq-7000 ports have
IN_FLIGHT = 16  # read bursts that have not ended
BATCHES = 4  # that fetch has room for: one handed out, the others on their way
OUTSTANDING = 16  # steps of load or store that have not ended
CORE = 5  # from the issue of a micro-op to its write; compute ends each instruction so much after it is free
ALU_CORE = 3  # the same of `activate`: no products before acc is read
EXTENDED = 5  # operations in RESCALING: so much later; the next instruction starts when the last of them writes
LEAD = 2  # start to first request: address, request
ACC_WAIT = 1  # of a LOAD of acc, besides: the core still writes
FILL_LEAD = 3  # start to first zero: placement, receiver
UOP_FILL_LEAD = 2  # no load before it to wait for
ACC_FILL_LEAD = 6  # when the core has written
NOTHING = 1  # an instruction that has nothing to do
AR_LATENCY, R_LATENCY = 1, 1  # a register in each direction
W_LATENCY = 2  # command granted to first beat: read of out, register
LEAVE = 2  # load and store: from free to the end, where nothing is waited for
READ_AHEAD = 2  # store is free so much before the cycle behind its last beat
ARRIVED = 1  # load: from the cycle behind its last beat to the end
RESPONSE = 1  # store: the same, besides the delay of the memory


def _gateware(program: Elaborated, timing: Timing) -> Simulated:
    """Reads compete, compute before load; loads run ahead of their data, stores of their responses."""
    config, moved, store = program.config, program.moves, stores(program)
    latency = max(1, config.dram_latency)  # what the memory takes, a cycle at least
    line = config.pipeline
    mine = program.table.unit
    load, acc = mine == line.load, moved.memory == Memory.ACC
    padding = zeros(program)
    works = moved.transfers | (padding > 0)
    kernel = program.kernel >= 0
    lead = np.where(works, LEAD + ACC_WAIT * acc, np.where(kernel, 0, NOTHING))
    costs = Costs.of(
        lead=lead.astype(np.int64),
        busy=np.where(kernel, np.maximum(_core(program, timing), NOTHING), np.where(store, -READ_AHEAD, 0)),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
        address=moved.address,
        stride=moved.stride,
        priority=np.where(load, 1, 0),
        fill=padding,
        fill_lead=np.where(acc, ACC_FILL_LEAD, np.where(load, FILL_LEAD, UOP_FILL_LEAD)),
        tail=np.where(mine == line.gemm, CORE, np.where(mine == line.alu, ALU_CORE, LEAVE)),
        settle=np.where(store, RESPONSE + latency, ARRIVED),
        ahead=(load & moved.transfers & (padding == 0)).astype(np.int64),
    )
    batch = batch_of(config)
    fetch = Fetch(INSN_BYTES, config.queue_depth, batch=batch, buffer=BATCHES * batch)
    return Simulated(costs, timing.channel(config), fetch, Units(room=1, outstanding=OUTSTANDING))


def _channel(config: Config) -> Channel:
    """The DRAM port."""
    latency = AR_LATENCY + max(1, config.dram_latency) + R_LATENCY
    return Channel(config.bus_bits // 8, latency, LONGEST, in_flight=IN_FLIGHT, write_latency=W_LATENCY)


def _core(program: Elaborated, timing: Timing) -> Array:
    """Cycles of each GEMM and ALU instruction until its unit is free, int64 [n]; 0 for others and without micro-ops."""
    own, kernels = timing.intervals(program.config), program.kernels
    late = [0] * (len(kernels) + 1)
    rescales = (kernels.column("is_alu") == 1) & among(kernels.column("code"), RESCALING)
    for index in np.flatnonzero(rescales & program.config.rescales).tolist():
        item = kernels[index]
        assert isinstance(item, AluKernel)
        late[index] = EXTENDED + _waits(item, own.of(item.op, item.imm is not None), EXTENDED + 1)
    busy = compute(program, timing) + np.array(late, np.int64)[program.kernel]
    return np.where(program.micro_ops > 0, busy, 0)


def batch_of(config: Config) -> int:
    """Instructions that fetch asks for at once: the longest burst."""
    return LONGEST * config.bus_bits // 8 // INSN_BYTES


#: Microseconds of `_waited` for each micro-op, uncompiled.
MICRO_OP_US = 4


def _waits(kernel: AluKernel, interval: int, latency: int) -> int:
    """Cycles by which an instruction waits for its own results, where its micro-ops reach a tile soon after each other.

    A tile is read `latency` cycles after its last read as a destination, or later.
    Micro-ops take `interval` cycles, factors of REQ a cycle a tile in front of each outer iteration. The source is
    read in the first of a micro-op's cycles, the destination in the last; what waits, all behind it waits with.
    """
    count, loop = kernel.size, kernel.loop
    if count < 2:
        return 0
    first = np.arange(count) * interval
    if kernel.factors is not None:
        first += FACTOR_TILES * (1 + np.arange(count) // (count // loop.iter_out))
    last, dst, src = first + interval - 1, kernel.dst, kernel.src if kernel.reads_source else kernel.dst
    reads = first if kernel.reads_source else last
    for back in range(1, min(count, latency)):
        again = (dst[back:] == dst[:-back]) & (last[back:] - last[:-back] < latency)
        again |= (src[back:] == dst[:-back]) & (reads[back:] - last[:-back] < latency)
        if again.any():
            return int(_waited.of(MICRO_OP_US * count)(src, dst, reads, last, latency))
    return 0


@compiled
def _waited(src: Array, dst: Array, first: Array, last: Array, latency: int) -> int:
    """The wait of all reads of `src` at `first` and of `dst` at `last`, each behind those of the micro-ops before."""
    count = dst.shape[0]
    read = np.zeros(count, np.int64)
    late = 0
    for i in range(count):
        for tile, due in ((src[i], first[i]), (dst[i], last[i])):
            j = i - 1
            while j >= 0 and due + late - read[j] < latency:
                if dst[j] == tile:
                    late += latency - (due + late - read[j])
                j -= 1
        read[i] = last[i] + late
    return late


TILEWRIGHT = Timing(
    gemm=1,
    alu=2,  # one port reads acc: src, then dst
    alu_immediate=1,
    requantise=1,
    dispatch=0,
    pipeline=0,  # the core overlaps instructions
    source=TimingModel(
        "tilewright",
        "the cycle rules of this package's gateware, whose compiled RTL is compared with it program by program; "
        "DRAM delay and width from the config",
    ),
    channel=_channel,
    simulated=_gateware,
)


# Two models beside our own

#: Assumed: a tile of zeros a cycle, after the data.
PAD = 1


def _hls(program: Elaborated, timing: Timing) -> Simulated:
    """Rows of a transfer one after the other (assumed: each is a memcpy); the write response ends a STORE.

    Upstream's vivado.tcl joins its AXI masters (instructions, micro-ops, three data ports) into one port; reads
    and writes have a data bus each (AXI).
    """
    config, moved, store = program.config, program.moves, stores(program)
    costs = Costs.of(
        lead=np.full(len(program.stream), timing.dispatch, np.int64),
        busy=compute(program, timing) + PAD * zeros(program) + np.where(store, config.dram_latency, 0),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
    )
    return Simulated(costs, timing.channel(config), Fetch(INSN_BYTES, config.queue_depth))


HLS = Timing(
    gemm=1,  # pragma HLS PIPELINE II=1 on the GEMM micro-op loop
    alu=2,  # the same on the ALU's, II=2: the accumulator is read twice
    alu_immediate=2,  # one loop serves both forms
    requantise=2,  # ours: the same loop
    dispatch=1,  # assumed: reading the command queue
    pipeline=0,  # assumed: filling and draining hidden
    source=TimingModel(
        "hls",
        "initiation intervals as declared in upstream's HLS source; DRAM latency and width from the config; "
        "dispatch, fetch, padding, rows and write response assumed; not calibrated against hardware",
    ),
    channel=lambda config: Channel(config.bus_bits // 8, config.dram_latency),
    simulated=_hls,
)


def _ideal(program: Elaborated, timing: Timing) -> Simulated:
    """A lower bound for any schedule of the same instructions: units bound by their own throughput and by tokens.

    Left out: latencies, dispatch, fetch, pipelines, command and token queues that fill, the write response, and that
    the units share a port: each has one to itself. A transfer takes a cycle a beat, each row a whole number of them,
    and one a tile of zeros.
    """
    config, moved = program.config, program.moves
    beat = config.bus_bits // 8
    none, rows = np.zeros(len(program.stream), np.int64), np.where(moved.transfers, moved.rows, 0)
    costs = Costs.of(
        lead=none,
        busy=compute(program, timing) + zeros(program) + rows * -(-moved.row_bytes // beat),
        rows=rows,
        row_bytes=moved.row_bytes,
        writes=stores(program).astype(np.int64),
    )
    return Simulated(costs, timing.channel(config), Fetch(INSN_BYTES, depth=0))


IDEAL = Timing(
    gemm=1,  # one tile operation a cycle; the config's lanes and ports may make it more
    alu=1,
    alu_immediate=1,
    requantise=1,
    dispatch=0,
    pipeline=0,
    source=TimingModel(
        "ideal",
        "a lower bound, no machine: throughput of each unit and tokens only; no latency, dispatch, fetch, "
        "queue limits or sharing of the DRAM port",
    ),
    channel=lambda config: Channel(config.bus_bits // 8, 0, burst=0),
    simulated=_ideal,
    tokens_wait=False,
)

MODELS = {model.source.name: model for model in (TILEWRIGHT, HLS, IDEAL)}
DEFAULT = TILEWRIGHT.source.name
