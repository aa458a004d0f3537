"""From a graph node to a `Layer` with its weight tiles and the host's correction, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph.arithmetic import clamp_range
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Linear, MaxPool2D, Window
from tilewright.graph.ops.linear import centre
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.codegen import codes, parameters, weights
from tilewright.targets.vta.codegen import fold as folding
from tilewright.targets.vta.codegen.layer import Layer, Link
from tilewright.targets.vta.codegen.transfers import LARGEST
from tilewright.targets.vta.config import Config

#: Why the host takes an operator of another kind.
REASONS = {
    "add": "TFLite rescales both operands; stock VTA's ALU has no multiplier",
    "mul": "stock VTA's ALU has no portable multiply",
    "clamp": "TFLite rescales it; stock VTA's ALU has no multiplier",
    "mean": "TFLite rescales the sum; stock VTA's ALU has no multiplier",
    "softmax": "needs exponentials and a division",
    "reshape": "moves no data",
    "pad": "moves data only",
    "concat": "moves data only",
    "quantize": "real numbers, or another scale",
    "dequantize": "real numbers",
    "real_average_pool_2d": "onnxruntime averages real numbers",
    "transpose": "moves data only",
    "onnx": "real numbers (see `tilewright quantize`), or onnxruntime's own kernel",
}


@dataclass(frozen=True, eq=False)
class Lowered:
    """`tiles` int8 [out tile, k, tap, block, block]; `correction` int32 [row class, column class, channel].

    The classes are of output rows and columns: which taps lie inside the image. The host subtracts the
    correction, zero point times the sum of the weights used; pools have none. `parameters` (see parameters.py) are
    there where the machine finishes by itself.
    """

    layer: Layer
    tiles: Array
    correction: Array
    row_class: Array
    column_class: Array
    parameters: Array | None = None


class Context(NamedTuple):
    """`single`: no pixels share a tile and no patches are laid out, because the input comes from another layer.

    `codes`: sums become codes on the machine, if it can do that.
    """

    config: Config
    rounding: Rounding
    single: bool = False
    codes: bool = True


def lower(site: Site, context: Context) -> Lowered | str:
    """The layer of a node, or why VTA does not take it."""
    op, config = site.node.op, context.config
    shifts = context.rounding.elementwise == "pow2" and not config.has_parameters
    takes_add = isinstance(op, Add) and (shifts or config.alu in ("rounding", "fused"))
    if not isinstance(op, Linear | AveragePool2D | MaxPool2D) and not takes_add:
        return REASONS.get(op.kind, f"VTA has no operation for {op.kind}")
    if config.inp.width != 8 or config.wgt.width != 8:
        return f"the machine's values have {config.inp.width} bits and its weights {config.wgt.width}; the codes 8"
    x = site.input(0)
    if x.dtype not in codes.DTYPES:
        return f"its input is {x.dtype}; VTA multiplies int8"
    if x.data is not None:
        return "its input is constant"
    if not isinstance(op, FullyConnected | Add):
        if x.shape[0] != 1:
            return f"the model has a batch of {x.shape[0]}"
        if max(x.shape[2], site.output.shape[2]) > LARGEST:
            return f"a row of its image is longer than the {LARGEST} tiles of LOAD's x_stride"
    try:
        if isinstance(op, Add):
            return _add(site, op, context)
        if isinstance(op, Linear):
            return _linear(site, op, context)
        assert isinstance(op, AveragePool2D | MaxPool2D)
        return _pool(site, op, context)
    except TilewrightError as error:
        return error.reason


def _add(site: Site, op: Add, context: Context) -> Lowered | str:
    """Elements of both tensors side by side: by identity weights into accumulators, then the ALU."""
    config, out, other = context.config, site.output, site.input(1)
    if context.rounding.delegated:
        return f"rounding {context.rounding.name} adds by another rule than TFLite's kernels"
    if {tensor.shape for tensor in (site.input(0), other)} != {out.shape} or other.data is not None:
        return "its operands are not two tensors of one shape"
    if not context.codes:
        return "its parameters do not fit the memory that the machine has for them"
    if other.dtype not in codes.DTYPES or out.dtype not in codes.DTYPES:
        return f"it adds {other.dtype} to {out.dtype}; VTA's buffers hold int8"
    channels, block = out.shape[-1], config.block
    width = -(-(out.size // channels) // config.batch)
    if context.rounding.elementwise == "pow2":
        shifted = parameters.of_add_shift(site, op, width)
        if shifted is None:
            return "its operands differ in scale, or have zero points: not only a shift"
        made = parameters.Parameters(None, shifted)
    else:
        made = parameters.of_add(site, op, width, config)
    tiles = -(-channels // block)
    layer = Layer(
        kind="add",
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
        packing=_packing("pixels", 1, f"{config.batch} tile rows used" if config.batch > 1 else ""),
        codes=made.codes,
    )
    one = np.zeros(1, np.int64)
    none = np.zeros((1, 1, 1), np.int32)
    return Lowered(layer, np.eye(block, dtype=np.int8)[None, None, None], none, one, one, made.tiles)


def _finished(site: Site, lowered: Lowered, context: Context) -> Lowered:
    """The same layer with its requantisation, where the machine does that."""
    op, layer = site.node.op, lowered.layer
    assert isinstance(op, Linear)
    columns = np.zeros(layer.out[1] * layer.fold, np.int64) if layer.matrix else lowered.column_class
    if context.rounding.elementwise == "pow2":
        made = parameters.of_product_shift(site, op, lowered.correction, layer, context.config)
    else:
        made = parameters.of_linear(
            site, op, lowered.correction, lowered.row_class, columns, layer.fold, context.config, context.rounding
        )
    if made is None or not context.codes:
        return lowered
    return replace(lowered, layer=replace(layer, planes=1, codes=made.codes), parameters=made.tiles)


def _linear(site: Site, op: Linear, context: Context) -> Lowered | str:
    config = context.config
    bias = site.optional(2)
    if bias is not None and bias.data is None:
        return "its bias is not constant"
    if site.input(1).dtype != "int8":
        return f"its weights are {site.input(1).dtype}; VTA multiplies int8"
    centred = centre(site.constant(1), site.input(1)).astype(np.int32)
    if centred.min() < weights.CODE_MIN or centred.max() > weights.CODE_MAX:
        return "its weights less their zero point do not fit int8"
    shape = site.input(0).shape
    if isinstance(op, FullyConnected):
        rows = site.input(0).size // centred.shape[1]
        return _matrix(site, centred[:, None, :], rows, context, "rows of the input")
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    channels, window = shape[3], op.window
    if isinstance(op, DepthwiseConv2D):
        outputs, depth = centred.shape[3], 1
        w = centred.reshape(-1, outputs).T[:, :, None]  # (O, T, 1)
        start = np.arange(outputs) // (outputs // channels)
    else:
        outputs, depth = centred.shape[0], centred.shape[3]
        w = centred.reshape(outputs, -1, depth)
        start = np.arange(outputs) // (outputs // (channels // depth)) * depth
    pixels = prod(site.output.shape[1:3])
    if depth == channels:
        kernel, block = prod(window.kernel), config.block
        if kernel == 1 and not any(window.padding) and (window.stride == (1, 1) or not context.single):
            pixels_read = "pixels" if window.stride == (1, 1) else "the pixels that its stride reads"
            return _matrix(site, w, pixels, context, pixels_read)
        if channels <= block // 2 and -(-kernel * depth // block) < kernel and not context.single:
            return _matrix(site, w.reshape(outputs, 1, -1), pixels, context, "patches (im2col)")
    return _spatial(site, w, start, window, context)


def _matrix(site: Site, w: Array, rows: int, context: Context, packing: str) -> Lowered | str:
    """A product of `rows` rows with w (O, 1, K)."""
    config = context.config
    planes = weights.planes_of(w, config)
    if isinstance(planes, str):
        return planes
    block = config.block
    fold = folding.rows(w, rows, config, context.single)
    width = -(-rows // (config.batch * fold.pixels))
    layer = Layer(
        kind="sum",
        matrix=True,
        size=(1, width),
        out=(1, width),
        window=Window(),
        in_tiles=-(-fold.weights.shape[2] // block),
        out_tiles=-(-fold.weights.shape[0] // block),
        link="dense",
        bands=(),
        shared=False,
        planes=planes,
        clamp=None,
        fold=fold.pixels,
        packing=_packing(packing, fold.pixels, f"{config.batch} tile rows used" if config.batch > 1 else ""),
    )
    start = np.zeros(fold.weights.shape[0], np.int64)
    one = np.zeros(1, np.int64)
    correction = (w.sum(axis=(1, 2)) * codes.zero_point(site.input(0))).astype(np.int32)[None, None]
    lowered = Lowered(layer, weights.tiles_of(fold.weights, start, layer, block), correction, one, one)
    return _finished(site, lowered, context)


def _spatial(site: Site, w: Array, start: Array, window: Window, context: Context) -> Lowered | str:
    """A window over the image; output channel o reads w.shape[2] channels from start[o]."""
    config = context.config
    size, out = site.input(0).shape[1:3], site.output.shape[1:3]
    classes = [weights.classes_of(size[axis], out[axis], window, axis) for axis in (0, 1)]
    if any(not taps.any() for _, masks in classes for taps in masks):
        return "a window lies wholly in the padding"
    planes = weights.planes_of(w, config)
    if isinstance(planes, str):
        return planes
    fold = folding.columns(w, start, site.input(0).shape[3], window, out[1], config, context.single)
    layer = _windowed(site, fold, start, config, "sum", planes)
    (row_class, rows), (column_class, columns) = classes
    per_tap = w.sum(axis=2).reshape(-1, *window.kernel)  # (O, KH, KW)
    correction = np.einsum("akb,ra,cb->rck", per_tap.transpose(1, 0, 2), rows, columns)
    correction = correction * codes.zero_point(site.input(0))
    start = start if fold.pixels == 1 else np.zeros(fold.weights.shape[0], np.int64)
    tiles = weights.tiles_of(fold.weights, start, layer, config.block)
    return _finished(site, Lowered(layer, tiles, correction.astype(np.int32), row_class, column_class), context)


def _pool(site: Site, op: AveragePool2D | MaxPool2D, context: Context) -> Lowered | str:
    """Identity weights: sums of codes, or codes side by side for the ALU to compare."""
    config = context.config
    size, out, channels = site.input(0).shape[1:3], site.output.shape[1:3], site.input(0).shape[3]
    classes = [weights.classes_of(size[axis], out[axis], op.window, axis) for axis in (0, 1)]
    if any(not taps.any() for _, masks in classes for taps in masks):
        return "a window lies wholly in the padding"
    taps = prod(op.window.kernel)
    maximum = isinstance(op, MaxPool2D)
    planes = 1 if maximum else weights.planes_of(np.ones((1, taps, 1), np.int32), config)
    if isinstance(planes, str):
        return planes
    clamp = None
    if maximum:
        bounds = clamp_range(op.activation, site.output.scale, site.output.zero_point, site.output.dtype)
        low, high = (bound - codes.offset(site.output) for bound in bounds)
        clamp = None if (low, high) == (weights.CODE_MIN, weights.CODE_MAX) else (low, high)
    start = np.arange(channels)
    one = folding.Fold(1, np.broadcast_to(np.int32(1), (channels, taps, 1)), op.window)
    layer = _windowed(site, one, start, config, "max" if maximum else "sum", planes, clamp)
    tiles = np.eye(config.block, dtype=np.int8)[None, None, None]
    (row_class, rows), (column_class, columns) = classes
    none = np.zeros((len(rows), len(columns), 1), np.int32)
    return Lowered(layer, tiles, none, row_class, column_class)


def _windowed(
    site: Site,
    fold: folding.Fold,
    start: Array,
    config: Config,
    kind: Literal["sum", "max"],
    planes: int,
    clamp: tuple[int, int] | None = None,
) -> Layer:
    block, pixels, w = config.block, fold.pixels, fold.weights
    (height, width), (out_height, out_width) = site.input(0).shape[1:3], site.output.shape[1:3]
    in_tiles, out_tiles = -(-site.input(0).shape[3] * pixels // block), -(-w.shape[0] // block)
    bands: tuple[tuple[int, int], ...] = ((0, 1),)  # folded: one tile
    if pixels == 1:
        first, last = start // block, (start + w.shape[2] - 1) // block + 1
        edges = np.arange(0, w.shape[0], block)
        low, high = np.minimum.reduceat(first, edges), np.maximum.reduceat(last, edges)
        bands = tuple(zip(low.tolist(), high.tolist(), strict=True))
    link: Link = "banded"
    if all(band == (0, in_tiles) for band in bands):
        link = "dense"
    elif bands == tuple((o, o + 1) for o in range(out_tiles)):
        link = "diagonal"
    return Layer(
        kind=kind,
        matrix=False,
        size=(height, -(-width // pixels)),
        out=(out_height, -(-out_width // pixels)),
        window=fold.window,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        link=link,
        bands=bands if link == "banded" else (),
        shared=not isinstance(site.node.op, Linear),
        planes=planes,
        clamp=clamp,
        fold=pixels,
        packing=_packing("the image", pixels, f"1 of {config.batch} tile rows used" if config.batch > 1 else ""),
    )


def _packing(what: str, pixels: int, rows: str) -> str:
    return ", ".join(part for part in (what, f"{pixels} pixels side by side" if pixels > 1 else "", rows) if part)
