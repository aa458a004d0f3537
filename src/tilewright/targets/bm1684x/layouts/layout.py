"""What an operand is, and the strides of the named layouts in local memory; section 3 of the specification.

An operand has a shape, a type and the bus address of every element: commands read and write through the addresses,
footprints and drawings are made of them. Channel c of a tensor that starts in lane s lies in lane (s + c) mod lanes,
slot (s + c) div lanes of that lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from tilewright.array import Array
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts import drawing
from tilewright.targets.bm1684x.values.dtypes import DType

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.layouts.tensor import Tensor


class Shape(NamedTuple):
    """Sizes of a tensor."""

    n: int
    c: int
    h: int
    w: int

    @property
    def elements(self) -> int:
        return self.n * self.c * self.h * self.w


class Stride(NamedTuple):
    """Elements from one index to the next; `c` from one slot of a lane to the next (in DDR: from channel to channel).

    A stride of 0 repeats an element.
    """

    n: int
    c: int
    h: int
    w: int


def slots(start: int, c: int, config: Config) -> int:
    """Channels that a lane holds at most of `c`, the first of them in lane `start`."""
    return -(-(start + c) // config.lanes)


def aligned(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Each channel on a multiple of `eu_bytes` (64): the default of the compute engine and of the stride helper."""
    return _of_channel(shape, _up(shape.h * shape.w, config.eu_bytes // dtype.bytes), start, config)


def compact(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Channels of a lane without gaps."""
    return _of_channel(shape, shape.h * shape.w, start, config)


def line(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Each row on a multiple of `eu_bytes`."""
    row = _up(shape.w, config.eu_bytes // dtype.bytes)
    return Stride(slots(start, shape.c, config) * shape.h * row, shape.h * row, row, 1)


def dma_default(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """What a DMA copy takes when no local stride is given: aligned, with an n stride that ignores the start lane.

    It differs from `aligned` where n > 1 and the start lane makes channels wrap (`dma_default_differs`): a kernel
    that moves with one and computes with the other is silently wrong.
    """
    stride = aligned(shape, dtype, start, config)
    return stride._replace(n=slots(0, shape.c, config) * stride.c)


def dma_default_differs(shape: Shape, start: int, config: Config) -> bool:
    """Whether `dma_default` and `aligned` put some element in different places."""
    return shape.n > 1 and slots(start, shape.c, config) != slots(0, shape.c, config)


def continuous(shape: Shape) -> Stride:
    """The order of DDR: no gaps."""
    return Stride(shape.c * shape.h * shape.w, shape.h * shape.w, shape.w, 1)


#: Layouts that a shape alone determines.
LAYOUTS = {"aligned": aligned, "compact": compact, "line": line, "dma": dma_default}


def _of_channel(shape: Shape, channel: int, start: int, config: Config) -> Stride:
    return Stride(slots(start, shape.c, config) * channel, channel, shape.w, 1)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Operand(Protocol):
    """Anything with elements in the memory of a machine."""

    axes: ClassVar[tuple[str, ...]]

    @property
    def config(self) -> Config: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def stride(self) -> Stride | None: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def addresses(self) -> Array: ...
    @property
    def storage(self) -> Tensor:
        """The tensor that it is or lies in."""


class Drawn:
    """What all operands can show of themselves: `explain()` as text, `svg()` as a picture."""

    axes: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w")

    def __repr__(self: Operand) -> str:
        return f"{type(self).__name__}({title(self)})"

    @property
    def lane_end(self: Operand) -> int:
        """One past the highest byte that it has in a lane."""
        return self.storage.lane_end

    def explain(self: Operand) -> str:
        """One line a run of neighbouring elements. Raises InputError outside of local memory."""
        return drawing.text(title(self), self.axes, self.addresses, self.dtype, self.config)

    def svg(self: Operand) -> str:
        """A box an element. Raises InputError for too many, and outside of local memory."""
        return drawing.svg(title(self), self.axes, self.addresses, self.dtype, self.config)


def title(operand: Operand) -> str:
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
