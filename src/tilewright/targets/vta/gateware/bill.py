"""Count the multiplier blocks (DSP48) and block RAMs that the gateware takes on an FPGA, without synthesis.

Multiplier blocks follow the rule of Yosys for Xilinx's 7 series (synth_xilinx): a product uses blocks if both factors
have at least 2 bits and the result has at least 9. Tests compare the counts with the cells that Yosys counts. Block
RAMs: targets/rams.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tilewright.errors import ConfigError
from tilewright.hdl.multipliers import packs
from tilewright.targets.rams import Ram
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES

#: Fewest bits of both factors, and of the result, with which a product uses a block.
NARROWEST, SMALLEST = 2, 9
#: Address products (rows and columns of padding times a row) in both units that load tiles: load, and that of GEMM.
ADDRESSES = 4 * 2
#: Blocks per lane of the rescaling ALU: the high product of two int32; with float32 also a product of mantissas.
LANE, FLOAT_LANE = 4, 6


class Chip(NamedTuple):
    """The FPGA of a board (`name`), and its number of multiplier blocks (`dsp`)."""

    name: str
    dsp: int


#: Xilinx FPGAs by TARGET, from their product tables (DS190, DS891). de10nano has another kind of multiplier block.
CHIPS = {"pynq": Chip("xc7z020", 220), "ultra96": Chip("xczu3eg", 360), "zcu104": Chip("xczu7ev", 1728)}


def require(config: Config) -> None:
    """Check that gateware can be built for the machine. Raises ConfigError if it cannot."""
    if not config.rules.out_memory:  # fsim is a simulator: its STORE reads acc when it runs
        reason = f"semantics={config.semantics} is not supported: it has no memory between compute and store"
        raise ConfigError("VTA gateware", reason, "set semantics to hls or chisel")
    for operation in config.own_alu:
        operation.require_lane()


def bill(config: Config) -> dict[str, int]:
    """Return the number of multiplier blocks that each part of the machine takes, by part.

    Raises ConfigError if the key `multipliers` is "packed", and two products are too wide for one block.
    """
    lanes = config.batch * config.block
    rescaling = (FLOAT_LANE if config.alu == "float" else LANE) if config.rescales else 0
    return {"products": _products(config), "addresses": ADDRESSES, "rescaling": lanes * rescaling}


def total(config: Config) -> int:
    """Return the number of multiplier blocks that the whole machine takes. Raises ConfigError as `bill` does."""
    return sum(bill(config).values())


def _products(config: Config) -> int:
    inp, wgt = config.inp.width, config.wgt.width
    count = config.batch * config.block**2
    if config.multipliers == "logic":
        return 0
    if config.multipliers == "packed" and config.block > 1:
        if not packs(inp, wgt):
            raise ConfigError(
                "VTA gateware", f"two products of {inp} x {wgt} bits do not fit one DSP48", "set multipliers=single"
            )
        return count // 2 * _blocks(inp, inp + 2 * wgt + 1)
    return count * _blocks(inp, wgt)


def _blocks(a: int, b: int) -> int:
    """Return how many multiplier blocks (0 or 1) the product of an `a`-bit and a `b`-bit factor takes."""
    return int(min(a, b) >= NARROWEST and a + b >= SMALLEST)


def excess(config: Config) -> str:
    """Return a text: why the machine does not fit the board that the key TARGET names, and what to set instead.

    The text is empty if the machine fits, or if the FPGA of the board is not known. Raises ConfigError as `bill` does.
    """
    chip, needed = CHIPS.get(config.TARGET), total(config)
    if chip is None or needed <= chip.dsp:
        return ""
    parts = ", ".join(f"{count} {part}" for part, count in bill(config).items() if count)
    return f"takes {needed} DSP48 ({parts}); the {chip.name} of {config.TARGET} has {chip.dsp}: {_remedy(config, chip)}"


def _remedy(config: Config, chip: Chip) -> str:
    """Return advice: the first value of `multipliers` with which the machine fits `chip`, or else a smaller machine."""
    for kind in ("packed", "logic") if packs(config.inp.width, config.wgt.width) else ("logic",):
        if (needed := total(replace(config, multipliers=kind))) <= chip.dsp:
            made = ", with products made of logic" if kind == "logic" else ""
            return f"multipliers={kind} takes {needed}{made}"
    return "set a smaller LOG_BLOCK or LOG_BATCH, or alu=upstream"


def bram36(config: Config) -> float:
    """Return the number of RAMB36E1 that the machine takes; a RAMB18E1 is half of one."""
    return sum(ram.halves for ram in rams(config)) / 2


def rams(config: Config) -> Iterator[Ram]:
    """Yield the memories of the machine that may be made of block RAM; the others have at most 64 words.

    A memory has as many banks as a beat has tiles; a beat may write only a part of a tile. With four stages, each bank
    of acc is divided into the parts that the units use in turn.
    """
    for sram in config.chips:
        bits, bus = 8 * sram.tile_bytes, config.bus_bits
        lanes, parts = max(1, bus // bits), 1 if sram.name == "out" else max(1, bits // bus)
        depth = max(1, sram.depth // lanes)
        shares = min(config.acc_banks, depth) if sram.name == "acc" and config.stages == 4 else 1
        yield Ram(sram.name, lanes * shares, depth // shares, parts, bits // parts)
    yield Ram("command queues", len(config.pipeline.units), config.queue_depth, 1, 8 * INSN_BYTES)
