"""The numbers of one machine, each with its unit and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import ConfigError
from tilewright.targets import keys

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
class Config:
    """One OneMac machine. Raises ConfigError for a number out of range."""

    buffer_bytes: int = 4096  # on-chip bytes for inputs and weights; chosen
    accumulators: int = 32  # int32 each; chosen
    bus_bits: int = 32  # the DRAM port; chosen
    dram_latency: int = 20  # cycles from a request to its first beat; assumed
    clock_mhz: int = 100  # assumed
    queue_depth: int = 16  # instructions that wait at each unit; chosen
    token_depth: int = 16  # tokens in each token queue; chosen

    def __post_init__(self) -> None:
        for key, (low, high) in RANGES.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError("onemac config", f"{key} is {value!r}, not an integer in {low}..{high}")
        if self.bus_bits % 8:
            raise ConfigError("onemac config", f"bus_bits is {self.bus_bits}, not whole bytes")

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """A preset's name, a JSON file or its content (None: the first preset), then single keys as text."""
        return keys.read(cls, "onemac config", PRESETS, source, overrides)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def digest(self) -> str:
        return keys.digest(self.to_dict())


PRESETS = {
    "small": Config(),
    "wide": Config(buffer_bytes=1 << 14, bus_bits=64),
}
