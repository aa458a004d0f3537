"""The numbers of one machine, each with its unit and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number


@dataclass(frozen=True)
class Config(MachineConfig):
    """One OneMac machine. Raises ConfigError for a number out of range."""

    where = "onemac config"

    buffer_bytes: int = number(4096, 4, 1 << 16)  # on-chip, for inputs and weights; chosen; 16 bits of address: isa.py
    accumulators: int = number(32, 2, 1 << 16)  # int32 each; chosen
    bus_bits: int = number(32, 8, 1024)  # the DRAM port; chosen
    dram_latency: int = number(20, 0, 1 << 20)  # cycles from a request to its first beat; assumed
    clock_mhz: int = number(100, 1, 10_000)  # assumed
    queue_depth: int = number(16, 1, 1 << 20)  # instructions that wait at each unit; chosen
    token_depth: int = number(16, 2, 1 << 20)  # tokens in each token queue; chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bus_bits % 8:
            raise ConfigError("onemac config", f"bus_bits is {self.bus_bits}, not whole bytes")


PRESETS = {"small": Config(), "wide": Config(buffer_bytes=1 << 14, bus_bits=64)}
Config.presets = PRESETS
