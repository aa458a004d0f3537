"""Decides which nodes run in integers, which tensors are int8, and which tensors share a scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from onnx import NodeProto

from tilewright.model.onnx_values import ACTIVATIONS, JOINED
from tilewright.quantize.model import Network, attribute, is_padded, operand, title
from tilewright.quantize.names import Groups

#: The role of a node in integer arithmetic with shifts only:
#: - product: sums of int8 products in int32 (Conv, Gemm, MatMul), bias, perhaps a residual, then a rounding shift;
#: - sum: an addition of two int8 tensors (the coarser tensor is shifted left first), then a rounding shift;
#: - average: a sum, times a seven-bit factor unless the number of elements is a power of two, then a rounding shift;
#: - keep: moves, selects or clamps codes (MaxPool, Reshape, Concat, Relu ...) with the same scale in and out;
#: - host: everything else, in float32 between DequantizeLinear and QuantizeLinear.
Role = Literal["product", "sum", "average", "keep", "host"]

AVERAGES = ("GlobalAveragePool", "AveragePool", "ReduceMean")
#: Up to this number of elements of an average, the product of their sum and its factor fits int32.
MOST = 1 << 16
MOVING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "DepthToSpace", "SpaceToDepth", "Pad")
SELECTING = ("MaxPool", "GlobalMaxPool", "Slice", "Gather", "Split", "Concat", "Tile", "Expand", "Resize")
#: The role of each operator. The host runs other operators, and nodes that shifts cannot compute.
ROLES: dict[str, Role] = {
    **dict.fromkeys(("Conv", "Gemm", "MatMul"), "product"),
    "Add": "sum",
    **dict.fromkeys(AVERAGES, "average"),
    **dict.fromkeys((*ACTIVATIONS, *MOVING, *SELECTING), "keep"),
}


def role(net: Network, node: NodeProto) -> tuple[Role, str]:
    """Return the role of a node, and the reason if the role is "host" (else "")."""
    kind = node.op_type
    if not all(net.is_float(name) for name in node.output):
        return "host", f"{kind} does not give float32"
    if endless := net.unbounded.intersection((*node.input, *node.output)):
        return "host", f"{kind} reads or writes '{min(endless)}', which holds infinity or NaN"
    if kind not in ROLES:
        return "host", f"{kind} is not made of sums, shifts and comparisons"
    refuses = {"product": _not_a_product, "average": _not_an_average, "keep": _changes_codes}.get(ROLES[kind])
    reason = refuses(net, node) if refuses else ""
    return ("host", reason) if reason else (ROLES[kind], "")


def data_inputs(net: Network, node: NodeProto) -> list[str]:
    """Return the activations that a node reads, without weights, shapes, bounds or other settings."""
    kind = node.op_type
    if kind in ("Concat", "Add", "MatMul"):
        return [name for name in node.input if not (kind == "MatMul" and net.is_constant(name))]
    return list(node.input[:1])


def _changes_codes(net: Network, node: NodeProto) -> str:
    """Return why a node computes new codes, or "" if it only moves or selects codes."""
    if node.op_type == "Pad":
        value = operand(node, 2)
        zero = not value or (net.is_constant(value) and not net.constant(value).any())
        if attribute(node, "mode", "constant") != "constant" or not zero:
            return "Pad with other values than zero"
    if node.op_type == "Resize" and attribute(node, "mode", "nearest") != "nearest":
        return "Resize interpolates"
    return ""


def _not_a_product(net: Network, node: NodeProto) -> str:
    """Return why a node is not a plain sum of products with an optional bias, or "" if it is one."""
    kind = node.op_type
    bias = operand(node, 2)
    if kind == "MatMul":
        return "MatMul with a constant left operand" if net.is_constant(node.input[0]) else ""
    if not net.is_constant(node.input[1]):
        return f"{kind} with computed weights"
    if bias and not net.is_constant(bias):
        return f"{kind} with a computed bias"
    if kind == "Gemm":
        if attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1 or attribute(node, "beta", 1.0) != 1:
            # alpha and beta would scale products and bias differently.
            return "Gemm with transA, alpha or beta"
        if bias and len(net.shape(bias)) > 1:
            return "Gemm with a two-dimensional bias"
    return ""


def _not_an_average(net: Network, node: NodeProto) -> str:
    """Return why a node does not divide all sums by the same known number, or "" if it does."""
    if node.op_type == "AveragePool":
        if attribute(node, "ceil_mode", 0) or (is_padded(node) and not attribute(node, "count_include_pad", 0)):
            return "AveragePool divides by fewer elements at the border"
    elif not all(net.shape(name) and all(net.shape(name)) for name in (node.input[0], node.output[0])):
        return f"{node.op_type} of an unknown number of elements"
    count = divisor(net, node)
    return f"{node.op_type} over {count} elements could overflow int32" if count > MOST else ""


def divisor(net: Network, node: NodeProto) -> int:
    if node.op_type == "AveragePool":
        return prod(attribute(node, "kernel_shape"))
    return prod(net.shape(node.input[0])) // prod(net.shape(node.output[0]))


@dataclass(frozen=True, eq=False)
class Step:
    """A node and its fused nodes: an Add of a residual to the sums (`addition`), then a Relu or Clip (`activation`)."""

    node: NodeProto
    role: Role
    activation: NodeProto | None
    #: The activations that the node reads, without the residual.
    inputs: tuple[str, ...]
    #: The results of the last fused node.
    outputs: tuple[str, ...]
    reason: str = ""  # for the role "host"
    addition: NodeProto | None = None
    residual: str = ""
    #: Names of the constants of a product. `weights` is empty if both operands are activations.
    weights: str = ""
    bias: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.inputs, self.residual) if self.residual else self.inputs

    @property
    def name(self) -> str:
        return title(self.node)


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps in graph order. `group` maps the int8 tensors that must share a scale to one tensor of their group."""

    net: Network
    steps: tuple[Step, ...]
    group: dict[str, str]


def plan(net: Network, residuals: bool = True, equal_operands: bool = True) -> Plan:
    """Decide for each node whether it runs in integers or on the host, and which tensors share a scale.

    Matrix products and convolutions run in integers if possible. Averages and moves run in integers if their inputs are
    integers. A sum runs in integers if one of its inputs is an integer. With `residuals`, an addition that is the only
    reader of a convolution's result is part of the sums of the convolution. If `equal_operands`, the operands of other
    additions share a scale.
    """
    steps = _fuse(net, residuals)
    integer_steps = _forward(net, steps)
    _backward(net, steps, integer_steps)
    # All tensors of integer steps are int8. A move keeps codes, so its inputs and results share a scale.
    groups = Groups(name for index in sorted(integer_steps) for name in (*steps[index].reads, *steps[index].outputs))
    for index, step in enumerate(steps):
        if index not in integer_steps:
            reason = step.reason or "its input is computed on the host"
            steps[index] = replace(step, role="host", weights="", reason=reason)
        elif step.role == "keep":
            groups.join(*step.reads, *step.outputs)
        elif step.role == "sum" and equal_operands:
            groups.join(*step.inputs)
    return Plan(net, tuple(steps), groups.roots())


def _fuse(net: Network, residuals: bool) -> list[Step]:
    """Make a step for each node. A Relu or Clip is fused if it is the only reader of a product, sum or average."""
    # `fused` has the results of nodes that belong to another step. Nodes are in execution order, so products and
    # additions are visited before the activations that read them.
    # The step of a fused addition has the position of the addition, because both operands exist there.
    product_of = {
        add.output[0]: product for add in net.nodes if residuals and (product := _joined_product(net, add)) is not None
    }
    steps = []
    fused = {product.output[0] for product in product_of.values()}
    for end in net.nodes:
        if end.output[0] in fused:
            continue
        node = product_of.get(end.output[0], end)
        kind, reason = role(net, node)
        activation = net.only_consumer(end.output[0]) if kind in ("product", "sum", "average") else None
        if activation is not None and not _fuses(net, kind, activation, end.output[0]):
            activation = None
        last = activation or end
        if activation is not None:
            fused.add(activation.output[0])
        inputs = tuple(filter(None, node.input)) if kind == "host" else tuple(data_inputs(net, node))
        step = Step(node, kind, activation, inputs, tuple(last.output), reason)
        if kind == "product":
            weights = node.input[1] if net.is_constant(node.input[1]) else ""
            step = replace(step, weights=weights, bias=operand(node, 2))
        if node is not end:
            (residual,) = (name for name in end.input if name != node.output[0])
            step = replace(step, addition=end, residual=residual)
        steps.append(step)
    return steps


def _joined_product(net: Network, add: NodeProto) -> NodeProto | None:
    """Return the Conv or Gemm that can be fused with its only reader, the addition `add`, or None."""
    # A residual has the shape of the sums, so all shapes must be equal.
    shapes = {net.shape(name) for name in (*add.input, *add.output)}
    if add.op_type != "Add" or len(shapes) > 1 or any(net.is_constant(name) for name in add.input):
        return None
    if add.input[0] == add.input[1]:
        return None
    products = [
        node
        for node in map(net.producer.get, add.input)
        if node is not None
        and JOINED.get(node.op_type) == len(min(shapes))
        and net.only_consumer(node.output[0]) is add
        and role(net, node)[0] == "product"
    ]
    return max(products, key=lambda node: net.constant(node.input[1]).size, default=None)


def _fuses(net: Network, kind: Role, node: NodeProto, name: str) -> bool:
    """Return whether `node` is a Relu or Clip of `name` that can be fused. Averages allow only Relu and Clip 0..6."""
    if node.op_type not in ACTIVATIONS or node.input[0] != name:
        return False
    bounds = [bound for bound in node.input[1:] if bound]
    if not all(map(net.is_constant, bounds)):
        return False
    return kind != "average" or node.op_type == "Relu" or [float(net.constant(bound)) for bound in bounds] == [0.0, 6.0]


def _forward(net: Network, steps: list[Step]) -> set[int]:
    """Return the indices of the steps that run in integers: products, and the steps that read their results."""
    integer_steps: set[int] = set()
    stored: set[str] = set()
    for index, step in enumerate(steps):
        computed = [name for name in step.inputs if not net.is_constant(name)]
        available = [name in stored for name in computed]
        fits = {"product": True, "sum": any(available), "average": all(available), "keep": all(available)}
        if computed and fits.get(step.role, False):
            integer_steps.add(index)
            stored.update(step.outputs)
    return integer_steps


def _backward(net: Network, steps: list[Step], integer_steps: set[int]) -> None:
    """Add each move (Pad, Reshape ...) whose readers are all integer steps: then the move can move codes."""
    readers: dict[str, list[int]] = {}
    for index, step in enumerate(steps):
        for name in step.reads:
            readers.setdefault(name, []).append(index)
    # Go backwards, because a move is added only after all its readers, which may be moves, too.
    for index in reversed(range(len(steps))):
        step = steps[index]
        used = [reader for name in step.outputs for reader in readers.get(name, [])]
        exposed = any(name in net.outputs for name in step.outputs)
        if step.role == "keep" and index not in integer_steps and used and not exposed and set(used) <= integer_steps:
            integer_steps.add(index)
