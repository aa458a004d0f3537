"""A `.tflite` file under LiteRT's reference kernels: every tensor must equal the graph's, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Site
from tilewright.model.tflite import names
from tilewright.model.tflite_file import read
from tilewright.model.verification import Comparison, Verification

PACKAGE = "ai-edge-litert"
#: A softmax over real numbers and its like may differ in the last bit.
REAL = 1e-6


def verify(path: Path, graph: Graph, samples: Mapping[str, Array]) -> Verification:
    """Compare every tensor of `graph` under the rounding mode `litert` with LiteRT's, sample by sample."""
    try:
        litert = import_module("ai_edge_litert.interpreter")
    except ImportError:
        return Verification("LiteRT", reason=f"{PACKAGE} is not installed; pip install {PACKAGE}")
    framework = f"LiteRT {version(PACKAGE)}"
    try:
        model = litert.Interpreter(
            str(path),
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        model.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return Verification(framework, reason=f"LiteRT does not take the file: {str(error).splitlines()[0][:120]}")
    places = {name: index for index, name in enumerate(names(read(path)))}
    count = len(next(iter(samples.values())))
    compared = Comparison()
    for sample in range(count):
        given = {name: array[sample : sample + 1] for name, array in samples.items()}
        for name, array in given.items():
            model.set_tensor(places[name], array[0])
        model.invoke()
        _compare(model, graph, given, places, compared)
    return compared.result(framework, count)


def _compare(
    model: Any, graph: Graph, sample: Mapping[str, Array], places: Mapping[str, int], compared: Comparison
) -> None:
    def observe(site: Site, results: tuple[Array, ...]) -> None:
        for tensor, ours in zip(site.outputs, results, strict=True):
            theirs = model.get_tensor(places[tensor.name]).reshape(tensor.shape)
            if tensor.quant is None:
                steps = (ours[0].astype(np.float64) - theirs) / max(1e-30, float(np.abs(theirs).max(initial=0)))
                compared.add(tensor.name, np.abs(steps) > REAL, steps)
            else:
                steps = ours[0].astype(np.int64) - theirs
                compared.add(tensor.name, steps != 0, steps)

    reference.run(graph, sample, "litert", observe)
