"""From a graph node to a layer with its weight tiles and what finishes it, or the reason why not.

Convolutions and products; pools, averages and repeated pixels, for which identity weights bring codes, or sums times a
factor, into accumulators. elementwise.py has what adds and rescales.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph.ir import Site
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Linear,
    MatMul,
    MaxPool2D,
    Mean,
    Mul,
    OnnxOp,
    Op,
    Quantize,
    RealAveragePool2D,
    Upsample,
    Window,
)
from tilewright.graph.ops.linear import centre, matrices
from tilewright.graph.rounding import clamp_range, mean_factor
from tilewright.targets.vta.compiler import parameters
from tilewright.targets.vta.compiler.elementwise import add, rescale
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, Layer
from tilewright.targets.vta.compiler.lowered import (
    CODE_DTYPES,
    CODE_MAX,
    CODE_MIN,
    Context,
    Fold,
    Lowered,
    classes_of,
    folded_columns,
    folded_rows,
    held_offset,
    held_zero_point,
    packing,
    planes_of,
    tiles_of,
    windowed,
)

#: Why the host takes an operator of another kind, or of ONNX.
REASONS = {
    kind: reason
    for reason, kinds in {
        "rescales; VTA's ALU has no multiplier for it": "clamp",
        "needs exponentials and a division": "softmax Softmax QLinearSoftmax",
        "moves no data": "reshape",
        "moves data only": "pad concat transpose Slice Split Gather Resize DepthToSpace SpaceToDepth",
        "gives real numbers": "dequantize",
        "is a curve; VTA has no table of codes": "Sigmoid QLinearSigmoid HardSwish Gelu Erf",
        "needs variances, roots and a division": "LayerNormalization SkipLayerNormalization",
    }.items()
    for kind in kinds.split()
}
#: The operators that VTA takes, on some machines and under some arithmetic.
TAKEN = (Linear, MatMul, AveragePool2D, MaxPool2D, Mean, RealAveragePool2D, Upsample, Add, Mul, Quantize)


def lower(site: Site, context: Context) -> Lowered | str:
    """The layer of a node, or why VTA does not take it."""
    op, config = site.node.op, context.config
    if not isinstance(op, TAKEN):
        kind = op.op_type if isinstance(op, OnnxOp) else op.kind
        if kind in REASONS:
            return f"{op.label} {REASONS[kind]}"
        return OnnxOp.real(site) or f"VTA has no operation for {op.label}"
    if isinstance(op, Add | Mean | RealAveragePool2D) and not config.rescales and not _shifts(context):
        return f"{op.label} rescales what it adds; the ALU of alu={config.alu} has no rescaling multiplier"
    if config.inp.width != 8 or config.wgt.width != 8:
        return f"the machine's values have {config.inp.width} bits and its weights {config.wgt.width}; the codes 8"
    x = site.input(0)
    if x.dtype not in CODE_DTYPES:
        reason = f"{op.label} of {x.dtype} ('{x.name}') is not supported"
        return reason if x.dtype.startswith("float") else f"{reason}; VTA multiplies int8"
    if x.data is not None:
        return f"the constant input '{x.name}' is not supported"
    if not isinstance(op, FullyConnected | MatMul | Add | Mul | Quantize):
        if len(x.shape) == 4 and x.shape[0] != 1:
            return f"a batch of {x.shape[0]} in the model is not supported; one image is"
        if len(x.shape) == 4 and max(x.shape[2], site.output.shape[-2]) > LARGEST_SIZE:
            return f"a row of its image is longer than the {LARGEST_SIZE} tiles of LOAD's x_stride"
    try:
        return _lowered(site, op, context)
    except TilewrightError as error:
        return error.reason


def _shifts(context: Context) -> bool:
    """Whether sums become codes by shifts, with what upstream's ALU has."""
    return context.rounding.elementwise == "pow2" and not context.config.has_parameters


def _lowered(site: Site, op: Op, context: Context) -> Lowered | str:
    if isinstance(op, Linear):
        return _linear(site, op, context)
    if isinstance(op, MaxPool2D):
        return _maximum(site, op, context)
    if isinstance(op, AveragePool2D):
        return _sums(site, op, context)
    if isinstance(op, Mean | RealAveragePool2D):
        return _average(site, op, context)
    if isinstance(op, MatMul):
        return _product(site, op, context)
    if isinstance(op, Upsample):
        return _upsample(site, op, context)
    if isinstance(op, Add):
        return add(site, op, context)
    assert isinstance(op, Mul | Quantize)
    return rescale(site, op, context)


def _linear(site: Site, op: Linear, context: Context) -> Lowered | str:
    """The layer of a sum of products, or why VTA does not take it."""
    config = context.config
    bias = site.optional(2)
    if bias is not None and bias.data is None:
        return f"the bias '{bias.name}' is computed; it must be constant"
    if site.input(1).dtype != "int8":
        return f"its weights are {site.input(1).dtype}; VTA multiplies int8"
    centred = centre(site.constant(1), site.input(1)).astype(np.int32)
    if centred.min() < CODE_MIN or centred.max() > CODE_MAX:
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
            what = "pixels" if window.stride == (1, 1) else "the pixels that its stride reads"
            return _matrix(site, w, pixels, context, what)
        if channels <= block // 2 and -(-kernel * depth // block) < kernel and not context.single:
            return _matrix(site, w.reshape(outputs, 1, -1), pixels, context, "patches (im2col)")
    return _spatial(site, w, start, window, context)


def _matrix(site: Site, w: Array, rows: int, context: Context, what: str) -> Lowered:
    """A product of `rows` rows with w (O, 1, K)."""
    config = context.config
    planes = planes_of(w, config)
    block = config.block
    fold = folded_rows(w, rows, config, context.single)
    width = -(-rows // (config.batch * fold.pixels))
    layer = Layer(
        kind="sum",
        matrix=True,
        size=(1, width),
        out=(1, width),
        in_tiles=-(-fold.weights.shape[2] // block),
        out_tiles=-(-fold.weights.shape[0] // block),
        link="dense",
        planes=planes,
        fold=fold.pixels,
        packing=packing(what, fold.pixels, f"{config.batch} tile rows used" if config.batch > 1 else ""),
    )
    start = np.zeros(fold.weights.shape[0], np.int64)
    one = np.zeros(1, np.int64)
    correction = (w.sum(axis=(1, 2)) * held_zero_point(site.input(0))).astype(np.int32)[None, None]
    lowered = Lowered(layer, tiles_of(fold.weights, start, layer, block), correction, one, one)
    return _finished(site, lowered, context)


def _spatial(site: Site, w: Array, start: Array, window: Window, context: Context) -> Lowered:
    """A window over the image; output channel o reads w.shape[2] channels from start[o]."""
    config = context.config
    out = site.output.shape[1:3]
    (row_class, rows), (column_class, columns) = classes_of(site.input(0).shape[1:3], out, window)
    planes = planes_of(w, config)
    fold = folded_columns(w, start, site.input(0).shape[3], window, out[1], config, context.single)
    layer = windowed(site, fold, start, config, planes)
    per_tap = w.sum(axis=2).reshape(-1, *window.kernel)  # (O, KH, KW)
    correction = np.einsum("akb,ra,cb->rck", per_tap.transpose(1, 0, 2), rows, columns)
    correction = correction * held_zero_point(site.input(0))
    start = start if fold.pixels == 1 else np.zeros(fold.weights.shape[0], np.int64)
    tiles = tiles_of(fold.weights, start, layer, config.block)
    return _finished(site, Lowered(layer, tiles, correction.astype(np.int32), row_class, column_class), context)


def _finished(site: Site, lowered: Lowered, context: Context) -> Lowered:
    """The same layer with its requantisation, where the machine does that."""
    op, layer = site.node.op, lowered.layer
    assert isinstance(op, Linear)
    columns = np.zeros(layer.out[1] * layer.fold, np.int64) if layer.matrix else lowered.column_class
    if context.rounding.elementwise == "pow2":
        made = parameters.of_product_shift(site, op.activation, lowered.correction, layer, context.config)
    else:
        made = parameters.of_linear(
            site, op, lowered.correction, lowered.row_class, columns, layer.fold, context.config, context.rounding
        )
    if made is None or not context.codes:
        return lowered
    return replace(lowered, layer=replace(layer, planes=1, codes=made.codes), parameters=made.tiles)


def _product(site: Site, op: MatMul, context: Context) -> Lowered | str:
    """All products as one layer: the matrices are channels side by side, each in tiles of its own."""
    config, block = context.config, context.config.block
    count, rows, depth, columns = matrices(site)
    if site.input(1).dtype not in CODE_DTYPES or site.output.dtype not in CODE_DTYPES:
        return f"its operands are {site.input(0).dtype} and {site.input(1).dtype}; VTA multiplies int8"
    planes = planes_of(np.full((1, 1, depth), CODE_MIN, np.int32), config)
    deep, wide = -(-depth // block), -(-columns // block)
    bands = tuple((matrix * deep, matrix * deep + deep) for matrix in range(count) for _ in range(wide))
    width = -(-rows // config.batch)
    layer = Layer(
        kind="sum",
        matrix=True,
        size=(1, width),
        out=(1, width),
        in_tiles=count * deep,
        out_tiles=count * wide,
        link="banded" if count > 1 else "dense",
        bands=bands if count > 1 else (),
        planes=planes,
        packing=packing(f"{count} matrices", 1, f"{config.batch} tile rows used" if config.batch > 1 else ""),
    )
    one = np.zeros(1, np.int64)
    none = np.zeros((1, 1, count * wide * block), np.int32)
    lowered = Lowered(layer, None, none, one, one)
    centred = any(held_zero_point(site.input(index)) for index in (0, 1))
    if context.rounding.elementwise != "pow2" or centred or not context.codes:
        return lowered
    made = parameters.of_product_shift(site, "none", none, layer, config)
    if made is None:
        return lowered
    return replace(lowered, layer=replace(layer, planes=1, codes=made.codes), parameters=made.tiles)


def _maximum(site: Site, op: MaxPool2D, context: Context) -> Lowered:
    """Codes side by side, for the ALU to compare."""
    lowered = _pooled(site, op.window, context, None)
    out = site.output
    bounds = clamp_range(op.activation, out.scale, out.zero_point, out.dtype)
    low, high = (bound - held_offset(out) for bound in bounds)
    clamp = None if (low, high) == (CODE_MIN, CODE_MAX) else (low, high)
    return replace(lowered, layer=replace(lowered.layer, kind="max", planes=1, clamp=clamp))


def _sums(site: Site, op: AveragePool2D, context: Context) -> Lowered:
    """Sums of codes, which the host divides."""
    return _pooled(site, op.window, context, 1)


def _average(site: Site, op: Mean | RealAveragePool2D, context: Context) -> Lowered | str:
    """A mean that the machine finishes: sums, then one requantisation."""
    shape, rounding = site.input(0).shape, context.rounding
    shifts = rounding.elementwise == "pow2"
    if isinstance(op, Mean):
        if len(shape) != 4 or set(op.axes) != {1, 2}:
            return f"axes={list(op.axes)} of {list(shape)} is not supported; a mean over rows and columns is"
        window = Window((shape[1], shape[2]))
    elif not shifts:
        return "onnxruntime averages real numbers, added in float32 one after the other"
    elif any(op.window.padding) and not op.count_padding:
        return f"padding={list(op.window.padding)} is not supported for a mean: windows at the border hold fewer values"
    else:
        window = op.window
    if not context.codes:
        return "its parameters do not fit the memory that the machine has for them"
    count = prod(window.kernel)
    lowered = _pooled(site, window, context, mean_factor(count)[0] if shifts else 1)
    made = parameters.of_average(site, count, lowered.layer, context.config, rounding)
    return replace(lowered, layer=replace(lowered.layer, planes=1, codes=made.codes), parameters=made.tiles)


def _upsample(site: Site, op: Upsample, context: Context) -> Lowered:
    """Each pixel in several places."""
    lowered = _pooled(site, Window(), context, None)
    out = site.output.shape[1], site.output.shape[2]
    return replace(lowered, layer=replace(lowered.layer, kind="repeat", out=out, repeat=op.factors))


def _pooled(site: Site, window: Window, context: Context, factor: int | None) -> Lowered:
    """A window over each channel: sums of codes times `factor`; None: no sums."""
    config, shape = context.config, site.input(0).shape
    out = window.output_size(site.node.name, *shape[1:3])
    (row_class, rows), (column_class, columns) = classes_of(shape[1:3], out, window)
    taps, channels = prod(window.kernel), shape[3]
    planes = planes_of(np.full((1, taps, 1), factor, np.int32), config) if factor else 1
    one = Fold(1, np.broadcast_to(np.int32(1), (channels, taps, 1)), window)
    layer = windowed(site, one, np.arange(channels), config, planes, out=out)
    tiles = (np.eye(config.block, dtype=np.int8) * np.int8(factor or 1))[None, None, None]
    none = np.zeros((len(rows), len(columns), 1), np.int32)
    return Lowered(layer, tiles, none, row_class, column_class)
