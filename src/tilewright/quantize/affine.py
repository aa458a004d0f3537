"""Schemes `affine`, `symmetric` and `tflm`: onnxruntime's static quantiser (QDQ, int8 weights, 8-bit activations).

`symmetric` has no zero points, and one scale for the weights of a layer; some tensors share a scale. `tflm` has the
integer arithmetic of TensorFlow Lite Micro, which `run` reproduces. For these two schemes, the quantiser runs twice:
the first run chooses all scales, and the second run uses the scales that this module prescribes.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.files import scratch
from tilewright.model.onnx_file import ROUNDING
from tilewright.model.onnx_values import ACTIVATIONS
from tilewright.quantize.model import Network, first_line
from tilewright.quantize.names import Groups, NeutralNames
from tilewright.quantize.samples import Task, feeds

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}
TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
AVERAGES = ("AveragePool", "GlobalAveragePool")
#: In every QDQ model, the result of these operators has the scale of their input.
MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity")
#: If a ReLU reads the result of these operators, the result gets the scale of the ReLU's result.
TAKE_SCALE = ("Conv", "Gemm", "Add")
#: All inputs and the result of these operators get the same scale.
JOINS = ("Add", "Concat")
#: The scale and zero point that TFLite Micro requires for the result of a softmax.
PROBABILITY = 1 / 256, -128

#: {tensor: (scale, zero point)}.
FixedScales = dict[str, tuple[float, int]]


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives onnxruntime's quantiser the calibration samples, one by one. `names` maps inputs to neutral names."""

    def __init__(self, task: Task, names: Mapping[str, str]) -> None:
        self._names = names
        self._feeds = feeds(task.samples, task.progress, "calibrating")

    def get_next(self) -> dict[str, Array] | None:
        feed = next(self._feeds, None)
        return feed and {self._names[name]: value for name, value in feed.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    # The quantiser prints advice (such as to preprocess the model) that does not apply here.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            yield
    finally:
        logging.disable(before)


def quantize(task: Task) -> ModelProto:
    """Return the QDQ model of a task. Raises UnsupportedError if onnxruntime's quantiser fails."""
    scheme = task.options.scheme
    model = _run_quantiser(task)
    if scheme == "affine":
        return model
    net = Network(model)
    # The second run gets only the scales that must differ from these choices of the first run.
    choices: FixedScales = {}
    for node in net.nodes:
        if node.op_type == "QuantizeLinear":
            scale, zero = (np.asarray(net.constant(name)) for name in node.input[1:3])
            choices[node.input[0]] = float(scale), int(zero)
    fixed = (_shared_scales if scheme == "symmetric" else _fixed_by_micro)(task.model, choices)
    model = _run_quantiser(task, fixed) if fixed else model
    if scheme == "tflm":
        model.metadata_props.add(key=ROUNDING, value="tflm")
    return model


def _run_quantiser(task: Task, fixed: FixedScales | None = None) -> ModelProto:
    """Return the QDQ model of a task. `fixed` prescribes the scale and zero point of some tensors."""
    model = task.model
    options = task.options
    symmetric = task.options.scheme == "symmetric"
    neutral = NeutralNames(model)
    extra: dict[str, Any] = {}
    if fixed:
        extra["TensorQuantOverrides"] = {
            neutral.tensors[name]: [{"scale": np.array(scale, np.float32), "zero_point": np.array(zero, np.int8)}]
            for name, (scale, zero) in fixed.items()
        }
    if symmetric:
        extra |= {"ActivationSymmetric": True, "WeightSymmetric": True}
    unbounded_nodes = [
        node.name for node in model.graph.node if task.unbounded.intersection((*node.input, *node.output))
    ]
    with scratch() as folder, _quiet():
        source, target = folder / "float.onnx", folder / "int8.onnx"
        neutral.save(model, source)
        try:
            quantize_static(
                source,
                target,
                _Reader(task, neutral.tensors),
                quant_format=QuantFormat.QDQ,
                per_channel=not symmetric,
                activation_type=TYPES[options.activations],
                weight_type=QuantType.QInt8,
                calibrate_method=METHODS[options.method],
                nodes_to_exclude=[neutral.nodes[name] for name in unbounded_nodes],
                extra_options=extra,
            )
        except Exception as error:  # the quantiser raises exceptions of many types
            reason = f"onnxruntime's quantiser fails: {neutral.text(first_line(error))}"
            raise UnsupportedError("scheme affine", reason) from None
        return neutral.restored(target)


def _fixed_by_micro(model: ModelProto, chosen: FixedScales) -> FixedScales:
    """Return the scales and zero points that TFLite Micro prescribes. `chosen` has the quantiser's own choices."""
    fixed: FixedScales = {}
    # A softmax must have the scale 1/256 and the zero point -128, and an average must have the scale of its input. The
    # quantiser may choose other scales.
    for node in model.graph.node:
        if node.op_type == "Softmax":
            fixed[node.output[0]] = PROBABILITY
        elif node.op_type in AVERAGES or (node.op_type in MOVES and node.input[0] in fixed):
            source = fixed.get(node.input[0], chosen.get(node.input[0]))
            if source is not None:
                fixed[node.output[0]] = source
    return fixed


def _shared_scales(model: ModelProto, chosen: FixedScales) -> FixedScales:
    """Return the scales and zero points of tensors that must share a scale, where they differ from `chosen`.

    A group of tensors has the largest scale of its members if one of JOINS is in the group, otherwise the scale of its
    first tensor.
    """
    net = Network(model)
    readers = Counter(name for node in net.nodes for name in node.input)
    groups = Groups(chosen)
    in_joins = set[str]()
    clipped = set[str]()
    for node in net.nodes:
        before = net.producer.get(node.input[0]) if node.op_type in ACTIVATIONS and node.input else None
        # If a ReLU is the only reader of a layer's result, the result gets the scale of the ReLU's result. Then the
        # ReLU only clamps codes, so that a machine can apply it when it requantises the sums.
        if before is not None and before.op_type in TAKE_SCALE and readers[node.input[0]] == 1:
            groups.join(node.output[0], node.input[0])  # the ReLU's result comes first, so it represents the group
            clipped.add(node.input[0])
        # With one scale for its operands and its result, an Add can add codes directly, and a Concat only moves codes.
        ends = (*node.output, *node.input)
        if node.op_type in JOINS and all(name in chosen for name in ends):
            groups.join(*ends)
            in_joins.update(ends)
        elif node.op_type in MOVES:
            groups.join(node.output[0], node.input[0])
    scales: FixedScales = {}
    members: dict[str, list[str]] = {}
    for name, root in groups.roots().items():
        members.setdefault(root, []).append(name)
    for first, names in members.items():
        # The negative values in the input of a ReLU need no codes, so this input does not affect the scale.
        needed = [chosen[name] for name in names if name not in clipped]
        scales |= dict.fromkeys(names, chosen[first] if in_joins.isdisjoint(names) else max(needed))
    return {name: scale for name, scale in scales.items() if scale != chosen[name]}
