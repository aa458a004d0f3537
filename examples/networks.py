"""Writes well-known networks as float ONNX files. Weights are seeded random numbers: outputs and labels mean nothing.

    python examples/networks.py resnet18 -o resnet18.onnx [--seed N]

For shapes, cycles and arithmetic on real layer sizes where trained weights cannot be had. Needs onnx and onnxruntime.
Structures are the published ones with BatchNorm folded into the convolutions, at batch 1:

- resnet18, resnet34, resnet50 (v1.5: a bottleneck's stride is on its 3x3 convolution), vgg11, vgg16, mobilenetv2
  (ReLU6 is a Clip), squeezenet1.0, squeezenet1.1: 224x224 RGB, 1,000 outputs before softmax;
- yolo: YOLOv3-tiny's layers at 416x416 with its two heads of 255 channels (3 anchors x 85), but ReLU, not leaky ReLU;
- encoder: a transformer encoder, 4 pre-norm layers, width 128, 4 heads, 64 positions, GELU; (1, 64, 128) in and out.

Activations stay alive: each convolution and dense layer is run on a calibration batch of seeded smooth images, and its
weights and bias are rescaled to outputs of variance 1 (per channel; dense: all outputs together) and of mean 1 in each
channel where a ReLU follows, else 0, as BatchNorm would. With a mean of 0 before each ReLU random networks are chaotic:
every layer amplifies errors by pi / (pi - 1), 1.7 dB, and the rounding errors of ResNet-50 in int8 end as large as its
outputs; with 1 it is 0.5 dB. Files are float32: vgg16 is 553 MB and takes about 4 GB of memory to write.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Float = NDArray[np.float32]
Int = NDArray[np.int64]
SAMPLES = 8
#: The mean of what a ReLU reads, and of what none does.
ACTIVE, LINEAR = 1.0, 0.0
OPSET, IR_VERSION = 20, 9


class Network:
    """A graph under construction, with every tensor's value on the calibration batch; counts parameters and MACs."""

    def __init__(self, name: str, shape: Sequence[int], seed: int) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Float | Int] = {}
        self.values: dict[str, Float] = {"input": calibration(self.random, self.shape)}
        self.parameters = self.macs = 0

    def constant(self, value: Float | Int, what: str) -> str:
        name = f"{what}_{len(self.constants)}"
        self.constants[name] = value
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node, evaluate it on the calibration batch and return the name of its output."""
        output = f"{kind.lower()}_{len(self.nodes)}"
        node = helper.make_node(kind, inputs, [output], output, **attributes)
        known = {name: self.constants[name] if name in self.constants else self.values[name] for name in inputs if name}
        self.values[output] = evaluate(node, known)
        self.nodes.append(node)
        return output

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        centre: float = ACTIVE,
    ) -> str:
        """A convolution; each output channel has mean `centre` and variance 1. Padded to size / stride by default."""
        pad = kernel // 2 if pad is None else pad
        weight = self.draw((channels, self.values[x].shape[1] // groups, kernel, kernel))
        settings: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        settings["group"] = groups
        y = evaluate(helper.make_node("Conv", ["x", "w"], ["y"], **settings), {"x": self.values[x], "w": weight})
        mean, deviation = y.mean((0, 2, 3)), y.std((0, 2, 3)) + np.float32(1e-6)
        weight /= deviation[:, None, None, None]
        self.count(weight, channels, y[0, 0].size)
        w, b = self.constant(weight, "weight"), self.constant(np.float32(centre) - mean / deviation, "bias")
        return self.op("Conv", x, w, b, **settings)

    def dense(self, x: str, width: int, centre: float = LINEAR) -> str:
        """Gemm for (N, K), MatMul and Add for (N, positions, K); each output has mean `centre`, all have variance 1."""
        value = self.values[x]
        weight = self.draw((value.shape[-1], width))
        y = value.reshape(-1, value.shape[-1]) @ weight
        deviation = np.float32((y - y.mean(0)).std() + 1e-6)
        weight /= deviation
        self.count(weight, width, math.prod(value.shape[1:-1]))
        w, b = self.constant(weight, "weight"), self.constant(np.float32(centre) - y.mean(0) / deviation, "bias")
        return self.op("Gemm", x, w, b) if value.ndim == 2 else self.op("Add", self.op("MatMul", x, w), b)

    def draw(self, shape: Sequence[int]) -> Float:
        return self.random.standard_normal(shape, np.float32)

    def count(self, weight: Float, biases: int, positions: int) -> None:
        self.parameters += weight.size + biases
        self.macs += weight.size * positions

    def relu(self, x: str) -> str:
        return self.op("Relu", x)

    def pool(self, x: str, kernel: int, stride: int, pads: Sequence[int] = (0, 0, 0, 0), ceil: int = 0) -> str:
        settings = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": list(pads), "ceil_mode": ceil}
        return self.op("MaxPool", x, **settings)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The checked model with a batch of 1."""

        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *self.values[name].shape[1:]))

        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, self.name, [info("input")], [info(name) for name in outputs], tensors)
        graph.doc_string = "random weights; outputs and labels mean nothing"
        imports = [helper.make_opsetid("", OPSET)]
        return helper.make_model(
            graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="tilewright examples"
        )


def evaluate(node: onnx.NodeProto, inputs: dict[str, Any]) -> Float:
    """One node's output, by onnxruntime."""
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    infos = []
    for name, value in inputs.items():
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    result = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph([alone], "one", infos, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def calibration(random: np.random.Generator, shape: Sequence[int]) -> Float:
    """A batch of mean 0 and variance 1: images with detail at all sizes, or plain noise for a sequence."""
    batch = np.zeros((SAMPLES, *shape[1:]), np.float32)
    for size in (1, 4, 16, 64, 256) if len(shape) == 4 else (1,):
        cells = [*shape[1:2], *(-(-extent // size) for extent in shape[2:])]
        noise = random.standard_normal((SAMPLES, *cells), np.float32)
        for axis in range(2, len(shape)):
            noise = noise.repeat(size, axis)
        batch += noise[tuple(slice(extent) for extent in batch.shape)]
    return (batch - batch.mean()) / batch.std()


def resnet(net: Network, blocks: Sequence[int], bottleneck: bool) -> str:
    x = net.pool(net.relu(net.conv("input", 64, 7, 2)), 3, 2, [1] * 4)
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            stride, out = 2 if stage and not block else 1, width * (4 if bottleneck else 1)
            same = stride == 1 and net.values[x].shape[1] == out
            shortcut = x if same else net.conv(x, out, 1, stride)
            if bottleneck:
                x = net.conv(
                    net.relu(net.conv(net.relu(net.conv(x, width, 1)), width, 3, stride)), out, 1, centre=LINEAR
                )
            else:
                x = net.conv(net.relu(net.conv(x, width, 3, stride)), out, 3, centre=LINEAR)
            x = net.relu(net.op("Add", x, shortcut))
    return net.dense(net.op("Flatten", net.op("GlobalAveragePool", x)), 1000)


def vgg(net: Network, counts: Sequence[int]) -> str:
    x = "input"
    for width, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        for _ in range(count):
            x = net.relu(net.conv(x, width, 3))
        x = net.pool(x, 2, 2)
    x = net.op("Flatten", x)
    return net.dense(net.relu(net.dense(net.relu(net.dense(x, 4096, ACTIVE)), 4096, ACTIVE)), 1000)


def mobilenetv2(net: Network) -> str:
    low, high = net.constant(np.array(0, np.float32), "low"), net.constant(np.array(6, np.float32), "high")

    def relu6(x: str) -> str:
        return net.op("Clip", x, low, high)

    x = relu6(net.conv("input", 32, 3, 2))
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, out, count, first in table:
        for block in range(count):
            stride, channels = 1 if block else first, net.values[x].shape[1]
            wide = relu6(net.conv(x, expand * channels, 1)) if expand > 1 else x
            deep = relu6(net.conv(wide, expand * channels, 3, stride, 1, expand * channels))
            narrow = net.conv(deep, out, 1, centre=LINEAR)
            x = net.op("Add", x, narrow) if stride == 1 and channels == out else narrow
    x = net.op("GlobalAveragePool", relu6(net.conv(x, 1280, 1)))
    return net.dense(net.op("Flatten", x), 1000)


def squeezenet(net: Network, version: str) -> str:
    old = version == "1.0"
    x = net.relu(net.conv("input", 96 if old else 64, 7 if old else 3, 2, 0))
    pooled = (0, 3, 7) if old else (0, 2, 4)
    for fire, squeeze in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        if fire in pooled:
            x = net.pool(x, 3, 2, ceil=1)
        narrow = net.relu(net.conv(x, squeeze, 1))
        one, three = net.relu(net.conv(narrow, 4 * squeeze, 1)), net.relu(net.conv(narrow, 4 * squeeze, 3))
        x = net.op("Concat", one, three, axis=1)
    return net.op("Flatten", net.op("GlobalAveragePool", net.relu(net.conv(x, 1000, 1))))


def yolo(net: Network) -> tuple[str, str]:
    def block(x: str, channels: int, kernel: int) -> str:
        return net.relu(net.conv(x, channels, kernel))

    x = block("input", 16, 3)
    for channels in (32, 64, 128, 256):
        x = block(net.pool(x, 2, 2), channels, 3)
    fine = x
    x = net.pool(block(net.pool(x, 2, 2), 512, 3), 2, 1, (0, 0, 1, 1))
    x = block(block(x, 1024, 3), 256, 1)
    coarse = net.conv(block(x, 512, 3), 255, 1, centre=LINEAR)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32), "scales")
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = net.op("Resize", block(x, 128, 1), "", scales, **nearest)
    x = net.op("Concat", x, fine, axis=1)
    return coarse, net.conv(block(x, 256, 3), 255, 1, centre=LINEAR)


def encoder(net: Network, layers: int = 4, heads: int = 4) -> str:
    positions, width = net.shape[1:]
    split = net.constant(np.array([0, positions, heads, width // heads], np.int64), "split")
    merge = net.constant(np.array([0, positions, width], np.int64), "merge")
    scale = net.constant(np.array((width // heads) ** -0.5, np.float32), "scale")

    def norm(x: str) -> str:
        gain, shift = (
            net.constant(np.ones(width, np.float32), "gain"),
            net.constant(np.zeros(width, np.float32), "shift"),
        )
        net.parameters += 2 * width
        return net.op("LayerNormalization", x, gain, shift, axis=-1)

    def by_head(x: str, order: Sequence[int]) -> str:
        return net.op("Transpose", net.op("Reshape", net.dense(x, width), split), perm=list(order))

    x = "input"
    for _ in range(layers):
        h = norm(x)
        query, key, value = by_head(h, (0, 2, 1, 3)), by_head(h, (0, 2, 3, 1)), by_head(h, (0, 2, 1, 3))
        weights = net.op("Softmax", net.op("Mul", net.op("MatMul", query, key), scale), axis=-1)
        mixed = net.op("Transpose", net.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        net.macs += 2 * positions * positions * width
        x = net.op("Add", x, net.dense(net.op("Reshape", mixed, merge), width))
        x = net.op("Add", x, net.dense(net.op("Gelu", net.dense(norm(x), 4 * width)), width))
    return norm(x)


RGB = (1, 3, 224, 224)
NETWORKS: dict[str, tuple[Sequence[int], Callable[[Network], str | tuple[str, ...]]]] = {
    "resnet18": (RGB, lambda net: resnet(net, (2, 2, 2, 2), False)),
    "resnet34": (RGB, lambda net: resnet(net, (3, 4, 6, 3), False)),
    "resnet50": (RGB, lambda net: resnet(net, (3, 4, 6, 3), True)),
    "mobilenetv2": (RGB, mobilenetv2),
    "vgg11": (RGB, lambda net: vgg(net, (1, 1, 2, 2, 2))),
    "vgg16": (RGB, lambda net: vgg(net, (2, 2, 3, 3, 3))),
    "squeezenet1.0": (RGB, lambda net: squeezenet(net, "1.0")),
    "squeezenet1.1": (RGB, lambda net: squeezenet(net, "1.1")),
    "yolo": ((1, 3, 416, 416), yolo),
    "encoder": ((1, 64, 128), encoder),
}


def build(name: str, seed: int = 0) -> tuple[onnx.ModelProto, Network]:
    """The model `name`, and its counts of parameters and MACs with the values on the calibration batch."""
    shape, structure = NETWORKS[name]
    net = Network(name, shape, seed)
    outputs = structure(net)
    return net.model(*([outputs] if isinstance(outputs, str) else outputs)), net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.onnx")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.output.parent.is_dir():
        parser.error(f"{arguments.output}: there is no such folder")
    model, net = build(arguments.network, arguments.seed)
    onnx.save(model, arguments.output)
    print(f"{arguments.output}: {net.parameters:,d} parameters, {net.macs:,d} MACs; weights are random")


if __name__ == "__main__":
    main()
