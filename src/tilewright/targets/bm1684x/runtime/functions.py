"""Functions that are computed by sequences of commands, the same sequences that the vendor's compiler emits.

The arguments of a function include its work tensors. `exponential` and `sigmoid` have the same results as the
operations fp_exp and fp_sigmoid.
"""

from __future__ import annotations

from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import F32, I16, I32, Rounding
from tilewright.targets.bm1684x.values.elementwise import LARGEST, LN_2, LOG2_E, TERMS
from tilewright.targets.bm1684x.values.memory import OFFSETS

#: The largest n in 2**n, and the bias and the bit position of the exponent in a float32.
LIMIT = 127
OFFSET = 127
POSITION = 23


def load_exponential(tpu: Tpu, coefficients: Tensor) -> None:
    """Copy the coefficients of the series for exp from static memory to `coefficients`, f32 (1, lanes, 1, 10)."""
    table = tpu.system(STATIC_BASE + OFFSETS["exp", F32][0], (1, 1, 1, TERMS[F32]), F32)
    tpu.bdc.static_bcast(coefficients, table)


def exponential(tpu: Tpu, y: Tensor, x: Tensor, work0: Tensor, work1: Tensor, coefficients: Tensor) -> None:
    """Compute `y = exp(x)` in f32.

    `y`, `work0` and `work1` must be three different tensors of the shape of `x`. `x` may be the same tensor as `y` or
    `work1`, but is otherwise unchanged. `load_exponential` fills `coefficients`.
    """
    largest, log2_e, ln_2 = (float(value) for value in (LARGEST, LOG2_E, LN_2))
    tpu.bdc.max(work0, x, -largest)
    tpu.bdc.min(y, work0, largest)
    tpu.bdc.fp_mul(work1, y, log2_e)
    tpu.bdc.fp_round(work0, work1, mode="down")
    tpu.bdc.fp_mul(work1, work0, ln_2)
    tpu.bdc.fp_sub(work1, y, work1)
    whole = y.typed(I16)
    clamped = work0.typed(I16)
    tpu.bdc.cast(whole, work0, mode="half_away_from_zero")
    tpu.bdc.min(clamped, whole, LIMIT)
    tpu.bdc.max(whole, clamped, -LIMIT)
    tpu.bdc.int_add(work0.typed(I32), whole, OFFSET, POSITION, mode=Rounding.HALF_AWAY_FROM_ZERO, saturate=True)
    channels = x.shape.c
    lanes = tpu.config.lanes
    table = coefficients[:, :channels] if channels <= lanes else coefficients.over(1, channels, 1, TERMS[F32])
    tpu.bdc.fp_taylor(y, work1, table)
    tpu.bdc.fp_mul(y, y, work0)


def sigmoid(tpu: Tpu, y: Tensor, x: Tensor, work0: Tensor, work1: Tensor, coefficients: Tensor) -> None:
    """Compute `y = 1 / (1 + exp(-x))` in f32. The arguments are the same as those of `exponential`."""
    tpu.bdc.fp_sub(work1, 0.0, x)
    exponential(tpu, y, work1, work0, work1, coefficients)
    tpu.bdc.fp_add(work1, y, 1.0)
    tpu.bdc.fp_div(y, 1.0, work1)
