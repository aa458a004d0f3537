"""Train a small network and write it as float ONNX, with samples: the model of docs/tutorials/own-network.md.

    python examples/own_network.py shapes          # shapes.onnx, calibration.npz, test.npz in the folder shapes

It tells circles, squares, triangles and crosses apart, in grey images of 16 x 16 pixels. Two convolutions with stride 2
and a fully connected layer are trained with numpy, by gradient descent with momentum. Any framework that exports ONNX
will do instead. Weights are rounded to 10 bits of fraction, so that they are the same on every computer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from tilewright.array import Array

CLASSES = ("circle", "square", "triangle", "cross")
SIDE, TRAINED, CALIBRATED, TESTED = 16, 2000, 64, 200
STEPS, BATCH, RATE, MOMENTUM = 600, 50, 0.05, 0.9
FRACTION = 1 << 10


def images(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Return images (count, 1, 16, 16) of floats in 0..1, and their classes."""
    labels = np.arange(count) % len(CLASSES)
    radius = rng.uniform(3.5, 6.0, (count, 1, 1))
    centre = rng.uniform(6.5, 8.5, (2, count, 1, 1))
    y, x = np.arange(SIDE)[None, :, None] - centre[0], np.arange(SIDE)[None, None, :] - centre[1]
    shapes = (
        np.hypot(x, y) < radius,
        np.maximum(abs(x), abs(y)) < 0.85 * radius,
        (y < 0.8 * radius) & (2 * abs(x) - y < radius),
        (np.minimum(abs(x), abs(y)) < 0.3 * radius) & (np.maximum(abs(x), abs(y)) < radius),
    )
    inside = np.choose(labels[:, None, None], shapes)
    grey = inside * rng.uniform(0.5, 1.0, (count, 1, 1)) + rng.uniform(0, 0.35, (count, SIDE, SIDE))
    return np.clip(grey, 0, 1)[:, None], labels


def patches(x: Array) -> Array:
    """Return the 3 x 3 windows of x (N, C, H, W) with stride 2 and one pixel of padding: (N, H/2, W/2, C * 9)."""
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(x), x.shape[2] // 2, x.shape[3] // 2, -1)


def unpatched(grads: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of x, of this shape, from the gradient of its patches."""
    wide = np.zeros((*shape[:2], shape[2] + 2, shape[3] + 2))
    parts = grads.reshape(*grads.shape[:3], shape[1], 3, 3)
    for row in range(3):
        for column in range(3):
            wide[:, :, row : row + shape[2] : 2, column : column + shape[3] : 2] += parts[..., row, column].transpose(
                0, 3, 1, 2
            )
    return wide[:, :, 1:-1, 1:-1]


class Network:
    """Two convolutions with ReLU and a fully connected layer."""

    def __init__(self, rng: np.random.Generator) -> None:
        sizes = ((9, 8), (72, 16), (256, len(CLASSES)))
        self.weights = [rng.normal(0, np.sqrt(2 / size[0]), size) for size in sizes]
        self.biases = [np.zeros(size[1]) for size in sizes]
        self.speeds = [np.zeros_like(value) for value in (*self.weights, *self.biases)]

    def scores(self, x: Array) -> tuple[list[Array], list[Array]]:
        """Return the inputs of each layer, as matrices, and each layer's outputs."""
        ins, outs = [patches(x)], list[Array]()
        outs.append(np.maximum(ins[0] @ self.weights[0] + self.biases[0], 0))
        ins.append(patches(outs[0].transpose(0, 3, 1, 2)))
        outs.append(np.maximum(ins[1] @ self.weights[1] + self.biases[1], 0))
        ins.append(outs[1].transpose(0, 3, 1, 2).reshape(len(x), -1))
        outs.append(ins[2] @ self.weights[2] + self.biases[2])
        return ins, outs

    def step(self, x: Array, labels: Array) -> None:
        """Take one step down the gradient of the cross entropy."""
        ins, outs = self.scores(x)
        powers = np.exp(outs[2] - outs[2].max(1, keepdims=True))
        error = (powers / powers.sum(1, keepdims=True) - np.eye(len(CLASSES))[labels]) / len(x)
        gradients: list[Array] = []
        for layer in (2, 1, 0):
            rows = ins[layer].reshape(-1, ins[layer].shape[-1])
            flat = error.reshape(len(rows), -1)
            gradients += [flat.sum(0), rows.T @ flat]
            back = flat @ self.weights[layer].T
            if layer == 2:
                error = back.reshape(len(x), 16, 4, 4).transpose(0, 2, 3, 1) * (outs[1] > 0)
            elif layer == 1:
                error = unpatched(back.reshape(ins[1].shape), (len(x), 8, 8, 8)).transpose(0, 2, 3, 1) * (outs[0] > 0)
        found = [*gradients[5::-2], *gradients[4::-2]]
        for value, speed, gradient in zip((*self.weights, *self.biases), self.speeds, found, strict=True):
            np.subtract(MOMENTUM * speed, RATE * gradient, out=speed)
            np.add(value, speed, out=value)

    def right(self, x: Array, labels: Array) -> int:
        """Return how many images are recognised."""
        return int((self.scores(x)[1][2].argmax(1) == labels).sum())


def model(network: Network) -> onnx.ModelProto:
    """Return the network as a float ONNX model."""
    first, second, last = (weights.astype(np.float32) for weights in network.weights)
    values: dict[str, Array] = {
        "conv1.weight": first.T.reshape(8, 1, 3, 3),
        "conv2.weight": second.T.reshape(16, 8, 3, 3),
        "fc.weight": last.T,
    }
    values |= {f"{name}.bias": bias for name, bias in zip(("conv1", "conv2", "fc"), network.biases, strict=True)}
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **window),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **window),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("Flatten", ["relu2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["scores"], "fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, len(CLASSES)])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/own_network.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    x, labels = images(rng, TRAINED)
    network = Network(rng)
    for _ in range(STEPS):
        chosen = rng.integers(0, TRAINED, BATCH)
        network.step(x[chosen], labels[chosen])
    for value in (*network.weights, *network.biases):
        value[...] = np.round(value * FRACTION) / FRACTION
    test, classes = images(rng, TESTED)
    print(f"float network: {network.right(test, classes)} of {TESTED} test images right")
    onnx.save(model(network), folder / "shapes.onnx")
    np.savez_compressed(folder / "calibration.npz", inputs=x[:CALIBRATED].astype(np.float32))
    np.savez_compressed(folder / "test.npz", inputs=test.astype(np.float32), labels=classes)
    print(f"wrote {folder / 'shapes.onnx'}, calibration.npz, test.npz")


if __name__ == "__main__":
    main()
