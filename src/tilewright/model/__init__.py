"""What the user brings: model files, read into a Graph, and compared with what their own frameworks make of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.array import Array
from tilewright.errors import InputError, ModelError
from tilewright.files import regular
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.model.verification import Verification

#: Samples that are compared where the caller gives more.
SAMPLES = 2


def load(path: str | Path) -> Graph:
    """The graph of a model file, by its suffix. Raises InputError, ModelError or UnsupportedError."""
    path = regular(path)
    if path.suffix == ".tflite":
        from tilewright.model import tflite

        return tflite.load(path)
    if path.suffix == ".onnx":
        from tilewright.model import onnx

        return onnx.load(path)
    raise ModelError(path, f"has the suffix '{path.suffix}'", "give a .tflite or .onnx model")


def verify(path: str | Path, graph: Graph, inputs: Array | Mapping[str, Array]) -> Verification:
    """Compare `graph` with the model file it was loaded from, on the first SAMPLES of `inputs`.

    The rounding mode is the one that stands for the framework (`ort`, `pow2`, `litert`), whatever a run asks for: an
    import does not depend on it. Raises InputError for inputs that do not fit.
    """
    path = Path(path)
    samples = {name: array[:SAMPLES] for name, array in reference.check_inputs(graph, inputs).items()}
    if path.suffix == ".tflite":
        from tilewright.model import tflite

        return tflite.verify(path, graph, samples)
    if path.suffix == ".onnx":
        from tilewright.model import onnx_verify

        return onnx_verify.verify(path, graph, samples)
    raise InputError(path, f"has the suffix '{path.suffix}'", "give the .tflite or .onnx file of the network")
