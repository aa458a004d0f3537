"""The parameters of the machine, each with its unit and its source (chosen, assumed or measured)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.given import MachineConfig, number


@dataclass(frozen=True)
class Config(MachineConfig):
    """The parameters of one OneMac machine. Raises ConfigError if a value is out of range."""

    where = "onemac config"

    buffer_bytes: int = number(4096, 4, 1 << 16)  # buffer of inputs and weights; chosen; 16 address bits
    accumulators: int = number(32, 2, 1 << 16)  # number of int32 accumulators; chosen
    bus_bits: int = number(32, 8, 1024, multiple=8, only_time=True)  # width of the DRAM port; chosen
    dram_latency: int = number(20, 0, 1 << 20, only_time=True)  # cycles from a request to its first beat; assumed
    clock_mhz: int = number(100, 1, 10_000, only_time=True)  # assumed
    queue_depth: int = number(16, 1, 1 << 20, only_time=True)  # instructions that can wait at each unit; chosen
    token_depth: int = number(16, 2, 1 << 20, only_time=True)  # tokens that each token queue can hold; chosen


PRESETS = {"small": Config(), "wide": Config(buffer_bytes=1 << 14, bus_bits=64)}
Config.presets = PRESETS
