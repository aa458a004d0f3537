"""Multiplier blocks (DSP48) that the gateware takes on an FPGA, counted from the configuration: no synthesis.

As Yosys maps products for Xilinx's 7 series (synth_xilinx): a product becomes blocks where both factors have 2 bits or
more and the result 9 or more. Tests compare the bill with the cells that Yosys counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tilewright.errors import ConfigError
from tilewright.targets.vta.config import Config

#: Bits of factors and of a result from which a product is a block.
NARROWEST, SMALLEST = 2, 9
#: Bits, signed, of the factors of one block: DSP48E1.
WIDE, NARROW = 25, 18
#: Rows and columns of padding times the row of a transfer, in the two units that LOAD tiles: load, and that of GEMM.
ADDRESSES = 4 * 2
#: A lane of the rescaling ALU: the high product of two int32, and with float32 a product of mantissas.
LANE, FLOAT_LANE = 4, 6


class Chip(NamedTuple):
    """The FPGA of a board, and the multiplier blocks that it has."""

    name: str
    dsp: int


#: By TARGET, for Xilinx's FPGAs: their product tables (DS190, DS891). de10nano's are of another kind.
CHIPS = {"pynq": Chip("xc7z020", 220), "ultra96": Chip("xczu3eg", 360), "zcu104": Chip("xczu7ev", 1728)}


def bill(config: Config) -> dict[str, int]:
    """Blocks by part of the machine."""
    lanes = config.batch * config.block
    rescaling = (FLOAT_LANE if config.alu == "float" else LANE) if config.rescales else 0
    return {"products": _products(config), "addresses": ADDRESSES, "rescaling": lanes * rescaling}


def total(config: Config) -> int:
    """All blocks."""
    return sum(bill(config).values())


def _products(config: Config) -> int:
    inp, wgt = config.inp.width, config.wgt.width
    count = config.batch * config.block**2
    if config.multipliers == "logic":
        return 0
    if config.multipliers == "packed" and config.block > 1:
        if not _packs(config):
            raise ConfigError(
                "VTA gateware", f"two products of {inp} and {wgt} bits do not fit a block", "use single multipliers"
            )
        return count // 2 * _blocks(inp, inp + 2 * wgt + 1)
    return count * _blocks(inp, wgt)


def _packs(config: Config) -> bool:
    """Whether a block makes two products that share an input: hdl/mac.py."""
    inp, wgt = config.inp.width, config.wgt.width
    return inp + 2 * wgt + 1 <= WIDE and inp <= NARROW


def _blocks(a: int, b: int) -> int:
    """Blocks of a product of factors that one block takes."""
    return int(min(a, b) >= NARROWEST and a + b >= SMALLEST)


def excess(config: Config) -> str:
    """Why the design does not fit the board that its TARGET names, and what to set; empty where it fits.

    Empty too for a board whose FPGA is not known.
    """
    chip, needed = CHIPS.get(config.TARGET), total(config)
    if chip is None or needed <= chip.dsp:
        return ""
    parts = ", ".join(f"{count} {part}" for part, count in bill(config).items() if count)
    return f"takes {needed} DSP48 ({parts}); the {chip.name} of {config.TARGET} has {chip.dsp}: {_remedy(config, chip)}"


def _remedy(config: Config, chip: Chip) -> str:
    """The first change that fits."""
    for kind in ("packed", "logic") if _packs(config) else ("logic",):
        if (needed := total(replace(config, multipliers=kind))) <= chip.dsp:
            made = ", with products made of logic" if kind == "logic" else ""
            return f"--set multipliers={kind} takes {needed}{made}"
    return "set a smaller LOG_BLOCK or LOG_BATCH, or alu=upstream"
