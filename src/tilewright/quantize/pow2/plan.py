"""Which nodes run in integers, which tensors are int8, and which of those share a scale."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx import NodeProto

from tilewright.quantize.model import title
from tilewright.quantize.network import Network
from tilewright.quantize.pow2.roles import ACTIVATIONS, Role, data_inputs, role


@dataclass(frozen=True, eq=False)
class Step:
    """A node with the Relu or Clip that is fused into it; `inputs` are its activations, `outputs` what it stores."""

    node: NodeProto
    role: Role
    activation: NodeProto | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str = ""

    @property
    def name(self) -> str:
        return title(self.node)

    @property
    def op(self) -> str:
        return f"{self.node.op_type}+{self.activation.op_type}" if self.activation else self.node.op_type


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps in order; `group` names for each int8 tensor the one that stands for all that share its scale."""

    net: Network
    steps: tuple[Step, ...]
    group: dict[str, str]

    def members(self) -> dict[str, list[str]]:
        """The int8 tensors of each group."""
        found: dict[str, list[str]] = {}
        for name, root in self.group.items():
            found.setdefault(root, []).append(name)
        return found

    def is_int8(self, name: str) -> bool:
        return name in self.group


@dataclass(eq=False)
class _Groups:
    """Union of tensors that must share a scale."""

    parent: dict[str, str] = field(default_factory=dict)

    def root(self, name: str) -> str:
        while self.parent.setdefault(name, name) != name:
            name = self.parent[name]
        return name

    def join(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.parent[self.root(name)] = self.root(names[0])


def plan(net: Network, equal_operands: bool = True) -> Plan:
    """Decide for every node. Sums, averages and moves run in integers where their data already is; products always.

    `equal_operands`: the operands of an addition share a scale.
    """
    steps = _fuse(net)
    in_integers = _forward(net, steps)
    _backward(net, steps, in_integers)
    decided, groups = [], _Groups()
    for index, step in enumerate(steps):
        if index not in in_integers:
            reason = step.reason or "its input is computed on the host"
            decided.append(Step(step.node, "host", step.activation, step.inputs, step.outputs, reason))
            continue
        decided.append(step)
        for name in (*step.inputs, *step.outputs):
            groups.root(name)
        if step.role == "keep":
            groups.join((*step.inputs, *step.outputs))
        elif step.role == "sum" and equal_operands:
            groups.join(step.inputs)
    return Plan(net, tuple(decided), {name: groups.root(name) for name in groups.parent})


def _fuse(net: Network) -> list[Step]:
    """One step a node, except for a Relu or Clip that alone reads the result of a product, sum or average."""
    steps, fused = [], set()
    for node in net.nodes:
        if node.output[0] in fused:
            continue
        kind, reason = role(net, node)
        activation = net.only_consumer(node.output[0]) if kind in ("product", "sum", "average") else None
        if activation is not None and not _fuses(net, kind, activation, node.output[0]):
            activation = None
        last = activation or node
        if activation is not None:
            fused.add(activation.output[0])
        inputs = tuple(filter(None, node.input)) if kind == "host" else tuple(data_inputs(net, node))
        steps.append(Step(node, kind, activation, inputs, tuple(last.output), reason))
    return steps


def _fuses(net: Network, kind: Role, node: NodeProto, name: str) -> bool:
    """Whether a Relu or Clip clamps `name` before it is rounded; behind an average only Relu and Clip 0..6 do."""
    if node.op_type not in ACTIVATIONS or node.input[0] != name:
        return False
    bounds = [bound for bound in node.input[1:] if bound]
    if not all(map(net.is_constant, bounds)):
        return False
    return kind != "average" or node.op_type == "Relu" or [float(net.constant(bound)) for bound in bounds] == [0.0, 6.0]


def _forward(net: Network, steps: list[Step]) -> set[int]:
    """The steps whose inputs come from steps in integers, and every product."""
    chosen: set[int] = set()
    stored: set[str] = set()
    for index, step in enumerate(steps):
        computed = [name for name in step.inputs if not net.is_constant(name)]
        available = [name in stored for name in computed]
        fits = {"product": True, "sum": any(available), "average": all(available), "keep": all(available)}
        if computed and fits.get(step.role, False):
            chosen.add(index)
            stored.update(step.outputs)
    return chosen


def _backward(net: Network, steps: list[Step], chosen: set[int]) -> None:
    """Quantise before a move (an input's Pad, Transpose ...) where all that reads its result is in integers."""
    readers: dict[str, list[int]] = {}
    for index, step in enumerate(steps):
        for name in step.inputs:
            readers.setdefault(name, []).append(index)
    for index in reversed(range(len(steps))):
        step = steps[index]
        used = [reader for name in step.outputs for reader in readers.get(name, [])]
        exposed = any(name in net.outputs for name in step.outputs)
        if step.role == "keep" and index not in chosen and used and not exposed and set(used) <= chosen:
            chosen.add(index)
