"""graph.reference against the goldens of MLPerf Tiny: outputs, every tensor, every accumulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.mlperf import FILES, layers, model_path, samples
from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph import reference
from tilewright.graph.ir import Site
from tilewright.graph.ops import Linear
from tilewright.model import load


@pytest.mark.parametrize("key", FILES)
def test_every_output_equals_the_golden(shared: Path, key: str) -> None:
    graph, data = load(model_path(shared, key)), samples(shared, key)
    for inputs, golden in (("inputs", "golden"), ("stress_inputs", "stress_golden")):
        (output,) = reference.run(graph, data[inputs], "tflm").values()
        np.testing.assert_array_equal(output.reshape(data[golden].shape), data[golden])


@pytest.mark.parametrize("key", FILES)
def test_every_intermediate_tensor_equals_the_golden(shared: Path, key: str) -> None:
    graph = load(model_path(shared, key))
    for stored in layers(shared, key):
        seen = 0

        def observe(site: Site, results: tuple[Array, ...], stored: dict[str, Array] = stored) -> None:
            nonlocal seen
            index = int(site.node.name.rsplit("_", 1)[1])
            (name,) = [name for name in stored if name.startswith(f"op{index:02d}_")]
            np.testing.assert_array_equal(results[0][0], stored[name], err_msg=name)
            seen += 1

        reference.run(graph, stored["input"], "tflm", observe)
        assert seen == sum(name.startswith("op") for name in stored)


@pytest.mark.parametrize("key", FILES)
def test_every_accumulator_equals_the_golden(shared: Path, key: str) -> None:
    graph, stored = load(model_path(shared, key)), layers(shared, key)[0]
    seen = 0
    values = {graph.inputs[0]: stored["input"].reshape(1, *graph.tensors[graph.inputs[0]].shape)}

    def observe(site: Site, results: tuple[Array, ...]) -> None:
        nonlocal seen
        values[site.output.name] = results[0]
        if isinstance(site.node.op, Linear):
            acc = site.node.op.accumulate(site, values[site.input(0).name], site.constant(1))
            np.testing.assert_array_equal(acc[0], stored[f"acc{int(site.node.name.rsplit('_', 1)[1]):02d}"])
            seen += 1

    reference.run(graph, stored["input"], "tflm", observe)
    assert seen == sum(name.startswith("acc") for name in stored)


def test_samples_in_blocks_give_the_same_as_one_by_one(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, data = load(model_path(shared, "ic")), samples(shared, "ic")
    (together,) = reference.run(graph, data["inputs"][:5]).values()
    monkeypatch.setattr(reference, "BLOCK_BYTES", 1)
    (apart,) = reference.run(graph, data["inputs"][:5]).values()
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (np.zeros((3, 32, 32), np.int8), "shape"),
        (np.zeros((0, 32, 32, 3), np.int8), "shape"),
        (np.zeros((2, 32, 32, 3), np.uint8), "uint8"),
        ({"nothing": np.zeros((32, 32, 3), np.int8)}, "nothing"),
    ],
)
def test_wrong_inputs_are_named(shared: Path, inputs: Array, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        reference.run(load(model_path(shared, "ic")), inputs)
