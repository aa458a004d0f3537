"""Lower elementwise additions and rescaling to layers whose identity weights copy codes into the accumulators.

The constants of the float ALU (factors and biases) are found by trial, then proven on all codes. onnxruntime adds two
tensors with fused multiply-adds, but the ALU operation REQ multiplies a single accumulator. Both compute and round the
sum of a constant and two multiples of codes. Their rounding errors differ, so the results can only differ near a tie.
Constants are accepted only if all 65,536 pairs of codes (for one operand: all 256 codes) give the right result. If the
search finds no such constants, the host runs the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import floor, log2, prod
from typing import Literal

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Node, Quant, Site, Tensor
from tilewright.graph.ops import Add, Mul, Op, Quantize
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.compiler import parameters
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.lowered import Context, Lowered, Parameters, packing
from tilewright.targets.vta.compiler.parameters import Scaling, float_bits
from tilewright.targets.vta.isa.alu import requantise_float
from tilewright.targets.vta.launch.layouts import CODE_DTYPES, given_back, held_codes, held_zero_point

#: Bits of the sum of both operands. The operands are first scaled by the largest power of two for which the sum fits.
BITS = 30
#: Limits of the search for constants: tries per power of two, powers of two (from the largest down), and tries in which
#: the rounded factors are not varied.
TRIES = 1000
EXPONENTS = 3
FIRST = 50
#: A trial only tests results that are closer to a tie than this, in output codes. The proof tests all results.
NEAR = 2.0**-10
#: For one operand: the number of float32 neighbours of the factor to try in each direction.
NEIGHBOURS = 8
#: All codes, as int8 values of the machine.
HELD = np.arange(-128, 128, dtype=np.int32)


def add(site: Site, op: Add, context: Context) -> Lowered | str:
    """Lower an addition of two tensors of one shape to a layer, or return the reason why the host runs it."""
    config = context.config
    rounding = context.rounding
    out = site.output
    second = site.input(1)
    if {tensor.shape for tensor in (site.input(0), second)} != {out.shape} or second.data is not None:
        return "its operands must be two tensors of the output's shape, neither constant"
    if second.dtype not in CODE_DTYPES or out.dtype not in CODE_DTYPES:
        return f"it adds {second.dtype} to {out.dtype}; VTA's buffers hold int8"
    if not context.requantises:
        return "its parameters do not fit the memory for parameters (par, or a quarter of acc)"
    lowered = _elements(site, "add", context)
    # A shift is used if the scales allow it; else float factors that are proven, or TFLite's three rescalings.
    shifted = parameters.of_add_shift(site, op, lowered.layer) if rounding.elementwise == "pow2" else None
    if shifted is not None:
        requantised = Parameters(None, shifted)
    elif rounding.elementwise == "pow2" and config.alu != "float":
        return "its operands differ in scale or have zero points, so a shift alone cannot rescale the sum"
    elif config.alu == "float":
        parts = proven_sum(op, tuple((x.dtype, x.quant) for x in (site.input(0), second, out)), rounding)
        if parts is None:
            return f"no factors of this ALU give the results of rounding {rounding.name} for all pairs of codes"
        requantised = parameters.of_all(parts, lowered.layer, config)
    elif rounding.elementwise != "tflite":
        return f"rounding {rounding.name} adds by another rule than TFLite's kernels, which this ALU follows"
    else:
        requantised = parameters.of_add(site, op, lowered.layer, config)
    return lowered.requantised(requantised)


def rescale(site: Site, op: Quantize | Mul, context: Context) -> Lowered | str:
    """Lower a product with a constant, or a change of scale, to a layer; or return the reason why the host runs it."""
    config = context.config
    rounding = context.rounding
    x = site.input(0)
    out = site.output
    if x.dtype not in CODE_DTYPES:
        return f"{op.label} of real numbers is not supported"
    if config.alu != "float":
        return "it rescales codes; only alu=float has a multiplier for that"
    if isinstance(op, Mul) and (site.input(1).data is None or site.input(1).size > 1 or x.shape != out.shape):
        return "the ALU can multiply only by one constant"
    if not context.requantises:
        return "its parameters do not fit the memory for parameters (par, or a quarter of acc)"
    real = x.scale / out.scale
    if isinstance(op, Mul):
        # The constant becomes a part of the factor.
        real *= site.input(1).scale * (int(site.constant(1).item()) - site.input(1).zero_point)
    parts = proven_product(site, real, rounding) if real else None  # it divides by the factor
    if parts is None:
        return f"no factor of this ALU gives the results of rounding {rounding.name} for all codes"
    lowered = _elements(site, "sum", context)
    return lowered.requantised(parameters.of_all(parts, lowered.layer, config))


def _elements(site: Site, kind: Literal["add", "sum"], context: Context) -> Lowered:
    """Return the layer of an elementwise operator: a tile holds a channel tile of `config.batch` pixels."""
    config = context.config
    width = -(-prod(site.output.image[:3]) // config.batch)
    tiles = -(-site.output.image[3] // config.block)
    layer = Layer(
        kind=kind,
        matrix=True,
        size=(1, width),
        out=(1, width),
        in_tiles=tiles,
        out_tiles=tiles,
        link="diagonal",
        shared=True,
        packing=packing("pixels", config, True),
    )
    return Lowered(layer, np.eye(config.block, dtype=np.int8)[None, None, None])


def proven_product(site: Site, real: float, rounding: Rounding) -> tuple[Scaling, ...] | None:
    """Return the requantisation of `real * (code - zero_point)` (1-tuple); None if no factor is right for all codes."""
    x = site.input(0)
    out = site.output
    wanted = _results(site.node.op, (x,), site.inputs[1:], out, (HELD,), rounding)
    bounds = int(wanted.min()), int(wanted.max())
    nearest = np.float32(real)
    steps = (sign * step for step in range(1, NEIGHBOURS + 1) for sign in (1, -1))
    for factor in (nearest, *(np.float32(nearest + step * np.spacing(nearest)) for step in steps)):
        zero = held_zero_point(out)
        bias = -held_zero_point(x)
        inside = bias + round(zero / float(factor))  # onnxruntime's Mul adds the zero point before rounding
        for offset, added in ((bias, zero), (inside, 0)):
            if abs(offset) < 1 << 31:
                scaling = Scaling(float_bits(factor), np.array(0), 0, added, bounds, offset)
                if np.array_equal(_applied(scaling, HELD), wanted):
                    return (scaling,)
    return None


def _results(
    op: Op,
    operands: tuple[Tensor, ...],
    constants: tuple[Tensor | None, ...],
    out: Tensor,
    held: tuple[Array, ...],
    rounding: Rounding,
) -> Array:
    """Return the reference results of `op` for the operands' codes `held`. All codes are int8, as on the machine."""
    shapes = [values.shape for values in held]
    tensors = [replace(tensor, shape=shape, data=None) for tensor, shape in zip(operands, shapes, strict=True)]
    result = replace(out, shape=np.broadcast_shapes(*shapes), data=None)
    node = Node("codes", op, tuple("x" for _ in (*operands, *constants)), (out.name,))
    values = [given_back(h.astype(np.int8), t)[None] for h, t in zip(held, tensors, strict=True)]
    others = [None if tensor is None or tensor.data is None else tensor.data[None] for tensor in constants]
    (results,) = op.evaluate(Site(node, (*tensors, *constants), (result,)), [*values, *others], rounding)
    return held_codes(results[0]).astype(np.int64)


def _applied(part: Scaling, acc: Array) -> Array:
    """Return the accumulators `acc` (any shape), requantised by `part` with the simulator's own function."""
    low, high = part.bounds or (1, 0)
    words = part.bias, int(part.multiplier), part.zero_point << 16, (low & 0xFFFF) | high << 16
    return requantise_float(acc.astype(np.int32), *(np.array([word]).astype(np.int32) for word in words))


@lru_cache(maxsize=256)
def proven_sum(op: Add, kinds: tuple[tuple[str, Quant | None], ...], rounding: Rounding) -> tuple[Scaling, ...] | None:
    """Return the requantisations of an addition's operands and sum; None if no trial is right for all pairs of codes.

    `kinds`: the dtypes and the quantisation of the operands and of the result.
    """
    tensors = [Tensor("codes", (), *kind) for kind in kinds]
    left, right = (np.float32(tensor.scale) / np.float32(tensors[2].scale) for tensor in tensors[:2])
    zeros = [held_zero_point(tensor) for tensor in tensors]
    constant = zeros[2] - float(left) * zeros[0] - float(right) * zeros[1]
    grid = HELD[:, None], HELD[None, :]
    wanted = _results(op, (tensors[0], tensors[1]), (), tensors[2], grid, rounding)
    about = grid[0] * float(left) + grid[1] * float(right) + constant
    bounds = int(wanted.min()), int(wanted.max())
    # Only results close to a tie that are not clipped can differ. Trials test these few results first, which is fast.
    inside = (about > bounds[0] - 1) & (about < bounds[1] + 1)
    ties = np.nonzero((np.abs(about - np.floor(about) - 0.5) < NEAR) & inside)
    whole = np.indices(wanted.shape)
    for scalings in _candidates(float(left), float(right), constant, bounds):
        if _agrees(scalings, wanted, ties) and _agrees(scalings, wanted, (whole[0], whole[1])):
            return scalings
    return None


def _candidates(
    left: float, right: float, constant: float, bounds: tuple[int, int]
) -> Iterator[tuple[Scaling, Scaling, Scaling]]:
    """Yield triples of requantisations to try (two operands, sum): first the nearest, then random ones (fixed seed)."""
    rng = np.random.default_rng(0)
    # The larger the power of two, the smaller the rounding error of the integers; the sum must fit in BITS bits.
    most = floor(BITS - log2(256 * (left + right) + abs(constant)))
    for exponent in range(most, most - EXPONENTS, -1):
        first, second = (np.float32(real * 2.0**exponent) for real in (left, right))
        plain = round(constant * 2.0**exponent)
        last = Scaling(float_bits(np.float32(2.0**-exponent)), np.array(0), 0, 0, bounds)
        for attempt in range(TRIES):
            reach = 0 if attempt == 0 else 16 << attempt // 100
            steps = rng.integers(-2, 3, 2) if attempt > FIRST else (0, 0)
            p, q = (np.float32(f + n * np.spacing(f)) for f, n in zip((first, second), steps, strict=True))
            operands = [Scaling(float_bits(factor), np.array(0)) for factor in (p, q)]
            yield operands[0], operands[1], last._replace(bias=plain + int(rng.integers(-reach, reach + 1)))


def _agrees(scalings: tuple[Scaling, ...], wanted: Array, pairs: tuple[Array, ...]) -> bool:
    first, second, last = scalings
    total = _applied(first, HELD)[pairs[0]] + _applied(second, HELD)[pairs[1]]
    return np.array_equal(_applied(last, total), wanted[pairs])
