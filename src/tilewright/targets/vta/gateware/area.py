"""Estimate the cells that the gateware takes on an FPGA of Xilinx's 7 series, from designs that Yosys has synthesised.

Multiplier blocks and block RAMs follow rules, and are exact. LUTs and flip-flops are a sum of terms, one for each part
of the machine that grows with its configuration. area.json holds the counts of measured designs; a least-squares fit to
some of them gives the weights of the terms, and the others, which the fit has not seen, show its error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets import given
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.gateware import bill

FILE = Path(__file__).with_name("area.json")
#: The counts that are fitted, with their names in area.json.
FITTED = {"lut": "LUT", "ff": "FF"}
#: The cells of the FPGA of which `area` is a share: XC7Z020, the FPGA of a Zynq-7020. Source: Xilinx DS190, table 1.
DEVICE = {"lut": 53_200, "ff": 106_400, "dsp": bill.CHIPS["pynq"].dsp, "bram36": 140}


class Point(NamedTuple):
    """A measured design: its machine, its cells by kind (LUT, FF, DSP, BRAM), and whether the fit leaves it out."""

    config: Config
    cells: Mapping[str, float]
    held: bool


class Fit(NamedTuple):
    """The weights of the terms for each fitted count, and its largest relative error on designs left out of the fit."""

    weights: Mapping[str, Array]
    error: Mapping[str, float]


def area(config: Config) -> dict[str, Any]:
    """Return the cells of a machine: `lut`, `ff`, `dsp` and `bram36` (a RAMB18E1 is half), and what is known of them.

    `area` is one number for all cells: the percentage of a Zynq-7020 (DEVICE) that the machine takes of the kind of
    cells of which it takes the largest share. The machine fits if it is at most 100. `estimate` lists the numbers that
    are estimates, and `error` the largest relative error of each count on designs that the fit has not seen.
    `extrapolated` says whether a part of the machine is larger than in any measured design, or its values have other
    widths. A measured machine has its measured counts. Raises ConfigError if it cannot be built.
    """
    bill.require(config)
    found: dict[str, Any] = {"dsp": bill.total(config), "bram36": bill.bram36(config)}
    measured = next((point.cells for point in points() if _built(point.config) == _built(config)), None)
    model, own = fit(), terms(config)
    about: dict[str, Any] = {
        "family": "xc7",
        "estimate": [] if measured else [*FITTED, "area"],
        "error": {} if measured else model.error,
    }
    about["extrapolated"] = measured is None and not _among_measured(config)
    counts = {
        key: int(measured[name]) if measured else round(float(own @ model.weights[key])) for key, name in FITTED.items()
    }
    cells = counts | found
    share = round(100 * max(cells[key] / most for key, most in DEVICE.items()), 2)
    return cells | {"area": share} | about


def _among_measured(config: Config) -> bool:
    """Return whether the measured designs have parts as large as this machine's, and values of the same widths."""

    def kind(own: Config) -> tuple[int, int, int, str]:
        return own.inp.width, own.wgt.width, own.acc.width, own.semantics

    most = np.max([terms(point.config) for point in points()], axis=0)
    if config.own_alu:  # lanes of the user's own
        return False
    return bool((terms(config) <= most).all()) and any(kind(point.config) == kind(config) for point in points())


def terms(config: Config) -> Array:
    """Return the sizes of the machine's parts, float64 [terms]; LUTs and flip-flops are a weighted sum of them."""
    lanes, products = config.batch * config.block, config.macs_per_cycle
    factor, width = config.inp.width * config.wgt.width, config.acc.width / 32
    summed = config.inp.width + config.wgt.width + config.LOG_BLOCK
    rescaling = {"float": lanes * (config.alu == "float"), "integer": lanes * (config.alu in ("rounding", "fused"))}
    made = config.multipliers
    return np.array(
        [
            1,  # the units' control, fetch, token queues
            lanes * width,  # the tensor ALU, the accumulators' adders
            products * summed,  # the adders of the array
            products * (made == "packed"),  # their corrections
            products * factor * (made == "logic"),  # products made of LUTs
            config.bus_bits,  # masters, and the shifters between beats and tiles
            rescaling["integer"],
            lanes * (config.alu == "fused"),  # REQ: its parameters, zero points and bounds
            rescaling["float"],
            (config.stages == 4) * 1,  # the second unit
            (config.stages == 4) * lanes,  # its ports to the parts of acc
        ],
        np.float64,
    )


@cache
def points() -> tuple[Point, ...]:
    """Return the measured designs."""
    data = json.loads(FILE.read_text("utf-8"))
    base = PRESETS[data["preset"]]
    return tuple(
        Point(base.with_overrides(item["set"]), item["cells"], item.get("held", False)) for item in data["designs"]
    )


@cache
def fit() -> Fit:
    """Return the fit to the measured designs, by weights of at least 0."""
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
    while True:
        weights[:] = 0
        weights[kept] = np.linalg.lstsq(scaled[:, kept], np.ones(len(counts)), rcond=None)[0]
        if (weights >= 0).all():
            return weights
        kept[np.argmin(weights)] = False


def _built(config: Config) -> Config:
    """Return the machine without the keys that do not change its gateware."""
    base = PRESETS["pynq"]
    only_time = {
        field.name: getattr(base, field.name)
        for field in fields(config)
        if field.metadata == given.ONLY_TIME and field.name not in ("LOG_BUS_WIDTH", "queue_depth", "token_depth")
    }
    width = config.bus_bits.bit_length() - 1
    return replace(config, TARGET=base.TARGET, HW_VER=base.HW_VER, LOG_BUS_WIDTH=width, **only_time)
