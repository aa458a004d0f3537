"""What the user brings: model files, read into a Graph."""

from __future__ import annotations

from pathlib import Path

from tilewright.errors import ModelError
from tilewright.files import regular
from tilewright.graph.ir import Graph


def load(path: str | Path) -> Graph:
    """The graph of a model file, by its suffix. Raises InputError, ModelError or UnsupportedError."""
    path = regular(path)
    if path.suffix == ".tflite":
        from tilewright.model import tflite

        return tflite.load(path)
    if path.suffix == ".onnx":
        from tilewright.model import onnx

        return onnx.load(path)
    raise ModelError(str(path), f"has the suffix '{path.suffix}'", "give a .tflite or .onnx model")
