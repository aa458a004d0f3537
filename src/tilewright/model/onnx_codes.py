"""What an operator on codes is, before it becomes a node: its tensors, how they are quantised, what a kernel takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.arithmetic import Activation
from tilewright.graph.ir import Quant
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import Known

CODES = ("int8", "uint8")
#: Operators that onnxruntime runs on codes as they are, where input and output have the same quantisation.
MOVES = frozenset(
    [
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Gather",
        "Split",
        "Resize",
        "Identity",
        "Expand",
        "Tile",
        "DepthToSpace",
        "SpaceToDepth",
        "MaxPool",
        "Pad",
        "Dropout",
    ]
)
#: onnxruntime's Pad and MaxPool take codes since these opsets.
PAD_OPSET, MAXPOOL_OPSET = 11, 12
#: The mode of Resize that fills in a real value.
_CROPS = "tf_crop_and_resize"
#: Operators whose second operand may have another type and a scale for each channel.
LINEAR = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True)
class Coded:
    """A tensor of codes and how it is quantised; None where that does not matter (a bias)."""

    tensor: str
    quant: Quant | None


@dataclass(frozen=True, eq=False)
class Fused:
    """An operator on codes. `plain`: its other inputs, which are no codes; `bias`: int32 codes, '' without.

    `activation`: of the results, before they are rounded.
    """

    name: str
    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[Coded, ...]
    bias: str
    plain: tuple[str, ...]
    outputs: tuple[Coded, ...]
    activation: Activation = "none"

    @property
    def where(self) -> str:
        return f"op '{self.name}'"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*(coded.tensor for coded in self.inputs), self.bias, *self.plain)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(coded.tensor for coded in self.outputs)


def quantisation(known: Known, node: RawNode, rank: int) -> Quant | None:
    """The constant scale and zero point of a QuantizeLinear or DequantizeLinear; None where it has others."""
    if node.attributes.get("block_size") or len(node.inputs) < 2:
        return None
    return quant_of(known, node.inputs[1], operand(node, 2), int(node.attributes.get("axis", 1)), rank)


def quant_of(known: Known, scale: str, zero: str, axis: int, rank: int) -> Quant | None:
    """Constants as a Quant; None where they are not constant, of another type, or not positive."""
    constants = known.constants
    if scale not in constants or (zero and zero not in constants):
        return None
    if constants[scale].dtype != np.float32:
        return None
    scales = constants[scale].astype(np.float64).reshape(-1)
    zeros = constants[zero].reshape(-1) if zero else np.zeros(scales.size, np.int64)
    if zeros.size not in (1, scales.size) or not scales.size:
        return None
    if not (np.isfinite(scales) & (scales > 0)).all() or not -rank <= axis < max(rank, 2):
        return None
    each = tuple(int(z) for z in np.broadcast_to(zeros, scales.shape))
    return Quant(tuple(scales.tolist()), each, axis % rank if scales.size > 1 else 0)


def takes(known: Known, made: Fused) -> bool:
    """Whether the types allow an integer kernel."""
    activations = made.inputs[:1] if made.op_type in LINEAR else made.inputs
    ends = (*activations, *(coded for coded in made.outputs if coded.quant))
    dtypes = {known.types[coded.tensor].dtype for coded in ends}
    if len(dtypes) > 1 or not dtypes <= set(CODES) or not all(c.quant and not c.quant.per_channel for c in ends):
        return False
    if made.op_type in MOVES:
        return all(coded.quant == made.inputs[0].quant for coded in made.outputs) and _moves_codes(known, made)
    if made.op_type in LINEAR:
        weights, quant = known.types[made.inputs[1].tensor].dtype, made.inputs[1].quant
        columns = known.types[made.outputs[0].tensor].shape[-1:]
        if made.op_type == "Gemm" and quant and quant.per_channel and (len(quant.scale),) != columns:
            return False
        return weights in CODES and not (dtypes == {"int8"} and weights == "uint8")
    return True


def _moves_codes(known: Known, made: Fused) -> bool:
    """Whether codes can be moved like the real values: nothing is interpolated, and what is filled in has a code."""
    mode = made.attributes.get("mode")
    if made.op_type == "Resize":
        return mode in (None, "nearest") and made.attributes.get("coordinate_transformation_mode") != _CROPS
    if made.op_type == "Pad":
        constant = mode in (None, "constant")
        return padding_of(known, made) is not None if constant else known.opset >= PAD_OPSET
    if made.op_type == "MaxPool" and known.opset < MAXPOOL_OPSET:
        return len(known.types[made.inputs[0].tensor].shape) == 4  # else onnxruntime has to run it
    return True


def padding_of(known: Known, made: Fused) -> tuple[tuple[tuple[int, int], ...], float] | None:
    """(before, after) of each axis, and the value, of a Pad by a constant; None where it is another, or cuts."""
    rank = len(known.types[made.inputs[0].tensor].shape)
    if len(made.plain) > 2 or not all(not name or name in known.constants for name in made.plain):
        return None
    attribute = np.array(made.attributes.get("pads", ()))
    given = known.constants.get(made.plain[0], attribute) if made.plain else attribute
    if given.size != 2 * rank or (given < 0).any():
        return None
    value = float(made.attributes.get("value", 0.0))
    if len(made.plain) > 1 and made.plain[1]:
        value = float(known.constants[made.plain[1]].reshape(-1)[0])
    return tuple((int(before), int(after)) for before, after in given.reshape(2, -1).T), value


def operand(node: RawNode, index: int) -> str:
    """The name of an input; empty where it is absent."""
    return node.inputs[index] if index < len(node.inputs) else ""
