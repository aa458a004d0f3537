"""Imports integer networks in PULP's dialect of ONNX: float32 holds integers, and RequantShift requantises them.

The file does not contain the types of the integers. Inputs are read as uint8, weights as int8 and sums as int32. The
output of a RequantShift is int8 or uint8, depending on its attribute `signed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isfinite

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import ops
from tilewright.graph.ir import Graph
from tilewright.graph.rounding import Shift
from tilewright.graph.tensor import Quant, Tensor
from tilewright.model.onnx_build import Builder, is_unscaled
from tilewright.model.onnx_conv import convolution_of, window_of
from tilewright.model.onnx_file import CUSTOM, RawNode
from tilewright.model.onnx_values import OnnxNetwork

#: The quantisation of integers that are their own codes.
_PLAIN = Quant((1.0,), (0,))
#: The largest magnitude of multipliers and divisors, and the largest magnitude of addends.
MAX_MULTIPLIER = 1 << 31
MAX_ADDEND = 1 << 53
#: The range and type of sums and addends.
INT32 = -(1 << 31), (1 << 31) - 1, "int32"


def build(network: OnnxNetwork, name: str, inputs: tuple[str, ...]) -> Graph:
    """Return the graph of a network in PULP's dialect. Raises UnsupportedError if an operator is not supported."""
    builder = Builder(network)
    for title in inputs:
        builder.tensors[title] = Tensor(title, builder.shape(title), "uint8", _PLAIN)
    # A Conv or Gemm and its RequantShift become one node. `sums` has the Convs and Gemms before their RequantShift.
    sums: dict[str, RawNode] = {}
    for node in network.nodes:
        if node.op_type in ("Conv", "Gemm"):
            reader = network.only_reader(node.outputs[0])
            node.refuse_if(not reader, "has a result that is not read by exactly one node, a RequantShift")
            sums[node.outputs[0]] = node
        elif node.op_type not in _TRANSLATE:
            remedy = f"supported are {', '.join(sorted(('Conv', 'Gemm', *_TRANSLATE)))}"
            raise UnsupportedError(node.where, f"{node.op_type} is not supported in a model with RequantShift", remedy)
        elif node.op_type in CUSTOM and node.inputs[0] in sums:
            _linear(builder, sums.pop(node.inputs[0]), node)
        else:
            for product in map(sums.get, node.inputs):
                if product:
                    product.refuse_if(True, f"has a result that {node.op_type} reads; only RequantShift may read it")
            _TRANSLATE[node.op_type](builder, node)
    return builder.graph(name, inputs)


def _integers(builder: Builder, node: RawNode, name: str, low: int, high: int, dtype: str) -> Array:
    """Return the constant `name`. Raises UnsupportedError if it is not constant, or not integers in `low`..`high`."""
    data = builder.network.constants.get(name)
    if data is None or data.dtype.kind not in "fiu":
        raise UnsupportedError(node.where, f"takes '{name}' at run time; only constant numbers are supported")
    if not ((data >= low) & (data <= high)).all() or (data != np.floor(data)).any():
        raise UnsupportedError(node.where, f"has constants in '{name}' that are not integers from {low} to {high}")
    return data.astype(dtype)


def _requant(builder: Builder, node: RawNode) -> tuple[Shift, str, list[tuple[str, Array]]]:
    """Return the rule of a RequantShift, its output type, and its multiplier and addend as (name, values)."""
    node.fail_if(len(node.inputs) < 3, f"has {len(node.inputs)} inputs; a RequantShift has 3")
    levels, divisor, signed = (_number(node, key) for key in ("n_levels_out", "div", "signed"))
    if not 2 <= levels <= 256 or not 0 < divisor <= MAX_MULTIPLIER:
        remedy = f"2 to 256 levels and divisors of 1 to {MAX_MULTIPLIER} are supported"
        raise UnsupportedError(node.where, f"has {levels} levels and the divisor {divisor}", remedy)
    shift = Shift(divisor, -(levels // 2), (levels + 1) // 2 - 1) if signed else Shift(divisor, 0, levels - 1)
    limits = zip(node.inputs[1:3], (MAX_MULTIPLIER, MAX_ADDEND), strict=True)
    factors = [(f"{name}:{node.name}", _integers(builder, node, name, -most, most, "int64")) for name, most in limits]
    return shift, "int8" if signed else "uint8", factors


def _number(node: RawNode, key: str) -> int:
    value = node.tensors[key].reshape(-1) if key in node.tensors else np.array([node.attributes.get(key, -1)])
    if value.size != 1 or value.dtype.kind not in "fiu" or not isfinite(value[0]) or value[0] != np.floor(value[0]):
        raise ModelError(node.where, f"has an attribute {key} that is not one whole number")
    return int(value[0])


def _result(builder: Builder, node: RawNode, dtype: str) -> Tensor:
    return Tensor(node.outputs[0], builder.shape(node.outputs[0]), dtype, _PLAIN if dtype != "int32" else None)


def _linear(builder: Builder, node: RawNode, requant: RawNode) -> None:
    shift, dtype, factors = _requant(builder, requant)
    x = builder.value(node.inputs[0])
    out = _result(builder, requant, dtype)
    weights = _integers(builder, node, node.inputs[1], -128, 127, "int8")
    outputs = out.shape[1] if len(out.shape) > 1 else 0
    op: ops.Linear
    if node.op_type == "Gemm":
        plain = weights.ndim == len(out.shape) == 2 and not node.attributes.get("transA", 0) and is_unscaled(node)
        remedy = "matrices, transA=0, alpha=1 and beta=1 are supported"
        node.refuse_if(not plain, "is a Gemm of an unsupported form", remedy)
        # In the graph, weights are (O, K).
        weights = weights if node.attributes.get("transB", 0) else weights.T
        op = ops.FullyConnected(shift=shift)
    else:
        shape = builder.tensors[x].shape
        reason = f"convolves {list(shape)} with {list(weights.shape)}; only images (four axes) are supported"
        node.refuse_if(weights.ndim != 4 or len(shape) != 4, reason)
        window = window_of(node.where, node.attributes, weights.shape[2:], shape[2:], out.shape[2:])
        op, weights = convolution_of(weights, shape[1], window, shift=shift)
    bias = ""
    if node.input(2):
        data = _integers(builder, node, node.inputs[2], *INT32).reshape(-1)
        node.fail_if(data.size not in (1, outputs), f"has {data.size} biases for {outputs} output channels")
        bias = builder.constant(f"{node.inputs[2]}:bias", np.broadcast_to(data, (outputs,)))
    for _, data in factors:
        wrong = data.size not in (1, outputs) or (data.size > 1 and max(data.shape) != data.size)
        requant.fail_if(wrong, f"has {data.size} multipliers or addends for {outputs} output channels")
    rule = [builder.constant(name, data.reshape(-1)) for name, data in factors]
    inputs = (x, builder.constant(f"{node.inputs[1]}:{op.kind}", weights, _PLAIN), bias, *rule)
    emit = builder.emit if node.op_type == "Gemm" else builder.emit_nhwc
    emit(node.name, op, inputs, out)


def _alone(builder: Builder, node: RawNode) -> None:
    shift, dtype, factors = _requant(builder, node)
    inputs = (builder.value(node.inputs[0]), *(builder.constant(name, data) for name, data in factors))
    builder.emit(node.name, ops.RequantShift(shift), inputs, _result(builder, node, dtype))


def _add(builder: Builder, node: RawNode) -> None:
    names = []
    for name in node.inputs:
        if name in builder.network.constants:
            names.append(builder.constant(f"{name}:{node.name}", _integers(builder, node, name, *INT32)))
        else:
            names.append(builder.value(name))
    builder.emit(node.name, ops.IntegerAdd(), names, _result(builder, node, "int32"))


def _max(builder: Builder, node: RawNode) -> None:
    x = builder.tensors[builder.value(node.inputs[0])]
    images = len(x.shape) == 4 and len(node.outputs) == 1
    node.refuse_if(not images, f"pools over {list(x.shape)}; only images (four axes) are supported")
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
