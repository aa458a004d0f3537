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
from tilewright.model.inputs import Samples
from tilewright.quantize.model import Network, first_line
from tilewright.quantize.names import Plain
from tilewright.quantize.samples import Progress, feeds

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}
TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives the calibration samples to onnxruntime's quantiser, one by one; `names` are those of its inputs."""

    def __init__(self, samples: Samples, names: Mapping[str, str], progress: Progress | None) -> None:
        self._names = names
        self._feeds = feeds(samples, progress, "calibrating")

    def get_next(self) -> dict[str, Array] | None:
        feed = next(self._feeds, None)
        return feed and {self._names[name]: value for name, value in feed.items()}


def _overrides(fixed: Mapping[str, tuple[float, int]]) -> dict[str, Any]:
    """Return scales and zero points in the form of onnxruntime's option TensorQuantOverrides."""
    return {
        name: [{"scale": np.array(scale, np.float32), "zero_point": np.array(zero, np.int8)}]
        for name, (scale, zero) in fixed.items()
    }


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


def quantize(
    model: ModelProto,
    samples: Samples,
    method: str,
    activations: str,
    progress: Progress | None = None,
    fixed: Mapping[str, tuple[float, int]] | None = None,
    unbounded: frozenset[str] = frozenset(),
    symmetric: bool = False,
) -> ModelProto:
    """Return the QDQ model of a prepared float model; `method` finds the ranges of activations over the samples.

    `fixed` gives the scale and zero point of some tensors. Nodes that read or write a tensor in `unbounded` stay in
    float32. `symmetric`: all zero points are 0, and weights have one scale per tensor.

    Raises UnsupportedError if onnxruntime's quantiser fails.
    """
    plain = Plain(model)
    fixed = {plain.tensors[name]: pair for name, pair in (fixed or {}).items()}
    extra: dict[str, Any] = {"TensorQuantOverrides": _overrides(fixed)} if fixed else {}
    if symmetric:
        extra |= {"ActivationSymmetric": True, "WeightSymmetric": True}
    with scratch() as folder, _quiet():
        source, target = folder / "float.onnx", folder / "int8.onnx"
        plain.save(model, source)
        try:
            quantize_static(
                source,
                target,
                _Reader(samples, plain.tensors, progress),
                quant_format=QuantFormat.QDQ,
                per_channel=not symmetric,
                activation_type=TYPES[activations],
                weight_type=QuantType.QInt8,
                calibrate_method=METHODS[method],
                nodes_to_exclude=[
                    plain.nodes[node.name]
                    for node in model.graph.node
                    if unbounded.intersection((*node.input, *node.output))
                ],
                extra_options=extra,
            )
        except Exception as error:  # the quantiser raises exceptions of many types
            reason = f"onnxruntime's quantiser fails: {plain.text(first_line(error))}"
            raise UnsupportedError("scheme affine", reason) from None
        return plain.restored(target)


def again(
    model: ModelProto,
    samples: Samples,
    method: str,
    progress: Progress | None,
    unbounded: frozenset[str],
    fixed: Callable[[ModelProto, ModelProto], dict[str, tuple[float, int]]],
    symmetric: bool = False,
) -> ModelProto:
    """Return the int8 QDQ model of a float model, quantised a second time with scales and zero points that follow from
    the first time: those of `fixed(model, first)`, by tensor. The rest is as in `quantize`."""
    given = model, samples, method, "int8", progress
    made = quantize(*given, None, unbounded, symmetric)
    scales = fixed(model, made)
    return quantize(*given, scales, unbounded, symmetric) if scales else made


def chosen(made: ModelProto) -> dict[str, tuple[float, int]]:
    """Return the scale and zero point that each tensor of a QDQ model is quantised with."""
    net = Network(made)
    found: dict[str, tuple[float, int]] = {}
    for node in net.nodes:
        if node.op_type == "QuantizeLinear":
            scale, zero = (np.asarray(net.constant(name)) for name in node.input[1:3])
            found[node.input[0]] = float(scale), int(zero)
    return found
