"""Additions, and codes of one scale to another: element by element, through identity weights into the accumulators."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, Mul, Quantize, Window
from tilewright.targets.vta.compiler import parameters, proven
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.lowered import CODE_DTYPES, Context, Lowered, packing
from tilewright.targets.vta.compiler.parameters import Parameters


def add(site: Site, op: Add, context: Context) -> Lowered | str:
    """Elements of both tensors side by side."""
    config, rounding, out, other = context.config, context.rounding, site.output, site.input(1)
    if {tensor.shape for tensor in (site.input(0), other)} != {out.shape} or other.data is not None:
        return "its operands are not two tensors of one shape"
    if other.dtype not in CODE_DTYPES or out.dtype not in CODE_DTYPES:
        return f"it adds {other.dtype} to {out.dtype}; VTA's buffers hold int8"
    if not context.codes:
        return "its parameters do not fit the memory that the machine has for them"
    width = _width(site, context)
    if rounding.elementwise == "pow2" and not config.has_parameters:
        shifted = parameters.of_add_shift(site, op, width)
        if shifted is None:
            return "its operands differ in scale, or have zero points: not only a shift"
        made = Parameters(None, shifted)
    elif config.alu == "float":
        parts = proven.sum_of_two(site, op, rounding)
        if parts is None:
            return f"no factors of this ALU give what rounding {rounding.name} does for all pairs of codes"
        made = parameters.of_all(parts, width, config)
    elif rounding.elementwise != "tflite":
        return f"rounding {rounding.name} adds by another rule than TFLite's kernels"
    else:
        made = parameters.of_add(site, op, width, config)
    return _elements(site, made, "add", context)


def rescale(site: Site, op: Quantize | Mul, context: Context) -> Lowered | str:
    """Codes times a constant, as codes of another scale."""
    config, rounding, x, out = context.config, context.rounding, site.input(0), site.output
    if x.dtype not in CODE_DTYPES:
        return f"{op.label} of real numbers is not supported"
    if config.alu != "float":
        return "it rescales codes, for which only the ALU float has a multiplier"
    if isinstance(op, Mul) and (site.input(1).data is None or site.input(1).size > 1 or x.shape != out.shape):
        return "the ALU multiplies by one constant only"
    if not context.codes:
        return "its parameters do not fit the memory that the machine has for them"
    real = x.scale / out.scale
    if isinstance(op, Mul):
        real *= site.input(1).scale * (int(site.constant(1).item()) - site.input(1).zero_point)
    parts = proven.of_one(site, real, rounding) if real else None
    if parts is None:
        return f"no factor of this ALU gives what rounding {rounding.name} does for all codes"
    tiles = -(-out.shape[-1] // config.block)
    return _elements(site, parameters.of_all(parts, _width(site, context), config, tiles), "sum", context)


def _width(site: Site, context: Context) -> int:
    """Tiles of a channel tile: pixels, `batch` a tile."""
    out = site.output
    return -(-(out.size // out.shape[-1]) // context.config.batch)


def _elements(site: Site, made: Parameters, kind: Literal["add", "sum"], context: Context) -> Lowered:
    config, width = context.config, _width(site, context)
    tiles = -(-site.output.shape[-1] // config.block)
    layer = Layer(
        kind=kind,
        matrix=True,
        size=(1, width),
        out=(1, width),
        window=Window(),
        in_tiles=tiles,
        out_tiles=tiles,
        link="diagonal",
        bands=(),
        shared=True,
        planes=1,
        clamp=None,
        fold=1,
        packing=packing("pixels", 1, f"{config.batch} tile rows used" if config.batch > 1 else ""),
        codes=made.codes,
    )
    one = np.zeros(1, np.int64)
    none = np.zeros((1, 1, 1), np.int32)
    return Lowered(layer, np.eye(config.block, dtype=np.int8)[None, None, None], none, one, one, made.tiles)
