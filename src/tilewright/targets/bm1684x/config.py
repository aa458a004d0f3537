"""The sizes and addresses of one machine, each with where it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tilewright.errors import ConfigError

#: Bus addresses: the vendor's debugger, the functional model.
LOCAL_BASE, STATIC_BASE, L2_BASE, DDR_BASE = 0x0800_0000, 0x0900_0000, 0x1000_0000, 0x1_0000_0000
#: Commands carry 40 bits of an address.
ADDRESS_END = 1 << 40
#: Smallest and largest value of each key. Local memory ends where static memory begins.
RANGES = {
    "lanes": (1, 64),
    "banks": (1, 64),
    "bank_bytes": (64, 1 << 18),
    "eu_bytes": (4, 64),
    "static_bytes": (64, 1 << 24),
    "l2_bytes": (64, 0x20_0000),
    "clock_mhz": (1, 10_000),
}


@dataclass(frozen=True)
class Config:
    """One machine. Raises ConfigError for a number out of range."""

    lanes: int = 64  # the source document; the functional model says the same
    banks: int = 16  # of each lane; the source document
    bank_bytes: int = 1 << 14  # 16 MiB of local memory in all: the source document
    eu_bytes: int = 64  # a lane processes a cycle, and layouts align to; the source document, the functional model
    static_bytes: int = 1 << 14  # tables of the maths functions; the vendor's debugger
    l2_bytes: int = 0x1F_B000  # usable part of a 2 MiB window; the functional model
    clock_mhz: int = 1000  # at which the vendor's estimate counts cycles

    def __post_init__(self) -> None:
        for key, (low, high) in RANGES.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError("bm1684x config", f"{key} is {value!r}, not an integer in {low}..{high}")
        for key in ("lanes", "bank_bytes", "eu_bytes"):
            if (value := getattr(self, key)) & (value - 1):
                raise ConfigError("bm1684x config", f"{key} is {value}, not a power of two")
        if self.local_bytes > STATIC_BASE - LOCAL_BASE:
            reason = f"{self.local_bytes} bytes of local memory do not fit below static memory"
            raise ConfigError(
                "bm1684x config", reason, f"keep lanes * banks * bank_bytes to {STATIC_BASE - LOCAL_BASE}"
            )

    @property
    def lane_bytes(self) -> int:
        return self.banks * self.bank_bytes

    @property
    def local_bytes(self) -> int:
        return self.lanes * self.lane_bytes

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """A preset's name, a JSON file or its content (None: the first preset), then single keys as text."""
        preset = PRESETS.get("bm1684x" if source is None else source) if not isinstance(source, Mapping) else None
        config = preset or cls(**_known(_content(source)))
        return replace(config, **{key: _integer(key, text) for key, text in _known(overrides).items()})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def digest(self) -> str:
        """A hash of all keys: what was made for one machine runs on that one."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


#: `figures`: the four lanes of the source document's pictures.
PRESETS: dict[Any, Config] = {"bm1684x": Config(), "figures": Config(lanes=4)}


def _content(source: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str) and not source.endswith(".json"):
        raise ConfigError("--config", f"there is no preset '{source}'", f"choose one of {', '.join(PRESETS)}")
    try:
        data = json.loads(Path(str(source)).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(source), f"cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(str(source), "is not a JSON object")
    return data


def _known(data: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [field.name for field in fields(Config)]
    for key in data:
        if key not in names:
            raise ConfigError("bm1684x config", f"unknown key {key}", f"the keys are {', '.join(names)}")
    return data


def _integer(key: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ConfigError("bm1684x config", f"{key} is '{text}', not an integer") from None
