"""Float .tflite files: the converted model equals LiteRT, and every scheme quantises it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import tilewright as tw  # noqa: E402
from tests.model.tflite_writer import Quantised, Writer, run_litert  # noqa: E402
from tilewright.array import Array  # noqa: E402
from tilewright.cli import main  # noqa: E402
from tilewright.errors import UnsupportedError  # noqa: E402
from tilewright.quantize import Options, quantize  # noqa: E402
from tilewright.quantize.tflite_nodes import converted  # noqa: E402


class Net:
    """A float network in the making; weights are stored as `kind`."""

    def __init__(self, seed: int, kind: str = "float32") -> None:
        self.w, self.rng, self.kind = Writer(), np.random.default_rng(seed), kind

    def tensor(self, *shape: int) -> int:
        return self.w.tensor(shape, "float32")

    def weights(self, *shape: int) -> int:
        """Constant weights. float16 ones pass through DEQUANTIZE; int8 ones have a scale for each output channel."""
        values = (self.rng.standard_normal(shape) * 0.4).astype(np.float32)
        if self.kind == "float32":
            return self.w.constant(values)
        if self.kind == "int8":
            scale = np.full(shape[0], 0.01, np.float32)
            return self.w.constant(
                np.clip(np.rint(values * 100), -127, 127).astype(np.int8), Quantised(scale.tolist(), [0] * shape[0])
            )
        made = self.tensor(*shape)
        self.w.op("DEQUANTIZE", [self.w.constant(values.astype(np.float16))], [made])
        return made

    def op(self, code: str, inputs: list[int], shape: tuple[int, ...], options: str = "", **values: Any) -> int:
        y = self.tensor(*shape)
        self.w.op(code, inputs, [y], options, **values)
        return y

    def ints(self, *values: int) -> int:
        return self.w.constant(np.array(values, np.int32))


def image_network(n: Net) -> tuple[int, int]:
    """Convolutions of each kind, pools, a skip, a concatenation, resizing, a mean and a dense layer."""
    x = n.tensor(1, 12, 10, 3)
    window = {"padding": 0, "strideH": 2, "strideW": 1, "fusedActivationFunction": 3}
    a = n.op("CONV_2D", [x, n.weights(8, 3, 3, 3), n.weights(8)], (1, 6, 10, 8), "Conv2DOptions", **window)
    one = {"padding": 0, "strideH": 1, "strideW": 1}
    deep = {**one, "depthMultiplier": 1, "fusedActivationFunction": 1}
    inputs = [a, n.w.constant((n.rng.standard_normal((1, 3, 3, 8)) * 0.4).astype(np.float32)), n.weights(8)]
    b = n.op("DEPTHWISE_CONV_2D", inputs, (1, 6, 10, 8), "DepthwiseConv2DOptions", **deep)
    c = n.op("CONV_2D", [b, n.weights(8, 1, 1, 8), n.weights(8)], (1, 6, 10, 8), "Conv2DOptions", **one)
    d = n.op("ADD", [a, c], (1, 6, 10, 8), "AddOptions", fusedActivationFunction=1)
    pool = {"padding": 0, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 2}
    e = n.op("MAX_POOL_2D", [d], (1, 3, 5, 8), "Pool2DOptions", **pool)
    f = n.op("RESIZE_NEAREST_NEIGHBOR", [e, n.ints(6, 10)], (1, 6, 10, 8), "ResizeNearestNeighborOptions")
    up = {"padding": 0, "strideH": 2, "strideW": 2}
    g = n.op(
        "TRANSPOSE_CONV", [n.ints(1, 6, 10, 8), n.weights(8, 3, 3, 8), e], (1, 6, 10, 8), "TransposeConvOptions", **up
    )
    h = n.op("CONCATENATION", [d, f, g], (1, 6, 10, 24), "ConcatenationOptions", axis=3)
    h = n.op("LEAKY_RELU", [h], (1, 6, 10, 24), "LeakyReluOptions", alpha=0.2)
    h = n.op(
        "PAD", [h, n.w.constant(np.array([[0, 0], [1, 0], [0, 1], [0, 0]], np.int32))], (1, 7, 11, 24), "PadOptions"
    )
    h = n.op(
        "STRIDED_SLICE",
        [h, n.ints(0, 0, 1, 0), n.ints(1, 7, 11, 24), n.ints(1, 2, 1, 1)],
        (1, 4, 10, 24),
        "StridedSliceOptions",
    )
    h = n.op("MEAN", [h, n.ints(1, 2)], (1, 24), "ReducerOptions", keepDims=False)
    h = n.op("FULLY_CONNECTED", [h, n.weights(6, 24), n.weights(6)], (1, 6), "FullyConnectedOptions")
    return x, n.op("SOFTMAX", [h], (1, 6), "SoftmaxOptions", beta=1.0)


def channels_first_network(n: Net) -> tuple[int, int]:
    """A network from PyTorch: its image is channels first, and a transpose brings it into TFLite's order."""
    x = n.tensor(1, 3, 8, 8)
    h = n.op("TRANSPOSE", [x, n.ints(0, 2, 3, 1)], (1, 8, 8, 3), "TransposeOptions")
    window = {"padding": 1, "strideH": 1, "strideW": 1}
    h = n.op("CONV_2D", [h, n.weights(4, 3, 3, 3), n.weights(4)], (1, 6, 6, 4), "Conv2DOptions", **window)
    h = n.op("HARD_SWISH", [h], (1, 6, 6, 4))
    h = n.op("PRELU", [h, n.weights(1, 1, 4)], (1, 6, 6, 4))
    h = n.op("RESIZE_BILINEAR", [h, n.ints(8, 10)], (1, 8, 10, 4), "ResizeBilinearOptions", halfPixelCenters=True)
    h = n.op("SPACE_TO_DEPTH", [h], (1, 4, 5, 16), "SpaceToDepthOptions", blockSize=2)
    h = n.op("DEPTH_TO_SPACE", [h], (1, 8, 10, 4), "DepthToSpaceOptions", blockSize=2)
    h = n.op("RESIZE_BILINEAR", [h, n.ints(6, 6)], (1, 6, 6, 4), "ResizeBilinearOptions", alignCorners=True)
    h = n.op("MUL", [h, n.weights(4)], (1, 6, 6, 4), "MulOptions")
    h = n.op("RESHAPE", [h, n.ints(1, 144)], (1, 144), "ReshapeOptions", newShape=[1, 144])
    return x, n.op("FULLY_CONNECTED", [h, n.weights(5, 144), -1], (1, 5), "FullyConnectedOptions")


def sequence_network(n: Net) -> tuple[int, int]:
    """An LSTM that limits its cells, split in two halves and packed again."""
    x, cells = n.tensor(1, 5, 4), 6
    weights = [n.weights(cells, size) for size in [4] * 4 + [cells] * 4]
    biases = [n.w.constant((n.rng.standard_normal(cells) * 0.1).astype(np.float32)) for _ in range(4)]
    states = [n.w.tensor((1, cells), "float32", variable=True) for _ in range(2)]
    y = n.tensor(1, 5, cells)
    inputs = [x, *weights, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    settings: dict[str, Any] = {"fusedActivationFunction": 4, "cellClip": 0.5}
    n.w.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions", **settings)
    halves = [n.tensor(1, 5, 3), n.tensor(1, 5, 3)]
    n.w.op("SPLIT", [n.w.constant(np.array(2, np.int32)), y], halves, "SplitOptions", numSplits=2)
    h = n.op("SUB", halves, (1, 5, 3), "SubOptions")
    h = n.op("PACK", [h, halves[0]], (1, 5, 2, 3), "PackOptions", axis=2, valuesCount=2)
    h = n.op("RESHAPE", [h, n.ints(1, 30)], (1, 30), "ReshapeOptions", newShape=[1, 30])
    return x, n.op("FULLY_CONNECTED", [h, n.weights(3, 30), n.weights(3)], (1, 3), "FullyConnectedOptions")


NETWORKS = [image_network, channels_first_network, sequence_network]
Make = Callable[[Net], tuple[int, int]]


def written(make: Make, kind: str, path: Path, seed: int = 3) -> tuple[Path, Array]:
    """The file of a network, and eight random samples for it."""
    net = Net(seed, kind)
    x, y = make(net)
    made = net.w.written(path, [x], [y])
    shape = net.w.graphs[0].tensors[x].shape
    return made, np.random.default_rng(seed).standard_normal((8, *shape)).astype(np.float32)


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("make", NETWORKS)
def test_the_converted_model_equals_litert(make: Make, kind: str, tmp_path: Path) -> None:
    path, samples = written(make, kind, tmp_path / "net.tflite")
    model = converted(path)
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString())
    (given,) = session.get_inputs()
    ours = np.stack([session.run(None, {given.name: sample})[0] for sample in samples])
    (theirs,) = run_litert(path, {0: samples}, reset=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert np.ptp(theirs) > 0.01


def test_no_transposes_are_left_inside(tmp_path: Path) -> None:
    """Values stay channels first between convolutions: an image is turned once, at the input."""
    path, _ = written(image_network, "float32", tmp_path / "net.tflite")
    kinds = [node.op_type for node in converted(path).graph.node]
    assert kinds.count("Transpose") <= 3  # the input, and around the slice
    path, _ = written(channels_first_network, "float32", tmp_path / "net.tflite")
    assert [node.op_type for node in converted(path).graph.node].count("Transpose") <= 1  # before the reshape


QUICK = ((channels_first_network, "affine"), (channels_first_network, "pow2"), (sequence_network, "tflm"))
EACH = [
    pytest.param(make, scheme, marks=[pytest.mark.slow] * ((make, scheme) not in QUICK), id=f"{make.__name__}-{scheme}")
    for make in NETWORKS
    for scheme in ("affine", "tflm", "pow2")
]


@pytest.mark.parametrize(("make", "scheme"), EACH)
def test_every_scheme_quantises(make: Make, scheme: str, tmp_path: Path) -> None:
    path, samples = written(make, "float16", tmp_path / "net.tflite")
    np.save(tmp_path / "x.npy", samples)
    report = quantize(path, tmp_path / "x.npy", tmp_path / "q.onnx", Options(scheme))
    concatenates = make is image_network and scheme == "tflm"  # rescaled by TFLite Micro's rule, not onnxruntime's
    assert report.verification is not None and (report.verification.passed or concatenates)
    assert report.fidelity.outputs[0].snr_db > 15
    result = tw.compile(tmp_path / "q.onnx", "vta").run(samples)
    assert result.matches_reference and result.coverage > 0.6


def test_weights_of_int8_are_dequantised(tmp_path: Path) -> None:
    """Files of `Optimize.DEFAULT` without samples have int8 weights and float activations."""
    net = Net(1, "int8")
    x = net.tensor(1, 6)
    w = net.weights(4, 6)
    y = net.op("FULLY_CONNECTED", [x, w, -1], (1, 4), "FullyConnectedOptions", asymmetricQuantizeInputs=False)
    model = converted(net.w.written(tmp_path / "hybrid.tflite", [x], [y]))
    stored = next(t for t in model.graph.initializer if list(t.dims) == [4, 6])
    held = np.frombuffer(net.w.buffers[1].data.tobytes(), np.int8).reshape(4, 6)
    np.testing.assert_allclose(onnx.numpy_helper.to_array(stored), held * np.float32(0.01), rtol=1e-6)


def test_what_is_refused_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(0)
    x = net.w.tensor((1, 4), "int8", Quantised(0.1))
    y = net.w.tensor((1, 4), "int8", Quantised(0.1))
    net.w.op("RELU", [x], [y])
    path = net.w.written(tmp_path / "int8.tflite", [x], [y])
    with pytest.raises(UnsupportedError, match=r"int8\.tflite: input 't0_0': is int8, not float32; run it without"):
        converted(path)
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 4), np.float32))
    assert main(["quantize", str(path), "--calibration", str(tmp_path / "x.npy")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    net = Net(0)
    x = net.tensor(1, 4)
    y = net.op("SIGN", [x], (1, 4))
    with pytest.raises(UnsupportedError, match="SIGN is not supported in float models; supported are"):
        converted(net.w.written(tmp_path / "sign.tflite", [x], [y]))
