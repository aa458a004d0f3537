"""Rounding modes: which requantisation rule each family of operators uses, under one name."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import InputError
from tilewright.graph.arithmetic import RequantRule


@dataclass(frozen=True)
class Rounding:
    """One published implementation's choice of arithmetic; see docs/arithmetic.md for the evidence."""

    name: str
    convolution: RequantRule
    fully_connected: RequantRule
    other: RequantRule
    source: str


MODES = {
    mode.name: mode
    for mode in (
        Rounding("tflm", "double", "double", "double", "TFLite-Micro reference kernels"),
        Rounding("litert", "double", "single", "double", "LiteRT 2.3 reference kernels (BUILTIN_REF)"),
        Rounding("xnnpack", "float", "float", "float", "LiteRT 2.3 default (XNNPACK)"),
    )
}


def rounding_mode(name: str) -> Rounding:
    """The mode called `name`. Raises InputError naming those that exist."""
    if name not in MODES:
        raise InputError("--rounding", f"there is no rounding mode '{name}'", f"choose one of {', '.join(MODES)}")
    return MODES[name]
