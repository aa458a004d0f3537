"""The timing model of upstream's Chisel design, by rules that were established by running its RTL.

Files that a rule names are under hardware/chisel/src/main/scala of apache/tvm-vta at d4a15f6. Cycle 0 of the model is
the cycle after the launch bit is set, so that the cycles of a launch equal the value of the event counter
(core/EventCounters.scala).
"""

from __future__ import annotations

import numpy as np

from tilewright.array import among
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing.model import Handover, Timing, compute

#: Cycles from the start of GEMM or ALU to the start of the next instruction, plus 1 for each micro-op
#: (core/TensorGemm.scala:579, core/TensorAlu.scala:122).
PIPELINE = 7
NOTHING = 2  # from the start of an instruction without work to the start of the next (core/Compute.scala:121)
LEAD = 2  # from a LOAD's start to its first command on the bus: engine, command queue (shell/VME.scala:38)
TURN = 2  # from a client's command on the bus to its next command: the queue has one entry (shell/VME.scala:216)
IN_FLIGHT = 16  # maximum number of read bursts in flight (shell/VME.scala:36)
WIDE = 2  # from the cycle after the last beat of a LOAD to its end, on a wide bus (core/TensorLoadWideVME.scala:315)
NARROW = 3  # the same on a narrow bus, where a tile takes several beats (core/TensorLoadNarrowVME.scala:292)
STORE_LEAD = 1  # from a STORE's start to its first command
WRITE_LATENCY = 2  # from a write command to its first beat (shell/VME.scala:351)
#: The memory of upstream's tsim (dpi/VTAMemDPI.scala:132): cycles from a read command to its first beat, the same for a
#: write command, and cycles from the last written beat to the response.
TSIM_LATENCY = 18
TSIM_WRITE_LATENCY = 3
TSIM_ANSWER = 1
#: The read ports in order of priority, after the read port of fetch (shell/VME.scala:203).
PORTS = (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC)


def _simulated(program: Elaborated, timing: Timing) -> Simulated:
    """Return the costs of a launch.

    A step frees its unit at the end of the step. A transfer has a command for each burst. Padding is written while data
    arrive, in the cycles without a beat.
    """
    config = program.config
    moved = program.moves
    beat = config.bus_bits // 8
    kernel = program.kernel >= 0
    works = moved.transfers | (moved.padding > 0)
    wide = np.append([config.dram_tile_bytes(memory) <= beat for memory in Memory], False)[moved.memory]
    wide |= moved.memory == Memory.UOP
    # A LOAD without padding on the left and right spends one cycle on each row of data before it writes the padding
    # below (core/TensorLoadNarrowVME.scala:120).
    pauses = (moved.left + moved.right == 0) & (moved.bottom > 0)
    priority = np.zeros(len(kernel), np.int64)
    for place, memory in enumerate(PORTS):
        priority[among(moved.memory, (memory, Memory.ACC_8BIT) if memory == Memory.ACC else (memory,))] = place
    costs = Costs.of(
        lead=np.where(moved.stores, STORE_LEAD, np.where(works, LEAD + moved.top, np.where(kernel, 0, NOTHING))),
        busy=np.where(
            kernel, compute(program, timing), np.where(works & ~moved.stores, np.where(wide, WIDE, NARROW), 0)
        ),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=moved.stores.astype(np.int64),
        address=moved.address,
        stride=moved.stride,
        priority=priority,
        fill=moved.padding,
        fill_last=np.where(pauses, moved.bottom * moved.columns, 0),
        fill_pause=np.where(pauses, moved.rows, 0),
    )
    return Simulated(costs, _channel(config), _fetch(config))


def _channel(config: Config) -> Channel:
    beat = config.bus_bits // 8
    tsim = config.memory_model == "tsim"
    latency = max(1, config.dram_latency)
    tile = config.out.tile_bytes // beat
    return Channel(
        beat,
        TSIM_LATENCY if tsim else latency,
        config.burst_beats,
        in_flight=IN_FLIGHT,
        write_latency=TSIM_WRITE_LATENCY if tsim else WRITE_LATENCY,
        turn=TURN,
        rests=True,
        streams=tsim,
        answer=TSIM_ANSWER if tsim else latency,
        pause=tile if tile > 1 else 0,
    )


def _fetch(config: Config) -> Fetch:
    """Return the delivery of instructions. A bus as wide as an instruction has different rules from a narrower bus.

    Recorded runs with full queues show that a queue of 512 entries holds 511 instructions.
    """
    wide = config.bus_bits // 8 >= INSN_BYTES
    return Fetch(
        INSN_BYTES,
        max(1, config.queue_depth - 1),  # a depth of 0 would mean that there is no fetch
        batch=max(1, config.burst_beats * config.bus_bits // 8 // INSN_BYTES),
        lead=1,
        turn=4 if wide else 3,  # core/FetchWideVME.scala:225, core/FetchVME64.scala:111
        delay=2 if wide else 1,
        unpack=3 if wide else 1,
    )


def _handover(config: Config) -> Handover:
    """Return the handovers: loads run one after the other, and each row of a store waits for its answer."""
    channel = _channel(config)
    load = LEAD + channel.latency + NARROW
    return Handover(0, 1, 1, load, WRITE_LATENCY + channel.answer)


CHISEL = Timing(
    gemm=1,  # core/TensorGemm.scala:579
    alu=2,  # core/TensorAlu.scala:122
    alu_immediate=1,
    requantise=1,  # our extension
    dispatch=0,
    pipeline=PIPELINE,
    source=TimingModel(
        "chisel",
        "the cycle rules of upstream's Chisel RTL, equal to 1,205 recorded simulations in the start and "
        "end of each instruction; bus, bursts, memory and its delay from the config",
    ),
    channel=_channel,
    simulated=_simulated,
    handover=_handover,
    tokens_wait=False,
)
