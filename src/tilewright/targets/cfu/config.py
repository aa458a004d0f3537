"""The numbers of one CFU system, each with its unit and where it comes from.

Sources: *document*: chapter 6 of Yeecy's series on MLPerf Tiny with CFU-Playground; *RTL*: the author's cfu.v
(github.com/ADNRs/AAML2023-CFU-Playground); *LiteX*: the SoC that CFU-Playground builds around it (defaults).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number, word

#: A line of the L1 caches; VexRiscv's.
LINE_BYTES = 32
#: Where main memory starts; LiteX.
RAM_BASE = 0x4000_0000
#: The image memory of the extensions: 16 BRAM36.
IMAGE_BYTES = 1 << 16

#: What lies beyond the document: isa/coupled.py.
EXTENSIONS = ("im2col", "add", "resident", "pool", "dma", "burst", "dot")
#: Those that follow one another; `dot` is an aside of the document's.
BEYOND = EXTENSIONS[:-1]


@dataclass(frozen=True)
class Config(MachineConfig):
    """One CPU with its CFU. Raises ConfigError naming the rule that is broken."""

    where = "CFU config"

    array: int = number(16, 4, 32, power=True)  # n of the n x n array; document: the largest that fitted the board
    buffer_rows: int = number(4096, 16, 1 << 16, power=True)  # of each of A, B and C; document
    transfer: str = word("paired", "addressed", "counter", "paired")  # into a buffer; document, 6.1: isa/gemm.py
    readout: str = word("sequential", "sequential", "random")  # of C; document
    start: str = word("async", "async", "blocking")  # document: start returns at once, check polls
    srdhm: str = word("split", "split", "single")  # document: set and get, as one cycle is too short for the product
    icache_bytes: int = number(4096, 1 << 10, 1 << 16, power=True)  # LiteX: VexRiscv's default, direct mapped
    dcache_bytes: int = number(4096, 1 << 10, 1 << 16, power=True)  # likewise, written through
    l2_bytes: int = number(8192, 1 << 10, 1 << 24, power=True)  # LiteX: direct mapped, written back
    l2_line_bytes: int = number(16, 4, 32, power=True)  # LiteX: l2_cache_min_data_width
    dram_row_bytes: int = number(2048, 64, 1 << 16, power=True)  # MT47H64M16: 1024 columns of 16 bits
    dram_banks: int = number(8, 1, 64, power=True)  # MT47H64M16
    ram_bytes: int = number(1 << 27, 1 << 16, 1 << 30, power=True)  # Nexys4 DDR
    clock_mhz: int = number(75, 1, 10_000)  # LiteX: the board's default; the course's template divides cycles by 75
    extensions: str = ""  # beyond the document, names joined by commas: isa/coupled.py
    firmware: str = "published"  # which variant `compile` builds; the machine does not look at it

    def __post_init__(self) -> None:
        super().__post_init__()
        wide = {"addressed": True, "counter": self.array <= 8, "paired": self.array >= 16}
        if not wide[self.transfer]:
            reason = f"a row of {self.array} values does not go with transfer {self.transfer}"
            raise ConfigError("CFU config", reason, "counter fills rows of 4 or 8, paired of 16 or 32, addressed any")
        if not isinstance(self.extensions, str) or not isinstance(self.firmware, str):
            raise ConfigError("CFU config", "extensions and firmware are names")
        for name in self.extension_names:
            if name not in EXTENSIONS:
                raise ConfigError("CFU config", f"there is no extension '{name}'", f"choose of {', '.join(EXTENSIONS)}")
        if self.extensions and self.array != 16:
            raise ConfigError("CFU config", "extensions go with an array of 16", "leave one of the two out")
        if self.l2_bytes < self.l2_line_bytes:
            raise ConfigError("CFU config", "l2_bytes is less than a line")

    @property
    def extension_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.extensions.split(",") if name)

    @property
    def macs_per_cycle(self) -> int:
        return self.array * self.array


#: The words of each choice.
CHOICES = Config.words()

#: `published` is the document's machine; the others are the alternatives that its section 6.1 goes through.
PRESETS = {
    "published": Config(),
    "addressed4": Config(array=4, transfer="addressed"),
    "counter8": Config(array=8, transfer="counter"),
    # Beyond the document, each with all before it.
    **{name: Config(extensions=",".join(BEYOND[: index + 1]), firmware="coupled") for index, name in enumerate(BEYOND)},
}
Config.presets = PRESETS

#: The budget of the document's board, an Artix-7 100T: block RAMs of 36 Kbit, and multipliers (DSP48E1).
BUDGET = {"bram36": 135, "dsp": 240}
BLOCK = 4096  # bytes of a block RAM: its parity bits stay unused
PRODUCT = 4  # multipliers in a product of 32 x 32 bits

#: Multipliers of each extension: four requantisation lanes, shared with additions; four products of 8 x 8 bits.
_MULTIPLIERS = {"im2col": 4 * PRODUCT, "dot": 4}


def bill(config: Config) -> dict[str, int]:
    """What the CFU asks of an FPGA, counted and not synthesised.

    Block RAMs, without LiteX's boot ROM and SRAM; multipliers beside the array's; products of the array that are left
    to logic cells.
    """
    rows = config.buffer_rows * config.array
    memories = [rows, rows, 4 * rows, config.icache_bytes, config.dcache_bytes, config.l2_bytes]
    names = config.extension_names
    if names:
        memories += [IMAGE_BYTES, BLOCK]  # tables of channels: 256 x 70 bits
    if "add" in names and "im2col" not in names:
        names = (*names, "im2col")  # the same lanes
    beside = 2 * PRODUCT + sum(_MULTIPLIERS.get(name, 0) for name in set(names))  # CPU, SRDHM
    return {
        "bram36": sum(-(-size // BLOCK) for size in memories),
        "dsp_beside_array": beside,
        "products_in_logic": max(0, config.array**2 - (BUDGET["dsp"] - beside)),
    }
