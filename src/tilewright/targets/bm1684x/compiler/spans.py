"""Which bytes of a lane an operand reaches: from its first to its last."""

from __future__ import annotations

from tilewright.targets.bm1684x.layout import Shape, Stride
from tilewright.targets.bm1684x.tensor import Kernel, Operand, Tensor


def as_tensor(operand: Operand) -> Tensor:
    """A kernel as the tensor of its groups of input channels; tensors as they are."""
    if isinstance(operand, Kernel):
        oc, ic, kh, kw = operand.shape
        rows = -(-ic // operand.group) * kh * kw
        strides = Stride(0, rows * operand.group, operand.group, 1)
        return Tensor(operand.address, Shape(1, oc, rows, operand.group), strides, operand.dtype, operand.config)
    assert isinstance(operand, Tensor)
    return operand


def lane_span(operand: Operand) -> tuple[int, int]:
    """The first byte, and one past the last."""
    tensor = as_tensor(operand)
    return tensor.lane_offset, tensor.lane_end
