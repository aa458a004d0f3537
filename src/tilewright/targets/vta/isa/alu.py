"""What instructions mean where upstream's implementations disagree, and the operations of the tensor ALU.

`Semantics` is a set of named switches for each implementation. hls: hardware/xilinx/src/vta.cc; fsim:
src/sim/sim_driver.cc; chisel: hardware/chisel (read, not run). Programs that do not depend on any of this are portable.

Operations work on whole arrays of accumulators; meaning.py has them on single integers, written to be
read, and holds the two against each other. Sources: hardware/xilinx/src/vta.cc for MIN to MUL; gemmlowp's
fixedpoint.h for the rounding of MULH and RSHR, which are ours, and of REQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Literal, NamedTuple

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


@dataclass(frozen=True, eq=False)
class Semantics:
    """One implementation's choices; docs/vta.md tabulates them with their evidence."""

    name: str
    #: A memory of its own feeds STORE, written by GEMM and ALU; otherwise STORE truncates the accumulator.
    out_memory: bool
    #: A reset GEMM writes to that memory what it would have accumulated; otherwise it leaves it alone.
    reset_writes_out: bool
    #: LOAD honours padding of weights and micro-ops, and rows of micro-ops.
    full_loads: bool
    #: A LOAD of no columns still writes its padding.
    empty_loads_pad: bool
    #: LOAD ACC_8BIT is carried out; otherwise it is ignored.
    loads_acc_8bit: bool
    #: SHR: the low LOG_ACC_WIDTH bits as a signed amount, negative to the left; all bits; or the low bits, to the
    #: left by their negation where the immediate field is negative, even if the second operand is a tile.
    shift: Literal["low_signed", "full", "low_unsigned"]
    #: The ALU computes in 32 bits whatever the accumulator's width.
    wide_alu: bool
    #: MUL multiplies; otherwise it leaves the accumulator alone.
    multiplies: bool
    #: The immediate form of an ALU operation takes acc[src], not acc[dst], as its first operand.
    immediate_reads_src: bool


SEMANTICS = {
    item.name: item
    for item in (
        Semantics("hls", True, True, False, True, False, "low_signed", False, False, False),
        Semantics("fsim", False, False, True, False, True, "full", True, True, False),
        Semantics("chisel", True, False, True, False, False, "low_unsigned", False, False, True),
    )
}


class AluOp(IntEnum):
    """Operations of ALU; SHR shifts left by a negative amount.

    Ours: MULH, the high 32 bits of twice the product, rounded; RSHR, a shift right rounded half away from zero; REQ, a
    whole requantisation.
    """

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4
    MULH = 5
    RSHR = 6
    REQ = 7


UPSTREAM = (AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR, AluOp.MUL)
#: Operations whose results come later, from lanes of their own; see timing/model.py.
RESCALING = (AluOp.MULH, AluOp.RSHR, AluOp.REQ)
#: The operations of each kind of ALU, the config's `alu`; REQ of "float" multiplies with a float32.
ALUS = {
    "upstream": UPSTREAM,
    "rounding": (*UPSTREAM, AluOp.MULH, AluOp.RSHR),
    "fused": (*UPSTREAM, *RESCALING),
    "float": (*UPSTREAM, *RESCALING),
}


class Form(NamedTuple):
    """What decides on the meaning of an ALU instruction besides its operation."""

    rules: Semantics
    width: int  # bits of an accumulator
    immediate: bool = False  # the second operand is the immediate
    negative_field: bool = False  # the immediate field is negative, used or not (Semantics.shift)


def operate(op: AluOp, first: Array, second: Array, form: Form, out: Array | None = None) -> Array:
    """MIN to RSHR on accumulator values of their dtype, wrapping; `second` is a scalar in the immediate form.

    `out` may be `first` itself, to be overwritten.
    """
    if op == AluOp.MIN:
        return np.minimum(first, second, out=out)
    if op == AluOp.MAX:
        return np.maximum(first, second, out=out)
    if op == AluOp.ADD:
        return np.add(first, second, out=out)
    if op == AluOp.SHR:
        if second.ndim == 0:
            shift, amount = _immediate_shift(int(second), second.dtype, form)
            return shift(first, amount, out=out)
        left, amount = shift_amount(second, form)
        return np.where(left, first << amount, first >> amount)
    if op == AluOp.MULH:
        factor = second.astype(np.int64) << (16 if form.immediate else 0)  # an immediate is the upper half
        return saturating_rounding_doubling_high_mul(first.astype(np.int64), factor)
    if op == AluOp.RSHR:
        amount = np.abs(second) & 31
        return np.where(second < 0, first << amount, rounding_divide_by_pot(first.astype(np.int64), amount))
    assert op == AluOp.MUL, op
    return np.multiply(first, second, out=out) if form.rules.multiplies else first


@lru_cache
def _immediate_shift(operand: int, kind: np.dtype[Any], form: Form) -> tuple[Any, Array]:
    """The ufunc and the amount of a shift by an immediate: the same for all of a program's."""
    left, amount = shift_amount(np.array(operand, kind), form)
    return np.left_shift if left else np.right_shift, amount


def shift_amount(operand: Array, form: Form) -> tuple[Array, Array]:
    """Whether SHR shifts to the left, and by how many bits (0 to the operand's width - 1)."""
    kind = operand.dtype.type
    low = kind(8 * operand.dtype.itemsize - 1)
    if form.rules.shift == "low_unsigned":
        return np.full(operand.shape, form.negative_field), (-operand if form.negative_field else operand) & low
    if form.rules.shift == "low_signed":
        unused = kind(form.width - form.width.bit_length() + 1)
        operand = np.right_shift(np.left_shift(operand, unused), unused)
    return operand < 0, np.abs(operand) & low  # a C shift by 32 or more is undefined; x86 takes it modulo 32


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
