"""The numbers of one machine, each with its unit and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig

#: Smallest and largest value of each key.
RANGES = {
    "buffer_bytes": (4, 1 << 16),  # an address has 16 bits: isa.py
    "accumulators": (2, 1 << 16),
    "bus_bits": (8, 1024),
    "dram_latency": (0, 1 << 20),
    "clock_mhz": (1, 10_000),
    "queue_depth": (1, 1 << 20),
    "token_depth": (2, 1 << 20),
}


@dataclass(frozen=True)
class Config(MachineConfig):
    """One OneMac machine. Raises ConfigError for a number out of range."""

    where, ranges = "onemac config", RANGES

    buffer_bytes: int = 4096  # on-chip bytes for inputs and weights; chosen
    accumulators: int = 32  # int32 each; chosen
    bus_bits: int = 32  # the DRAM port; chosen
    dram_latency: int = 20  # cycles from a request to its first beat; assumed
    clock_mhz: int = 100  # assumed
    queue_depth: int = 16  # instructions that wait at each unit; chosen
    token_depth: int = 16  # tokens in each token queue; chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bus_bits % 8:
            raise ConfigError("onemac config", f"bus_bits is {self.bus_bits}, not whole bytes")


PRESETS = {"small": Config(), "wide": Config(buffer_bytes=1 << 14, bus_bits=64)}
Config.presets = PRESETS
