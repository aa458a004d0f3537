"""Random .tflite networks of several int8 operators that read each other's results."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tests.model.tflite_cases import Case
from tests.model.tflite_writer import Quantised

Shape = tuple[int, ...]
#: Values of more elements are not grown any further.
MOST = 2000
IMAGES = ("conv", "conv", "depthwise", "pool", "add", "each", "concat", "pad", "mean", "mul", "reshape", "resize")
ROWS = ("product", "product", "add", "mul", "each", "softmax", "concat", "reshape")


class Network:
    """A network under construction: tensors with their shapes and quantisation, the newest last."""

    def __init__(self, seed: int) -> None:
        self.case = Case(seed, "int8")
        c = self.case
        shape = (1, c.number(1, 9), c.number(1, 9), c.number(1, 18)) if c.number(0, 3) else (1, c.number(1, 40))
        self.values: dict[int, tuple[Shape, Quantised]] = {}
        self.read: set[int] = set()
        self.source = self.tensor(shape, c.quant(0.05))
        for _ in range(c.number(2, 8)):
            self.grow()

    def tensor(self, shape: Shape, quant: Quantised) -> int:
        index = self.case.tensor(shape, quant)
        self.values[index] = (shape, quant)
        return index

    def op(self, code: str, inputs: list[int], shape: Shape, quant: Quantised, options: str = "", **more: Any) -> None:
        self.read.update(inputs)
        self.case.w.op(code, inputs, [self.tensor(shape, quant)], options, **more)

    def grow(self) -> None:
        c = self.case
        newest = max(self.values)
        x = newest if c.number(0, 3) else int(c.rng.choice(list(self.values)))
        shape = self.values[x][0]
        kind = str(c.rng.choice(IMAGES if len(shape) == 4 else ROWS))
        if prod(shape) < MOST:
            getattr(self, kind)(x)

    def conv(self, x: int, depthwise: bool = False) -> None:
        c = self.case
        shape, quant = self.values[x]
        same = c.chance()
        kernel = [c.number(1, min(3, extent)) for extent in shape[1:3]]
        stride = [c.number(1, 2), c.number(1, 2)]
        channels = shape[3] if depthwise else c.number(1, 20)
        form = (1, *kernel, channels) if depthwise else (channels, *kernel, shape[3])
        weights, scales = c.weights(form, 3 if depthwise else 0, channels)
        bias = c.bias(channels, scales * np.float32(float(np.asarray(quant.scale))), ("int32",), always=True)
        size = [
            -(-extent // s) if same else (extent - k) // s + 1
            for extent, k, s in zip(shape[1:3], kernel, stride, strict=True)
        ]
        options: dict[str, Any] = {"padding": 0 if same else 1, "strideH": stride[0], "strideW": stride[1]}
        options |= {"dilationHFactor": 1, "dilationWFactor": 1, "fusedActivationFunction": c.activation()}
        name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        options |= {"depthMultiplier": 1} if depthwise else {}
        result = c.product(quant, scales, prod(form) // channels)
        kind = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        self.op(name, [x, weights, *bias], (1, *size, channels), result, kind, **options)

    def depthwise(self, x: int) -> None:
        self.conv(x, depthwise=True)

    def product(self, x: int) -> None:
        c = self.case
        shape, quant = self.values[x]
        channels = c.number(1, 20)
        scale = np.exp(c.rng.uniform(-4, -1, 1)).astype(np.float32)
        data = c.rng.integers(-127, 128, (channels, shape[-1])).astype(np.int8)
        weights = c.w.constant(data, Quantised(float(scale[0])))
        bias = c.bias(channels, scale * np.float32(float(np.asarray(quant.scale))), ("int32",)) or [-1]
        result = c.product(quant, scale, shape[-1])
        options = {"fusedActivationFunction": c.activation()}
        self.op(
            "FULLY_CONNECTED", [x, weights, *bias], (shape[0], channels), result, "FullyConnectedOptions", **options
        )

    def pool(self, x: int) -> None:
        c = self.case
        shape, quant = self.values[x]
        kernel = [c.number(1, min(3, extent)) for extent in shape[1:3]]
        stride = [c.number(1, 3), c.number(1, 3)]
        size = [(extent - k) // s + 1 for extent, k, s in zip(shape[1:3], kernel, stride, strict=True)]
        options: dict[str, Any] = {"padding": 1, "strideH": stride[0], "strideW": stride[1]}
        options |= {"filterHeight": kernel[0], "filterWidth": kernel[1], "fusedActivationFunction": c.activation()}
        code = "MAX_POOL_2D" if c.chance() else "AVERAGE_POOL_2D"
        self.op(code, [x], (1, *size, shape[3]), quant, "Pool2DOptions", **options)

    def add(self, x: int, code: str = "ADD", options: str = "AddOptions", **more: Any) -> None:
        c = self.case
        shape, quant = self.values[x]
        alike = [index for index, (form, _) in self.values.items() if form == shape]
        other = int(c.rng.choice(alike))
        scale = float(np.asarray(quant.scale))
        around = scale * 100 * float(np.asarray(self.values[other][1].scale)) if code == "MUL" else scale
        self.op(code, [x, other], shape, c.quant(around), options, fusedActivationFunction=c.activation(), **more)

    def mul(self, x: int) -> None:
        self.add(x, "MUL", "MulOptions")

    def each(self, x: int) -> None:
        c = self.case
        shape, quant = self.values[x]
        code = str(c.rng.choice(["LOGISTIC", "TANH", "HARD_SWISH", "RELU", "LEAKY_RELU"]))
        fixed = {"LOGISTIC": Quantised(1 / 256, -128), "TANH": Quantised(1 / 128, 0)}
        result = fixed.get(code) or c.quant(float(np.asarray(quant.scale)))
        options = {"HARD_SWISH": "HardSwishOptions", "LEAKY_RELU": "LeakyReluOptions"}.get(code, "")
        values = {"alpha": float(c.rng.uniform(0, 1.2))} if code == "LEAKY_RELU" else {}
        self.op(code, [x], shape, result, options, **values)

    def softmax(self, x: int) -> None:
        shape = self.values[x][0]
        if shape[-1] <= 256:  # TFLite Micro aborts where the sum of the exponentials needs more than 8 integer bits
            self.op("SOFTMAX", [x], shape, Quantised(1 / 256, -128), "SoftmaxOptions", beta=1.0)

    def concat(self, x: int) -> None:
        shape, quant = self.values[x]
        options = {"axis": len(shape) - 1}
        self.op("CONCATENATION", [x, x], (*shape[:-1], 2 * shape[-1]), quant, "ConcatenationOptions", **options)

    def pad(self, x: int) -> None:
        c = self.case
        shape, quant = self.values[x]
        pairs = np.array([(0, 0), (c.number(0, 2), c.number(0, 2)), (c.number(0, 2), 0), (0, 0)], np.int32)
        form = tuple(int(n) for n in np.array(shape) + pairs.sum(1))
        self.op("PAD", [x, c.w.constant(pairs)], form, quant, "PadOptions")

    def mean(self, x: int) -> None:
        c = self.case
        shape, quant = self.values[x]
        keep = c.chance()
        form = (1, 1, 1, shape[3]) if keep else (1, shape[3])
        axes = c.w.constant(np.array([1, 2], np.int32))
        self.op("MEAN", [x, axes], form, c.quant(float(np.asarray(quant.scale))), "ReducerOptions", keepDims=keep)

    def reshape(self, x: int) -> None:
        shape, quant = self.values[x]
        form = (1, prod(shape)) if len(shape) == 4 else (1, 1, 1, prod(shape))
        self.op("RESHAPE", [x, self.case.w.constant(np.array(form, np.int32))], form, quant)

    def resize(self, x: int) -> None:
        c = self.case
        shape, quant = self.values[x]
        size = (c.number(1, 12), c.number(1, 12))
        inputs = [x, c.w.constant(np.array(size, np.int32))]
        self.op("RESIZE_NEAREST_NEIGHBOR", inputs, (1, *size, shape[3]), quant, "ResizeNearestNeighborOptions")

    def save(self, path: Path) -> Path:
        """Write the network; its outputs are all values that no operator reads."""
        ends = [index for index in self.values if index not in self.read]
        return self.case.w.written(path, [self.source], ends)
