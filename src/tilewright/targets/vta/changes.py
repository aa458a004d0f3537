"""Changes of a VTA machine that may save cycles, for what-ifs, and spaces of machines to explore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.targets.base import Change, TimingModel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.keys import BUFFERS, RANGES

#: The numbers of a timing model for micro-ops of the tensor ALU.
ALU_NUMBERS = ("alu", "alu_immediate", "requantise")
#: Queues with fewer commands or tokens than in upstream's HLS design may stop a unit.
DEPTHS = ("queue_depth", "token_depth")

#: Spaces to explore, by name. zynq7020: machines whose gateware fits a Zynq-7020, as on the boards Pynq-Z1 and Z2. It
#: has 53,200 LUTs, 140 block RAMs of 36 Kbit and 220 DSP blocks (Xilinx, data sheet DS190).
SPACES: Mapping[str, Mapping[str, Any]] = {
    "buffers": {
        "keys": {"LOG_INP_BUFF_SIZE": "12..16", "LOG_WGT_BUFF_SIZE": "15..19", "LOG_ACC_BUFF_SIZE": "14..18"},
    },
    "zynq7020": {
        "keys": {
            "LOG_BATCH": "0..1",
            "LOG_BLOCK": "3..5",
            "LOG_INP_BUFF_SIZE": "11..16",
            "LOG_WGT_BUFF_SIZE": "14..18",
            "LOG_ACC_BUFF_SIZE": "13..17",
            "LOG_UOP_BUFF_SIZE": "12..15",
            "stages": [3, 4],
            "alu": ["upstream", "fused"],
            "multipliers": ["single", "packed", "logic"],
        },
        "where": ["area <= 100"],
    },
}


def changes(config: Config, timing: TimingModel) -> Iterator[Change]:
    """Yield changes that only affect cycles, then changes for which a network must be compiled again."""
    width = config.bus_bits.bit_length() - 1
    if width < RANGES["LOG_BUS_WIDTH"][1]:
        yield Change("DRAM bus twice as wide", {"LOG_BUS_WIDTH": width + 1})
    chisel = timing.name.partition(",")[0] == "chisel"
    if config.dram_latency and not (chisel and config.memory_model == "tsim"):
        yield Change("DRAM without latency", {"dram_latency": 0})
    if chisel and config.burst_beats < Config.burst_beats:
        yield Change(f"bursts of {Config.burst_beats} beats", {"burst_beats": Config.burst_beats})
    # The timing model is changed here, not the machine: no key makes the ALU of a model faster.
    if slow := {key: 1 for key in ALU_NUMBERS if timing.values.get(key, 1) > 1}:
        yield Change("ALU with one micro-op per cycle", timing=slow)
    if shallow := {key: 4 * getattr(config, key) for key in DEPTHS if getattr(config, key) < getattr(Config, key)}:
        yield Change("queues four times as deep", shallow)
    larger = {key: getattr(config, key) + 1 for key in BUFFERS}
    yield Change("on-chip buffers twice as large", larger, recompile=True)
    if config.stages == 3:
        yield Change("four stages (the ALU works beside GEMM)", {"stages": 4}, recompile=True)
    if not config.has_parameters:
        yield Change("ALU that rescales (alu=fused)", {"alu": "fused"}, recompile=True)
    if config.stages == 3 and not config.has_parameters:
        yield Change("four stages and an ALU that rescales", {"stages": 4, "alu": "fused"}, recompile=True)
