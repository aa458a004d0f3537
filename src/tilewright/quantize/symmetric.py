"""Scheme `symmetric`: onnxruntime's quantiser without zero points, and with one scale for all weights of a layer.

Results of a layer that a ReLU reads alone get the scale of the ReLU's results. The ReLU then only cuts codes off, so a
machine can do it where it scales the sums. To that end, the quantiser runs twice, and is given these scales the second
time.
"""

from __future__ import annotations

from onnx import ModelProto

from tilewright.model.inputs import Samples
from tilewright.quantize import affine
from tilewright.quantize.model import Network
from tilewright.quantize.samples import Progress

#: Operators whose results may have the scale of a ReLU behind them.
SCALED = ("Conv", "Gemm")
CUTS = ("Relu", "Clip")


def quantize(
    model: ModelProto,
    samples: Samples,
    method: str,
    progress: Progress | None = None,
    unbounded: frozenset[str] = frozenset(),
) -> ModelProto:
    """Return the QDQ model of a prepared float model, with int8 activations.

    Nodes that read or write a tensor in `unbounded` stay in float32. Raises UnsupportedError if onnxruntime's quantiser
    fails.
    """
    given = model, samples, method, "int8", progress
    made = affine.quantize(*given, None, unbounded, symmetric=True)
    if fixed := _fixed(model, made):
        made = affine.quantize(*given, fixed, unbounded, symmetric=True)
    return made


def _fixed(model: ModelProto, made: ModelProto) -> dict[str, tuple[float, int]]:
    """Return the scale and zero point of each result that only a ReLU reads; `made` is the model without them."""
    net, chosen = Network(model), affine.chosen(made)
    writers = {name: node for node in net.nodes for name in node.output}
    readers: dict[str, int] = {}
    for node in net.nodes:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    fixed = {}
    for node in net.nodes:
        before = writers.get(node.input[0]) if node.op_type in CUTS else None
        alone = before is not None and before.op_type in SCALED and readers[node.input[0]] == 1
        if alone and node.output[0] in chosen:
            fixed[node.input[0]] = chosen[node.output[0]]
    return fixed
