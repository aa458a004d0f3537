"""What an operand is: a shape, a type and the bus address of every element; how it shows itself.

Commands read and write through the addresses; footprints and drawings are made of them.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from tilewright.array import Array
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts import drawing, picture
from tilewright.targets.bm1684x.layouts.layout import Stride
from tilewright.targets.bm1684x.values.dtypes import DType


class Operand(Protocol):
    """Anything with elements in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def addresses(self) -> Array: ...


class Drawn:
    """What all operands can show of themselves: `explain()` as text, `svg()` as a picture."""

    axes: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w")

    def __repr__(self: Placed) -> str:
        return f"{type(self).__name__}({title(self)})"

    def explain(self: Placed) -> str:
        """One line a run of neighbouring elements. Raises InputError outside of local memory."""
        return drawing.text(title(self), self.axes, self.addresses, self.dtype, self.config)

    def svg(self: Placed) -> str:
        """A box an element. Raises InputError for too many, and outside of local memory."""
        return picture.svg(title(self), self.axes, self.addresses, self.dtype, self.config)


class Placed(Operand, Protocol):
    """An operand that knows its machine."""

    axes: ClassVar[tuple[str, ...]]

    @property
    def config(self) -> Config: ...
    @property
    def stride(self) -> Stride | None: ...


def title(operand: Placed) -> str:
    """Type, shape, strides and where it begins."""
    first = int(operand.addresses.flat[0])
    text = f"{operand.dtype} ({', '.join(map(str, operand.shape))})"
    if operand.stride:
        n, c, h, w = operand.stride
        text += f": strides n {n}, c {c}, h {h}, w {w} elements"
    if not LOCAL_BASE <= first < LOCAL_BASE + operand.config.local_bytes:
        return f"{text}; at {first:#x}"
    start, offset = divmod(first - LOCAL_BASE, operand.config.lane_bytes)
    return f"{text}; from lane {start}, byte {offset:#x}; {operand.config.lanes} lanes"
