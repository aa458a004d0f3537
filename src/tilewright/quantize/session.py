"""Runs a model by onnxruntime with every float tensor visible, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnxruntime as ort
from onnx import ModelProto, ValueInfoProto

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.quantize.model import first_line


@contextmanager
def _reported() -> Iterator[None]:
    """onnxruntime's errors, of many types, as one of ours."""
    try:
        yield
    except Exception as error:
        raise UnsupportedError("onnxruntime", f"cannot run the model: {first_line(error)}") from None


class Tracer:
    """A session without graph optimisations, so that each node is computed as it is written."""

    def __init__(self, model: ModelProto, tensors: list[str]) -> None:
        """Prepare to return the named tensors and the model's outputs."""
        traced = ModelProto()
        traced.CopyFrom(model)
        known = {info.name for info in model.graph.output} | {info.name for info in model.graph.input}
        traced.graph.output.extend(ValueInfoProto(name=name) for name in dict.fromkeys(tensors) if name not in known)
        self._direct = [name for name in tensors if name in {info.name for info in model.graph.input}]
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4  # errors come as exceptions
        content = traced.SerializeToString()
        del traced
        with _reported():
            self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._names = [info.name for info in self._session.get_outputs()]

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Every traced tensor and output for one sample, by name."""
        with _reported():
            values = dict(zip(self._names, self._session.run(None, dict(feed)), strict=True))
        return values | {name: feed[name] for name in self._direct}
