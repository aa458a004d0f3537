"""Fields of operands: the inverse of `operands.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.errors import ProgramError
from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.dtypes import DType
from tilewright.targets.bm1684x.isa.operands import ALIGNED, STRIDED
from tilewright.targets.bm1684x.layout import Shape, Stride
from tilewright.targets.bm1684x.tensor import Kernel, Operand, Tensor

Fields = dict[str, int]


class Written(NamedTuple):
    """The format of a command (short for the compute engine, long for DMA) and its fields without ids."""

    format: str
    fields: Fields


Writer = Callable[[Command], Written]


def refused(command: Command, reason: str, remedy: str = "") -> ProgramError:
    """For what no known format says."""
    return ProgramError(f"encoding {command.operation.name}", reason, remedy)


def typed(name: str, dtype: DType) -> Fields:
    """The type of an operand."""
    return {f"{name}_prec": dtype.precision, f"{name}_sign": int(dtype.signed and not dtype.is_float)}


def address(operand: Operand | Kernel) -> int:
    """Where an operand begins, from the beginning of local memory."""
    if isinstance(operand, Tensor | Kernel):
        return operand.address - LOCAL_BASE
    return int(operand.addresses.flat[0]) - LOCAL_BASE


def shaped(name: str, shape: tuple[int, ...]) -> Fields:
    """Four sizes."""
    return {f"{name}_{axis}": size for axis, size in zip("nchw", shape, strict=True)}


def placed(command: Command, own: str, name: str, strides: bool = False) -> Fields:
    """Operand or result `own` as the format's `name`: a constant or an address; `strides`, where it can have them."""
    operand = command.operands[own] if own in command.operands else command.results[own]
    if isinstance(operand, Constant):
        return {f"{name}_const": 1, f"{name}_addr": operand.bits}
    fields = {f"{name}_addr": address(operand)}
    if strides:
        explicit = own in command.attributes.get("strided", ())
        fields |= strided(name, tensor(command, own), command.results["y"].shape, explicit)
    return fields


def tensor(command: Command, own: str) -> Tensor:
    """An operand that must be a tensor in local memory. Raises ProgramError."""
    operand = command.operands[own] if own in command.operands else command.results[own]
    if not isinstance(operand, Tensor) or not operand.is_local:
        raise refused(command, f"{own} is no tensor in local memory", "move it there first")
    return operand


def strided(name: str, operand: Tensor, shape: tuple[int, ...], explicit: bool = False) -> Fields:
    """Layout code and strides; axes of size 1 repeat over `shape`. `explicit`: strides, even if the layout has them."""
    sizes = zip(operand.shape, shape, operand.stride, strict=True)
    stride = Stride(*(0 if size != wanted else step for size, wanted, step in sizes))
    if not explicit and stride == layout.aligned(Shape(*shape), operand.dtype, operand.start_lane, operand.config):
        return {f"{name}_str": ALIGNED}
    return {f"{name}_str": STRIDED, **{f"{name}_{axis}_str": step for axis, step in zip("nchw", stride, strict=True)}}
