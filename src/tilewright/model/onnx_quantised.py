"""Translates operators on codes to the graph's operators. Other operators become onnxruntime's QLinear operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from tilewright.graph import ops, ort
from tilewright.graph.ort import MICROSOFT
from tilewright.graph.tensor import INT4, Quant, code_limits
from tilewright.model.onnx_build import MOVES, SAME, Builder, Fused, is_unscaled, one_scale, padding_of
from tilewright.model.onnx_conv import bias_and_residual, convolve, window_of
from tilewright.model.onnx_file import as_json
from tilewright.model.onnx_fuse import QOPERATORS


def translate(builder: Builder, fused: Fused) -> None:
    """Emit the graph's nodes for a fused operator. If it must compute reals, add it to `builder.refused` instead."""
    before = len(builder.nodes)
    native = _NATIVE.get(fused.op_type)
    if native and native(builder, fused):
        applied = [getattr(node.op, "activation", "none") for node in builder.nodes[before:]]
        if fused.activation not in (*applied, "none"):
            builder.clamp(fused.name, fused.outputs[0].tensor, fused.activation)
    elif fused.op_type not in MOVES and (builder.network.rounding == "pow2" or _is_narrow(builder, fused)):
        # onnxruntime's kernels on codes round ties to even and have no activation, so `pow2` cannot use them. Nor do
        # they clamp to 4 bits.
        builder.refused.add(fused.name)
    else:
        _by_onnxruntime(builder, fused)


def _is_narrow(builder: Builder, fused: Fused) -> bool:
    return any(builder.network.dtype(coded.tensor) == INT4 for coded in (*fused.inputs, *fused.outputs))


def _product(builder: Builder, fused: Fused) -> bool:
    """Emit a product by a constant matrix, or a MatMul of two computed matrices. Return False for other products."""
    x, w = fused.inputs
    weights = builder.network.constants.get(w.tensor)
    attributes = fused.attributes
    if weights is None and _by_matrices(builder, fused):
        builder.emit(
            fused.name, ops.MatMul(), [builder.tensor_of(x), builder.tensor_of(w)], builder.result(fused.outputs[0])
        )
        return True
    rank = builder.network.rank(x.tensor)
    if fused.outputs[0].quant is None or weights is None or weights.ndim != 2 or w.quant is None or rank < 2:
        return False
    # Weights are (O, K) in the graph and in a Gemm with transB, and (K, O) otherwise.
    rows = fused.op_type == "Gemm" and attributes.get("transB", 0)
    if attributes.get("transA", 0) or not is_unscaled(fused):
        return False
    if w.quant.per_channel and w.quant.axis != (0 if rows else 1):
        return False
    weights = weights if rows else weights.T
    bias = builder.network.constants.get(fused.bias)
    if bias is not None and (bias.size not in (1, weights.shape[0]) or bias.shape[-1:] not in ((), (1,), (bias.size,))):
        return False
    matrix = builder.constant(f"{w.tensor}:fully_connected", weights, replace(w.quant, axis=0))
    inputs = (builder.tensor_of(x), matrix, *bias_and_residual(builder, fused, weights.shape[0], images=False))
    op = ops.FullyConnected(fused.activation, keep_dims=rank != 2)
    builder.emit(fused.name, op, inputs, builder.result(fused.outputs[0]))
    return True


def _by_matrices(builder: Builder, fused: Fused) -> bool:
    a, b = (builder.shape(coded.tensor) for coded in fused.inputs)
    same_leading = len(a) == len(b) >= 2 and a[:-2] == b[:-2]
    single = all(one_scale(builder.network, coded) for coded in (*fused.inputs, *fused.outputs))
    return fused.op_type == "MatMul" and same_leading and single


def _binary(builder: Builder, fused: Fused) -> bool:
    # Swap the operands if onnxruntime's kernel does, because the order affects the rounding.
    inputs = [builder.tensor_of(coded) for coded in fused.inputs]
    if _scalar_first(*(builder.shape(coded.tensor) for coded in fused.inputs)):
        inputs.reverse()
    op = {"Add": ops.Add, "Mul": ops.Mul}[fused.op_type](fused.activation)
    builder.emit(fused.name, op, inputs, builder.result(fused.outputs[0]))
    return True


def _scalar_first(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    # onnxruntime swaps the operands if its inner loop broadcasts the first operand, which has the shape `a`.
    inner = (pair for pair in zip_longest(a[::-1], b[::-1], fillvalue=1) if max(pair) > 1)
    return next(inner, (0, 0))[0] == 1


def _concat(builder: Builder, fused: Fused) -> bool:
    out = fused.outputs[0]
    names = []
    for coded in fused.inputs:
        name = builder.tensor_of(coded)
        if coded.quant != out.quant:
            name = builder.apply(name, "rescaled", ops.Quantize(), quant=out.quant)
        names.append(name)
    axis = int(fused.attributes.get("axis", 1)) % max(1, builder.network.rank(out.tensor))
    builder.emit(fused.name, ops.Concat(axis), names, builder.result(out))
    return True


def _unary(builder: Builder, fused: Fused, op: ops.Op, images: bool = False) -> bool:
    emit = builder.emit_nhwc if images else builder.emit
    out = builder.result(fused.outputs[0])
    emit(fused.name, op, (builder.tensor_of(fused.inputs[0]),), out)
    return True


def _window(builder: Builder, fused: Fused) -> ops.Window:
    x, out = (builder.shape(end.tensor) for end in (fused.inputs[0], fused.outputs[0]))
    attributes = fused.attributes
    return window_of(fused.where, attributes, attributes.get("kernel_shape", ()), x[2:], out[2:])


def _average(builder: Builder, fused: Fused) -> bool:
    shape = builder.shape(fused.inputs[0].tensor)
    attributes = fused.attributes
    if len(shape) != 4 or attributes.get("channels_last", 0) or attributes.get("ceil_mode", 0):
        return False
    height, width = shape[2:]
    everything = fused.op_type == "GlobalAveragePool"
    window = ops.Window((height, width)) if everything else _window(builder, fused)
    op: ops.Op = ops.RealAveragePool2D(window, bool(attributes.get("count_include_pad", 0)))
    if not any(window.padding):
        if builder.network.rounding == "tflm" and fused.inputs[0].quant == fused.outputs[0].quant:
            op = ops.AveragePool2D(window)  # TFLite Micro's
        elif window.kernel == (height, width):
            op = ops.Mean((1, 2), True)  # onnxruntime's global pool has another kernel, which rounds differently
    return _unary(builder, fused, op, True)


def _softmax(builder: Builder, fused: Fused) -> bool:
    """Emit TFLite Micro's softmax. Return False if the mode is not `tflm`, or if it has another scale or axis."""
    out = fused.outputs[0].quant
    rank = builder.network.rank(fused.inputs[0].tensor)
    last = _softmax_axis(builder, fused) in (-1, rank - 1)
    fits = builder.network.rounding == "tflm" and last and out == Quant((1 / 256,), (-128,))
    return fits and _unary(builder, fused, ops.Softmax(1.0))


def _softmax_axis(builder: Builder, fused: Fused) -> int:
    return int(fused.attributes.get("axis", -1 if builder.network.opset >= 13 else 1))


def _mean(builder: Builder, fused: Fused) -> bool:
    shape = builder.shape(fused.inputs[0].tensor)
    out = builder.result(fused.outputs[0])
    constant = builder.network.constants.get(fused.other_inputs[0]) if fused.other_inputs else None
    axes = fused.attributes.get("axes", ()) if constant is None else constant.tolist()
    keeps_axes = bool(fused.attributes.get("keepdims", 1))
    axes_in_order = tuple(sorted(int(axis) % len(shape) for axis in axes)) or tuple(range(len(shape)))
    if len(shape) != 4 or axes_in_order != (2, 3):
        return _unary(builder, fused, ops.Mean(axes_in_order, keeps_axes))
    # The mean of an image is an NHWC operator, which keeps all axes. A Reshape removes the two axes if necessary.
    image = replace(out, name=out.name if keeps_axes else builder.fresh(f"{out.name}:image"), shape=(*shape[:2], 1, 1))
    builder.emit_nhwc(fused.name, ops.Mean((1, 2), True), (builder.tensor_of(fused.inputs[0]),), image)
    if not keeps_axes:
        builder.emit(builder.fresh(f"{out.name}:flat"), ops.Reshape(out.shape), (image.name,), out)
    return True


def _max(builder: Builder, fused: Fused) -> bool:
    if len(builder.shape(fused.inputs[0].tensor)) != 4 or len(fused.outputs) != 1:
        return False
    return _unary(builder, fused, ops.MaxPool2D(_window(builder, fused)), True)


def _same(builder: Builder, fused: Fused) -> bool:
    return _unary(builder, fused, ops.Reshape(builder.shape(fused.outputs[0].tensor)))


def _transpose(builder: Builder, fused: Fused) -> bool:
    rank = builder.network.rank(fused.inputs[0].tensor)
    return _unary(builder, fused, ops.Transpose(tuple(fused.attributes.get("perm", range(rank)[::-1]))))


def _pad(builder: Builder, fused: Fused) -> bool:
    """Emit a Pad with a constant value, as a Pad with the code of this value. Return False for other forms of Pad."""
    quant = fused.inputs[0].quant
    padding = padding_of(builder.network, fused)
    if fused.attributes.get("mode", "constant") != "constant" or quant is None or padding is None:
        return False
    pairs, value = padding
    low, high = code_limits(builder.network.dtype(fused.outputs[0].tensor))
    rounded = np.rint(np.float32(value) / np.float32(quant.scale[0]))
    code = int(np.clip(rounded + quant.zero_point[0], low, high))
    return _unary(builder, fused, ops.Pad(pairs, code))


def _resize(builder: Builder, fused: Fused) -> bool:
    """Emit a Resize that only repeats pixels; return False for other forms of Resize."""
    shape = builder.shape(fused.inputs[0].tensor)
    out = builder.result(fused.outputs[0])
    if (
        len(shape) != 4
        or out.shape[:2] != shape[:2]
        or 0 in shape
        or not builder.network.are_constant(fused.other_inputs)
    ):
        return False
    factors = out.shape[2] // shape[2], out.shape[3] // shape[3]
    if (factors[0] * shape[2], factors[1] * shape[3]) != out.shape[2:]:
        return False
    # Resize has too many modes to compute the source of each pixel here. Instead, onnxruntime resizes an image in which
    # each pixel has its own index as its value. Each pixel of the result then shows the index of its source.
    constants = {1 + i: builder.network.constants[name] for i, name in enumerate(fused.other_inputs) if name}
    types = [ort.type_of(constants[1 + i]) if name else None for i, name in enumerate(fused.other_inputs)]
    pixels = np.broadcast_to(np.arange(shape[2] * shape[3], dtype=np.float32).reshape(shape[2:]), shape)
    inputs = (ort.type_of(pixels), *types)
    attributes = as_json(fused.attributes)
    call = ort.Call(fused.name, "Resize", "", builder.network.opset, attributes, inputs, 1)
    result = ort.ValueType("float32", out.shape)
    (resized,) = ort.run(call, (result,), [pixels, *(None for _ in types)], constants)
    if not np.array_equal(resized, pixels.repeat(factors[0], axis=2).repeat(factors[1], axis=3)):
        return False
    return _unary(builder, fused, ops.Upsample(factors), True)


def _requantize(builder: Builder, fused: Fused) -> bool:
    if fused.inputs[0].quant == fused.outputs[0].quant:
        return _same(builder, fused)
    return _unary(builder, fused, ops.Quantize())


_NATIVE: dict[str, Callable[[Builder, Fused], bool]] = {
    "Conv": convolve,
    "Gemm": _product,
    "MatMul": _product,
    "Add": _binary,
    "Mul": _binary,
    "Concat": _concat,
    "AveragePool": _average,
    "GlobalAveragePool": _average,
    "ReduceMean": _mean,
    "MaxPool": _max,
    "Transpose": _transpose,
    "Pad": _pad,
    "Requantize": _requantize,
    "Resize": _resize,
    "Softmax": _softmax,
    **dict.fromkeys(SAME, _same),
}
#: For each operator: onnxruntime's operator on codes, and whether the bias precedes the output's scale.
_QLINEAR = {op_type: (name, bias is not None and bias < out) for name, (op_type, _, out, bias) in QOPERATORS.items()}
#: QLinear operators of standard ONNX. All others are in onnxruntime's domain.
_STANDARD = ("QLinearConv", "QLinearMatMul")


def _by_onnxruntime(builder: Builder, fused: Fused) -> None:
    outputs = [builder.result(coded) for coded in fused.outputs]
    opset = builder.network.opset
    attributes = dict(fused.attributes)
    if fused.op_type not in _QLINEAR:
        inputs = [builder.tensor_of(fused.inputs[0]), *(builder.value(name) for name in fused.other_inputs)]
        op = ops.OnnxOp(fused.op_type, "", opset, as_json(attributes))
        builder.emit(fused.name, op, inputs, *outputs)
        return
    op_type, bias_first = _QLINEAR[fused.op_type]
    domain = "" if op_type in _STANDARD else MICROSOFT
    if fused.op_type == "Softmax":
        attributes |= {"opset": opset, "axis": _softmax_axis(builder, fused)}
    attributes.pop("beta", None)  # QGemm has no such attribute
    inputs = [name for coded in fused.inputs for name in (builder.tensor_of(coded), *builder.scalars(coded))]
    bias = [builder.value(fused.bias)] if fused.bias else []
    if fused.outputs[0].quant is not None:
        ends = builder.scalars(fused.outputs[0])
        inputs += [*(bias or [""]), *ends] if bias_first else [*ends, *bias]
    elif fused.op_type == "Gemm":  # without an output scale, the results of QGemm are real numbers
        inputs += bias
    else:
        op_type = "MatMulIntegerToFloat"
        domain = MICROSOFT
        attributes = {}
        inputs = [*inputs[::3], *inputs[1::3], *inputs[2::3]]
    builder.emit(fused.name, ops.OnnxOp(op_type, domain, opset, as_json(attributes)), inputs, *outputs)
