"""Compares the graph of a `.tflite` file with a run of the file in LiteRT, or in TFLite Micro if LiteRT rejects it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Site
from tilewright.model.tflite_file import read
from tilewright.model.verification import Comparison, Verification, compared

PACKAGE = "ai-edge-litert"
MICRO = "tflite-micro"
#: The size of TFLite Micro's memory for tensors, in bytes.
ARENA = 1 << 26
#: Tolerance of real tensors, relative to their largest magnitude: a real softmax may differ in the last bit.
REAL = 1e-6


def verify(path: Path, graph: Graph, samples: Mapping[str, Array]) -> Verification:
    """Compare every computed tensor of `graph`, in the rounding mode `litert`, with the same tensor in LiteRT.

    If the network has states, the samples are a sequence: each sample begins with the states after the previous sample.
    """
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
        reason = f"LiteRT cannot load the file: {str(error).splitlines()[0][:120]}"
        return _verified_by_micro(path, graph, samples, reason)
    places = {tensor.name: index for index, tensor in enumerate(read(path)[0].tensors)}
    before: dict[str, Array] | None = None

    def compare(sample: Mapping[str, Array], comparison: Comparison) -> None:
        for name, array in sample.items():
            model.set_tensor(places[name], array[0])
        model.invoke()

        def observe(site: Site, results: tuple[Array, ...]) -> None:
            for tensor, (ours,) in zip(site.outputs, results, strict=True):
                if tensor.name not in places:  # the file has no tensor for a new state
                    continue
                theirs = model.get_tensor(places[tensor.name]).reshape(tensor.shape)
                if tensor.quant is None:
                    comparison.add_real(tensor.name, ours, theirs, REAL)
                else:
                    comparison.add_equal(tensor.name, ours, theirs)

        nonlocal before
        values = {**sample, **reference.states(graph, sample, before)}
        before = reference.results(graph, values, "litert", observe)

    return compared(framework, samples, compare)


def _verified_by_micro(path: Path, graph: Graph, samples: Mapping[str, Array], reason: str) -> Verification:
    """Compare the outputs with TFLite Micro, in the mode `tflm`. `reason` explains why LiteRT cannot run the file."""
    golden = in_tflite_micro(path, samples)
    if golden is None:
        return Verification("LiteRT", reason=f"{reason}; pip install {MICRO} to compare with TFLite Micro")
    ours = reference.run(graph, samples, "tflm")
    rows = {name: np.stack([mine, golden[name]], axis=1) for name, mine in ours.items()}

    def compare(row: Mapping[str, Array], comparison: Comparison) -> None:
        for name, pair in row.items():
            comparison.add_equal(name, *pair[0])

    return compared("TFLite Micro", rows, compare)


def in_tflite_micro(path: Path, samples: Mapping[str, Array], reset: bool = False) -> dict[str, Array] | None:
    """Run S samples in TFLite Micro, one after the other. Samples and results are arrays (S, *shape) by name.

    Return None if TFLite Micro is not installed or cannot run the file. With `reset`, states are reset before each
    sample.
    """
    try:
        runtime = import_module("tflite_micro.python.tflite_micro.runtime")
        model = runtime.Interpreter.from_bytes(path.read_bytes(), arena_size=ARENA)
    except (ImportError, RuntimeError, ValueError):
        return None
    network = read(path)[0]
    rows = list[list[Array]]()
    for index in range(reference.count_of(samples)):
        if reset:
            model.reset()
        for position, name in enumerate(network.inputs):
            model.set_input(samples[name][index], position)
        model.invoke()
        rows.append([model.get_output(position).copy() for position in range(len(network.outputs))])
    shapes = {tensor.name: tensor.shape for tensor in network.tensors}
    columns = zip(network.outputs, zip(*rows, strict=True), strict=True)
    return {name: np.stack(column).reshape(-1, *shapes[name]) for name, column in columns}
