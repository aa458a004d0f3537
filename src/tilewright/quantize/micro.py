"""Scheme `tflm`: the integers of TensorFlow Lite Micro, in a QDQ model that `run` computes as TFLite Micro does.

onnxruntime's quantiser chooses the ranges. It leaves two scales free that TFLite Micro fixes: an average has the scale
of its input, and a softmax has 1/256 and the zero point -128. So the quantiser runs twice, and is given these scales
the second time.
"""

from __future__ import annotations

from onnx import ModelProto

from tilewright.model.onnx_file import ROUNDING
from tilewright.quantize import affine
from tilewright.quantize.samples import Task

AVERAGES = ("AveragePool", "GlobalAveragePool")
#: Operators whose result has the scale of their input in every QDQ model.
MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity")
#: Scale and zero point of the result of a softmax.
PROBABILITY = 1 / 256, -128


def quantize(task: Task) -> ModelProto:
    """Return the QDQ model of a task, with int8 activations, whose metadata name the rounding mode.

    Raises UnsupportedError if onnxruntime's quantiser fails.
    """
    made = affine.again(task, _fixed)
    made.metadata_props.add(key=ROUNDING, value="tflm")
    return made


def _fixed(model: ModelProto, chosen: affine.Fixed) -> affine.Fixed:
    """Return the scale and zero point of each tensor of a float model that TFLite Micro does not leave free.

    `chosen` are those that the quantiser chooses.
    """
    fixed: affine.Fixed = {}
    for node in model.graph.node:
        if node.op_type == "Softmax":
            fixed[node.output[0]] = PROBABILITY
        elif node.op_type in AVERAGES or (node.op_type in MOVES and node.input[0] in fixed):
            source = fixed.get(node.input[0], chosen.get(node.input[0]))
            if source is not None:
                fixed[node.output[0]] = source
    return fixed
