"""Rows, images and volumes, products of activations, every activation behind every operator: the whole path.

Each network is quantised, read, compared with onnxruntime running the file, and run on VTA. The arithmetic of `pow2`
is computed here from the file itself, in integers, sharing nothing with the importer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import helper, numpy_helper

import tilewright as tw
from tests.model.onnx_nets import exact_cpu
from tests.quantize.shaped_networks import Shaped
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.model import load
from tilewright.quantize import Options, quantize

pytestmark = pytest.mark.usefixtures("brief_search")

SCHEMES = [
    "pow2",
    pytest.param("affine", marks=pytest.mark.skipif(not exact_cpu(), reason="without VNNI onnxruntime saturates")),
]


def check(seed: int, scheme: str, folder: Path) -> None:
    print("seed", seed)
    samples = Shaped(seed).save(folder)
    report = quantize(folder / "f.onnx", folder / "x.npy", folder / "q.onnx", Options(scheme))
    assert report.verification is not None and report.verification.passed, f"seed {seed}: {report.verification}"
    overrides = {"alu": "float"} if seed % 2 and scheme == "affine" else {}
    result = tw.compile(folder / "q.onnx", "vta", overrides=overrides).run(samples[:2])
    assert result.matches_reference and not result.findings, f"seed {seed}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_shaped_networks(scheme: str, tmp_path: Path) -> None:
    for seed in range(12):
        check(seed, scheme, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_thousand_shaped_networks(scheme: str, tmp_path: Path) -> None:
    """500 networks under each scheme."""
    for seed in range(1000, 1500):
        check(seed, scheme, tmp_path)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "rows": ((1, 4, 16), (8, 4, 3), 1),
    "grouped rows": ((1, 4, 16), (8, 2, 3), 2),
    "images": ((1, 4, 6, 7), (8, 4, 3, 3), 1),
    "grouped images": ((1, 4, 6, 7), (6, 2, 3, 3), 2),
    "volumes": ((1, 2, 4, 5, 6), (3, 2, 3, 2, 3), 1),
    "grouped volumes": ((1, 4, 4, 5, 6), (4, 2, 2, 3, 3), 2),
    "depthwise volumes": ((1, 3, 4, 5, 6), (6, 1, 2, 3, 3), 3),
}
BOUNDS: dict[str, tuple[float, float]] = {"Relu": (0, np.inf), "Clip": (0, 6), "": (-np.inf, np.inf)}


def integers(x: Array, w: Array, groups: int) -> Array:
    """A convolution with stride 1 and one position of padding all around, in int64: (O, ...) of (C, ...)."""
    kernel, shape = w.shape[2:], x.shape[1:]
    padded = np.pad(x.astype(np.int64), [(0, 0)] + [(1, 1)] * len(shape))
    size = [extent + 3 - k for extent, k in zip(shape, kernel, strict=True)]
    out = np.zeros((len(w), *size), np.int64)
    depth, many = w.shape[1], len(w) // groups
    for o, c in np.ndindex(len(w), depth):
        for tap in np.ndindex(*kernel):
            seen = padded[(o // many * depth + c, *(slice(t, t + n) for t, n in zip(tap, size, strict=True)))]
            out[o] += seen * int(w[(o, c, *tap)])
    return out


def file_of(kind: str, activation: str, folder: Path, seed: int) -> Array:
    shape, weights, groups = CONVOLUTIONS[kind]
    rng = np.random.default_rng(seed)
    w = (rng.standard_normal(weights) / np.sqrt(np.prod(weights[1:]))).astype(np.float32)
    pads = [1] * 2 * (len(shape) - 2)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="c", pads=pads, group=groups)]
    constants = [numpy_helper.from_array(w, "w")]
    if activation:
        bounds = ["low", "high"] if activation == "Clip" else []
        nodes.append(helper.make_node(activation, ["c", *bounds], ["y"], name="a"))
        constants += [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in zip(bounds, (0, 6), strict=False)]
    size = (extent + 3 - k for extent, k in zip(shape[2:], weights[2:], strict=True))
    real, last = onnx.TensorProto.FLOAT, nodes[-1].output[0]
    source = helper.make_tensor_value_info("x", real, shape)
    result = helper.make_tensor_value_info(last, real, (1, weights[0], *size))
    graph = helper.make_graph(nodes, "one", [source], [result], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "f.onnx")
    samples = (3 * rng.standard_normal((6, *shape))).astype(np.float32)
    np.save(folder / "x.npy", samples)
    return samples


@pytest.mark.parametrize("activation", BOUNDS)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_pow2_convolutions_by_the_shifts_that_the_page_states(kind: str, activation: str, tmp_path: Path) -> None:
    seed = 17
    samples = file_of(kind, activation, tmp_path, seed)
    quantize(tmp_path / "f.onnx", tmp_path / "x.npy", tmp_path / "q.onnx", Options("pow2"))
    file = onnx.load(tmp_path / "q.onnx")
    constants: dict[str, Any] = {tensor.name: numpy_helper.to_array(tensor) for tensor in file.graph.initializer}
    pairs = [node for node in file.graph.node if node.op_type == "QuantizeLinear"]
    sx, sy = (float(constants[node.input[1]]) for node in (pairs[0], pairs[-1]))
    (weights,) = (node for node in file.graph.node if node.input[0] in constants)
    w, sw = constants[weights.input[0]], float(constants[weights.input[1]])
    x = np.clip(np.floor(samples / sx + 0.5), -128, 127)
    shift = int(np.log2(sy / (sx * sw)))
    low, high = BOUNDS[activation]
    (found,) = reference.run(load(tmp_path / "q.onnx"), samples).values()
    ties = 0
    for sample, ours in zip(x, found, strict=True):
        total = integers(sample[0], w, CONVOLUTIONS[kind][2])
        ties += int((total % (1 << shift) == 1 << shift >> 1).sum())
        codes = np.clip((total + (1 << shift >> 1)) >> shift, max(-128, low / sy), min(127, np.floor(high / sy + 0.5)))
        np.testing.assert_array_equal(ours[0] / sy, codes, err_msg=f"seed {seed}")
    assert ties, "no sum was a tie"
