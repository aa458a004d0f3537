"""The numbers of one machine, each with its unit and where it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tilewright.errors import ConfigError

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
        source = "small" if source is None else source
        preset = PRESETS.get(source) if isinstance(source, str) else None
        config = preset or cls(**_known(_content(source)))
        return replace(config, **{key: _integer(key, text) for key, text in _known(overrides).items()})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def digest(self) -> str:
        """A hash of all keys: a saved program runs on the machine that it was compiled for."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


PRESETS = {
    "small": Config(),
    "wide": Config(buffer_bytes=1 << 14, bus_bits=64),
}


def _content(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str) and not source.endswith(".json"):
        raise ConfigError("--config", f"there is no preset '{source}'", f"choose one of {', '.join(PRESETS)}")
    try:
        data = json.loads(Path(source).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(source), f"cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(str(source), "is not a JSON object")
    return data


def _known(data: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [field.name for field in fields(Config)]
    for key in data:
        if key not in names:
            raise ConfigError("onemac config", f"unknown key {key}", f"the keys are {', '.join(names)}")
    return data


def _integer(key: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ConfigError("onemac config", f"{key} is '{text}', not an integer") from None
