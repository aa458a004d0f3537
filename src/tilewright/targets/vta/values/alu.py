"""What the tensor ALU computes, on whole arrays of accumulators."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.rounding import (
    INT32_MAX,
    INT32_MIN,
    round_half_even,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    wrap_int32,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.steps.micro_kernel import AluKernel


def requantise(acc: Array, bias: Array, multiplier: Array, scaling: Array, bounds: Array) -> Array:
    """REQ: acc int32 (S, tiles, batch, block), the others int32 (1 or S, tiles, 1, block).

    TFLite's double rounding of acc + bias, which wraps. `scaling` holds, from the low byte, the shifts to the left
    (before the product) and to the right (0 to 31), then the zero point (16 bits, signed); `bounds` the smallest and
    the largest result (16 bits each, signed), no bounds where the smallest is above the largest: those of 32 bits.
    """
    left, right = ((scaling >> 8 * byte & 31).astype(np.int64) for byte in range(2))
    total = wrap_int32((acc + bias).astype(np.int64) << left)
    scaled = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(total, multiplier.astype(np.int64)), right)
    return _bounded(scaled, scaling, bounds)


def requantise_float(acc: Array, bias: Array, multiplier: Array, scaling: Array, bounds: Array) -> Array:
    """REQ of a "float" ALU: the multiplier is a float32, its product with float32(acc + bias) rounded half to even."""
    with np.errstate(over="ignore", invalid="ignore"):  # factors of no model
        scaled = round_half_even((acc + bias).astype(np.float32) * multiplier.view(np.float32))
    return _bounded(scaled, scaling, bounds)


def _bounded(scaled: Array, scaling: Array, bounds: Array) -> Array:
    scaled += scaling >> 16
    low, high = bounds << 16 >> 16, bounds >> 16
    bounded = low <= high
    low, high = np.where(bounded, low, INT32_MIN), np.where(bounded, high, INT32_MAX)
    return np.clip(scaled, low, high, out=scaled)


def operate(kernel: AluKernel, first: Array, second: Array, config: Config, out: Array | None = None) -> Array:
    """The operation on accumulator values of their dtype, wrapping; `second` is a scalar in the immediate form.

    `out` may be `first` itself, to be overwritten.
    """
    if kernel.op == AluOp.MIN:
        return np.minimum(first, second, out=out)
    if kernel.op == AluOp.MAX:
        return np.maximum(first, second, out=out)
    if kernel.op == AluOp.ADD:
        return np.add(first, second, out=out)
    if kernel.op == AluOp.SHR:
        if second.ndim == 0:
            shift, amount = _immediate_shift(int(second), second.dtype, *_rule(kernel, config))
            return shift(first, amount, out=out)
        left, amount = shift_amount(kernel, second, config)
        return np.where(left, first << amount, first >> amount)
    if kernel.op == AluOp.MULH:
        factor = second.astype(np.int64) << (0 if kernel.imm is None else 16)  # an immediate is the upper half
        return saturating_rounding_doubling_high_mul(first.astype(np.int64), factor)
    if kernel.op == AluOp.RSHR:
        amount = np.abs(second) & 31
        return np.where(second < 0, first << amount, rounding_divide_by_pot(first.astype(np.int64), amount))
    return np.multiply(first, second, out=out) if SEMANTICS[config.semantics].multiplies else first


def shift_amount(kernel: AluKernel, operand: Array, config: Config) -> tuple[Array, Array]:
    """Whether SHR shifts to the left, and by how many bits (0 to the operand's width - 1)."""
    return _shift(operand, *_rule(kernel, config))


def _rule(kernel: AluKernel, config: Config) -> tuple[str, int, bool]:
    """What decides on a shift: Semantics.shift, bits of the operand that it leaves out, the sign of the field."""
    return SEMANTICS[config.semantics].shift, config.acc.width - config.LOG_ACC_WIDTH, kernel.negative_field


@lru_cache
def _immediate_shift(operand: int, kind: np.dtype[Any], rule: str, unused: int, negative: bool) -> tuple[Any, Array]:
    """The ufunc and the amount of a shift by an immediate: the same for all of a program's."""
    left, amount = _shift(np.array(operand, kind), rule, unused, negative)
    return np.left_shift if left else np.right_shift, amount


def _shift(operand: Array, rule: str, unused: int, negative: bool) -> tuple[Array, Array]:
    kind = operand.dtype.type
    low = kind(8 * operand.dtype.itemsize - 1)
    if rule == "low_unsigned":
        return np.full(operand.shape, negative), (-operand if negative else operand) & low
    if rule == "low_signed":
        operand = np.right_shift(np.left_shift(operand, kind(unused)), kind(unused))
    return operand < 0, np.abs(operand) & low  # a C shift by 32 or more is undefined; x86 takes it modulo 32
