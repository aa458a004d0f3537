"""Reads the user's model files into a Graph, and compares the Graph with the framework of the file.

For .tflite: `tflite_file.py` reads the tables of the file, `tflite.py` translates each operator, and `tflite_verify.py`
compares the graph with the framework.

For .onnx: `onnx.py` calls the steps of the import in this order. `onnx_file.py` reads records. `onnx_resolve.py` infers
types, computes constants and replaces If; the result is in `onnx_values.py`. `onnx_rewrite.py` rewrites the network
like onnxruntime. `onnx_fuse.py` finds operators on codes, which `onnx_quantised.py` and `onnx_conv.py` translate;
`onnx.py` translates all other operators. `onnx_build.py` collects the graph. A network of PULP needs no rewriting:
`onnx_shift.py` translates it. `onnx_verify.py` compares the graph with onnxruntime.

`shapes.py` has the user's choices for a model, `inputs.py` reads samples, and `verification.py` has the result of a
comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from tilewright.array import Array
from tilewright.errors import InputError, ModelError, option
from tilewright.files import regular
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.model.shapes import Shapes, check_until
from tilewright.model.verification import Verification

#: The largest number of samples that `verify` compares.
SAMPLES = 2


def load(path: str | Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> Graph:
    """Return the graph of a .tflite or .onnx file.

    `shapes` are the shapes of ONNX inputs with open extents. `until` are names of ONNX values, which become the outputs
    of the graph instead of the file's outputs. Raises InputError if `path` is not a regular file or a shape does not
    fit, ModelError if the file is damaged or its suffix is unknown, and UnsupportedError for unsupported features.
    """
    path = regular(path)
    if path.suffix == ".tflite":
        if shapes:
            raise InputError(option("--shape", "shapes"), f"is for ONNX models; {path} has constant shapes")
        check_until(path, until)
        from tilewright.model import tflite

        return tflite.load(path)
    if path.suffix == ".onnx":
        from tilewright.model import onnx

        return onnx.load(path, shapes, until)
    raise ModelError(path, f"has the unknown suffix '{path.suffix}'", "give a .tflite or .onnx model")


def verify(path: str | Path, graph: Graph, inputs: Array | Mapping[str, Array]) -> Verification:
    """Compare `graph` with the model file that it was loaded from, on the first SAMPLES samples of `inputs`.

    The rounding mode is always the framework's (`ort`, `pow2` or `litert`), never the mode of a simulation. Raises
    InputError if the inputs do not fit the graph, or if the suffix is unknown.
    """
    path = Path(path)
    samples = {name: array[:SAMPLES] for name, array in reference.check_inputs(graph, inputs).items()}
    if path.suffix == ".tflite":
        from tilewright.model import tflite_verify

        return tflite_verify.verify(path, graph, samples)
    if path.suffix == ".onnx":
        from tilewright.model import onnx_verify

        return onnx_verify.verify(path, graph, samples)
    raise InputError(path, f"has the unknown suffix '{path.suffix}'", "give the .tflite or .onnx file of the network")
