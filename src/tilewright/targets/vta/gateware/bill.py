"""Count the multiplier blocks (DSP48) that the gateware takes on an FPGA, from the configuration, without synthesis.

The rule is that of Yosys for Xilinx's 7 series (synth_xilinx): a product uses blocks if both factors have at least 2
bits and the result has at least 9. Tests compare the counts with the cells that Yosys counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tilewright.errors import ConfigError
from tilewright.targets.vta.config import Config

#: Fewest bits of both factors, and of the result, with which a product uses a block.
NARROWEST, SMALLEST = 2, 9
#: Widths in bits of the signed factors of one block (DSP48E1).
WIDE, NARROW = 25, 18
#: Address products (rows and columns of padding times a row) in both units that load tiles: load, and that of GEMM.
ADDRESSES = 4 * 2
#: Blocks per lane of the rescaling ALU: the high product of two int32; with float32 also a product of mantissas.
LANE, FLOAT_LANE = 4, 6


class Chip(NamedTuple):
    """The FPGA of a board, and its number of multiplier blocks."""

    name: str
    dsp: int


#: Xilinx FPGAs by TARGET, from their product tables (DS190, DS891). de10nano has another kind of multiplier block.
CHIPS = {"pynq": Chip("xc7z020", 220), "ultra96": Chip("xczu3eg", 360), "zcu104": Chip("xczu7ev", 1728)}


def bill(config: Config) -> dict[str, int]:
    """Return the number of blocks of each part of the machine.

    Raises ConfigError if `multipliers` is packed and the operands are too wide for it.
    """
    lanes = config.batch * config.block
    rescaling = (FLOAT_LANE if config.alu == "float" else LANE) if config.rescales else 0
    return {"products": _products(config), "addresses": ADDRESSES, "rescaling": lanes * rescaling}


def total(config: Config) -> int:
    """Return the number of all blocks. Raises ConfigError as `bill` does."""
    return sum(bill(config).values())


def _products(config: Config) -> int:
    inp, wgt = config.inp.width, config.wgt.width
    count = config.batch * config.block**2
    if config.multipliers == "logic":
        return 0
    if config.multipliers == "packed" and config.block > 1:
        if not _packs(config):
            raise ConfigError(
                "VTA gateware", f"two products of {inp} x {wgt} bits do not fit one DSP48", "set multipliers=single"
            )
        return count // 2 * _blocks(inp, inp + 2 * wgt + 1)
    return count * _blocks(inp, wgt)


def _packs(config: Config) -> bool:
    """Return whether one block can make two products that share an input (see hdl/mac.py)."""
    inp, wgt = config.inp.width, config.wgt.width
    return inp + 2 * wgt + 1 <= WIDE and inp <= NARROW


def _blocks(a: int, b: int) -> int:
    """Return how many blocks (0 or 1) a product of factors of `a` and `b` bits takes."""
    return int(min(a, b) >= NARROWEST and a + b >= SMALLEST)


def excess(config: Config) -> str:
    """Return why the design does not fit the board named by TARGET, and what to set.

    The text is empty if the design fits, or if the FPGA of the board is not known. Raises ConfigError as `bill` does.
    """
    chip, needed = CHIPS.get(config.TARGET), total(config)
    if chip is None or needed <= chip.dsp:
        return ""
    parts = ", ".join(f"{count} {part}" for part, count in bill(config).items() if count)
    return f"takes {needed} DSP48 ({parts}); the {chip.name} of {config.TARGET} has {chip.dsp}: {_remedy(config, chip)}"


def _remedy(config: Config, chip: Chip) -> str:
    """Return the first change of the configuration that makes the design fit."""
    for kind in ("packed", "logic") if _packs(config) else ("logic",):
        if (needed := total(replace(config, multipliers=kind))) <= chip.dsp:
            made = ", with products made of logic" if kind == "logic" else ""
            return f"--set multipliers={kind} takes {needed}{made}"
    return "set a smaller LOG_BLOCK or LOG_BATCH, or alu=upstream"
