"""Our own gateware: every number is that of the RTL, which takes it from here. docs/gateware.md states the rules."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled
from tilewright.sim.timeline import Channel, Costs, Fetch, Simulated, Units
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import RESCALING
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES, AluKernel
from tilewright.targets.vta.timing.model import Timing, compute, stores, zeros

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


def _simulated(program: Elaborated, timing: Timing) -> Simulated:
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
    own, late = timing.intervals(program.config), [0] * (len(program.kernels) + 1)
    for index, item in enumerate(program.kernels if program.config.rescales else ()):
        if isinstance(item, AluKernel) and item.op in RESCALING:
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
    simulated=_simulated,
)
