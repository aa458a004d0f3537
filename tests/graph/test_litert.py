"""Modes `litert` and `xnnpack` against LiteRT itself, operator by operator, and `tflm` where they share the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.mlperf import FILES, model_path, samples
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.model import load

litert = pytest.importorskip("ai_edge_litert.interpreter")

OPS = sorted((ROOT / "tests" / "data" / "ops").glob("*.tflite"))
SEED = 11


def interpreter(path: Path, mode: str) -> Any:
    kinds = litert.OpResolverType
    resolver = kinds.BUILTIN_REF if mode == "litert" else kinds.AUTO
    model = litert.Interpreter(str(path), experimental_op_resolver_type=resolver, num_threads=1)
    model.allocate_tensors()
    return model


def outputs_of(model: Any, inputs: dict[str, Array], count: int) -> list[list[Array]]:
    """LiteRT's outputs, one list a sample."""
    results = []
    for index in range(count):
        for detail in model.get_input_details():
            model.set_tensor(detail["index"], inputs[detail["name"]][index])
        model.invoke()
        results.append([model.get_tensor(detail["index"]) for detail in model.get_output_details()])
    return results


def random_inputs(model: Any, rng: np.random.Generator, count: int) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    for detail in model.get_input_details():
        shape = (count, *detail["shape"])
        if detail["dtype"] == np.float32:
            inputs[detail["name"]] = (rng.standard_normal(shape) * 4).astype(np.float32)
        else:
            inputs[detail["name"]] = rng.integers(-128, 128, shape).astype(np.int8)
    return inputs


@pytest.mark.parametrize("mode", ["litert", "xnnpack"])
@pytest.mark.parametrize("path", OPS, ids=lambda path: path.stem)
def test_every_operator_equals_litert(path: Path, mode: str) -> None:
    model, graph = interpreter(path, mode), load(path)
    inputs = random_inputs(model, np.random.default_rng(SEED), 20)
    golden = outputs_of(model, inputs, 20)
    ours = reference.run(graph, {name: inputs[name] for name in graph.inputs}, mode)
    for position, detail in enumerate(model.get_output_details()):
        theirs = np.stack([sample[position] for sample in golden])
        mine = ours[detail["name"]].reshape(theirs.shape)
        different = int((mine != theirs).sum())
        assert different == 0, f"{different} of {mine.size} elements differ, seed {SEED}"


@pytest.mark.parametrize(("mode", "golden"), [("litert", "litert_ref"), ("xnnpack", "litert_xnnpack")])
@pytest.mark.parametrize("key", FILES)
def test_whole_models_equal_what_litert_returned(shared: Path, key: str, mode: str, golden: str) -> None:
    data = samples(shared, key)
    (output,) = reference.run(load(model_path(shared, key)), data["inputs"], mode).values()
    np.testing.assert_array_equal(output.reshape(data[golden].shape), data[golden])


@pytest.mark.parametrize("name", ["litert", "xnnpack"])
def test_the_digits_equal_litert(name: str) -> None:
    path = ROOT / "examples" / "digits" / "digits.tflite"
    with np.load(path.with_name("samples.npz")) as archive:
        codes = archive["inputs"]
    model = interpreter(path, name)
    inputs = {model.get_input_details()[0]["name"]: codes[:, None]}
    theirs = np.stack([sample[0] for sample in outputs_of(model, inputs, len(codes))])
    (ours,) = reference.run(load(path), codes, name).values()
    np.testing.assert_array_equal(ours, theirs)
