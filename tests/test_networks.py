"""The example networks have the published sizes, stay alive, and are the same each time."""

from __future__ import annotations

import runpy
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from tests.conftest import ROOT  # noqa: E402

networks: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "networks.py")))

#: Millions of parameters and MACs: torchvision's tables (VGG16, ResNet v1.5, MobileNetV2, SqueezeNet), the YOLOv3-tiny
#: configuration (5.56 BFLOPs), and for the encoder 4 (4 d d + 2 d 4d) weights, 64 positions, 2 products of 64 x 64 x d.
#: Published parameter counts hold two numbers a channel for BatchNorm; folded, they are one bias.
PUBLISHED = {
    "squeezenet1.0": (1.248, 819),
    "squeezenet1.1": (1.235, 349),
    "mobilenetv2": (3.505, 301),
    "resnet18": (11.690, 1814),
    "encoder": (0.793, 54.5),
    "yolo": (8.849, 2780),
    "resnet34": (21.798, 3664),
    "resnet50": (25.557, 4089),
    "vgg11": (132.863, 7609),
    "vgg16": (138.358, 15470),
}
LARGE = ("yolo", "resnet34", "resnet50", "vgg11", "vgg16")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in PUBLISHED]


@pytest.mark.parametrize("name", NAMES)
def test_published_sizes_and_live_outputs(name: str) -> None:
    model, net = networks.build(name, seed=3)
    onnx.checker.check_model(model)
    parameters, macs = PUBLISHED[name]
    assert net.parameters == pytest.approx(parameters * 1e6, rel=0.01)
    assert net.macs == pytest.approx(macs * 1e6, rel=0.002)
    stored = sum(prod(tensor.dims) for tensor in model.graph.initializer)
    assert net.parameters <= stored <= net.parameters + 20  # shapes, bounds and scales
    for tensor, value in net.values.items():
        assert 0.005 < value.std() < 30, tensor
    sample = {"input": net.values["input"][:1]}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for info, output in zip(session.get_outputs(), session.run(None, sample), strict=True):
        assert list(output.shape) == info.shape
        expected = net.values[info.name][:1]
        assert np.allclose(output, expected, atol=1e-3 * np.abs(expected).max())


def test_convolutions_are_normalised_per_channel() -> None:
    _, net = networks.build("squeezenet1.1")
    for node in net.nodes:
        if node.op_type == "Conv":
            y = net.values[node.output[0]]
            assert np.abs(y.mean((0, 2, 3)) - 1).max() < 1e-2  # a ReLU follows each
            assert np.abs(y.std((0, 2, 3)) - 1).max() < 1e-2


def test_the_seed_decides() -> None:
    first, again, other = (networks.build("encoder", seed)[0].SerializeToString() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.slow
def test_the_detector_has_two_heads_of_255_channels() -> None:
    assert [net.values[name].shape[1] for net in [networks.build("yolo")[1]] for name in _heads(net)] == [255, 255]


def _heads(net: Any) -> list[str]:
    used = {name for node in net.nodes for name in node.input}
    return [node.output[0] for node in net.nodes if node.output[0] not in used]
