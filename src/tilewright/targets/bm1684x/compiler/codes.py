"""Lower the nodes that join or add quantised tensors, or convert codes to another scale or zero point.

A join has no operations: its inputs are computed inside the joined tensor (plan.py), or moved into it (build.py).
onnxruntime adds with fused multiply-adds, which round once. The machine has no fused multiply-add, so the compiler uses
separate operations, and tests the result for every pair of codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import frexp, prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, Concat, Quantize
from tilewright.graph.rounding import Rounding as Mode
from tilewright.graph.rounding import clamp_range, quantize_multiplier
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.compiler.layer import HIGH_PRODUCT
from tilewright.targets.bm1684x.compiler.linear import add_zero_point, clamp, doubled
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U16, Rounding
from tilewright.targets.bm1684x.values.floats import saturate, shift_right

#: The search for a scaling tries these rounding modes, and factors with these differences from the nearest integer.
MODES = (Rounding.HALF_TO_EVEN, Rounding.HALF_UP, Rounding.HALF_AWAY_FROM_ZERO)
DIFFERENCES = (0, 1, -1, 2, -2)
#: The largest factor has SHORT bits in a scaling by one operation, and LONG bits in a scaling by two operations.
SHORT = 16
LONG = 22
#: Search range for float32 factors: units in the last place around the nearest float.
SEARCH = 6
#: Left shift of the operands in TFLite's addition, in bits.
EXTRA_BITS = 20


def join(site: Site, shapes: tuple[SampleFormat, ...], mode: Mode) -> ir.Layer:
    """Return the layer for a concatenation of codes. Raises Refused if the concatenation is not supported."""
    op = site.node.op
    shape = site.output.shape
    assert isinstance(op, Concat)
    if op.activation != "none":
        raise ir.Refused(f"activation={op.activation} of a concatenation is not supported")
    axis = op.axis % len(shape)
    rank = len(shape)
    if axis == rank - 1:
        return joined(site, shapes, SampleFormat.of(site.output), 1)
    if rank == 4 and shape[0] == 1 and axis:
        return joined(site, shapes, SampleFormat.of(site.output), axis + 1)
    if prod(shape[:axis]) > 1 or rank == 4:
        raise ir.Refused(f"axis={op.axis} of {list(shape)} is not supported: its parts are not whole ranges of pixels")
    return joined(site, shapes, SampleFormat.of(site.output), 3)


def joined(site: Site, shapes: tuple[SampleFormat, ...], result: SampleFormat, axis: int) -> ir.Layer:
    return ir.Writer(result.c).layer(site, shapes, result, axis=axis)


def rescale(site: Site, x: SampleFormat, mode: Mode) -> ir.Layer:
    """Return the layer that converts codes to another scale or zero point.

    No single operation of the machine implements all rounding rules of graphs. The compiler therefore tests several
    methods on all 256 codes, the fastest first. Raises Refused if each method gives a wrong code.
    """
    assert isinstance(site.node.op, Quantize)
    if site.output.dtype not in ("int8", "uint8"):
        raise ir.Refused(f"a conversion to {site.output.dtype} is not supported")
    result = SampleFormat.of(site.output)
    (codes,), reference = every_code(site, (x,), mode)
    conversion = _Conversion(site, x, result, codes, reference.astype(np.int64) + result.add)
    for method in (_product, _scaled, _rounded_twice, _real):
        write = ir.Writer(result.c)
        if method(write, conversion):
            return write.layer(site, (x,), result)
    raise ir.Refused("no operations of the machine give the right code for each of the 256 codes")


class _Conversion(NamedTuple):
    """A conversion of codes stored as `x` to codes stored as `result`.

    `codes` are all 256 stored codes, int64. `expected` has the correct stored result for each code.
    """

    site: Site
    x: SampleFormat
    result: SampleFormat
    codes: Array
    expected: Array

    @property
    def ratio(self) -> float:
        return self.site.input(0).scale / self.site.output.scale

    def gives(self, scaled: Array) -> bool:
        return np.array_equal(saturate(scaled + self.result.zero, self.result.dtype), self.expected)

    def factor(self, bits: int) -> _Scaling | None:
        centred = self.codes - self.x.zero
        for scaling in _scalings(self.ratio, bits):
            if self.gives(shift_right(centred * scaling.factor, scaling.shift, scaling.mode)):
                return scaling
        return None


def _product(write: ir.Writer, conversion: _Conversion) -> bool:
    x = conversion.x
    result = conversion.result
    # A single product is enough if both zero points are 0 and both types are unsigned, because it then saturates to the
    # range of the codes.
    if x.dtype.signed or result.dtype.signed or x.zero or result.zero or (scaling := conversion.factor(SHORT)) is None:
        return False
    numbers: dict[str, Any] = {"b": Constant.of(scaling.factor, U16), "shift": Constant.of(-scaling.shift, I8)}
    write.add("int_mul", ir.Output(), scaling.mode, a=ir.Input(0), **numbers, saturate=True)
    return True


def _scaled(write: ir.Writer, conversion: _Conversion) -> bool:
    if (scaling := conversion.factor(LONG)) is None:
        return False
    scaled = write.centred(0, I16, scaling.factor, -scaling.shift, scaling.mode, conversion.x.zero)
    add_zero_point(write, conversion.result, "cast", x=scaled)
    return True


def _rounded_twice(write: ir.Writer, conversion: _Conversion) -> bool:
    q, shift = (int(number) for number in quantize_multiplier(np.float64(conversion.ratio)))
    left, right = max(shift, 0), max(-shift, 0)
    # gemmlowp first rounds the product divided by 2**31 half up, then a shift rounds half away from zero. One rounding
    # instead of two could give another code.
    high = shift_right((conversion.codes - conversion.x.zero) * q, -HIGH_PRODUCT - left, Rounding.HALF_UP)
    if left > -HIGH_PRODUCT or not conversion.gives(shift_right(high, right, Rounding.HALF_AWAY_FROM_ZERO)):
        return False
    product = write.centred(0, I32, q, HIGH_PRODUCT + left, Rounding.HALF_UP, conversion.x.zero)
    write.scale(product, ir.Output(), np.array(-right), conversion.result.zero, Rounding.HALF_AWAY_FROM_ZERO)
    return True


def _real(write: ir.Writer, conversion: _Conversion) -> bool:
    centred = (conversion.codes - conversion.x.zero).astype(np.float32)
    for factor in neighbours(np.float32(conversion.ratio)):
        if conversion.gives(np.rint(centred * factor).astype(np.int64)):
            add_zero_point(write, conversion.result, "cast", x=write.centred_real(0, factor, conversion.x.zero))
            return True
    return False


def every_code(site: Site, shapes: tuple[SampleFormat, ...], mode: Mode) -> tuple[list[Array], Array]:
    """Return the 256 stored codes of each input, and the graph's results for all combinations (one axis per input)."""
    codes = [np.arange(x.dtype.low, x.dtype.high + 1, dtype=np.int64) for x in shapes]
    grid = np.meshgrid(*codes, indexing="ij")
    sources = [replace(site.input(index), shape=grid[0].shape) for index in range(len(shapes))]
    every = Site(site.node, tuple(sources), (replace(site.output, shape=grid[0].shape),))
    cases = zip(grid, shapes, sources, strict=True)
    values = [(code - x.add).astype(source.dtype)[None] for code, x, source in cases]
    (results,) = site.node.op.evaluate(every, values, mode)
    return codes, results[0]


class _Scaling(NamedTuple):
    """A multiplication by `factor`, followed by a right shift by `shift` bits with the rounding mode `mode`."""

    factor: int
    shift: int
    mode: Rounding


def _scalings(ratio: float, bits: int) -> Iterator[_Scaling]:
    # Long factors are the most exact, so they are tried first. The reference may use a rounded multiplier, so integers
    # next to the nearest factor are tried too.
    for used in range(bits, 0, -1):
        shift = min(used - frexp(ratio)[1], 31)
        for difference in DIFFERENCES if shift >= 0 else ():
            factor = round(ratio * 2**shift) + difference
            if 0 < factor < 1 << bits:
                yield from (_Scaling(factor, shift, mode) for mode in MODES)


def neighbours(value: np.float32) -> list[np.float32]:
    """Return `value`, then the SEARCH float32 numbers on each side of it, nearest first."""
    up = down = value
    floats = [value]
    for _ in range(SEARCH):
        up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(0))
        floats += [up, down]
    return floats


def add(site: Site, shapes: tuple[SampleFormat, ...], mode: Mode) -> ir.Layer:
    """Return the layer for an addition of two tensors of equal shape."""
    op = site.node.op
    result = SampleFormat.of(site.output)
    assert isinstance(op, Add)
    ir.same_shapes(site)
    write = ir.Writer(result.c)
    if mode.elementwise == "ort":
        _fused(write, site, shapes, result, mode)
    elif mode.elementwise == "tflite":
        _fixed_point(write, site, shapes, result)
    elif mode.elementwise == "pow2":
        left, right, shift = op.shifts(site)
        _shifted(write, shapes, (1 << left, 1 << right), shift, result)
    else:
        _multiplied(write, site, shapes, result)
    out = site.output
    clamp(write, result, *clamp_range(op.activation, out.scale, out.zero_point, out.dtype, mode.delegated))
    return write.layer(site, shapes, result)


def _fixed_point(write: ir.Writer, site: Site, shapes: tuple[SampleFormat, ...], result: SampleFormat) -> None:
    # TFLite rescales both operands to a common scale with 20 extra bits, and each rescaling rounds twice.
    scales = [np.float64(site.input(index).scale) for index in (0, 1)]
    # As in TFLite, scales are divided by twice the larger scale, so that both factors are at most 0.5.
    twice = 2 * max(scales)
    parts: list[ir.Ref] = []
    for index in (0, 1):
        q, shift = quantize_multiplier(scales[index] / twice)
        high = ir.HIGH_PRODUCT + EXTRA_BITS
        part = write.centred(index, I32, int(q), high, Rounding.HALF_UP, shapes[index].zero)
        if shift:
            count = Constant.of(int(shift), I8)
            part = write.add("arithmetic_shift", I32, Rounding.HALF_AWAY_FROM_ZERO, a=part, shift=count)
        parts.append(write.hold(part))
    write.release()
    total = write.add("int_add", I32, a=parts[0], b=parts[1])
    q, shift = quantize_multiplier(twice / ((1 << EXTRA_BITS) * np.float64(site.output.scale)))
    doubled(write, total, q, shift, result.zero)


def _multiplied(write: ir.Writer, site: Site, shapes: tuple[SampleFormat, ...], result: SampleFormat) -> None:
    out = np.float32(site.output.scale)
    ratios = [np.float32(site.input(index).scale) / out for index in (0, 1)]
    # These are XNNPACK's own limits: it refuses to create the operator for other scales.
    if min(ratios) < 2.0**-10 or max(ratios) >= 2.0**8:
        raise ir.Refused("scales are too far apart for XNNPACK: input scale / output scale must be in 2**-10 .. 2**8")
    # XNNPACK uses multipliers of at most 21 bits, and one shift, which rounds ties up.
    shift = 21 - int(np.frexp(max(ratios))[1])
    p, q = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
    _shifted(write, shapes, (p, q), -shift, result)


def _shifted(
    write: ir.Writer, shapes: tuple[SampleFormat, ...], factors: tuple[int, int], shift: int, result: SampleFormat
) -> None:
    """Add the operations `round_half_up((a * p + b * q) * 2**shift) + result.zero`.

    a and b are the codes of the two inputs minus their zero points; (p, q) is `factors`.
    """
    left = write.hold(write.centred(0, I32, factors[0], 0, Rounding.HALF_UP, shapes[0].zero))
    right = write.centred(1, I32, factors[1], 0, Rounding.HALF_UP, shapes[1].zero)
    write.release()
    total = write.add("int_add", I32, a=left, b=right)
    write.scale(total, ir.Output(), np.array(shift), result.zero, Rounding.HALF_UP)


def _fused(write: ir.Writer, site: Site, shapes: tuple[SampleFormat, ...], result: SampleFormat, mode: Mode) -> None:
    # `f32(f32(a * ra) + f32(b * rb))` replaces onnxruntime's two fused multiply-adds. `_search` finds factors ra and rb
    # for which this gives the same codes.
    factors = _search(site, shapes, mode)
    left = write.hold(write.centred_real(0, factors[0], shapes[0].zero))
    right = write.centred_real(1, factors[1], shapes[1].zero)
    write.release()
    add_zero_point(write, result, "cast", x=write.add("fp_add", F32, a=left, b=right))


def _search(site: Site, shapes: tuple[SampleFormat, ...], mode: Mode) -> tuple[np.float32, np.float32]:
    """Return two float32 factors, near input scale / output scale, that reproduce all sums of the reference."""
    out = site.output
    codes, expected = every_code(site, shapes, mode)
    candidates = [neighbours(np.float32(site.input(index).scale) / np.float32(out.scale)) for index in (0, 1)]
    parts = [
        [(code - x.zero).astype(np.float32) * factor for factor in factors]
        for code, x, factors in zip(codes, shapes, candidates, strict=True)
    ]
    # The factors nearest to the true ratios are tried first. Each try compares all 65,536 sums of two codes.
    for left, right in sorted(product(range(len(candidates[0])), range(len(candidates[1]))), key=sum):
        total = np.rint(parts[0][left][:, None] + parts[1][right])
        if np.array_equal(np.clip(total + out.zero_point, expected.min(), expected.max()), expected):
            return candidates[0][left], candidates[1][right]
    raise ir.Refused("the machine's float32 rounds some of its sums differently from onnxruntime's fused multiply-adds")
