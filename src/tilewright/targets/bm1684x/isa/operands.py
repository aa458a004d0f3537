"""Operands of encoded commands: layouts by their codes, constants, addresses."""

from __future__ import annotations

from tilewright.errors import ProgramError
from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.command import Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.dtypes import DType
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layout import Shape, Stride
from tilewright.targets.bm1684x.tensor import Tensor

#: Codes of `*_str` fields: aligned, compact, one value a channel, strides in the command.
ALIGNED, COMPACT, OFFSET, STRIDED = range(4)
NO_STRIDE = Stride(0, 0, 0, 0)


def local(
    address: int, shape: tuple[int, ...], code: int, dtype: DType, config: Config, stride: Stride = NO_STRIDE
) -> Tensor:
    """A tensor of local memory; `address` counts from its beginning. `stride` is that of the code STRIDED."""
    sizes = Shape(*shape)
    start = address // config.lane_bytes
    if code == STRIDED:
        strides = stride
    elif code == OFFSET:
        strides = Stride(0, 1, 0, 0)
    elif code in (ALIGNED, COMPACT):
        strides = (layout.compact if code else layout.aligned)(sizes, dtype, start, config)
    else:
        raise ProgramError("command", f"layout code {code} is not known", "give 0 to 3")
    return Tensor(address + LOCAL_BASE, sizes, strides, dtype, config)


def strides(command: Encoded, name: str) -> Stride:
    """The four stride fields of an operand."""
    return Stride(*(command.fields.get(f"{name}_{axis}_str", 0) for axis in "nchw"))


def place(
    command: Encoded, name: str, shape: tuple[int, ...], dtype: DType, config: Config, code: int | None = None
) -> Tensor | Constant:
    """Operand `name` of a command, in local memory or a constant. `code` where the format has no field for it."""
    address = command[f"{name}_addr"]
    if command.fields.get(f"{name}_const"):
        return Constant(address & ((1 << dtype.bits) - 1), dtype)
    code = command.fields.get(f"{name}_str", ALIGNED) if code is None else code
    return local(address, shape, code, dtype, config, strides(command, name))


def res0_shape(command: Encoded) -> tuple[int, ...]:
    """The shape of the result, which is that of most operands."""
    return tuple(command[f"res0_{axis}"] for axis in "nchw")


def result(command: Encoded, dtype: DType, config: Config, code: int | None = None) -> Tensor:
    """res0, whose shape the command gives."""
    code = command.fields.get("res0_str", ALIGNED) if code is None else code
    return local(command["res0_addr"], res0_shape(command), code, dtype, config, strides(command, "res0"))


def unknown(command: Encoded) -> ProgramError:
    """For a function whose meaning no source establishes."""
    function = command.fields.get("tsk_eu_typ", command.fields.get("cmd_special_function", 0))
    return ProgramError(str(command), f"function {function} of {command.format.name} is not modelled")
