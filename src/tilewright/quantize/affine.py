"""Schemes `affine` and `symmetric`: onnxruntime's static quantiser. QDQ, int8 weights, 8-bit activations per tensor."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.files import scratch
from tilewright.quantize.model import Network, first_line
from tilewright.quantize.names import Plain
from tilewright.quantize.samples import Task, feeds

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}
TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}


#: The scale and zero point of tensors, by name.
Fixed = dict[str, tuple[float, int]]


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives the calibration samples to onnxruntime's quantiser, one by one; `names` are those of its inputs."""

    def __init__(self, task: Task, names: Mapping[str, str]) -> None:
        self._names = names
        self._feeds = feeds(task.samples, task.progress, "calibrating")

    def get_next(self) -> dict[str, Array] | None:
        feed = next(self._feeds, None)
        return feed and {self._names[name]: value for name, value in feed.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Run a `with` block without the quantiser's prints and its logged advice to preprocess, which was already done."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            yield
    finally:
        logging.disable(before)


def quantize(task: Task, fixed: Fixed | None = None, symmetric: bool = False) -> ModelProto:
    """Return the QDQ model of a task; its method finds the ranges of activations over the samples.

    `fixed` gives the scale and zero point of some tensors. `symmetric`: all zero points are 0, and weights have one
    scale per tensor. Raises UnsupportedError if onnxruntime's quantiser fails.
    """
    model, options = task.model, task.options
    plain = Plain(model)
    extra: dict[str, Any] = {}
    if fixed:
        extra["TensorQuantOverrides"] = {
            plain.tensors[name]: [{"scale": np.array(scale, np.float32), "zero_point": np.array(zero, np.int8)}]
            for name, (scale, zero) in fixed.items()
        }
    if symmetric:
        extra |= {"ActivationSymmetric": True, "WeightSymmetric": True}
    with scratch() as folder, _quiet():
        source, target = folder / "float.onnx", folder / "int8.onnx"
        plain.save(model, source)
        try:
            quantize_static(
                source,
                target,
                _Reader(task, plain.tensors),
                quant_format=QuantFormat.QDQ,
                per_channel=not symmetric,
                activation_type=TYPES[options.activations],
                weight_type=QuantType.QInt8,
                calibrate_method=METHODS[options.method],
                nodes_to_exclude=[
                    plain.nodes[node.name]
                    for node in model.graph.node
                    if task.unbounded.intersection((*node.input, *node.output))
                ],
                extra_options=extra,
            )
        except Exception as error:  # the quantiser raises exceptions of many types
            reason = f"onnxruntime's quantiser fails: {plain.text(first_line(error))}"
            raise UnsupportedError("scheme affine", reason) from None
        return plain.restored(target)


def again(task: Task, follows: Callable[[ModelProto, Fixed], Fixed], symmetric: bool = False) -> ModelProto:
    """Return the QDQ model of a task, quantised a second time with scales and zero points that follow from the first.

    `follows` returns them for the float model and the scales of the first time.
    """
    made = quantize(task, None, symmetric)
    fixed = follows(task.model, _chosen(made))
    return quantize(task, fixed, symmetric) if fixed else made


def _chosen(made: ModelProto) -> Fixed:
    """Return the scale and zero point that each tensor of a QDQ model is quantised with."""
    net = Network(made)
    found: Fixed = {}
    for node in net.nodes:
        if node.op_type == "QuantizeLinear":
            scale, zero = (np.asarray(net.constant(name)) for name in node.input[1:3])
            found[node.input[0]] = float(scale), int(zero)
    return found
