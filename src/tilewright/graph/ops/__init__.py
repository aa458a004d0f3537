"""Every operator, found by kind."""

from tilewright.graph.ops.base import KINDS, Op
from tilewright.graph.ops.elementwise import Add, Clamp, Mul
from tilewright.graph.ops.linear import Conv2D, DepthwiseConv2D, FullyConnected, Linear
from tilewright.graph.ops.matmul import MatMul
from tilewright.graph.ops.onnx import OnnxOp
from tilewright.graph.ops.pool import AveragePool2D, MaxPool2D, Mean, RealAveragePool2D
from tilewright.graph.ops.quantize import Dequantize, Quantize
from tilewright.graph.ops.shape import Concat, Pad, Reshape, Transpose, Upsample
from tilewright.graph.ops.shift import IntegerAdd, RequantShift
from tilewright.graph.ops.softmax import Softmax
from tilewright.graph.ops.window import Window

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
