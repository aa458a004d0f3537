"""The sizes and addresses of a BM1684X, each with the source of the number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number, word

#: The first bus address of each memory. Sources: the vendor's debugger and functional model.
LOCAL_BASE = 0x0800_0000
STATIC_BASE = 0x0900_0000
L2_BASE = 0x1000_0000
DDR_BASE = 0x1_0000_0000
#: One past the highest bus address: address fields of commands have 40 bits.
ADDRESS_END = 1 << 40
#: Element types for the real numbers of a network. With `host`, onnxruntime computes real numbers in float32.
PRECISIONS = ("host", "f16", "bf16", "f32")
#: MACs per cycle of one lane's cube, by bytes of an operand. 1 byte: 4 pixels of 64 channels; 2 bytes: 4 pixels of 32
#: channels; 4 bytes: 16 pixels of one channel. Source: the vendor's timelines.
CUBE_MACS = {1: 256, 2: 128, 4: 16}


@dataclass(frozen=True)
class Config(MachineConfig):
    """The configuration of one BM1684X machine. Raises ConfigError if a value is not allowed."""

    where = "bm1684x config"

    lanes: int = number(64, 1, 64, power=True)  # sources: the source document and the functional model
    banks: int = number(16, 1, 64)  # banks per lane; source: the source document
    bank_bytes: int = number(1 << 14, 64, 1 << 18, power=True)  # source: the source document (16 MiB in total)
    eu_bytes: int = number(64, 4, 64, power=True)  # bytes per lane and cycle, and alignment; sources as for lanes
    static_bytes: int = number(1 << 14, 64, 1 << 24)  # source: the vendor's debugger
    l2_bytes: int = number(0x1F_B000, 64, 0x20_0000)  # usable bytes of 2 MiB; source: the functional model
    clock_mhz: int = number(1000, 1, 10_000, only_time=True)  # clock of the cycles in the vendor's estimate
    batch: int = number(1, 1, 64)  # samples per launch of a compiled network (our choice)
    precision: str = word("host", *PRECISIONS)  # element type of real numbers (our choice)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_bytes > STATIC_BASE - LOCAL_BASE:
            reason = f"{self.local_bytes} bytes of local memory do not fit below static memory"
            raise ConfigError(
                "bm1684x config", reason, f"give lanes * banks * bank_bytes <= {STATIC_BASE - LOCAL_BASE}"
            )

    @property
    def lane_bytes(self) -> int:
        return self.banks * self.bank_bytes

    @property
    def local_bytes(self) -> int:
        return self.lanes * self.lane_bytes

    def cube_group(self, size: int) -> int:
        """Return the number of adjacent input channels, in `size`-byte elements, that the cube multiplies at a time."""
        return 1 if size == 4 else self.eu_bytes // size


#: The preset `figures` has four lanes, like the machine in the source document's figures.
PRESETS: dict[Any, Config] = {"bm1684x": Config(), "figures": Config(lanes=4)}
Config.presets = PRESETS
