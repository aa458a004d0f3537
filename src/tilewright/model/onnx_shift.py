"""Integer networks in PULP's dialect: integers held in float32, requantised by the custom operator RequantShift.

The file gives no types: the input is read as uint8, weights as int8, sums as int32, and what a RequantShift writes
as int8 or uint8 by its attribute `signed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isfinite

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.graph.rounding import Shift
from tilewright.model.onnx_build import Builder
from tilewright.model.onnx_conv import filtering, window_of
from tilewright.model.onnx_file import CUSTOM, RawNode
from tilewright.model.onnx_values import Known

#: Codes are the integers themselves.
_PLAIN = Quant((1.0,), (0,))
MAX_MULTIPLIER, MAX_ADDEND = 1 << 31, 1 << 53


def is_integer(known: Known) -> bool:
    """Whether the model is in this dialect."""
    return any(node.op_type in CUSTOM for node in known.nodes)


def build(known: Known, name: str, inputs: tuple[str, ...]) -> Graph:
    """The graph of such a network. Raises UnsupportedError for operators that it cannot hold."""
    builder = Builder(known)
    for given in inputs:
        builder.tensors[given] = Tensor(given, builder.shape(given), "uint8", _PLAIN)
    sums: dict[str, RawNode] = {}
    readers = [given for node in known.nodes for given in node.inputs]
    for node in known.nodes:
        if node.op_type in ("Conv", "Gemm"):
            if readers.count(node.outputs[0]) != 1 or node.outputs[0] in known.outputs:
                raise UnsupportedError(node.where, "has a sum that is not read by one RequantShift alone")
            sums[node.outputs[0]] = node
        elif node.op_type not in _TRANSLATE:
            reason = f"{node.op_type} is not supported among RequantShift"
            raise UnsupportedError(
                node.where, reason, f"supported are {', '.join(sorted(('Conv', 'Gemm', *_TRANSLATE)))}"
            )
        elif node.op_type in CUSTOM and node.inputs[0] in sums:
            _linear(builder, sums.pop(node.inputs[0]), node)
        else:
            for given in node.inputs:
                if given in sums:
                    raise UnsupportedError(sums[given].where, "has a sum that no RequantShift reads")
            _TRANSLATE[node.op_type](builder, node)
    return builder.graph(name, inputs)


def _integers(builder: Builder, node: RawNode, name: str, low: int, high: int, dtype: str) -> Array:
    """A constant of whole numbers from low to high."""
    data = builder.constant_of(name)
    if data is None or data.dtype.kind not in "fiu":
        raise UnsupportedError(node.where, f"takes '{name}' at run time; a constant is supported")
    if not ((data >= low) & (data <= high)).all() or (data != np.floor(data)).any():
        raise UnsupportedError(node.where, f"has constants in '{name}' that are not integers from {low} to {high}")
    return data.astype(dtype)


def _requant(builder: Builder, node: RawNode) -> tuple[Shift, str, Array, Array]:
    """The rule of a RequantShift, its output type, multiplier and addend."""
    if len(node.inputs) < 3:
        raise ModelError(node.where, f"has {len(node.inputs)} inputs, not 3")
    levels, divisor = int(_number(node, "n_levels_out")), int(_number(node, "div"))
    signed = bool(_number(node, "signed"))
    if not 2 <= levels <= 256 or not 0 < divisor <= MAX_MULTIPLIER:
        raise UnsupportedError(
            node.where, f"has {levels} levels and the divisor {divisor}", "8-bit codes are supported"
        )
    shift = Shift(divisor, -(levels // 2), (levels + 1) // 2 - 1) if signed else Shift(divisor, 0, levels - 1)
    multiplier = _integers(builder, node, node.inputs[1], -MAX_MULTIPLIER, MAX_MULTIPLIER, "int64")
    addend = _integers(builder, node, node.inputs[2], -MAX_ADDEND, MAX_ADDEND, "int64")
    return shift, "int8" if signed else "uint8", multiplier, addend


def _number(node: RawNode, key: str) -> float:
    value = node.tensors[key].reshape(-1) if key in node.tensors else np.array([node.attributes.get(key, -1)])
    if value.size != 1 or value.dtype.kind not in "fiu" or not isfinite(value[0]) or value[0] != np.floor(value[0]):
        raise ModelError(node.where, f"has an attribute {key} that is not one whole number")
    return float(value[0])


def _result(builder: Builder, node: RawNode, dtype: str) -> Tensor:
    return Tensor(node.outputs[0], builder.shape(node.outputs[0]), dtype, _PLAIN if dtype != "int32" else None)


def _linear(builder: Builder, node: RawNode, requant: RawNode) -> None:
    """A convolution or product with the RequantShift that reads it."""
    shift, dtype, multiplier, addend = _requant(builder, requant)
    x, out = builder.value(node.inputs[0]), _result(builder, requant, dtype)
    weights = _integers(builder, node, node.inputs[1], -128, 127, "int8")
    outputs = out.shape[1] if len(out.shape) > 1 else 0
    op: ops.Linear
    if node.op_type == "Gemm":
        alike = all(node.attributes.get(key, 1.0) == 1.0 for key in ("alpha", "beta"))
        if weights.ndim != 2 or node.attributes.get("transA", 0) or not alike or len(out.shape) != 2:
            raise UnsupportedError(node.where, "is a product of an unsupported form")
        weights = weights if node.attributes.get("transB", 0) else weights.T
        op = ops.FullyConnected(shift=shift)
    else:
        shape = builder.tensors[x].shape
        if weights.ndim != 4 or len(shape) != 4:
            raise UnsupportedError(
                node.where, f"convolves {list(shape)} with {list(weights.shape)}; images are supported"
            )
        window = window_of(node.where, node.attributes, weights.shape[2:], shape[2:], out.shape[2:])
        op, weights = filtering(weights, shape[1], window, shift=shift)
    bias = ""
    if len(node.inputs) > 2 and node.inputs[2]:
        data = _integers(builder, node, node.inputs[2], -(1 << 31), (1 << 31) - 1, "int32").reshape(-1)
        if data.size not in (1, outputs):
            raise ModelError(node.where, f"has {data.size} biases for {outputs} outputs")
        bias = builder.constant(f"{node.inputs[2]}:bias", np.broadcast_to(data, (outputs,)))
    factors = []
    for name, data in zip(requant.inputs[1:3], (multiplier, addend), strict=True):
        if data.size not in (1, outputs) or (data.size > 1 and max(data.shape) != data.size):
            raise ModelError(requant.where, f"has {data.size} factors for {outputs} channels")
        factors.append(builder.constant(f"{name}:{requant.name}", data.reshape(-1)))
    inputs = (x, builder.constant(f"{node.inputs[1]}:{op.kind}", weights, _PLAIN), bias, *factors)
    if node.op_type == "Gemm":
        builder.emit(node.name, op, inputs, out)
    else:
        builder.emit_nhwc(node.name, op, inputs, out)


def _alone(builder: Builder, node: RawNode) -> None:
    shift, dtype, multiplier, addend = _requant(builder, node)
    factors = (
        builder.constant(f"{name}:{node.name}", data)
        for name, data in zip(node.inputs[1:3], (multiplier, addend), strict=True)
    )
    op = ops.RequantShift(shift)
    builder.emit(node.name, op, (builder.value(node.inputs[0]), *factors), _result(builder, node, dtype))


def _add(builder: Builder, node: RawNode) -> None:
    names = []
    for name in node.inputs:
        if builder.constant_of(name) is None:
            names.append(builder.value(name))
        else:
            whole = _integers(builder, node, name, -(1 << 31), (1 << 31) - 1, "int32")
            names.append(builder.constant(f"{name}:{node.name}", whole))
    builder.emit(node.name, ops.IntegerAdd(), names, _result(builder, node, "int32"))


def _max(builder: Builder, node: RawNode) -> None:
    x = builder.tensors[builder.value(node.inputs[0])]
    if len(x.shape) != 4 or len(node.outputs) > 1:
        raise UnsupportedError(node.where, f"pools over {list(x.shape)}; images are supported")
    out = _result(builder, node, x.dtype)
    window = window_of(node.where, node.attributes, node.attributes.get("kernel_shape", ()), x.shape[2:], out.shape[2:])
    builder.emit_nhwc(node.name, ops.MaxPool2D(window), (x.name,), out)


def _same(builder: Builder, node: RawNode) -> None:
    x = builder.tensors[builder.value(node.inputs[0])]
    out = replace(x, name=node.outputs[0], shape=builder.shape(node.outputs[0]), data=None)
    builder.emit(node.name, ops.Reshape(out.shape), (x.name,), out)


_TRANSLATE: dict[str, Callable[[Builder, RawNode], None]] = {
    "Add": _add,
    "MaxPool": _max,
    "RequantShift": _alone,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"), _same),
}
