"""Expresses convolutions over one, two or three axes as convolutions over images for the graph and the targets.

A 1-D input becomes an image with one row. A volume becomes one image per output depth. The channels of such an image
are the channels of all input depths that the window covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph import ops
from tilewright.graph.ops import Window
from tilewright.graph.rounding import Activation, Shift
from tilewright.graph.tensor import Quant, Tensor
from tilewright.model.onnx_build import Builder, Fused

#: Limit of kernel extents, strides, dilations and paddings.
LARGEST = 1 << 15
#: The number of axes before the spatial axes. A tensor has batch and channels, weights have output and input channels.
_OUTER = 2


def window_of(
    where: str, attributes: Mapping[str, Any], kernel: Sequence[int], size: Sequence[int], out: Sequence[int]
) -> Window:
    """Return the window of a convolution or pool that maps an image of `size` (rows, columns) to one of size `out`.

    Raises ModelError if an attribute has a wrong length or is out of range.
    """
    stride = _pair(where, attributes, "strides")
    dilation = _pair(where, attributes, "dilations")
    if len(kernel) != 2 or not all(1 <= extent <= LARGEST for extent in kernel):
        raise ModelError(where, f"has a kernel of shape {list(kernel)}; two extents of 1 to {LARGEST} are required")
    pads = [int(pad) for pad in attributes.get("pads", (0, 0, 0, 0))]
    auto = attributes.get("auto_pad", "NOTSET")
    if len(pads) != 4 or not all(0 <= pad <= LARGEST for pad in pads):
        raise ModelError(where, f"has the padding {pads[:8]}; four values of 0 to {LARGEST} are required")
    window = Window((kernel[0], kernel[1]), stride, dilation=dilation)
    # `pads` has the paddings before all axes, then the paddings after all axes.
    padding: list[int] = []
    for axis in (0, 1):
        before, after = (0, 0) if auto == "VALID" else pads[axis::2]
        # The number of positions by which the last window exceeds an image without padding.
        missing = max(0, (out[axis] - 1) * stride[axis] + window.extent[axis] - size[axis])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            before = (missing + (auto == "SAME_LOWER")) // 2
            after = missing - before
        elif attributes.get("ceil_mode", 0):
            # The size of the output is rounded up, so the last window may need more padding after the image.
            after = max(after, missing - before)
        padding += [before, after]
    return replace(window, padding=(padding[0], padding[1], padding[2], padding[3]))


def _pair(where: str, attributes: Mapping[str, Any], key: str) -> tuple[int, int]:
    values = attributes.get(key, (1, 1))
    if not isinstance(values, list | tuple) or len(values) != 2 or not all(1 <= v <= LARGEST for v in values):
        raise ModelError(where, f"has the {key} {values}; two values of 1 to {LARGEST} are required")
    return int(values[0]), int(values[1])


def convolve(builder: Builder, fused: Fused) -> bool:
    """Emit a Conv on codes; return False if the graph cannot express it. Raises ModelError for a wrong kernel_shape."""
    x, w = fused.inputs
    weights = builder.network.constants.get(w.tensor)
    shape = builder.shape(x.tensor)
    if weights is None or w.quant is None or weights.ndim not in (3, 4, 5) or len(shape) != weights.ndim:
        return False
    groups = fused.attributes.get("group", 1)
    outputs, depth = weights.shape[:2]
    # If weights have a scale per channel, these must be output channels. Otherwise a sum would mix several scales.
    if depth * groups != shape[1] or outputs % groups or (w.quant.per_channel and w.quant.axis != 0):
        return False
    kernel = fused.attributes.get("kernel_shape", weights.shape[_OUTER:])
    if tuple(kernel) != weights.shape[_OUTER:]:
        raise ModelError(fused.where, f"has a kernel of shape {list(kernel)} but its weights are {list(weights.shape)}")
    form = {3: _convolve_row, 4: _convolve_image, 5: _convolve_volume}[weights.ndim]
    form(builder, fused, builder.tensor_of(x), weights, builder.result(fused.outputs[0]))
    return True


def bias_and_residual(builder: Builder, fused: Fused, outputs: int, images: bool) -> tuple[str, ...]:
    """Return the names of a new int32 bias with one entry per output channel, and of the residual.

    If there is only a residual, the bias is "". With `images`, the residual is in channels-last layout.
    """
    data = builder.network.constants.get(fused.bias)
    bias = "" if data is None else builder.constant(f"{fused.bias}:bias", np.broadcast_to(data.reshape(-1), (outputs,)))
    if fused.residual is None:
        return (bias,) if bias else ()
    residual = builder.tensor_of(fused.residual)
    return bias, builder.nhwc(residual) if images else residual


def convolution_of(
    weights: Array, channels: int, window: Window, activation: Activation = "none", shift: Shift | None = None
) -> tuple[ops.Conv2D | ops.DepthwiseConv2D, Array]:
    """Return the graph's operator for weights (O, C / groups, KH, KW), and the weights in the axis order it needs."""
    if weights.shape[1] == 1 and channels > 1:
        return ops.DepthwiseConv2D(activation, window, shift=shift), weights.transpose(1, 2, 3, 0)
    return ops.Conv2D(activation, window, shift=shift), weights.transpose(0, 2, 3, 1)


def _convolve_image(builder: Builder, fused: Fused, x: str, weights: Array, out: Tensor) -> None:
    _, channels, *size = builder.tensors[x].shape
    outputs = len(weights)
    window = window_of(fused.where, fused.attributes, weights.shape[_OUTER:], size, out.shape[_OUTER:])
    quant = fused.inputs[1].quant
    assert isinstance(quant, Quant)
    op, weights = convolution_of(weights, channels, window, fused.activation)
    if quant.per_channel:
        quant = replace(quant, axis=3 if isinstance(op, ops.DepthwiseConv2D) else 0)
    filters = builder.constant(f"{fused.inputs[1].tensor}:{op.kind}", weights, quant)
    builder.emit_nhwc(fused.name, op, (x, filters, *bias_and_residual(builder, fused, outputs, images=True)), out)


def _convolve_row(builder: Builder, fused: Fused, x: str, weights: Array, out: Tensor) -> None:
    shape = builder.tensors[x].shape
    inner = replace(out, name=builder.fresh(f"{out.name}:image"), shape=(*out.shape[:2], 1, out.shape[2]))
    on_images = replace(fused, attributes=_along(fused.attributes, (None, 0), 1))
    _convolve_image(
        builder,
        on_images,
        builder.apply(x, "image", ops.Reshape((*shape[:2], 1, shape[2]))),
        weights[:, :, None],
        inner,
    )
    builder.emit(builder.fresh(f"{out.name}:row"), ops.Reshape(out.shape), (inner.name,), out)


def _convolve_volume(builder: Builder, fused: Fused, x: str, weights: Array, out: Tensor) -> None:
    # A volume (N, C, D, H, W) becomes N * (output depth) images, each with C * (kernel depth) channels.
    # For each output depth, gather the input planes that its window covers. Then merge the output depths into the batch
    # axis, and the planes of a window (the depth taps) into the channel axis.
    batch, channels, depths, height, width = builder.tensors[x].shape
    outputs, depth, taps = weights.shape[:3]
    slices = out.shape[2]
    window = window_of(fused.where, _along(fused.attributes, (0, None), 3), (taps, 1), (depths, 1), (slices, 1))
    around = ((0, 0), (0, 0), window.padding[:2], (0, 0), (0, 0))
    padded = builder.apply(x, "padded", ops.Pad(around)) if any(window.padding) else x
    indices = np.arange(slices)[:, None] * window.stride[0] + np.arange(taps) * window.dilation[0]
    depths_read = builder.constant(f"{fused.name}:depths", indices)
    gather = ops.OnnxOp("Gather", "", builder.network.opset, (("axis", "2"),))
    stacked = builder.apply(padded, "depths", gather, depths_read, shape=(batch, channels, slices, taps, height, width))
    by_slice = builder.apply(stacked, "slices", ops.Transpose((0, 2, 1, 3, 4, 5)))
    images = builder.apply(by_slice, "images", ops.Reshape((batch * slices, channels * taps, height, width)))
    inner = replace(out, name=builder.fresh(f"{out.name}:images"), shape=(batch * slices, outputs, *out.shape[3:]))
    on_images = replace(fused, attributes=_along(fused.attributes, (1, 2), 3))
    _convolve_image(builder, on_images, images, weights.reshape(outputs, depth * taps, *weights.shape[3:]), inner)
    volume = builder.apply(inner.name, "split", ops.Reshape((batch, slices, outputs, *out.shape[3:])))
    builder.emit(builder.fresh(f"{out.name}:volume"), ops.Transpose((0, 2, 1, 3, 4)), (volume,), out)


def _along(attributes: Mapping[str, Any], axes: tuple[int | None, ...], count: int) -> dict[str, Any]:
    """Return the attributes (strides, ...) of a window with `count` axes for some of these axes.

    In `axes`, None stands for a new axis of size 1.
    """
    window = {"auto_pad": attributes.get("auto_pad", "NOTSET")}
    for key in ("strides", "dilations"):
        values = attributes.get(key, [1] * count)
        window[key] = [1 if axis is None else values[axis] for axis in axes]
    pads = attributes.get("pads", [0] * 2 * count)
    if len(pads) != 2 * count:
        raise ModelError("", f"has the padding {list(pads)[:8]} over {count} axes; {2 * count} values are required")
    # ONNX lists the padding before each axis, and then the padding after each axis.
    window["pads"] = [0 if axis is None else pads[axis + side] for side in (0, count) for axis in axes]
    return window
