"""Multiply-accumulates that commands ask for, and the most of them that the compute engine does in a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import CUBE_MACS
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.layouts.spread import ConvWeights

CONVOLUTIONS = ("fp_conv2d", "int8_sym_quant_conv2d", "int8_asym_quant_conv2d")
DEPTHWISE = ("fp_depthwise2d", "int8_depthwise2d")
PRODUCTS = ("fp_mm", "int8_mm", "int8_zp_mm")


def macs(command: Command) -> int:
    """Multiply-accumulates of a command, padding taps included; 0 of all but convolutions and matrix products."""
    name, y = command.operation.name, prod(command.results["y"].shape)
    if name in CONVOLUTIONS:
        kernel = command.operands["w"]
        assert isinstance(kernel, ConvWeights)
        return y * prod(kernel.shape[1:])
    if name in DEPTHWISE:
        return y * prod(command.attributes["window"].kernel)
    if name in PRODUCTS:
        left = command.operands["L"]
        assert not isinstance(left, Constant)
        return y * (left.shape[0] if command.attributes.get("left_transposed") else left.shape[1])
    return 0


def executed(commands: Sequence[Command]) -> Array:
    """`macs` of each command, int64 [n]."""
    return np.array([macs(command) for command in commands], np.int64)


def peak(commands: Sequence[Command], lanes: int) -> int:
    """MACs a cycle of the narrowest type that some commands multiply; 0 where they multiply nothing."""
    factors = {**dict.fromkeys((*CONVOLUTIONS, *DEPTHWISE), "w"), **dict.fromkeys(PRODUCTS, "L")}
    sizes = {c.operands[factors[c.operation.name]].dtype.bytes for c in commands if c.operation.name in factors}
    return lanes * max((CUBE_MACS[size] for size in sizes), default=0)
