"""Estimate the cells of the gateware on a Xilinx 7-series FPGA, from the configuration, without synthesis.

The numbers of multiplier blocks (DSP48) and block RAMs follow rules, and are exact. The rule for multiplier blocks
comes from Yosys (synth_xilinx): a product uses blocks if both factors have at least 2 bits and the result has at least
9 bits. For block RAMs, see targets/rams.py. LUTs and flip-flops are estimated by a sum of terms, with a term for each
part of the machine that grows with the configuration. area.json has the counts of designs that Yosys has synthesised. A
least-squares fit to some of these designs gives the weights of the terms. The other designs, which are not in the fit,
show the error of the fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.hdl.multipliers import packs
from tilewright.targets import given
from tilewright.targets.rams import Ram
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import INSN_BYTES

FILE = Path(__file__).with_name("area.json")
#: The counts that are fitted, with their names in area.json.
FITTED = {"lut": "LUT", "ff": "FF"}


class Point(NamedTuple):
    """A measured design: its machine, its cells by kind (LUT, FF, DSP, BRAM), and whether the fit leaves it out."""

    config: Config
    cells: Mapping[str, float]
    held: bool


class Fit(NamedTuple):
    """For each fitted count, the weights of the terms, and the largest relative error on designs not in the fit."""

    weights: Mapping[str, Array]
    error: Mapping[str, float]


def area(config: Config) -> dict[str, Any]:
    """Return the numbers of cells of a machine (`lut`, `ff`, `dsp`, `bram36`), and their accuracy.

    A RAMB18E1 counts as half a `bram36`. `area` is the highest percentage that any kind of cell takes of a Zynq-7020
    (DEVICE), so the machine fits if `area` is at most 100. `estimate` lists the numbers that are estimates, and `error`
    the largest relative error of each count on designs that the fit has not seen. `extrapolated` is True if a part of
    the machine is larger than in every measured design, or if values have widths that no measured design has. A
    measured machine gets its measured counts. Raises ConfigError if the machine cannot be built.
    """
    require(config)
    blocks = {"dsp": total(config), "bram36": bram36(config)}
    # A measured design needs no estimate.
    measured = next((point.cells for point in points() if _built(point.config) == _built(config)), None)
    if measured is None:
        counts = {key: round(float(terms(config) @ weights)) for key, weights in fit().weights.items()}
    else:
        counts = {key: int(measured[name]) for key, name in FITTED.items()}
    cells: dict[str, Any] = counts | blocks
    return cells | {
        "area": round(100 * max(cells[key] / most for key, most in DEVICE.items()), 2),
        "family": "xc7",
        "estimate": [] if measured else [*FITTED, "area"],
        "error": {} if measured else fit().error,
        "extrapolated": measured is None and not _among_measured(config),
    }


def _among_measured(config: Config) -> bool:
    """Return whether the measured designs cover the sizes of this machine's parts and the widths of its values."""

    machines = [point.config for point in points()]
    kinds = [(c.inp.width, c.wgt.width, c.acc.width, c.semantics) for c in (config, *machines)]
    smaller = terms(config) <= np.max([terms(machine) for machine in machines], axis=0)
    return not config.own_alu and bool(smaller.all()) and kinds[0] in kinds[1:]


def terms(config: Config) -> Array:
    """Return the sizes of the machine's parts, float64 [terms]. LUTs and flip-flops are weighted sums of sizes."""
    lanes = config.batch * config.block
    products = config.macs_per_cycle
    factor = config.inp.width * config.wgt.width
    width = config.acc.width / 32
    summed = config.inp.width + config.wgt.width + config.LOG_BLOCK
    rescaling = {"float": lanes * (config.alu == "float"), "integer": lanes * (config.alu in ("rounding", "fused"))}
    multipliers = config.multipliers
    return np.array(
        [
            1,  # constant: control of the units, fetch, token queues
            lanes * width,  # the tensor ALU, and the adders of the accumulators
            products * summed,  # the adders of the array
            products * (multipliers == "packed"),  # the corrections of these adders
            products * factor * (multipliers == "logic"),  # products made of LUTs
            config.bus_bits,  # bus masters, and the shifters between beats and tiles
            rescaling["integer"],
            lanes * (config.alu == "fused"),  # REQ: its parameters, zero points and bounds
            rescaling["float"],
            (config.stages == 4) * 1,  # the second unit
            (config.stages == 4) * lanes,  # ports of the second unit to the parts of acc
        ],
        np.float64,
    )


@cache
def points() -> tuple[Point, ...]:
    data = json.loads(FILE.read_text("utf-8"))
    base = PRESETS[data["preset"]]
    return tuple(
        Point(base.with_overrides(item["set"]), item["cells"], item.get("held", False)) for item in data["designs"]
    )


@cache
def fit() -> Fit:
    """Return the fit to the measured designs. All weights are at least 0."""
    seen = [point for point in points() if not point.held]
    rows = np.array([terms(point.config) for point in seen])
    weights = {key: _weights(rows, np.array([point.cells[name] for point in seen])) for key, name in FITTED.items()}
    held = [point for point in points() if point.held]
    error = {
        key: max(abs(float(terms(point.config) @ weights[key]) / point.cells[name] - 1) for point in held)
        for key, name in FITTED.items()
    }
    return Fit(weights, {key: round(value, 3) for key, value in error.items()})


def _weights(rows: Array, counts: Array) -> Array:
    """Return weights of at least 0 that minimise the relative errors of `rows @ weights` against `counts`."""
    scaled = rows / counts[:, None]
    kept = np.ones(rows.shape[1], np.bool_)
    weights = np.zeros(rows.shape[1])
    # Repeat the least-squares fit without the most negative weight, until no weight is negative.
    while True:
        weights[:] = 0
        weights[kept] = np.linalg.lstsq(scaled[:, kept], np.ones(len(counts)), rcond=None)[0]
        if (weights >= 0).all():
            return weights
        kept[np.argmin(weights)] = False


def _built(config: Config) -> Config:
    base = PRESETS["pynq"]
    only_time = {
        field.name: getattr(base, field.name)
        for field in fields(config)
        if field.metadata == given.ONLY_TIME and field.name not in ("LOG_BUS_WIDTH", "queue_depth", "token_depth")
    }
    width = config.bus_bits.bit_length() - 1
    return replace(config, TARGET=base.TARGET, HW_VER=base.HW_VER, LOG_BUS_WIDTH=width, **only_time)


#: Minimum bits of both factors, and of the result, for a product that uses a block.
NARROWEST = 2
SMALLEST = 9
#: Multiplications of addresses (rows and columns of padding, times a row) in the two units that load tiles: load and
#: GEMM.
ADDRESSES = 4 * 2
#: Blocks per lane of the rescaling ALU, for the high product of two int32. The float ALU also multiplies mantissas.
LANE = 4
FLOAT_LANE = 6


class Chip(NamedTuple):
    """The FPGA of a board (`name`), and its number of multiplier blocks (`dsp`)."""

    name: str
    dsp: int


#: Xilinx FPGAs by TARGET, from product tables (DS190, DS891). The FPGA of de10nano has other multiplier blocks.
CHIPS = {"pynq": Chip("xc7z020", 220), "ultra96": Chip("xczu3eg", 360), "zcu104": Chip("xczu7ev", 1728)}
#: The cells of the FPGA to which `area` refers: XC7Z020, the FPGA of a Zynq-7020. Source: Xilinx DS190, table 1.
DEVICE = {"lut": 53_200, "ff": 106_400, "dsp": CHIPS["pynq"].dsp, "bram36": 140}


def require(config: Config) -> None:
    """Check that gateware can be built for the machine. Raises ConfigError if not."""
    if not config.rules.out_memory:  # as in fsim, a simulator whose STORE reads acc
        reason = f"semantics={config.semantics} is not supported: it has no memory between compute and store"
        raise ConfigError("VTA gateware", reason, "set semantics to hls or chisel")
    for operation in config.own_alu:
        operation.require_lane()


def bill(config: Config) -> dict[str, int]:
    """Return the number of multiplier blocks of each part of the machine, by part.

    Raises ConfigError if the key `multipliers` is "packed", and two products are too wide for one block.
    """
    lanes = config.batch * config.block
    rescaling = (FLOAT_LANE if config.alu == "float" else LANE) if config.rescales else 0
    return {"products": _products(config), "addresses": ADDRESSES, "rescaling": lanes * rescaling}


def total(config: Config) -> int:
    """Return the number of multiplier blocks of the whole machine. Raises ConfigError as `bill` does."""
    return sum(bill(config).values())


def _products(config: Config) -> int:
    inp = config.inp.width
    wgt = config.wgt.width
    count = config.batch * config.block**2
    if config.multipliers == "logic":
        return 0
    if config.multipliers == "packed" and config.block > 1:
        if not packs(inp, wgt):
            raise ConfigError(
                "VTA gateware", f"two products of {inp} x {wgt} bits do not fit one DSP48", "set multipliers=single"
            )
        # A DSP48 multiplies one inp value by two wgt values, which are packed into one operand.
        return count // 2 * _blocks(inp, inp + 2 * wgt + 1)
    return count * _blocks(inp, wgt)


def _blocks(a: int, b: int) -> int:
    return int(min(a, b) >= NARROWEST and a + b >= SMALLEST)


def excess(config: Config) -> str:
    """Return, as text, why the machine does not fit the board that the key TARGET names, and a change that helps.

    The text is empty if the machine fits, or if the FPGA of the board is not known. Raises ConfigError as `bill` does.
    """
    chip = CHIPS.get(config.TARGET)
    needed = total(config)
    if chip is None or needed <= chip.dsp:
        return ""
    remedy = "set a smaller LOG_BLOCK or LOG_BATCH, or alu=upstream"
    for kind in ("packed", "logic") if packs(config.inp.width, config.wgt.width) else ("logic",):
        if (fewer := total(replace(config, multipliers=kind))) <= chip.dsp:
            remedy = f"multipliers={kind} takes {fewer}{', with products made of logic' if kind == 'logic' else ''}"
            break
    parts = ", ".join(f"{count} {part}" for part, count in bill(config).items() if count)
    return f"takes {needed} DSP48 ({parts}); the {chip.name} of {config.TARGET} has {chip.dsp}: {remedy}"


def bram36(config: Config) -> float:
    """Return the number of RAMB36E1 of the machine; a RAMB18E1 counts as half."""
    return sum(ram.halves for ram in rams(config)) / 2


def rams(config: Config) -> Iterator[Ram]:
    """Yield the memories of the machine that may use block RAM. All other memories have at most 64 words."""
    for sram in config.chips:
        bits = 8 * sram.tile_bytes
        bus = config.bus_bits
        # A memory has one bank for each tile in a beat; a beat may also be a part of a tile.
        lanes = max(1, bus // bits)
        parts = 1 if sram.name == "out" else max(1, bits // bus)
        depth = max(1, sram.depth // lanes)
        # With four stages, each bank of acc is divided into the parts that the units use in turn.
        shares = min(config.acc_banks, depth) if sram.name == "acc" and config.stages == 4 else 1
        yield Ram(sram.name, lanes * shares, depth // shares, parts, bits // parts)
    yield Ram("command queues", len(config.pipeline.units), config.queue_depth, 1, 8 * INSN_BYTES)
