"""Scheme `symmetric`: onnxruntime's quantiser without zero points, and with one scale for the weights of a layer.

Results of a layer that a ReLU reads alone get the scale of the ReLU's results. The ReLU then only cuts codes off, so a
machine can do it where it scales the sums. Both sides of an Add get one scale too, the largest of them: the sum of
codes is then the code of the sum. So do those of a Concat, which then moves codes as they are. To that end, the
quantiser runs twice, and is given these scales the second time.
"""

from __future__ import annotations

from collections import Counter

from onnx import ModelProto

from tilewright.model.onnx_values import ACTIVATIONS
from tilewright.quantize import affine
from tilewright.quantize.micro import MOVES
from tilewright.quantize.model import Network
from tilewright.quantize.samples import Task

#: Operators whose results take the scale of the ReLU that reads them.
SCALED = ("Conv", "Gemm", "Add")
#: Operators whose inputs and results have one scale.
JOINS = ("Add", "Concat")


def quantize(task: Task) -> ModelProto:
    """Return the QDQ model of a task, with int8 activations.

    Raises UnsupportedError if onnxruntime's quantiser fails.
    """
    return affine.again(task, _fixed, symmetric=True)


def _fixed(model: ModelProto, chosen: affine.Fixed) -> affine.Fixed:
    """Return the scale and zero point of each tensor that must share a scale; `chosen` are those without sharing."""
    net = Network(model)
    readers = Counter(name for node in net.nodes for name in node.input)
    group = {name: name for name in chosen}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    def join(*names: str) -> None:
        """Let tensors have one scale, that of the first one; of JOINS, the largest."""
        roots = [root(name) for name in names if name in group]
        for each in roots[1:]:
            group[each] = roots[0]

    shared, cut = set[str](), set[str]()
    for node in net.nodes:
        before = net.producer.get(node.input[0]) if node.op_type in ACTIVATIONS and node.input else None
        if before is not None and before.op_type in SCALED and readers[node.input[0]] == 1:
            join(node.output[0], node.input[0])
            cut.add(node.input[0])
        if node.op_type in JOINS and all(name in chosen for name in (*node.input, *node.output)):
            join(*node.output, *node.input)
            shared.update((*node.output, *node.input))
        elif node.op_type in MOVES:
            join(node.output[0], node.input[0])
    members: dict[str, list[str]] = {}
    for name in chosen:
        members.setdefault(root(name), []).append(name)
    joined = {root(name) for name in shared}
    scales: affine.Fixed = {}
    for first, names in members.items():
        # What a ReLU cuts off needs no codes.
        scale = max(chosen[name] for name in names if name not in cut) if first in joined else chosen[first]
        scales |= dict.fromkeys(names, scale)
    return {name: found for name, found in scales.items() if found != chosen[name]}
