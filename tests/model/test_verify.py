"""The import of a file against the file's own framework: equal where it is right, a finding where it is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")

from tests.conftest import ROOT
from tests.mlperf import FILES, model_path
from tests.model.onnx_nets import needs_vnni, onnx
from tests.model.onnx_random import random_network
from tests.quantize.shaped_networks import Shaped
from tilewright import cli
from tilewright.array import Array
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node
from tilewright.model import inputs, load, verification, verify
from tilewright.model import onnx as onnx_import
from tilewright.model import tflite as tflite_import
from tilewright.quantize import Options, quantize

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
#: Published networks that take longer than a few seconds.
LIGHT = ("bvlc_alexnet", "densenet121", "inception_v2", "resnet50", "vgg19", "zfnet512")
SLOW = ("squeezenet1.0_fp32", "squeezenet1.0_qdq_s8s8", "ultraface_rfb320_fp32", *(f"light_{name}" for name in LIGHT))


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    rng, found = np.random.default_rng(seed), inputs.random(graph, seed).values
    return {
        name: rng.uniform(-3, 3, array.shape).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in found.items()
    }


def verified(path: Path) -> verification.Verification:
    graph = load(path)
    return verify(path, graph, random_inputs(graph, 7))


@pytest.mark.parametrize(
    "path", [DIGITS, *sorted((ROOT / "tests" / "data" / "ops").glob("*.tflite"))], ids=lambda p: p.stem
)
def test_tflite_files_equal_litert(path: Path) -> None:
    found = verified(path)
    assert found.passed and found.tensors, str(found)


@pytest.mark.parametrize("key", FILES)
def test_mlperf_tiny_equals_litert(shared: Path, key: str) -> None:
    found = verified(model_path(shared, key))
    assert found.passed and found.tensors >= 10, str(found)


def published(shared: Path, slow: bool) -> list[Path]:
    return [path for path in sorted((shared / "onnx_models").rglob("*.onnx")) if (path.stem in SLOW) == slow]


def test_published_onnx_networks_equal_onnxruntime(shared: Path) -> None:
    for path in published(shared, False):
        found = verified(path)
        assert found.passed or "RequantShift" in found.reason, f"{path.name}: {found}"


@pytest.mark.slow
def test_large_published_onnx_networks_equal_onnxruntime(shared: Path) -> None:
    for path in published(shared, True):
        assert verified(path).passed, path.name


@needs_vnni
def test_random_quantised_networks_equal_onnxruntime(tmp_path: Path) -> None:
    for seed in range(40):
        net, outputs = random_network(seed)
        onnx.save(net.model(*outputs), tmp_path / "net.onnx")
        found = verified(tmp_path / "net.onnx")
        assert found.passed, f"seed {seed}: {found}"


def quantised(folder: Path, seed: int, scheme: str) -> tuple[Path, Array]:
    samples = Shaped(seed).save(folder)
    quantize(folder / "f.onnx", folder / "x.npy", folder / "q.onnx", Options(scheme), verify=False)
    return folder / "q.onnx", samples


Change = Callable[[Node, Graph], tuple[Node, dict[str, Any]]]
Fits = Callable[[Node, Graph], bool]


def _without_clamp(node: Node, graph: Graph) -> tuple[Node, dict[str, Any]]:
    return replace(node, op=replace(node.op, activation="none")), {}  # type: ignore[call-arg]


def _clamped(node: Node, graph: Graph) -> tuple[Node, dict[str, Any]]:
    return replace(node, op=replace(node.op, activation="relu")), {}  # type: ignore[call-arg]


def _flipped(node: Node, graph: Graph) -> tuple[Node, dict[str, Any]]:
    weights = graph.tensors[node.inputs[1]]
    assert weights.data is not None
    return node, {weights.name: replace(weights, data=weights.data.reshape(-1)[::-1].reshape(weights.shape))}


def _other_bias(node: Node, graph: Graph) -> tuple[Node, dict[str, Any]]:
    bias = graph.tensors[node.inputs[2]]
    assert bias.data is not None
    return node, {bias.name: replace(bias, data=bias.data + 400)}


def _other_zero(node: Node, graph: Graph) -> tuple[Node, dict[str, Any]]:
    out = graph.tensors[node.outputs[0]]
    assert out.quant is not None
    zeros = tuple(zero + 1 for zero in out.quant.zero_point)
    return node, {out.name: replace(out, quant=replace(out.quant, zero_point=zeros))}


def _other_padding(node: Node, graph: Graph) -> tuple[Node, dict[str, Any]]:
    window = node.op.window  # type: ignore[attr-defined]
    before, after, left, right = window.padding
    moved = replace(window, padding=(after, before, right, left))
    return replace(node, op=replace(node.op, window=moved)), {}  # type: ignore[call-arg]


def planted(graph: Graph, change: Change, fits: Fits) -> Graph | None:
    """The graph with one node changed, the first that fits; None where none does."""
    for index, node in enumerate(graph.nodes):
        if fits(node, graph):
            made, tensors = change(node, graph)
            nodes = (*graph.nodes[:index], made, *graph.nodes[index + 1 :])
            return replace(graph, nodes=nodes, tensors={**graph.tensors, **tensors})
    return None


def _linear(node: Node, graph: Graph) -> bool:
    return isinstance(node.op, ops.Linear)


def _convolves(node: Node, graph: Graph) -> bool:
    return isinstance(node.op, ops.Conv2D) and graph.tensors[node.inputs[1]].size > 3


def _unevenly_padded(node: Node, graph: Graph) -> bool:
    padding = node.op.window.padding if isinstance(node.op, ops.Conv2D) else (0, 0, 0, 0)
    return padding != (padding[1], padding[0], padding[3], padding[2])


def _clamps(node: Node, graph: Graph) -> bool:
    return getattr(node.op, "activation", "none") != "none"


FAULTS: dict[str, tuple[Change, Fits]] = {
    "a lost clamp": (_without_clamp, _clamps),
    "a clamp too many": (_clamped, lambda node, graph: _linear(node, graph) and not _clamps(node, graph)),
    "weights in another order": (_flipped, _convolves),
    "another bias": (_other_bias, lambda node, graph: _linear(node, graph) and len(node.inputs) > 2),
    "another zero point": (_other_zero, _linear),
    "padding at the other end": (_other_padding, _unevenly_padded),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scheme", ["pow2", "affine"])
def test_a_planted_import_error_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, fault: str
) -> None:
    """The graph and its import are wrong in the same way: the reference alone would not notice."""
    change, fits = FAULTS[fault]
    tried, whole = 0, onnx_import.imported
    for seed in range(100, 160):
        path, samples = quantised(tmp_path, seed, scheme)
        wrong = planted(whole(path), change, fits)
        if wrong is None:
            continue
        monkeypatch.setattr(onnx_import, "imported", lambda *_, wrong=wrong: wrong)
        found = verify(path, wrong, samples)
        monkeypatch.setattr(onnx_import, "imported", whole)
        # A clamp may be lost, or added, where no sample reaches it; the other faults change every value.
        if not found.passed or "clamp" not in fault:
            assert not found.passed, f"seed {seed}"
            tried += 1
        if tried == 4:
            return
    if scheme == "pow2" or fault != "a lost clamp":  # affine leaves no clamp of its own
        assert tried, "no network of these seeds can have this fault"


def test_ties_that_are_rounded_to_even_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pow2` rounds ties upwards; onnxruntime's rule differs from it in ties alone."""

    def to_even(x: Array, exponent: Array | int) -> Array:
        return np.rint(np.ldexp(x.astype(np.float64), np.asarray(exponent))).astype(np.int64)

    networks = []
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path, samples = quantised(folder, seed, "pow2")
        networks.append((path, samples))
        assert verify(path, load(path), samples).passed, f"seed {seed}"
    monkeypatch.setattr("tilewright.graph.rounding.shift_up", to_even)
    assert not all(verify(path, load(path), samples).passed for path, samples in networks)


def test_a_planted_error_in_a_tflite_import_is_found() -> None:
    graph = tflite_import.load(DIGITS)
    samples = random_inputs(graph, 3)
    for fault in ("weights in another order", "another bias", "another zero point"):
        wrong = planted(graph, *FAULTS[fault])
        assert wrong is not None
        found = verify(DIGITS, wrong, samples)
        first = next(node for node in graph.nodes if FAULTS[fault][1](node, graph))
        assert not found.passed and found.differences[0].tensor == first.outputs[0], fault


def test_layouts_are_compared_as_well(tmp_path: Path) -> None:
    """The graph that runs is not the import itself: its transposes have moved."""
    path, samples = quantised(tmp_path, 3, "affine")
    wrong = planted(load(path), *FAULTS["weights in another order"])
    assert wrong is not None
    assert not verify(path, wrong, samples).passed


def test_a_framework_that_is_missing_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    graph = load(DIGITS)
    monkeypatch.setattr("tilewright.model.tflite_verify.import_module", missing)
    found = verify(DIGITS, graph, random_inputs(graph, 3))
    assert found.passed is None and "not installed" in str(found)


def test_run_verifies_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(DIGITS), "-t", "vta", "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["verification"]
    assert found["passed"] is True and found["framework"].startswith("LiteRT") and found["values"] > 500


def test_quantize_verifies_what_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Shaped(3).save(tmp_path)
    call = [
        "quantize",
        str(tmp_path / "f.onnx"),
        "--calibration",
        str(tmp_path / "x.npy"),
        "-o",
        str(tmp_path / "q.onnx"),
    ]
    assert cli.main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verification"]["passed"] is True
    wrong = planted(onnx_import.imported(tmp_path / "q.onnx"), *FAULTS["weights in another order"])
    monkeypatch.setattr(onnx_import, "imported", lambda *_: wrong)
    assert cli.main(call) == 1
    assert "MISMATCH" in capsys.readouterr().out
    assert cli.main([*call, "--no-verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verification"] is None
