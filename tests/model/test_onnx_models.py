"""Published ONNX models and their goldens: outputs, every integer tensor, and what runs where."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.model.onnx_nets import onnx, onnxruntime
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Site
from tilewright.model import load

TINY = {"resnet8_cifar10": 10, "dscnn_kws": 12}
SHIFT = ("ImageClassification", "KeywordSpotting", "miniMobileNetv2")
#: Real networks that run in a few seconds.
REAL = (
    "squeezenet1.0/squeezenet1.0_fp32",
    "mobilenetv2_05_128/mobilenet_v2_128_0.5_fp32",
    "ultraface_rfb320/ultraface_rfb320_fp32",
    "yunet_n_320/yunet_n_320_fp32",
    "super_resolution10/model",
    "light_structures/light_shufflenet",
    "light_structures/light_inception_v2",
)


@pytest.fixture(scope="session")
def models(shared: Path) -> Path:
    return shared / "onnx_models"


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        return dict(archive)


def seen(graph: Any, inputs: Array) -> tuple[dict[str, Array], list[Array]]:
    """The outputs, and every result in the model's own layout: channels-last images go back to NCHW."""
    found: list[Array] = []

    def observe(site: Site, results: tuple[Array, ...]) -> None:
        for result in results:
            found.append(result[0])
            if result.ndim == 5:
                found.append(np.ascontiguousarray(result[0].transpose(0, 3, 1, 2)))

    return reference.run(graph, inputs, observe=observe), found


def images(models: Path) -> Array:
    """The photos as SqueezeNet takes them: BGR less its means, channels first."""
    pixels = arrays(models / "squeezenet1.0" / "images_u8_rgb_224.npz")["images"].astype(np.float32)
    centred = pixels[..., ::-1] - np.array([104, 117, 123], np.float32)
    return np.ascontiguousarray(centred.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("key", TINY)
def test_mlperf_tiny_equals_onnxruntime(models: Path, key: str) -> None:
    folder = models / "mlperf_tiny_qdq"
    graph, data = load(folder / f"{key}_int8_qdq.onnx"), arrays(folder / f"{key}_int8_qdq_golden.npz")
    outputs = reference.run(graph, np.ascontiguousarray(data["inputs_nhwc"].transpose(0, 3, 1, 2)))
    for name, golden in zip(graph.outputs, ("ort_output", "ort_logits"), strict=True):
        np.testing.assert_array_equal(outputs[name].reshape(data[golden].shape), data[golden])


def test_mlperf_tiny_on_vta_equals_onnxruntime(models: Path) -> None:
    folder = models / "mlperf_tiny_qdq"
    data = arrays(folder / "resnet8_cifar10_int8_qdq_golden.npz")
    program = tw.compile(folder / "resnet8_cifar10_int8_qdq.onnx", "vta")
    result = program.run(np.ascontiguousarray(data["inputs_nhwc"][:2].transpose(0, 3, 1, 2)))
    np.testing.assert_array_equal(result.outputs["t36_q"].reshape(2, 10), data["ort_logits"][:2])
    assert program.rounding == "ort" and result.matches_reference and not result.findings
    on_vta = [layer.op for layer in result.layers if layer.where == "vta"]
    assert (on_vta.count("conv2d"), on_vta.count("fully_connected")) == (9, 1)


@pytest.mark.parametrize(("codes", "golden"), [("u8s8", "qdq_u8s8"), ("s8s8", "qdq_s8s8_int8allowed")])
def test_squeezenet_equals_onnxruntime(models: Path, codes: str, golden: str) -> None:
    graph = load(models / "squeezenet1.0" / f"squeezenet1.0_qdq_{codes}.onnx")
    (output,) = reference.run(graph, images(models)).values()
    stored = arrays(models / "squeezenet1.0" / "golden_outputs.npz")[golden]
    np.testing.assert_array_equal(output.reshape(stored.shape), stored)
    kinds = [node.op.kind for node in graph.nodes]
    assert (kinds.count("conv2d"), kinds.count("transpose"), kinds.count("max_pool_2d")) == (26, 1, 3)


@pytest.mark.usefixtures("brief_search")
@pytest.mark.slow
@pytest.mark.parametrize("keys", [{}, {"alu": "float"}], ids=str)
def test_squeezenet_on_vta_equals_onnxruntime(models: Path, keys: dict[str, str]) -> None:
    """The photos, on stock VTA with the host finishing and with REQ in float32: the float model's classes."""
    folder = models / "squeezenet1.0"
    program = tw.compile(folder / "squeezenet1.0_qdq_u8s8.onnx", "vta", overrides=keys)
    result = program.run(images(models), compare=False)
    stored = arrays(folder / "golden_outputs.npz")
    (output,) = result.outputs.values()
    np.testing.assert_array_equal(output.reshape(stored["qdq_u8s8"].shape), stored["qdq_u8s8"])
    classes = [stored[name].reshape(len(output), -1).argmax(1).tolist() for name in ("qdq_u8s8", "fp32")]
    assert classes[0] == classes[1]
    assert not result.findings
    assert sum(layer.op == "conv2d" and layer.where == "vta" for layer in result.layers) == 26


def test_every_integer_tensor_of_squeezenet_has_the_golden_hash(models: Path) -> None:
    folder = models / "squeezenet1.0"
    stored = json.loads((folder / "pelican_u8s8_tensor_sha256.json").read_text())
    _, found = seen(load(folder / "squeezenet1.0_qdq_u8s8.onnx"), images(models)[:1])
    hashes = {(hashlib.sha256(a.tobytes()).hexdigest(), str(a.dtype), a.shape) for a in found}
    missing = [
        name for name, each in stored.items() if (each["sha256"], each["dtype"], tuple(each["shape"])) not in hashes
    ]
    assert not missing and len(stored) == 37


@pytest.mark.parametrize("key", SHIFT)
def test_requant_shift_networks_equal_their_goldens(models: Path, key: str) -> None:
    folder = models / "deeploy_requantshift" / key
    graph = load(folder / "network.onnx")
    (given,), (golden,) = (list(arrays(folder / f"{name}.npz").values()) for name in ("inputs", "outputs"))
    outputs, found = seen(graph, given.astype(np.uint8))
    np.testing.assert_array_equal(outputs[graph.outputs[0]].reshape(golden.shape), golden)
    stored = {name: value for name, value in arrays(folder / "activations.npz").items() if "_act_" in name}
    assert not [name for name, value in stored.items() if not any(equal(value, mine) for mine in found)]
    result = tw.compile(graph, "vta").run(given.astype(np.uint8))
    assert result.matches_reference and not result.findings


def equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool((a == b).all())


@pytest.mark.parametrize("key", REAL)
def test_real_networks_run_as_onnxruntime_runs_them(models: Path, key: str) -> None:
    path, seed = models / f"{key}.onnx", 3
    graph, rng = load(path), np.random.default_rng(seed)
    inputs = {name: rng.standard_normal((1, *graph.tensors[name].shape)).astype(np.float32) for name in graph.inputs}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    golden = session.run(None, {name: value[0] for name, value in inputs.items()})
    ours = reference.run(graph, inputs)
    for output, value in zip(session.get_outputs(), golden, strict=True):
        np.testing.assert_array_equal(ours[output.name][0], value, err_msg=f"seed {seed}")


def test_mnist_equals_its_published_goldens(models: Path) -> None:
    """Its weights are reshaped first: constant here, computed at run time there, and summed in another order."""
    graph = load(models / "mnist8_cntk" / "model.onnx")
    for folder in sorted((models / "mnist8_cntk").glob("test_data_set_*")):
        given, golden = (
            onnx.numpy_helper.to_array(onnx.load_tensor(folder / f"{n}_0.pb")) for n in ("input", "output")
        )
        (ours,) = reference.run(graph, given).values()
        np.testing.assert_allclose(ours[0], golden, atol=2e-3)


def every(models: Path) -> Iterator[Path]:
    return iter(sorted(models.rglob("*.onnx")))


def test_every_model_loads_with_its_own_ends(models: Path) -> None:
    for path in every(models):
        graph, file = load(path), onnx.load(str(path))
        constants = {tensor.name for tensor in file.graph.initializer}
        assert list(graph.inputs) == [value.name for value in file.graph.input if value.name not in constants], path
        assert list(graph.outputs) == [value.name for value in file.graph.output], path
        for value in file.graph.input:
            if value.name in graph.inputs:
                dims = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
                assert list(graph.tensors[value.name].shape) == dims, path
