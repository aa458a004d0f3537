"""All operators of the graph, and `KINDS`, which maps the name of each kind to its class."""

from tilewright.graph.ops.base import KINDS, Op, Window
from tilewright.graph.ops.elementwise import Add, Clamp, Dequantize, IntegerAdd, Mul, Quantize, RequantShift
from tilewright.graph.ops.linear import Conv2D, DepthwiseConv2D, FullyConnected, Linear, MatMul
from tilewright.graph.ops.onnx import OnnxOp
from tilewright.graph.ops.reduce import AveragePool2D, MaxPool2D, Mean, RealAveragePool2D, Softmax
from tilewright.graph.ops.shape import Concat, Pad, Reshape, Transpose, Upsample

__all__ = [
    "KINDS",
    "Add",
    "AveragePool2D",
    "Clamp",
    "Concat",
    "Conv2D",
    "Dequantize",
    "DepthwiseConv2D",
    "FullyConnected",
    "IntegerAdd",
    "Linear",
    "MatMul",
    "MaxPool2D",
    "Mean",
    "Mul",
    "OnnxOp",
    "Op",
    "Pad",
    "Quantize",
    "RealAveragePool2D",
    "RequantShift",
    "Reshape",
    "Softmax",
    "Transpose",
    "Upsample",
    "Window",
]
