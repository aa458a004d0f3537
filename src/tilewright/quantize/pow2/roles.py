"""What shift-only integer arithmetic can do with each node, and why not where it cannot.

- product: sums of int8 products in int32 (Conv, Gemm, MatMul), bias, then a rounding shift;
- sum: an addition of two int8 tensors (a coarser one is shifted left first), then a rounding shift;
- average: a sum, times a factor of seven bits where it is not over a power of two of elements, then a rounding shift;
- keep: moves, selects or clamps codes (MaxPool, Reshape, Concat, Relu ...): one scale in and out;
- host: everything else, in float32 between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from onnx import NodeProto

from tilewright.quantize.network import Network, attribute, is_zero

Role = Literal["product", "sum", "average", "keep", "host"]

ACTIVATIONS = ("Relu", "Clip")
AVERAGES = ("GlobalAveragePool", "AveragePool", "ReduceMean")
#: Elements of an average: int32 holds their sum times its factor.
MOST = 1 << 16
KEEPING = (
    *ACTIVATIONS,
    "MaxPool",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Slice",
    "Gather",
    "Split",
    "DepthToSpace",
    "SpaceToDepth",
    "Tile",
    "Expand",
    "GlobalMaxPool",
)


def role(net: Network, node: NodeProto) -> tuple[Role, str]:
    """The role of a node, and for `host` the reason."""
    kind = node.op_type
    if not all(net.is_float(name) for name in node.output):
        return "host", f"{kind} does not give float32"
    if kind in ("Conv", "Gemm", "MatMul"):
        reason = _not_a_product(net, node)
        return ("host", reason) if reason else ("product", "")
    if kind == "Add":
        return "sum", ""
    if kind in AVERAGES:
        reason = _not_an_average(net, node)
        return ("host", reason) if reason else ("average", "")
    if kind == "Pad":
        zero = attribute(node, "mode", "constant") == "constant" and (
            len(node.input) < 3 or not node.input[2] or (net.is_constant(node.input[2]) and _zero(net, node.input[2]))
        )
        return ("keep", "") if zero else ("host", "Pad with other values than zero")
    if kind == "Resize":
        nearest = attribute(node, "mode", "nearest") == "nearest"
        return ("keep", "") if nearest else ("host", "Resize interpolates")
    if kind == "Concat" or kind in KEEPING:
        return "keep", ""
    return "host", f"{kind} is not made of sums, shifts and comparisons"


def data_inputs(net: Network, node: NodeProto) -> list[str]:
    """The inputs that carry activations: not weights, shapes, bounds or other settings."""
    kind = node.op_type
    if kind in ("Concat", "Add", "MatMul"):
        return [name for name in node.input if not (kind == "MatMul" and net.is_constant(name))]
    return list(node.input[:1])


def _zero(net: Network, name: str) -> bool:
    return is_zero([net.constant(name)])


def _not_a_product(net: Network, node: NodeProto) -> str:
    """Why a weighted node is no plain sum of products; empty where it is."""
    kind = node.op_type
    if kind == "MatMul":
        return "MatMul with constant left side" if net.is_constant(node.input[0]) else ""
    if not net.is_constant(node.input[1]):
        return f"{kind} with computed weights"
    if len(node.input) > 2 and node.input[2] and not net.is_constant(node.input[2]):
        return f"{kind} with a computed bias"
    if kind == "Gemm":
        if attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1 or attribute(node, "beta", 1.0) != 1:
            return "Gemm with transA, alpha or beta"
        if len(node.input) > 2 and node.input[2] and len(net.shape(node.input[2])) > 1:
            return "Gemm with a bias of two axes"
    return ""


def _not_an_average(net: Network, node: NodeProto) -> str:
    """Why an average is no sum of so many elements; empty where it is."""
    if node.op_type == "AveragePool":
        padded = any(attribute(node, "pads", [0])) or attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        if attribute(node, "ceil_mode", 0) or (padded and not attribute(node, "count_include_pad", 0)):
            return "AveragePool divides by less at the border"
    elif not all(net.shape(name) and all(net.shape(name)) for name in (node.input[0], node.output[0])):
        return f"{node.op_type} of an unknown number of elements"
    count = divisor(net, node)
    return f"{node.op_type} over {count} elements could overflow int32" if count > MOST else ""


def divisor(net: Network, node: NodeProto) -> int:
    """How many elements an `average` sums."""
    if node.op_type == "AveragePool":
        return prod(attribute(node, "kernel_shape"))
    return prod(net.shape(node.input[0])) // prod(net.shape(node.output[0]))
