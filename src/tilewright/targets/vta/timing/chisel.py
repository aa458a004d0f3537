"""Upstream's Chisel design with its simulated memory (tsim), as its sources say (apache/tvm-vta, hardware/chisel).

The pipelined variants, which upstream builds by default. The file that a number is from stands beside it.
"""

from __future__ import annotations

import numpy as np

from tilewright.sim.timeline import Channel, Costs, Fetch
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.timing.model import Simulated, Timing, compute, stores, zeros

#: vta/Configs.scala: lenBits, log2 of the longest burst's beats. De10Config has 4, the others 8.
LEN_BITS, LEN_BITS_OF = 8, {"de10nano": 4}
#: core/Core.scala: the read clients in order of priority, after fetch.
CLIENTS = {Memory.UOP: 1, Memory.INP: 2, Memory.WGT: 3, Memory.ACC: 4, Memory.ACC_8BIT: 4, Memory.OUT: 0}
CLIENTS |= {Memory.ALU_UOP: 1, Memory.PAR: 4}  # ours
NOP = 2  # core/Compute.scala, sSync and FINISH: a cycle idle, a cycle done
#: TensorLoad*.scala: start, command into its slot, grant; from the last beat: VME register, count, done, idle.
LOAD_LEAD, LOAD_TAIL = 2, 2
NARROW_TAIL = 1  # TensorLoadNarrowVME.scala registers the data once more
STORE_LEAD, STORE_TAIL = 1, 1  # TensorStore*.scala: start; the response
IN_FLIGHT = 16  # shell/VME.scala: RequestQueueDepth
SPACING = 2  # VME.scala: a client's command slot refills the cycle after it is emptied
#: dpi/VTAMemDPI.scala: queueing before its delay counter, a register behind.
READ_LATENCY = 2
WRITE_LATENCY, WRITE_RESPONSE = 3, 1  # VME.scala and VTAMemDPI.scala: command, two address cycles; response
FETCH_TURN = 3  # core/Fetch*.scala: last delivery to grant: queue found empty, command, slot
FETCH_LAG = 1  # FetchVME64.scala: VME register, then drain
WIDE_FETCH_LAG = 4  # FetchWideVME.scala, from 128 bits on: three more
TOKENS = 255  # core/Semaphore.scala: 8 bits, saturating


def simulated(program: Elaborated, timing: Timing) -> Simulated:
    """Loads compete for the memory engine; the one writer has no competition."""
    config, moved, store = program.config, program.moves, stores(program)
    beat = config.bus_bits // 8
    longest = 1 << LEN_BITS_OF.get(config.TARGET, LEN_BITS)
    load = moved.transfers & ~store
    tile = np.array([config.dram_tile_bytes(item) for item in Memory] + [0], np.int64)[moved.memory]
    narrow = tile > beat
    nothing = (program.kernel < 0) & ~moved.transfers
    busy = compute(program, timing) + np.where(nothing, NOP, 0)
    busy += np.where(load, LOAD_TAIL + NARROW_TAIL * narrow, 0) + np.where(store, STORE_TAIL, 0)
    costs = Costs.of(
        lead=np.where(load, LOAD_LEAD + moved.top, np.where(store, STORE_LEAD, 0)),
        busy=busy,
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
        address=moved.address,
        stride=moved.stride,
        priority=np.array([CLIENTS[item] for item in Memory] + [0], np.int64)[moved.memory],
        fill=_fill(program),
        bubble=np.where(store & narrow, tile // beat, 0),
    )
    channel = Channel(
        beat,
        config.dram_latency + READ_LATENCY,
        longest,
        in_flight=IN_FLIGHT,
        spacing=SPACING,
        write_latency=WRITE_LATENCY,
        write_response=WRITE_RESPONSE,
    )
    wide = beat >= INSN_BYTES
    fetch = Fetch(
        INSN_BYTES,
        config.queue_depth,
        batch=longest if wide else longest * beat // INSN_BYTES,
        whole=True,
        lag=WIDE_FETCH_LAG if wide else FETCH_LAG,
        turn=FETCH_TURN,
        held=True,
    )
    return Simulated(costs, channel, fetch)


def _fill(program: Elaborated) -> np.ndarray:
    """TensorLoadNarrowVME.scala, ZeroPadding: from top to bottom a tile of zeros a cycle, while no beat comes.

    Rows of data without padding at their sides, but above padding at the bottom, are passed over at a cycle each.
    """
    moved, all_zeros = program.moves, zeros(program)
    passes = (moved.bottom > 0) & (moved.left + moved.right == 0)
    below = np.where(passes, moved.bottom * moved.columns, 0)
    return np.stack([all_zeros - below, np.where(passes, moved.rows, 0), below], axis=1)


CHISEL = Timing(
    gemm=1,  # core/TensorGemm.scala, TensorGemmPipelinedSplit
    alu=2,  # core/TensorAlu.scala, TensorAluPipelined: src, then dst
    alu_immediate=1,  # the same: dst alone
    requantise=1,  # ours: the accumulator and a bias, each from its own memory
    dispatch=0,
    pipeline=7,  # both: start register, index, micro-op, tile, result, write, done
    source=TimingModel(
        "chisel",
        "cycle rules read from upstream's Chisel sources and its simulated memory (tsim), never run against them; "
        "DRAM delay and width from the config; not calibrated against upstream's published totals",
    ),
    simulated=simulated,
    tokens_wait=False,
    token_limit=TOKENS,
)
