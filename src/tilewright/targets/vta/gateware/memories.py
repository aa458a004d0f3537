"""Count the block RAMs that the gateware takes on an FPGA of Xilinx's 7 series, without synthesis: targets/rams.py."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.targets.rams import Ram
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.fields import INSN_BYTES


def bram36(config: Config) -> float:
    """Return the number of RAMB36E1 that the machine takes; a RAMB18E1 is half of one."""
    return sum(ram.halves for ram in rams(config)) / 2


def rams(config: Config) -> Iterator[Ram]:
    """Yield the memories of the machine that may be made of block RAM; the others have at most 64 words."""
    for sram in config.chips:
        if sram.name == "acc" and config.stages == 4:
            yield _parted(sram, config)
        else:
            yield _banked(sram, config)
    yield Ram("command queues", len(config.pipeline.units), config.queue_depth, 1, 8 * INSN_BYTES)


def _banked(sram: Sram, config: Config) -> Ram:
    """Return the banks of a memory: as many as a beat has tiles. A beat may write only a part of a tile."""
    bits, bus = 8 * sram.tile_bytes, config.bus_bits
    lanes, parts = max(1, bus // bits), 1 if sram.name == "out" else max(1, bits // bus)
    return Ram(sram.name, lanes, max(1, sram.depth // lanes), parts, bits // parts)


def _parted(sram: Sram, config: Config) -> Ram:
    """Return the banks of acc with four stages: each lane is divided into the parts that the units use in turn."""
    whole = _banked(sram, config)
    parts = min(config.acc_banks, whole.depth)
    return whole._replace(number=whole.number * parts, depth=whole.depth // parts)
