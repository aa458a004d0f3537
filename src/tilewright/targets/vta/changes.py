"""Changes of a VTA machine that may save cycles, for what-ifs."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.targets.base import Change, TimingModel
from tilewright.targets.vta.config import BUFFERS, RANGES, Config

#: The numbers of a timing model for micro-ops of the tensor ALU.
ALU_NUMBERS = ("alu", "alu_immediate", "requantise")
#: Queues of fewer commands or tokens than upstream's HLS design has may stop a unit.
DEPTHS = ("queue_depth", "token_depth")


def changes(config: Config, timing: TimingModel) -> Iterator[Change]:
    """Yield changes that only change time, then machines for which a network must be compiled again."""
    width = config.bus_bits.bit_length() - 1
    if width < RANGES["LOG_BUS_WIDTH"][1]:
        yield Change("DRAM bus twice as wide", {"LOG_BUS_WIDTH": width + 1})
    if config.dram_latency:
        yield Change("DRAM without latency", {"dram_latency": 0})
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
