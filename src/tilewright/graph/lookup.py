"""TFLite's tables of functions of int16 codes: 513 values, between which is interpolated (LUTPopulate in common.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.rounding import round_half_away

STEPS = 512
LOW, HIGH = -(1 << 15), (1 << 15) - 1


def table(function: Callable[[Array], Array], scale: float, zero_point: int, out_scale: float, dtype: str) -> Array:
    """Return the values at 512 equal steps of the codes, and at the last code, int64, of `out_scale`.

    `scale` and `zero_point` give the real numbers of the input codes. Each value is moved by half of the error that
    interpolation makes in the middle of its step. `dtype` is the float type of all arithmetic.
    """
    kind: Any = np.dtype(dtype).type
    low, high = (kind(scale) * kind(code - zero_point) for code in (LOW, HIGH))
    step = (high - low) / kind(STEPS)
    ends = [kind(out_scale) * kind(code) for code in (LOW, HIGH)]
    inverse = kind(HIGH - LOW + 1) / (ends[1] - ends[0])
    at = np.arange(STEPS, dtype=kind)
    here, middle = low + at * step, low + at * step + step / kind(2)
    value, between, following = (function(x) * inverse for x in (here, middle, low + (at + kind(1)) * step))
    sample = round_half_away(value)
    interpolated = round_half_away((following + sample) / kind(2))
    bias = round_half_away((interpolated - round_half_away(between)) / kind(2))
    last = round_half_away(function(np.atleast_1d(high)) * inverse)
    return np.clip(np.concatenate([sample - bias, last]), LOW, HIGH).astype(np.int64)


def looked_up(codes: Array, values: Array) -> Array:
    """Return the function of int16 codes from its table: 9 bits select a step, 7 bits interpolate."""
    place, part = (codes >> 7) + 256, codes & 127
    base = values[place]
    found: Array = base + (((values[place + 1] - base) * part + 64) >> 7)
    return found
