"""MUL(x, x) against LiteRT: XNNPACK makes it a unary square, which rounds otherwise than a product of two inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from tests.conftest import ROOT
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.model import load

litert = pytest.importorskip("ai_edge_litert.interpreter")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

#: Every code once.
CODES = np.arange(-128, 128).astype(np.int8)[None]
SEED, CASES = 5, 60


def square(path: Path, x: tuple[float, int], y: tuple[float, int], activation: int) -> Path:
    """The operator of `mul_inputs.tflite` with one input twice, over 256 codes."""
    source = (ROOT / "tests" / "data" / "ops" / "mul_inputs.tflite").read_bytes()
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(bytearray(source), 0))
    graph = model.subgraphs[0]
    (op,) = graph.operators
    op.inputs = np.array([graph.inputs[0]] * 2, np.int32)
    op.builtinOptions.fusedActivationFunction = activation
    graph.inputs = graph.inputs[:1]
    for index, (scale, zero) in ((graph.inputs[0], x), (graph.outputs[0], y)):
        tensor: Any = graph.tensors[index]
        tensor.shape, tensor.shapeSignature = np.array(CODES.shape, np.int32), None
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def by_litert(path: Path, resolver: Any) -> Array:
    model = litert.Interpreter(str(path), experimental_op_resolver_type=resolver, num_threads=1)
    model.allocate_tensors()
    model.set_tensor(model.get_input_details()[0]["index"], CODES)
    model.invoke()
    return np.asarray(model.get_tensor(model.get_output_details()[0]["index"]))


@pytest.mark.parametrize("mode", ["litert", "xnnpack"])
def test_a_square_equals_litert(tmp_path: Path, mode: str) -> None:
    """Powers of two among the scales make ties, on which the two rules differ."""
    rng, kinds = np.random.default_rng(SEED), litert.OpResolverType
    for case in range(CASES):
        sx = float(2.0 ** rng.integers(-8, 0)) if case % 3 else float(np.float32(rng.uniform(0.005, 0.1)))
        ratio = rng.uniform(0.002, 0.2) if case % 2 else rng.integers(1, 60) / 2.0 ** rng.integers(4, 12)
        x, y = (sx, int(rng.integers(-128, 128))), (float(np.float32(sx * sx / ratio)), int(rng.integers(-128, 100)))
        path = square(tmp_path / "square.tflite", x, y, int(rng.choice([0, 1, 3])))
        theirs = by_litert(path, kinds.AUTO if mode == "xnnpack" else kinds.BUILTIN_REF)
        (ours,) = reference.run(load(path), CODES, mode).values()
        np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs, err_msg=f"seed {SEED}, case {case}: {x} {y}")
