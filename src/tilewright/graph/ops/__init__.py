"""All operators of the graph, and `KINDS`, which maps the name of each kind to its class."""

from tilewright.graph.ir import KINDS, Op
from tilewright.graph.ops.activation import HardSwish, LeakyRelu, Logistic, Tanh
from tilewright.graph.ops.base import Window
from tilewright.graph.ops.elementwise import Add, Clamp, Dequantize, IntegerAdd, Mul, Quantize, RequantShift, Sub
from tilewright.graph.ops.linear import Conv2D, DepthwiseConv2D, FullyConnected, Linear, MatMul, TransposeConv2D
from tilewright.graph.ops.lstm import Lstm
from tilewright.graph.ops.onnx import OnnxOp
from tilewright.graph.ops.reduce import AveragePool2D, MaxPool2D, Mean, Product, RealAveragePool2D, Softmax
from tilewright.graph.ops.shape import (
    Concat,
    Pack,
    Pad,
    Reshape,
    ResizeNearest,
    Slice,
    Split,
    Tile,
    Transpose,
    Upsample,
)
