"""The parameters of on-chip requantisation, as int32 tiles: a bias tile for each class, then factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending
from tilewright.errors import UnsupportedError
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, Linear, Mean
from tilewright.graph.rounding import (
    Activation,
    Requant,
    RequantRule,
    Rounding,
    clamp_range,
    mean_factor,
    power_of_two,
    quantize_multiplier,
)
from tilewright.targets.vta.compiler.epilogue import ADD_LEFT_SHIFT
from tilewright.targets.vta.compiler.layer import Immediates, Layer, Requantisation
from tilewright.targets.vta.compiler.lowered import Lowered, Parameters
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import CODE_DTYPES, held_offset, held_zero_point
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES

#: Bits of a bias.
BIAS_BITS = 32
#: The requantisation rule of each ALU; upstream's ALU cannot requantise.
RULES: dict[str, RequantRule] = {"rounding": "double", "fused": "double", "float": "float"}


class Scaling(NamedTuple):
    """One requantisation: `bias` is added to the accumulator, then the sum is scaled and `zero_point` is added."""

    multiplier: Array  # int64 [channels] or []: as in TFLite; for the float ALU, the bits of a float32
    shift: Array  # int64 [channels] or []: as in TFLite, where a positive shift is to the left
    extra_left: int = 0  # an extra left shift
    zero_point: int = 0
    bounds: tuple[int, int] | None = None  # the range to which the result is clamped, if any
    bias: int = 0  # the bias, if it is equal for all channels


def of_linear(site: Site, op: Linear, lowered: Lowered, config: Config, rounding: Rounding) -> Parameters | None:
    """Return the parameters that requantise a layer's sums to codes; None if the ALU does not round by `rounding`."""
    if op.rule(rounding) != RULES.get(config.alu) or site.output.dtype not in CODE_DTYPES:
        return None
    requant = Requant.of_product(site.input(0), site.input(1), site.output, op.activation, rounding.delegated)
    layer = lowered.layer
    correction = lowered.correction
    row_class, column_class = lowered.row_class, lowered.column_class
    channels = correction.shape[2]
    fold = layer.fold
    if layer.matrix:
        column_class = np.zeros(layer.out[1] * fold, np.int64)
    less = held_offset(site.output)
    # The float ALU takes the bit pattern of a float32 in the place of the integer multiplier.
    if config.alu == "float":
        multiplier, shift = requant.real32.view(np.int32).astype(np.int64), np.array(0)
    else:
        multiplier, shift = quantize_multiplier(requant.real)
    bounds = requant.low - less, requant.high - less
    multiplier, shift = (np.tile(np.broadcast_to(part, channels), fold) for part in (multiplier, shift))
    scaling = Scaling(multiplier, shift, zero_point=requant.zero_point - less, bounds=bounds)
    if not correction.any():  # one class: the bias does not depend on the position
        row_class = 0 * row_class
        column_class = 0 * column_class
        correction = correction[:1, :1]
    biases = _bias(site, channels) - correction
    patterns, columns = _folded(column_class, fold)
    lanes = biases[:, patterns].reshape(correction.shape[0] * len(patterns), fold * channels)
    tiles = _tiles(np.concatenate([lanes, factors(scaling, config)]), config)
    return Parameters(
        tiles, Requantisation(tuple(row_class.tolist()), tuple(columns.tolist()), _immediates([scaling], config))
    )


def of_product_shift(
    site: Site, activation: Activation, correction: Array, layer: Layer, config: Config
) -> Parameters | None:
    """Return the parameters of a right shift with ties rounded up: a tile of bias + rounding half per channel tile.

    Returns None if the conditions for this form are not met.
    """
    out = site.output
    requant = Requant.of_product(site.input(0), site.input(1), out, activation)
    shift = ascending(-power_of_two(requant.real, f"op '{site.node.name}'"))
    # Zero points must be 0, and REQ (if the ALU has it) must multiply integers: then its high product rounds ties up.
    if correction.any() or out.zero_point or out.dtype != "int8" or config.alu == "float":
        return None
    # All channels must have one shift.
    if shift.size > 1 or not 0 <= shift[0] < 31:
        return None
    # Without REQ, an accumulator holds the bias.
    if not config.has_parameters and config.acc.width < BIAS_BITS:
        return None
    wide = np.tile(_bias(site, correction.shape[2]), layer.fold)
    words, immediates = _shifted(wide, int(shift[0]), (requant.low, requant.high), config)
    return Parameters(_tiles(words, config), _of_one_class(layer, immediates, len(words) - 1))


def _bias(site: Site, channels: int) -> Array:
    return np.zeros(channels, np.int64) if site.optional(2) is None else site.constant(2).astype(np.int64)


def _of_one_class(layer: Layer, immediates: Immediates | None, factors: int = FACTOR_TILES) -> Requantisation:
    return Requantisation((0,) * layer.out[0], (0,) * layer.out[1], immediates, factors)


def _shifted(bias: Array, shift: int, bounds: tuple[int, int], config: Config) -> tuple[Array, Immediates | None]:
    """Return the words [word, channel] and immediates that shift sums right by 0..30 bits, with ties rounded up."""
    if not config.has_parameters:
        return bias[None] + ((1 << shift) >> 1), Immediates(0, *bounds, False, shift)
    # REQ multiplies by 2**(31 - shift), which is exact for sums of at most 31 bits.
    left = int(shift == 0)  # a multiplier of 2**31 does not fit in int32, so the sum is first shifted left
    scaling = Scaling(np.array(1 << (31 - shift - left)), np.array(left), 0, 0, bounds)
    return np.concatenate([bias[None], np.broadcast_to(factors(scaling, config), (FACTOR_TILES, len(bias)))]), None


def of_average(site: Site, count: int, layer: Layer, config: Config, rounding: Rounding) -> Parameters:
    """Return the parameters that turn a sum of `count` codes (under `pow2`, codes times a factor) into their mean.

    Raises UnsupportedError if the result is not int8 or uint8, or the machine's ALU cannot rescale the mean.
    """
    x = site.input(0)
    out = site.output
    if out.dtype not in CODE_DTYPES:
        raise UnsupportedError("VTA", f"its result is {out.dtype}; VTA's buffers hold int8")
    low, high = (bound - held_offset(out) for bound in clamp_range("none", out.scale, out.zero_point, out.code_type))
    if rounding.elementwise == "pow2":
        shift = mean_factor(count)[1] - int(power_of_two(x.scale / out.scale, f"op '{site.node.name}'"))
        zeros = (held_zero_point(x), held_zero_point(out))
        if config.alu == "float" or any(zeros) or not 0 <= shift < 31:
            reason = "a mean under pow2 needs zero points of 0, a shift of 0..30 and an alu of integers"
            raise UnsupportedError("VTA", reason)
        words, immediates = _shifted(np.zeros(1, np.int64), shift, (low, high), config)
    else:
        scaling = _mean(site, count, config, rounding)
        if scaling is None:
            raise UnsupportedError("VTA", f"this machine's ALU cannot rescale a mean under rounding {rounding.name}")
        bias = -count * held_zero_point(x)
        scaling = scaling._replace(zero_point=held_zero_point(out), bounds=(low, high), bias=bias)
        return of_all([scaling], layer, config)
    lanes = np.broadcast_to(words, (len(words), layer.out_tiles * config.block))
    return Parameters(_tiles(lanes, config), _of_one_class(layer, immediates, len(words) - 1))


def _mean(site: Site, count: int, config: Config, rounding: Rounding) -> Scaling | None:
    """Return the scaling from sums of `code - zero_point` to a mean; None if the ALU does not round by `rounding`."""
    rule = RULES.get(config.alu)
    if rule == "float" and rounding.elementwise == "ort":
        return Scaling(float_bits(Mean.factor32(site, count)), np.array(0))
    if rule == "double" and rounding.elementwise == "tflite":
        multiplier, shift = Mean.folded(site, count)
        return Scaling(multiplier, shift) if shift >= -31 else None
    return None


def float_bits(factor: np.float32) -> Array:
    """Return the bit pattern of a float32 as an integer, int64 []."""
    return np.array(factor).view(np.int32).astype(np.int64)


def of_add_shift(site: Site, op: Add, layer: Layer) -> Requantisation | None:
    """Return the requantisation of an addition by a shift alone; None if the operands' scales differ."""
    out = site.output
    left, right, up = op.shifts(site)
    if left or right or not 0 <= -up < 31 or any(tensor.zero_point for tensor in (site.input(0), site.input(1), out)):
        return None
    low, high = clamp_range(op.activation, out.scale, out.zero_point, out.code_type)
    return _of_one_class(layer, Immediates(0, low, high, False, -up), 0)


def of_add(site: Site, op: Add, layer: Layer, config: Config) -> Parameters:
    """Return the parameters of an addition for all channels: a bias and factors for each operand and the sum."""
    out = site.output
    operands = (site.input(0), site.input(1))
    twice = 2 * max(np.float64(tensor.scale) for tensor in operands)
    parts = [
        Scaling(*quantize_multiplier(np.float64(x.scale) / twice), ADD_LEFT_SHIFT, bias=-held_zero_point(x))
        for x in operands
    ]
    low, high = (b - held_offset(out) for b in clamp_range(op.activation, out.scale, out.zero_point, out.code_type))
    last = quantize_multiplier(twice / ((1 << ADD_LEFT_SHIFT) * np.float64(out.scale)))
    parts.append(Scaling(*last, zero_point=held_zero_point(out), bounds=(low, high)))
    return of_all(parts, layer, config)


def of_all(parts: Sequence[Scaling], layer: Layer, config: Config) -> Parameters:
    """Return the parameters of several requantisations, in order. All channels share these parameters."""
    words = np.concatenate([np.concatenate([[[part.bias]], factors(part, config)]) for part in parts])
    channel_tiles = 1 if layer.kind == "add" else layer.out_tiles
    lanes = np.broadcast_to(words, (len(words), channel_tiles * config.block))
    return Parameters(_tiles(lanes, config), _of_one_class(layer, _immediates(parts, config)))


def factors(scaling: Scaling, config: Config) -> Array:
    """Return the factors as words, int64 [FACTOR_TILES, n]: operands of REQ, or (alu=rounding) of MULH and RSHR."""
    multiplier, shift = np.atleast_1d(scaling.multiplier), np.atleast_1d(scaling.shift)
    left, right = np.maximum(shift, 0) + scaling.extra_left, np.maximum(-shift, 0)
    if config.alu == "rounding":
        return np.stack([multiplier, -left, right])
    low, high = scaling.bounds or (1, 0)
    words = left | right << 8 | scaling.zero_point << 16
    return np.stack([multiplier, words, np.full_like(words, (low & 0xFFFF) | high << 16)])


def _immediates(parts: Sequence[Scaling], config: Config) -> Immediates | None:
    if config.alu != "rounding":
        return None
    low, high = parts[-1].bounds or (0, 0)
    return Immediates(parts[-1].zero_point, low, high, any(part.extra_left or (part.shift > 0).any() for part in parts))


def _folded(column_class: Array, fold: int) -> tuple[Array, Array]:
    """Return the distinct patterns of pixel classes in tiles, [n, fold], and each tile's pattern number."""
    padded = np.pad(column_class, (0, -len(column_class) % fold), mode="edge").reshape(-1, fold)
    patterns, columns = np.unique(padded, axis=0, return_inverse=True)
    return patterns, columns.reshape(-1)


def _tiles(lanes: Array, config: Config) -> Array:
    """Return words [word, channel] as tiles, int32 [channel tile, word, rows, block]. In acc, all rows are equal."""
    block = config.block
    rows = 1 if config.has_parameters else config.batch
    count = -(-lanes.shape[1] // block)
    wide = np.zeros((lanes.shape[0], count * block), np.int64)
    wide[:, : lanes.shape[1]] = lanes
    tiles = wide.astype(np.int32).reshape(-1, count, 1, block).transpose(1, 0, 2, 3)
    return np.ascontiguousarray(np.repeat(tiles, rows, axis=2))
