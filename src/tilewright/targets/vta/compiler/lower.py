"""Lower a graph node to a layer with weight tiles and parameters, or give the reason why the host runs it.

This module lowers convolutions and matrix products. It also lowers pools, averages and upsampling, by identity weights
that copy the codes into accumulators (for averages, multiplied by a factor). elementwise.py lowers additions and
rescaling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.graph.ir import Site, Tensor
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
    Quantize,
    RealAveragePool2D,
    Upsample,
    Window,
)
from tilewright.graph.ops.linear import matrices
from tilewright.graph.rounding import clamp_range, mean_factor
from tilewright.graph.tensor import INT4, code_limits
from tilewright.targets.vta.compiler import narrow, parameters, strips
from tilewright.targets.vta.compiler.constant import ReducedLayer, centred_weights, reduce_layer
from tilewright.targets.vta.compiler.elementwise import add, rescale
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, Layer, Requantisation, Residual
from tilewright.targets.vta.compiler.lowered import (
    Context,
    Fold,
    Lowered,
    Width,
    classes_of,
    folded_columns,
    folded_rows,
    packing,
    tiles_of,
    weight_limits,
    width_of,
    windowed,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import LARGEST_SHIFT
from tilewright.targets.vta.launch.layouts import CODE_DTYPES, CODE_MAX, CODE_MIN, held_offset, held_zero_point
from tilewright.targets.vta.timing import MODELS

#: Bits of the accumulators that a residual needs. The sums of the reference have the same number of bits.
SUM_BITS = 32
#: The reason why the host runs an operator, by the kind of operator or its ONNX type.
REASONS = {
    kind: reason
    for reason, kinds in {
        "rescales codes, and VTA's ALU has no multiplier for rescaling": "clamp",
        "needs exponentials and a division": "softmax Softmax QLinearSoftmax",
        "moves no data": "reshape",
        "moves data only": "pad concat transpose tile slice split pack resize_nearest "
        "Slice Split Gather Resize DepthToSpace SpaceToDepth",
        "outputs real numbers; VTA computes on int8": "dequantize",
        "needs a lookup table, which VTA does not have": "logistic tanh hard_swish leaky_relu "
        "Sigmoid QLinearSigmoid HardSwish Gelu Erf",
        "needs lookup tables and a 16-bit cell state": "lstm",
        "scatters its products; VTA's compiler has loops that gather them": "transpose_conv2d",
        "multiplies codes of one tensor; VTA multiplies by weights": "product",
        "subtracts codes; VTA's compiler has a rule for additions": "sub",
        "needs variances, roots and a division": "LayerNormalization SkipLayerNormalization",
    }.items()
    for kind in kinds.split()
}


def lower(site: Site, context: Context) -> Lowered | str:
    """Return the layer that computes a node, or the reason why the host runs the node."""
    op = site.node.op
    config = context.config
    lowering = next((lowering for kind, lowering in LOWERINGS.items() if isinstance(op, kind)), None)
    if lowering is None:
        reason = REASONS.get(op.op_type if isinstance(op, OnnxOp) else op.kind)
        return f"{op.label} {reason}" if reason else OnnxOp.real(site) or f"VTA has no operation for {op.label}"
    if isinstance(op, Add | Mean | RealAveragePool2D) and not _requantises(context):
        return f"{op.label} rescales its operands; the ALU of alu={config.alu} has no rescaling multiplier"
    widths = config.inp.width, config.wgt.width
    if not set(widths) <= {4, 8}:
        return f"codes have 4 or 8 bits, but the machine has {widths[0]}-bit inputs, {widths[1]}-bit weights"
    x = site.input(0)
    if x.dtype not in CODE_DTYPES:
        reason = f"{op.label} of {x.dtype} ('{x.name}') is not supported"
        return reason if x.dtype.startswith("float") else f"{reason}; VTA multiplies int8"
    # The host can requantise sums to wider codes.
    computed = (*(end for end in site.inputs if end and end.quant and end.data is None), *site.outputs)
    wide = [end for end in computed if _is_wider(end, config)]
    if wide and not (isinstance(op, Linear) and wide == [site.output]):
        return f"'{wide[0].name}' has {wide[0].code_type} codes, but the machine has {widths[0]}-bit inputs"
    if x.data is not None:
        return f"the constant input '{x.name}' is not supported"
    # Operators that work on rows or single elements do not have the limits of images.
    is_image = len(x.shape) == 4 and not isinstance(op, FullyConnected | MatMul | Add | Mul | Quantize)
    if is_image and x.shape[0] != 1:
        return f"a batch of {x.shape[0]} in the model is not supported, only a batch of 1"
    if is_image and max(x.image[2], site.output.image[2]) > LARGEST_SIZE:
        return f"a row of its image has more than {LARGEST_SIZE} tiles, the limit of LOAD's x_stride"
    try:  # a node that the lowering refuses runs on the host, with this reason
        lowered = lowering(site, op, context)
    except TilewrightError as error:
        return error.reason
    channel = MODELS[context.timing].channel(config)
    if isinstance(lowered, str) or channel.answer < 0:
        return lowered
    return _by_group(lowered, max(1, channel.burst * channel.beat_bytes // config.out.tile_bytes))


def _by_group(lowered: Lowered, burst: int) -> Lowered:
    """Store sums for the host in the order of the groups: each burst waits for an answer of the memory.

    `burst`: the number of tiles in a burst.
    """
    by_group = 0 if lowered.layer.outputs_codes else burst
    alternatives = tuple(_by_group(form, burst) for form in lowered.alternatives)
    return replace(lowered, layer=replace(lowered.layer, by_group=by_group), alternatives=alternatives)


def _requantises(context: Context) -> bool:
    """Return whether the machine requantises: with a rescaling ALU, or by right shifts (`pow2`, no operation REQ)."""
    config = context.config
    return config.rescales or (context.rounding.elementwise == "pow2" and not config.has_parameters)


def _is_wider(tensor: Tensor, config: Config) -> bool:
    """Return whether a tensor's codes have more bits than the machine's inputs and results."""
    return config.inp.width < 8 and tensor.code_type != INT4


def _linear(site: Site, op: Linear, context: Context) -> Lowered | str:
    bias = site.optional(2)
    x = site.input(0)
    if bias is not None and bias.data is None:
        return f"the bias '{bias.name}' is computed; it must be constant"
    if site.input(1).dtype != "int8":
        return f"its weights are {site.input(1).dtype}; VTA multiplies int8"
    w, start = centred_weights(site, op)
    low, high = weight_limits(context.config)
    if w.min() < low or w.max() > high:
        return f"its weights minus their zero point do not fit int{context.config.wgt.width}"
    part = reduce_layer(site, w, start, context.proven)
    if isinstance(op, FullyConnected):
        return _matrix(site, op, part, x.size // w.shape[2], context, "rows of the input")
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    window = op.window
    pixels = prod(site.output.shape[1:3])
    if w.shape[2] == x.shape[3]:
        channels = part.w.shape[2]
        kernel = prod(window.kernel)
        block = context.config.block
        # A 1x1 window is a matrix product. With a stride, only the host can lay out the pixels that are read.
        if kernel == 1 and not any(window.padding) and (window.stride == (1, 1) or not context.single):
            what = "pixels" if window.stride == (1, 1) else "the pixels that its stride reads"
            matrix = _matrix(site, op, part, pixels, context, what)
            return _with_strips(site, op, matrix, part, window, context)
        # With few channels, im2col fills tiles that would be mostly zeros. im2col must need fewer tiles than there are
        # taps.
        if channels <= block // 2 and -(-kernel * channels // block) < kernel and not context.single:
            # Constant channels are not constant in the padding.
            padded = reduce_layer(site, w, start, None) if any(window.padding) else part
            patches = _matrix(site, op, padded, pixels, context, "patches (im2col)")
            return _with_strips(site, op, patches, part, window, context)
    return _with_strips(site, op, _spatial(site, op, part, window, context), part, window, context)


def _with_strips(
    site: Site, op: Linear, lowered: Lowered, part: ReducedLayer, window: Window, context: Context
) -> Lowered:
    """Add the best form in strips as an alternative to a lowered convolution, if this form may take fewer cycles."""
    if lowered.layer.outputs_codes or context.proven is None or context.single:
        return lowered
    config = context.config
    row_class, column_class, correction = _classes(site, part, window)
    clamped = narrow.windows(site, op, part, correction, context)
    if clamped is None and prod(window.kernel) == 1:
        return lowered
    part = clamped.part if clamped else part
    width = width_of(*part.sums, config)
    tables = correction, row_class, column_class, None, part.inputs, part.outputs
    forms = [
        Lowered(form.layer, form.tiles, *tables, form.strip)
        for form in strips.forms(site, part.w, part.start, window, width, config, split=clamped is not None)
    ]
    if clamped:
        forms = [clamped.narrowed(form, context) for form in forms]

    def cycles(form: Lowered) -> float:
        least = strips.least_cycles(form.layer, config)
        return least + (narrow.cycles(form.layer, context) if clamped else 0)

    best = min(forms, key=cycles, default=lowered)
    return replace(lowered, alternatives=(best,)) if cycles(best) < cycles(lowered) else lowered


def _matrix(site: Site, op: Linear, part: ReducedLayer, rows: int, context: Context, what: str) -> Lowered:
    """Lower a matrix product of `rows` input rows. The columns are taps x channels. `what` names the rows."""
    config = context.config
    wide = width_of(*part.sums, config)
    block = config.block
    # Sums need not be corrected by position: a matrix has no padding.
    correction = part.corrected(part.per_tap.sum(axis=1)[None, None])
    clamped = narrow.windows(site, op, part, correction, context)
    part = clamped.part if clamped else part
    w = part.w.reshape(len(part.w), 1, -1)
    fold = folded_rows(w, rows, config, context.single)
    width = -(-rows // (config.batch * fold.pixels))
    layer = Layer(
        matrix=True,
        size=(1, width),
        out=(1, width),
        in_tiles=-(-fold.weights.shape[2] // block),
        out_tiles=-(-fold.weights.shape[0] // block),
        planes=wide.planes,
        carries=wide.carries,
        fold=fold.pixels,
        packing=packing(what, config, True, fold.pixels),
    )
    start = np.zeros(fold.weights.shape[0], np.int64)
    tiles = tiles_of(fold.weights, start, layer, block)
    lowered = Lowered(layer, tiles, correction, inputs=part.inputs, outputs=part.outputs)
    return _finished(site, clamped.narrowed(lowered, context) if clamped else lowered, context)


def _classes(site: Site, part: ReducedLayer, window: Window) -> tuple[Array, Array, Array]:
    """Return the class of each output row and column (see classes_of), and the correction of the sums by class."""
    (row_class, rows), (column_class, columns) = classes_of(site.input(0).shape[1:3], site.output.shape[1:3], window)
    per_tap = part.per_tap.reshape(-1, *window.kernel)  # (O, KH, KW)
    correction = np.einsum("akb,ra,cb->rck", per_tap.transpose(1, 0, 2), rows, columns)
    return row_class, column_class, part.corrected(correction)


def _spatial(site: Site, op: Linear, part: ReducedLayer, window: Window, context: Context) -> Lowered:
    config = context.config
    row_class, column_class, correction = _classes(site, part, window)
    clamped = narrow.windows(site, op, part, correction, context)
    part = clamped.part if clamped else part
    w = part.w
    start = part.start
    channels = len(part.low)
    fold = folded_columns(w, start, channels, window, site.output.shape[2], config, context.single)
    layer = windowed(site, fold, channels, start, config, width_of(*part.sums, config))
    start = start if fold.pixels == 1 else np.zeros(fold.weights.shape[0], np.int64)
    tiles = tiles_of(fold.weights, start, layer, config.block)
    lowered = Lowered(layer, tiles, correction, row_class, column_class, None, part.inputs, part.outputs)
    return _finished(site, clamped.narrowed(lowered, context) if clamped else lowered, context)


def _finished(site: Site, lowered: Lowered, context: Context) -> Lowered:
    """Add requantisation on chip to a lowered layer. The layer is unchanged if the host requantises the sums."""
    op = site.node.op
    layer = lowered.layer
    assert isinstance(op, Linear)
    if context.rounding.elementwise == "pow2":
        on_chip = parameters.of_product_shift(site, op.activation, lowered.correction, layer, context.config)
    else:
        on_chip = parameters.of_linear(site, op, lowered, context.config, context.rounding)
    if on_chip is None or not context.requantises or _is_wider(site.output, context.config):
        return lowered
    residual = _residual(site, op, on_chip.requantisation, context.config) if op.residual(site) else None
    if residual is None and op.residual(site):
        return lowered  # the host adds the residual
    return lowered.requantised(on_chip, residual)


def _residual(site: Site, op: Linear, requantisation: Requantisation, config: Config) -> Residual | None:
    """Return how the machine adds a node's residual to the sums; None if this is not possible.

    GEMM adds codes times 2**lift with the weights 2**lift times the identity.
    """
    tensor = op.residual(site)
    lift = op.lift(site)
    if tensor is None or tensor.zero_point or tensor.dtype != "int8" or config.acc.width < SUM_BITS:
        return None
    largest = config.wgt.width - 2  # log2 of the largest power of two among the weights
    # The cheapest case: one micro-op per output tile.
    if lift <= largest:
        return Residual(lift, 0, None)
    # If the ALU shifts the sums right by t bits, the shift can be split without changing the result: shift by k bits,
    # add the codes times 2**(lift - k), shift by t - k bits. For k = t, the split takes one micro-op, too. For k = lift
    # < t, it takes one more right shift.
    shift = requantisation.immediates.shift if requantisation.immediates else None
    if shift is not None and config.stages == 3:  # one unit runs GEMM and ALU
        after = min(shift, lift)
        if lift - after <= largest:
            return Residual(lift - after, 0, after)
    # In all other cases the ALU shifts the codes left first.
    return Residual(largest, lift - largest, None) if lift <= largest + LARGEST_SHIFT else None


def _product(site: Site, op: MatMul, context: Context) -> Lowered | str:
    """Lower a product of two activations (matrices side by side, as channels), or return why the host runs it."""
    config = context.config
    block = context.config.block
    count, rows, depth, columns = matrices(site)
    if config.inp.width != config.wgt.width:
        return f"it multiplies codes, but the machine has {config.wgt.width}-bit weights, {config.inp.width}-bit inputs"
    if site.input(1).dtype not in CODE_DTYPES or site.output.dtype not in CODE_DTYPES:
        return f"its operands are {site.input(0).dtype} and {site.input(1).dtype}; VTA multiplies int8"
    sums = width_of(depth * CODE_MIN * CODE_MAX, depth * CODE_MIN * CODE_MIN, config)
    deep = -(-depth // block)
    wide = -(-columns // block)
    # The matrices are side by side, so an output channel tile reads only the input tiles of the same matrix.
    bands = tuple((matrix * deep, matrix * deep + deep) for matrix in range(count) for _ in range(wide))
    width = -(-rows // config.batch)
    layer = Layer(
        matrix=True,
        size=(1, width),
        out=(1, width),
        in_tiles=count * deep,
        out_tiles=count * wide,
        link="banded" if count > 1 else "dense",
        bands=bands if count > 1 else (),
        planes=sums.planes,
        carries=sums.carries,
        packing=packing(f"{count} matrices", config, True),
    )
    correction = np.zeros((1, 1, count * wide * block), np.int32)
    lowered = Lowered(layer, None, correction)
    centred = any(held_zero_point(site.input(index)) for index in (0, 1))
    if context.rounding.elementwise != "pow2" or centred or not context.requantises:
        return lowered
    requantised = parameters.of_product_shift(site, "none", correction, layer, config)
    return lowered.requantised(requantised) if requantised else lowered


def _maximum(site: Site, op: MaxPool2D, context: Context) -> Lowered:
    """Lower a maximum pool: identity weights copy the codes into accumulators, where the ALU compares them."""
    lowered = _pooled(site, op.window, context, None)
    out = site.output
    low, high = clamp_range(op.activation, out.scale, out.zero_point, out.code_type)
    offset = held_offset(out)
    clamp = None if (low, high) == code_limits(out.code_type) else (low - offset, high - offset)
    return replace(lowered, layer=replace(lowered.layer, kind="max", clamp=clamp))


def _sums(site: Site, op: AveragePool2D, context: Context) -> Lowered:
    """Lower an average pool to a layer that sums codes; the host divides the sums."""
    lowered = _pooled(site, op.window, context, 1)
    layer = lowered.layer
    height, width = lowered.layer.size
    if context.proven is None or op.window.kernel != (height, width) or any(op.window.padding) or height == 1:
        return lowered
    # A pool over the whole image has a second form, which treats image rows as input channel tiles. In this form, sums
    # begin when the first rows are loaded.
    rows = replace(
        layer,
        size=(layer.in_tiles, width),
        out=(layer.out_tiles, 1),
        in_tiles=height,
        out_tiles=1,
        link="dense",
        window=Window((1, width)),
        packing=f"{layer.packing}, row by row",
    )
    return replace(lowered, alternatives=(replace(lowered, layer=rows, transposed=True),))


def _average(site: Site, op: Mean | RealAveragePool2D, context: Context) -> Lowered | str:
    """Lower a mean to sums with one requantisation on chip, or return the reason why the host runs the mean."""
    shape = site.input(0).shape
    rounding = context.rounding
    shifts = rounding.elementwise == "pow2"
    # A mean over an image is a pool whose window is the image.
    if isinstance(op, Mean):
        if len(shape) != 4 or set(op.axes) != {1, 2}:
            return f"axes={list(op.axes)} of {list(shape)} is not supported; only a mean over rows and columns"
        window = Window((shape[1], shape[2]))
    elif not shifts:
        return "its onnxruntime arithmetic adds real numbers in float32, one after the other; VTA adds integers"
    elif any(op.window.padding) and not op.count_padding:
        return f"padding={list(op.window.padding)} is not supported for a mean: border windows hold fewer values"
    else:
        window = op.window
    if not context.requantises:
        return "its parameters do not fit the memory for parameters (par, or a quarter of acc)"
    count = prod(window.kernel)
    lowered = _pooled(site, window, context, mean_factor(count)[0] if shifts else 1)
    return lowered.requantised(parameters.of_average(site, count, lowered.layer, context.config, rounding))


def _upsample(site: Site, op: Upsample, context: Context) -> Lowered:
    lowered = _pooled(site, Window(), context, None)
    out = site.output.shape[1], site.output.shape[2]
    return replace(lowered, layer=replace(lowered.layer, kind="repeat", out=out, repeat=op.factors))


def _pooled(site: Site, window: Window, context: Context, factor: int | None) -> Lowered:
    """Lower a pool to a layer that sums code * `factor` in a window, or copies the codes if `factor` is None."""
    config = context.config
    shape = site.input(0).shape
    out = window.output_size(site.node.name, *shape[1:3])
    (row_class, rows), (column_class, columns) = classes_of(shape[1:3], out, window)
    taps = prod(window.kernel)
    channels = shape[3]
    if factor and factor > (largest := weight_limits(config)[1]):
        raise UnsupportedError("VTA", f"its factor {factor} is above {largest}, the machine's largest weight")
    width = width_of(taps * factor * CODE_MIN, taps * factor * CODE_MAX, config) if factor else Width(1, False)
    unfolded = Fold(1, np.broadcast_to(np.int32(1), (channels, taps, 1)), window)
    layer = windowed(site, unfolded, channels, np.arange(channels), config, width, out=out)
    tiles = (np.eye(config.block, dtype=np.int8) * np.int8(factor or 1))[None, None, None]
    correction = np.zeros((len(rows), len(columns), 1), np.int32)
    return Lowered(layer, tiles, correction, row_class, column_class)


#: The operators that VTA can run, depending on config and rounding mode, with the function that lowers each operator.
LOWERINGS: dict[type, Callable[[Site, Any, Context], Lowered | str]] = {
    Linear: _linear,
    MatMul: _product,
    MaxPool2D: _maximum,
    AveragePool2D: _sums,
    Mean: _average,
    RealAveragePool2D: _average,
    Upsample: _upsample,
    Add: add,
    Mul: rescale,
    Quantize: rescale,
}
