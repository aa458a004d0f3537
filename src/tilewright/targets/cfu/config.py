"""The numbers of one CFU system, each with its unit and source.

Sources: *document*: chapter 6 of Yeecy's series on MLPerf Tiny with CFU-Playground; *RTL*: the author's cfu.v
(github.com/ADNRs/AAML2023-CFU-Playground); *LiteX*: the SoC that CFU-Playground builds around it (defaults).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import ConfigError, one_of
from tilewright.targets.given import MachineConfig, number, word

#: Bytes of a line in the L1 caches. Source: VexRiscv.
LINE_BYTES = 32
#: The address of main memory. Source: LiteX.
RAM_BASE = 0x4000_0000
#: The size of the extensions' image memory in bytes: 16 BRAM36.
IMAGE_BYTES = 1 << 16

#: Extensions that the document does not have: isa/coupled.py.
EXTENSIONS = ("im2col", "add", "resident", "pool", "dma", "burst", "overlap", "add4", "stream", "dot")
#: Extensions that build on each other. The extension `dot` is separate: the document discusses it as an alternative.
BEYOND = EXTENSIONS[:-1]


@dataclass(frozen=True)
class Config(MachineConfig):
    """The configuration of one CPU with its CFU. Raises ConfigError if values break a rule."""

    where = "CFU config"

    array: int = number(16, 4, 32, power=True)  # n of the n x n array (document: the largest that fits the board)
    buffer_rows: int = number(4096, 16, 1 << 16, power=True)  # the rows of A, of B and of C (document)
    transfer: str = word("paired", "addressed", "counter", "paired")  # how the CPU writes A and B (document, 6.1)
    readout: str = word("sequential", "sequential", "random")  # how the CPU reads C (document)
    start: str = word("async", "async", "blocking")  # document: start_GEMM returns at once
    srdhm: str = word("split", "split", "single")  # document: two instructions, because a product needs two cycles
    # VexRiscv's default in LiteX: direct mapped caches
    icache_bytes: int = number(4096, 1 << 10, 1 << 16, power=True, only_time=True)
    dcache_bytes: int = number(4096, 1 << 10, 1 << 16, power=True, only_time=True)  # write-through
    l2_bytes: int = number(8192, 1 << 10, 1 << 24, power=True, only_time=True)  # LiteX: direct mapped, write-back
    l2_line_bytes: int = number(16, 4, 32, power=True, only_time=True)  # LiteX: l2_cache_min_data_width
    dram_row_bytes: int = number(2048, 64, 1 << 16, power=True, only_time=True)  # MT47H64M16: 1024 columns of 16 bits
    dram_banks: int = number(8, 1, 64, power=True, only_time=True)  # MT47H64M16
    ram_bytes: int = number(1 << 27, 1 << 16, 1 << 30, power=True)  # Nexys4 DDR
    # LiteX: the default of the board; the course's template also converts cycles to time at 75 MHz
    clock_mhz: int = number(75, 1, 10_000, only_time=True)
    extensions: str = ""  # comma-separated names, not in the document: isa/coupled.py
    firmware: str = "published"  # the variant that `compile` builds; the machine ignores this key

    def __post_init__(self) -> None:
        super().__post_init__()
        # With `counter`, one command fills a row; with `paired`, several commands of 8 bytes fill a row.
        wide = {"addressed": True, "counter": self.array <= 8, "paired": self.array >= 16}
        if not wide[self.transfer]:
            reason = f"transfer={self.transfer} cannot fill rows of {self.array} values"
            remedy = "use counter for rows of 4 or 8 values, paired for 16 or 32 values, or addressed for any number"
            raise ConfigError("CFU config", reason, remedy)
        if not isinstance(self.extensions, str) or not isinstance(self.firmware, str):
            raise ConfigError("CFU config", "extensions and firmware must be text")
        for name in self.extension_names:
            if name not in EXTENSIONS:
                raise ConfigError("CFU config", f"unknown extension '{name}'", one_of(name, EXTENSIONS))
        if self.extensions and self.array != 16:
            raise ConfigError("CFU config", "extensions need array=16", "leave out the extensions or set array=16")
        if self.l2_bytes < self.l2_line_bytes:
            raise ConfigError("CFU config", "l2_bytes is less than l2_line_bytes", "set a larger l2_bytes")

    @property
    def extension_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.extensions.split(",") if name)

    @property
    def streams(self) -> bool:
        """Whether the DMA fetches all constants and inputs of a layer, not only the weights (as with `dma` alone)."""
        return {"dma", "stream"} <= set(self.extension_names)

    @property
    def macs_per_cycle(self) -> int:
        return self.array * self.array


#: The allowed values of each key that is a choice.
CHOICES = Config.words()

#: `published` is the document's machine. `addressed4` and `counter8` are the alternatives of its section 6.1.
PRESETS = {
    "published": Config(),
    "addressed4": Config(array=4, transfer="addressed"),
    "counter8": Config(array=8, transfer="counter"),
    # These are not in the document. Each preset has one more extension than the preset before it.
    **{name: Config(extensions=",".join(BEYOND[: index + 1]), firmware="coupled") for index, name in enumerate(BEYOND)},
    "tuned": Config(extensions=",".join(BEYOND), firmware="tuned"),  # the machine of the last preset, other firmware
}
Config.presets = PRESETS
