"""The timing models of VTA, each number with its source.

A model is a table of the compute core's cycles, and a function that describes the rest of the machine for simulation.
There are models of our own gateware and of upstream's HLS design (from its sources, not measured), and a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.sim import jit
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated, Units
from tilewright.sim.jit import compiled
from tilewright.sim.order import Order
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.timeline import EVENT_US, timeline, times
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import RESCALING, AluOp
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES, REQUANTISE, Kernel

#: The config key and the memory of each SRAM port of the compute core.
PORTS = {"inp_read_bits": "inp", "wgt_read_bits": "wgt", "acc_read_bits": "acc", "acc_write_bits": "acc"}


class Port(NamedTuple):
    """The bits per cycle of an SRAM port: `needed` to issue a GEMM micro-op in each cycle, `provided` by the memory."""

    needed: int
    provided: int


class Intervals(NamedTuple):
    """The initiation intervals of each kind of instruction: the cycles from one micro-op to the next."""

    gemm: int
    alu: int
    alu_immediate: int
    requantise: int

    def of(self, op: AluOp | None, immediate: bool) -> int:
        """Return the interval of GEMM (`op` is None) or of an ALU operation."""
        if op is None:
            return self.gemm
        if op == AluOp.REQ:
            return self.requantise
        return self.alu_immediate if immediate else self.alu


class Handover(NamedTuple):
    """Cycles from compute to store, and from a store to the next store, with which schedules are estimated."""

    core: int  # from the issue of an instruction's last micro-op to the end of the instruction
    turn: int  # a store of n beats from cycle 0 on: the next store starts in cycle n + turn
    stored: int  # the store ends in cycle n + stored
    load: int = 0  # before the first and after the last beat of a load, if the next load waits for both
    row: int = 0  # before the first and after the last beat of a row of a store; n includes these cycles


@dataclass(frozen=True)
class Timing:
    """A timing model, in cycles. A machine with few ALU lanes or narrow SRAM ports has longer intervals."""

    gemm: int  # a GEMM micro-op
    alu: int  # an ALU micro-op
    alu_immediate: int  # an ALU micro-op whose second operand is the immediate
    requantise: int  # a REQ micro-op (our extension), which reads one accumulator tile and one bias tile
    dispatch: int  # per instruction, before its work starts
    pipeline: int  # per GEMM or ALU instruction, in addition to its micro-ops
    source: TimingModel
    channel: Callable[[Config], Channel]
    simulated: Callable[[Elaborated, Timing], Simulated]
    handover: Callable[[Config], Handover]
    tokens_wait: bool = True  # whether a push to a full queue waits

    def intervals(self, config: Config) -> Intervals:
        """Return the intervals of the model on a machine, which are longer if lanes or ports are too narrow.

        An ALU operation on two tiles reads two acc tiles; its immediate form and REQ read one. All write one tile.
        """
        sram_ports = ports(config)

        def cycles(key: str, tiles: int = 1) -> int:
            port = sram_ports[key]
            return -(-tiles * port.needed // port.provided)

        values = config.batch * config.block
        vectors = 1 if config.alu_lanes is None else -(-values // config.alu_lanes)
        write = cycles("acc_write_bits")
        read = cycles("acc_read_bits")
        return Intervals(
            gemm=max(self.gemm, cycles("inp_read_bits"), cycles("wgt_read_bits"), read, write),
            alu=max(self.alu, vectors, write, cycles("acc_read_bits", 2)),
            alu_immediate=max(self.alu_immediate, vectors, write, read),
            requantise=max(self.requantise, vectors, write, read),
        )

    def once(self, op: AluOp | None, outer: int) -> int:
        """Return the cycles that an instruction takes in addition to its micro-ops."""
        # Before each outer iteration, REQ reads its factors, one tile per cycle.
        return self.pipeline + (FACTOR_TILES * outer if op == AluOp.REQ else 0)

    def trace(self, program: Elaborated, relation: Order) -> Trace:
        """Return the trace of a launch. Raises HazardError if a full command or token queue causes a deadlock."""
        return timeline(self._table(program), relation, self.simulated(program, self))

    def traces(self, program: Elaborated, relation: Order) -> tuple[Trace, Trace | None]:
        """Return a launch's trace, and the trace without overlap or None. Raises HazardError as `trace` does."""
        return times(self._table(program), relation, self.simulated(program, self))

    def _table(self, program: Elaborated) -> StepTable:
        """Return the steps with the machine's token queues. If `tokens_wait` is False, these queues never fill."""
        table = program.table
        if self.tokens_wait:
            return table
        return replace(table, queues=tuple(replace(queue, depth=len(table)) for queue in table.queues))


def ports(config: Config) -> dict[str, Port]:
    """Return each port by its config key. If the key is unset, the port provides the needed bits."""
    by_key = {}
    for key, name in PORTS.items():
        sram: Sram = getattr(config, name)
        needed = 8 * sram.tile_bytes
        given = getattr(config, key)
        by_key[key] = Port(needed, needed if given is None else given)
    return by_key


def compute(program: Elaborated, timing: Timing) -> Array:
    """Return the cycles of each GEMM and ALU instruction in the core, int64 [n]; 0 for other instructions."""
    kernels = program.kernels
    once = np.full(len(kernels), timing.once(None, 0))
    requantises = kernels.form == REQUANTISE
    once[requantises] = [timing.once(AluOp.REQ, outer) for outer in kernels.column("iter_out")[requantises].tolist()]
    busy = kernels.micro_ops * _intervals(program, timing) + once
    steps: Array = np.append(busy, 0)[program.kernel]
    return steps


def _intervals(program: Elaborated, timing: Timing) -> Array:
    kernels = program.kernels
    config = program.config
    least = np.array([*(operation.cycles for operation in config.own_alu), 1])
    return np.maximum(np.array(timing.intervals(config))[kernels.form], least[kernels.own_index])


def expect(steps: int) -> None:
    """Announce the amount of work to sim.jit, which compiles loops: two traces of `steps` steps, 3 events per step."""
    jit.expect(2 * 3 * EVENT_US * steps)


# Our own gateware. The RTL has the same numbers, in part imported from here. docs/gateware.md states the rules. Numbers
# without a unit are cycles.

LONGEST = 16  # beats of the longest burst: the limit of AXI3, which Zynq-7000 ports have
IN_FLIGHT = 16  # maximum number of read bursts in flight
BATCHES = 4  # batches of instructions in the fetch buffer: one is delivered while the others are requested
OUTSTANDING = 16  # maximum number of steps in flight, in the load unit and in the store unit
# From a micro-op's issue to its write, and from the cycle in which a step frees the compute unit to the step's end.
CORE = 5
ALU_CORE = 3  # CORE of the unit `activate`, whose pipeline has no multiplication before it reads acc
EXTENDED = 5  # extra latency of operations in RESCALING; the next instruction starts after their last write
LEAD = 2  # from a step's start to its first request: address, request
ACC_WAIT = 1  # extra LEAD of a LOAD of acc, because the core may still write
FILL_LEAD = 3  # from the start of a LOAD to its first padding tile: placement, receiver
UOP_FILL_LEAD = 2  # FILL_LEAD of a LOAD of micro-ops, which never waits for an earlier LOAD
ACC_FILL_LEAD = 6  # FILL_LEAD of a LOAD of acc, which waits for the core's last writes
NOTHING = 1  # the duration of an instruction without work, such as a NOP
AR_LATENCY = 1
R_LATENCY = 1  # one register in each direction of the read channel
W_LATENCY = 2  # from the grant of a write command to its first beat: read of out, register
# Load and store: from the cycle in which a step frees the unit to the step's end, if the step waits for no data.
LEAVE = 2
READ_AHEAD = 2  # store: from the cycle in which a step frees the unit to the cycle after the step's last beat
ARRIVED = 1  # load: from the cycle after the last beat to the step's end
RESPONSE = 1  # store: from the cycle after the last beat to the step's end, without the memory's delay


def _gateware(program: Elaborated, timing: Timing) -> Simulated:
    """Return the costs of a launch on our gateware."""
    config = program.config
    moved = program.moves
    store = program.moves.stores
    latency = max(1, config.dram_latency)  # the memory needs one cycle at least
    line = config.pipeline
    mine = program.table.unit
    load = mine == line.load
    acc = moved.memory == Memory.ACC
    works = moved.transfers | (moved.padding > 0)
    kernel = program.kernel >= 0
    lead = np.where(works, LEAD + ACC_WAIT * acc, np.where(kernel, 0, NOTHING))
    costs = Costs.of(
        lead=lead.astype(np.int64) + timing.dispatch,
        busy=np.where(kernel, np.maximum(_core(program, timing), NOTHING), np.where(store, -READ_AHEAD, 0)),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
        address=moved.address,
        stride=moved.stride,
        priority=np.where(load, 1, 0),  # compute reads before load
        fill=moved.padding,
        fill_lead=np.where(acc, ACC_FILL_LEAD, np.where(load, FILL_LEAD, UOP_FILL_LEAD)),
        tail=np.where(mine == line.gemm, CORE, np.where(mine == line.alu, ALU_CORE, LEAVE)),
        settle=np.where(store, RESPONSE + latency, ARRIVED),
        ahead=(load & moved.transfers & (moved.padding == 0)).astype(np.int64),
    )
    batch = batch_of(config)
    fetch = Fetch(INSN_BYTES, config.queue_depth, batch=batch, buffer=BATCHES * batch)
    return Simulated(costs, timing.channel(config), fetch, Units(room=1, outstanding=OUTSTANDING))


def _handover(config: Config) -> Handover:
    turn = LEAD + W_LATENCY
    return Handover(CORE, turn - READ_AHEAD, turn + RESPONSE + max(1, config.dram_latency))


def _channel(config: Config) -> Channel:
    latency = AR_LATENCY + max(1, config.dram_latency) + R_LATENCY
    return Channel(config.bus_bits // 8, latency, LONGEST, in_flight=IN_FLIGHT, write_latency=W_LATENCY)


def _core(program: Elaborated, timing: Timing) -> Array:
    """Return the cycles after which each instruction frees the core, int64 [n]; 0 if it has no micro-ops."""
    config = program.config
    kernels = program.kernels
    latency = np.array([*(operation.latency for operation in config.own_alu), 0])[kernels.own_index]
    latency[(kernels.column("is_alu") == 1) & among(kernels.column("code"), RESCALING)] = EXTENDED
    late = np.append(np.zeros_like(latency), 0)
    intervals = _intervals(program, timing)
    for index in np.flatnonzero(latency).tolist():
        item = kernels[index]
        extra = int(latency[index])
        # A result with extra latency delays the end of the instruction, and later micro-ops that read the result.
        late[index] = drained(config, extra) + _waits(item, int(intervals[index]), extra + 1)
    busy = compute(program, timing) + late[program.kernel]
    return np.where(program.micro_ops > 0, busy, 0)


def drained(config: Config, latency: int) -> int:
    """Return the cycles from an instruction's last issue to the next issue, for operations with extra latency.

    The last micro-op may wait for a tile before it reads acc. The unit is busy until this read.
    """
    return max(latency, CORE if config.pipeline.alu == config.pipeline.gemm else ALU_CORE)


def batch_of(config: Config) -> int:
    """Return the number of instructions in the longest burst. Fetch requests this number of instructions at once."""
    return LONGEST * config.bus_bits // 8 // INSN_BYTES


#: Microseconds that `_waited` takes for each micro-op in Python, uncompiled.
MICRO_OP_US = 4


def _waits(kernel: Kernel, interval: int, latency: int) -> int:
    """Return the cycles that an instruction stalls for its own results, if micro-ops reuse a tile too soon.

    If an earlier micro-op read a tile as a destination, a later micro-op reads the tile at least `latency` cycles
    later. Each micro-op takes `interval` cycles. A stall delays all later micro-ops.
    """
    count = kernel.size
    if count < 2:
        return 0
    first = np.arange(count) * interval
    if kernel.factors is not None:
        # Before each outer iteration, REQ reads factors, one tile per cycle.
        first += FACTOR_TILES * (1 + np.arange(count) // (count // kernel.outer))
    # A micro-op reads the source tile in its first cycle and the destination tile in its last cycle.
    last = first + interval - 1
    dst = kernel.dst
    src = kernel.src if kernel.reads_source else kernel.dst
    reads = first if kernel.reads_source else last
    # Most instructions never reuse a tile too soon. Array operations detect this, and the slow loop is skipped.
    for back in range(1, min(count, latency)):
        again = (dst[back:] == dst[:-back]) & (last[back:] - last[:-back] < latency)
        again |= (src[back:] == dst[:-back]) & (reads[back:] - last[:-back] < latency)
        if again.any():
            return int(_waited.of(MICRO_OP_US * count)(src, dst, reads, last, latency, np.zeros(count, np.int64)))
    return 0


@compiled
def _waited(src: Array, dst: Array, first: Array, last: Array, latency: int, read: Array) -> int:
    """Return the stall, in cycles, of micro-ops that would read `src` in cycles `first` and `dst` in cycles `last`."""
    count = dst.shape[0]
    late = 0
    for i in range(count):
        for tile, due in ((src[i], first[i]), (dst[i], last[i])):
            # Go back over the micro-ops whose writes may still be pending. `read` ascends, so the first older one ends
            # the loop.
            j = i - 1
            while j >= 0 and due + late - read[j] < latency:
                if dst[j] == tile:
                    late += latency - (due + late - read[j])
                j -= 1
        read[i] = last[i] + late  # the actual cycle, stalls included
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
    handover=_handover,
)


# The models hls and ideal

#: Cycles for each tile of zeros, after the data. Assumed.
PAD = 1


def _hls(program: Elaborated, timing: Timing) -> Simulated:
    """Return the costs of a launch on upstream's HLS design."""
    config = program.config
    moved = program.moves
    store = program.moves.stores
    costs = Costs.of(
        lead=np.full(len(program.stream), timing.dispatch, np.int64),
        # A STORE ends with its write response. The model assumes that rows run in sequence, because each row is a
        # memcpy.
        busy=compute(program, timing) + PAD * moved.padding + np.where(store, config.dram_latency, 0),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
    )
    # Upstream's vivado.tcl joins its AXI masters (instructions, micro-ops, three data ports) into one port. AXI has
    # separate data buses for reads and writes.
    return Simulated(costs, timing.channel(config), Fetch(INSN_BYTES, config.queue_depth))


HLS = Timing(
    gemm=1,  # pragma HLS PIPELINE II=1 on the GEMM micro-op loop
    alu=2,  # pragma HLS PIPELINE II=2 on the ALU micro-op loop: it reads the accumulator twice
    alu_immediate=2,  # the same loop runs both forms
    requantise=2,  # our extension, assumed to use the same loop
    dispatch=1,  # assumed: one cycle to read the command queue
    pipeline=0,  # assumed: the filling and draining of the pipeline is hidden
    source=TimingModel(
        "hls",
        "initiation intervals as declared in upstream's HLS source; DRAM latency and width from the config; "
        "dispatch, fetch, padding, rows and write response assumed; not calibrated against hardware",
    ),
    channel=lambda config: Channel(config.bus_bits // 8, config.dram_latency),
    simulated=_hls,
    handover=lambda config: Handover(0, 2 * config.dram_latency, 2 * config.dram_latency),
)


def _ideal(program: Elaborated, timing: Timing) -> Simulated:
    """Return costs whose cycles are a lower bound for any schedule of the same instructions.

    Only the throughput of the units and the tokens limit the cycles. The model omits latencies, dispatch, fetch,
    pipelines, full command and token queues, and the write response. Each unit has its own DRAM port.
    """
    config = program.config
    moved = program.moves
    beat = config.bus_bits // 8
    rows = np.where(moved.transfers, moved.rows, 0)
    costs = Costs.of(
        lead=np.full(len(program.stream), timing.dispatch, np.int64),
        # A transfer takes one cycle per beat, with whole beats for each row. Padding takes one cycle per tile.
        busy=compute(program, timing) + moved.padding + rows * -(-moved.row_bytes // beat),
        rows=rows,
        row_bytes=moved.row_bytes,
        writes=moved.stores.astype(np.int64),
    )
    return Simulated(costs, timing.channel(config), Fetch(INSN_BYTES, depth=0))


IDEAL = Timing(
    gemm=1,  # a tile operation per cycle, unless the config has narrow lanes or ports
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
    handover=lambda config: Handover(0, 0, 0),
    tokens_wait=False,
)
