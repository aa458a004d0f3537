"""The instruction semantics on which upstream's implementations disagree, and the operations of the tensor ALU.

`Semantics` has one named switch for each disagreement. A program is portable if no switch affects it. Sources:
hardware/xilinx/src/vta.cc (hls), src/sim/sim_driver.cc (fsim), hardware/chisel/src/main/scala (chisel).

The operations work on whole arrays of accumulators. The interpreter of the tests (tests/targets/vta/interpreter.py)
defines the same operations on single integers, in a form for readers; the tests compare both definitions. Sources:
hardware/xilinx/src/vta.cc for MIN to MUL; gemmlowp's fixedpoint.h for the rounding of MULH, RSHR (both our extensions)
and REQ.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """The behaviour of upstream's implementation `name`, where implementations differ; see docs/vta.md."""

    name: str
    #: STORE reads a separate out memory, which GEMM and ALU write; otherwise STORE truncates the accumulator.
    out_memory: bool
    #: A reset GEMM writes to the out memory the sum that it would have accumulated; otherwise the out memory keeps its
    #: value.
    reset_writes_out: bool
    #: LOADs of weights and micro-ops honour padding, and LOADs of micro-ops honour y_size; otherwise these fields are
    #: ignored.
    full_loads: bool
    #: A LOAD with x_size 0 still writes its padding.
    empty_loads_pad: bool
    #: LOAD ACC_8BIT is executed; otherwise LOAD ACC_8BIT is ignored.
    loads_acc_8bit: bool
    #: The amount of SHR, in bits of the second operand. low_signed: the low LOG_ACC_WIDTH bits, signed; full: all bits,
    #: signed. A negative amount shifts left. low_unsigned: the low bits. If the immediate field is negative, the amount
    #: is the low bits of the negated operand, and the shift is to the left, even if the second operand is a tile.
    shift: Literal["low_signed", "full", "low_unsigned"]
    #: The ALU computes in 32 bits, whatever the accumulator's width.
    wide_alu: bool
    #: MUL multiplies; otherwise MUL does not change the accumulator.
    multiplies: bool
    #: The immediate form of an ALU operation uses acc[src], not acc[dst], as its first operand.
    immediate_reads_src: bool
    #: Counters stop at `end - 1`, so an empty micro-op range and a count of 0 (loops, y_size of STORE) run through all
    #: values of the counter (core/TensorGemm.scala:268); otherwise such an instruction does nothing.
    counters_wrap: bool = False
    #: MUL and LOAD ACC_8BIT stop fetch (core/Decode.scala:137), and a LOAD with y_size 0 never ends.
    hangs: bool = False
    #: An ALU micro-op reads acc[src] without the write of the micro-op just before it (core/TensorAlu.scala:386).
    reads_stale: bool = False


SEMANTICS = {
    item.name: item
    for item in (
        Semantics("hls", True, True, False, True, False, "low_signed", False, False, False),
        Semantics("fsim", False, False, True, False, True, "full", True, True, False),
        Semantics("chisel", True, False, True, False, False, "low_unsigned", False, False, True, True, True, True),
    )
}


class AluOp(IntEnum):
    """The operations of the tensor ALU. SHR, a right shift, shifts left if its amount is negative.

    own.py defines the user's own operations. Our extensions: MULH, the high 32 bits of twice the product, rounded;
    RSHR, a right shift rounded half away from zero; REQ, a whole requantisation.
    """

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4
    MULH = 5
    RSHR = 6
    REQ = 7


#: The largest SHR amount with the same result in all of upstream's implementations: HLS reads five signed bits.
LARGEST_SHIFT = 15
#: Minimum distance, in micro-ops, from a write of an accumulator tile to the tile's next use (upstream's VerifyDep).
WRITE_BACK = 3
UPSTREAM = (AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR, AluOp.MUL)
#: The operations on the rescaling lanes, with a longer latency (EXTENDED in timing/model.py).
RESCALING = (AluOp.MULH, AluOp.RSHR, AluOp.REQ)
#: The operations of each kind of ALU (config key `alu`). REQ of the ALU "float" multiplies by a float32.
ALUS = {
    "upstream": UPSTREAM,
    "rounding": (*UPSTREAM, AluOp.MULH, AluOp.RSHR),
    "fused": (*UPSTREAM, *RESCALING),
    "float": (*UPSTREAM, *RESCALING),
}


class Form(NamedTuple):
    """The context of an ALU operation: all properties, besides the operands, that determine the result."""

    rules: Semantics
    width: int  # bits of an accumulator
    immediate: bool = False  # the second operand is the immediate
    negative_field: bool = False  # the immediate field is negative, used or not (Semantics.shift)


@lru_cache
def _immediate_shift(operand: int, kind: np.dtype[Any], form: Form) -> tuple[Any, Array]:
    """Return the ufunc (left or right shift) and the amount of SHR by an immediate. The result is cached."""
    left, amount = shift_amount(np.array(operand, kind), form)
    return np.left_shift if left else np.right_shift, amount


def shift_amount(operand: Array, form: Form) -> tuple[Array, Array]:
    """Return two arrays for second operands of SHR: whether to shift left, and the number of bits (0 to width - 1)."""
    kind = operand.dtype.type
    low = kind(8 * operand.dtype.itemsize - 1)
    if form.rules.shift == "low_unsigned":
        return np.full(operand.shape, form.negative_field), (-operand if form.negative_field else operand) & low
    if form.rules.shift == "low_signed":
        # A shift to the left and back extends the sign of the low bits.
        unused = kind(form.width - form.width.bit_length() + 1)
        operand = np.right_shift(np.left_shift(operand, unused), unused)
    return operand < 0, np.abs(operand) & low  # a C shift by 32 or more is undefined; x86 takes it modulo 32


def _multiplied(first: Array, second: Array, form: Form, out: Array | None) -> Array:
    return np.multiply(first, second, out=out) if form.rules.multiplies else first


def _multiplied_high(first: Array, second: Array, form: Form, out: Array | None) -> Array:
    factor = second.astype(np.int64) << (16 if form.immediate else 0)  # an immediate is the upper half
    return saturating_rounding_doubling_high_mul(first.astype(np.int64), factor)


def _shifted(first: Array, second: Array, form: Form, out: Array | None) -> Array:
    if second.ndim == 0:
        shift, amount = _immediate_shift(int(second), second.dtype, form)
        return shift(first, amount, out=out)
    left, amount = shift_amount(second, form)
    return np.where(left, first << amount, first >> amount)


def _shifted_rounding(first: Array, second: Array, form: Form, out: Array | None) -> Array:
    amount = np.abs(second) & 31
    return np.where(second < 0, first << amount, rounding_divide_by_pot(first.astype(np.int64), amount))


class Operation(NamedTuple):
    """An ALU operation except REQ: its computation (see `operate`), and its arithmetic per value (sim.events.KINDS)."""

    on: Callable[[Array, Array, Form, Array | None], Array]
    kinds: tuple[str, ...]


OPERATIONS: dict[int, Operation] = {
    AluOp.MIN: Operation(lambda first, second, form, out: np.minimum(first, second, out=out), ("compare",)),
    AluOp.MAX: Operation(lambda first, second, form, out: np.maximum(first, second, out=out), ("compare",)),
    AluOp.ADD: Operation(lambda first, second, form, out: np.add(first, second, out=out), ("add",)),
    AluOp.SHR: Operation(_shifted, ("shift",)),
    AluOp.MUL: Operation(_multiplied, ("multiply",)),
    AluOp.MULH: Operation(_multiplied_high, ("multiply", "add")),  # the product, its rounding
    AluOp.RSHR: Operation(_shifted_rounding, ("shift", "add")),
}


def operate(op: int, first: Array, second: Array, form: Form, out: Array | None = None) -> Array:
    """Compute any ALU operation except REQ on accumulators; results wrap. An immediate `second` is a scalar.

    `out` may be `first`, to compute in place, but some operations still return a new array.
    """
    return OPERATIONS[op].on(first, second, form, out)


#: Bias, left shift, MULH, RSHR, zero point, both bounds; with float32: bias, product, zero point, both bounds.
_REQ_KINDS = ("add", "shift", "multiply", "add", "shift", "add", "add", "compare", "compare")
_REQ_FLOAT_KINDS = ("add", "float_multiply", "add", "compare", "compare")


def kinds_of(op: AluOp, rules: Semantics, is_float: bool) -> tuple[str, ...]:
    """Return the arithmetic of one value (names in sim.events.KINDS); `is_float`: whether REQ multiplies floats."""
    if op == AluOp.REQ:
        return _REQ_FLOAT_KINDS if is_float else _REQ_KINDS
    return () if op == AluOp.MUL and not rules.multiplies else OPERATIONS[op].kinds


def requantise(acc: Array, bias: Array, multiplier: Array, scaling: Array, bounds: Array) -> Array:
    """Compute REQ on `acc`, int32 (S, tiles, batch, block). The other operands are int32 (1 or S, tiles, 1, block).

    REQ requantises `acc + bias`, which wraps, with TFLite's double rounding. `scaling`, from the low byte on: the left
    shift (before the product), the right shift (0 to 31), the zero point (16 bits, signed). `bounds`: the smallest and
    the largest result (16 bits each, signed). If smallest > largest, the limits of 32 bits apply.
    """
    left, right = ((scaling >> 8 * byte & 31).astype(np.int64) for byte in range(2))
    total = wrap_int32((acc + bias).astype(np.int64) << left)
    scaled = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(total, multiplier.astype(np.int64)), right)
    return _bounded(scaled, scaling, bounds)


def requantise_float(acc: Array, bias: Array, multiplier: Array, scaling: Array, bounds: Array) -> Array:
    """Compute REQ of a "float" ALU: `float32(acc + bias)` times a float32, rounded half to even. See `requantise`."""
    with np.errstate(over="ignore", invalid="ignore"):  # multipliers that occur in no real model
        scaled = round_half_even((acc + bias).astype(np.float32) * multiplier.view(np.float32))
    return _bounded(scaled, scaling, bounds)


def _bounded(scaled: Array, scaling: Array, bounds: Array) -> Array:
    scaled += scaling >> 16
    low, high = bounds << 16 >> 16, bounds >> 16
    bounded = low <= high
    low, high = np.where(bounded, low, INT32_MIN), np.where(bounded, high, INT32_MAX)
    return np.clip(scaled, low, high, out=scaled)
