"""The sizes and addresses of one machine, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number, word

#: Bus addresses: the vendor's debugger, the functional model.
LOCAL_BASE, STATIC_BASE, L2_BASE, DDR_BASE = 0x0800_0000, 0x0900_0000, 0x1000_0000, 0x1_0000_0000
#: Commands carry 40 bits of an address.
ADDRESS_END = 1 << 40
#: Types for real numbers of a network; `host`: they stay there, as exact as onnxruntime is.
PRECISIONS = ("host", "f16", "bf16", "f32")
#: MACs that a lane's cube does a cycle, by bytes of an operand: 4 pixels of 64 or 32 channels, 16 of one channel; the
#: vendor's timelines.
CUBE_MACS = {1: 256, 2: 128, 4: 16}


@dataclass(frozen=True)
class Config(MachineConfig):
    """One machine. Raises ConfigError for a number out of range."""

    where = "bm1684x config"

    lanes: int = number(64, 1, 64, power=True)  # the source document; the functional model says the same
    banks: int = number(16, 1, 64)  # of each lane; the source document
    bank_bytes: int = number(1 << 14, 64, 1 << 18, power=True)  # 16 MiB of local memory in all: the source document
    eu_bytes: int = number(64, 4, 64, power=True)  # a lane takes a cycle, and layouts align to; sources as of lanes
    static_bytes: int = number(1 << 14, 64, 1 << 24)  # tables of the maths functions; the vendor's debugger
    l2_bytes: int = number(0x1F_B000, 64, 0x20_0000)  # usable part of a 2 MiB window; the functional model
    clock_mhz: int = number(1000, 1, 10_000)  # at which the vendor's estimate counts cycles
    batch: int = number(1, 1, 64)  # samples that one launch of a compiled network takes: chosen
    precision: str = word("host", *PRECISIONS)  # in which type real numbers of a network are computed: chosen

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def cube_group(self, size: int) -> int:
        """Input channels that the cube multiplies at a time, and that lie side by side: of elements of `size` bytes."""
        return 1 if size == 4 else self.eu_bytes // size


#: `figures`: the four lanes of the source document's pictures.
PRESETS: dict[Any, Config] = {"bm1684x": Config(), "figures": Config(lanes=4)}
Config.presets = PRESETS
