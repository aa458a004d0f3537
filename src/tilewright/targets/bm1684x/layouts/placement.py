"""Place an operand in memory, given the name of a layout and sizes, so that `tilewright layout` can draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import InputError, one_of, option
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import LARGEST, ConvWeights, Matrix, Tensor
from tilewright.targets.bm1684x.values.dtypes import DType, dtype_of


@dataclass(frozen=True)
class LayoutRequest:
    """A tensor and the layout that it should have.

    `kind` is the name of the layout. The data begins in lane `start` (the lane of channel 0), at byte `offset` of this
    lane. `stride` gives the strides of a free layout, in elements. `width` gives the columns per channel of a matrix.
    `order` names the axes of `shape` if their order is not that of the layout.
    """

    kind: str
    shape: Sequence[int]
    dtype: str
    start: int = 0
    offset: int = 0
    stride: Sequence[int] | None = None
    width: int | None = None
    order: Sequence[str] = ()


#: For each layout by name: its size parameters, and a description.
KINDS = {
    "global": ("N,C,H,W", "no gaps at all, in DDR"),
    "aligned": ("N,C,H,W", "each channel at a multiple of 64 bytes: the compute engine's default"),
    "compact": ("N,C,H,W", "no gaps between channels"),
    "line": ("N,C,H,W", "each row at a multiple of 64 bytes"),
    "dma": ("N,C,H,W", "the default of a DMA copy without local strides"),
    "free": ("N,C,H,W", "the given strides, in elements"),
    "matrix": ("ROWS,COLUMNS", "the given width: columns per channel"),
    "vector": ("LENGTH", "a matrix of one row"),
    "64ic": ("OC,IC,KH,KW", "convolution weights of 8 bits"),
    "32ic": ("OC,IC,KH,KW", "convolution weights of 16 bits"),
}
#: For each layout of convolution weights, the bytes per weight.
KERNEL_BYTES = {"64ic": 1, "32ic": 2}


@dataclass(frozen=True)
class Placement:
    """An operand in memory, the name of its layout, and a warning about the layout ("": no warning)."""

    kind: str
    operand: Tensor | Matrix | ConvWeights
    note: str = ""

    def text(self) -> str:
        return f"{self.kind} {self.operand.explain()}" + (f"note: {self.note}\n" if self.note else "")

    def svg(self) -> str:
        return self.operand.svg()

    def to_json(self) -> dict[str, Any]:
        """Return layout, shape, type and strides, and the byte offset of each element in logical order."""
        base = DDR_BASE if self.kind == "global" else LOCAL_BASE
        addresses = (self.operand.addresses - base).reshape(-1).tolist()
        described = {"layout": self.kind, "shape": list(self.operand.shape), "axes": list(self.operand.axes)}
        described["dtype"] = str(self.operand.dtype)
        stride = list(self.operand.stride) if isinstance(self.operand, Tensor) else None
        return {**described, "stride": stride, "note": self.note, "addresses": addresses}


def place(request: LayoutRequest, config: Config) -> Placement:
    """Place an operand in memory. Raises InputError if it does not fit, or for unsuitable sizes or options."""
    shape = _checked(request)
    element = dtype_of(request.dtype)
    kind = request.kind
    start = request.start
    offset = request.offset
    if kind in KERNEL_BYTES:
        return _weights(request, shape, element, config)
    if kind == "global":
        return Placement(kind, Tensor.ddr(DDR_BASE + offset, shape, element, config))
    if kind in ("matrix", "vector"):
        rows, columns = shape if kind == "matrix" else (1, shape[0])
        return Placement(kind, Matrix.local(start, offset, (rows, columns), request.width or columns, element, config))
    if request.stride is not None:
        return Placement(kind, Tensor.free(start, offset, shape, tuple(request.stride), element, config))
    operand = Tensor.local(start, offset, shape, element, config, kind)
    return Placement(kind, operand, _trap(kind, Shape(*shape), start, operand, config))


def _checked(request: LayoutRequest) -> tuple[int, ...]:
    kind = request.kind
    shape = request.shape
    stride = request.stride
    width = request.width
    if kind not in KINDS:
        raise InputError("layout", f"there is no layout '{kind}'", one_of(kind, KINDS))
    sizes = KINDS[kind][0].split(",")
    if len(shape) != len(sizes) or not all(1 <= size <= LARGEST for size in shape):
        raise InputError("layout", f"{kind} takes {KINDS[kind][0]}, each 1..{LARGEST}, not {','.join(map(str, shape))}")
    if (stride is not None) != (kind == "free"):
        reason = "the layout free needs strides, and no other layout takes them"
        raise InputError("layout", reason, f"give {option('--stride n,c,h,w', '`stride`')} with free only")
    if stride is not None and len(stride) != 4:
        raise InputError(
            "layout",
            f"{len(stride)} strides are given",
            f"give four strides, {option('--stride n,c,h,w', 'for n, c, h, w')}",
        )
    if width is not None and kind not in ("matrix", "vector"):
        raise InputError("layout", f"{kind} takes no width", f"leave {option('--width', '`width`')} out")
    if kind == "global" and request.start:
        reason = f"global memory has no lanes, but lane {request.start} is given"
        raise InputError("layout", reason, f"leave {option('--start-lane', '`start`')} out")
    axes = KINDS[kind][0].lower().split(",")
    order = request.order
    if order and sorted(order) != sorted(axes):
        raise InputError("layout", f"the order of axes is {','.join(order)}", f"give {','.join(axes)} in any order")
    return tuple(shape[order.index(axis)] for axis in axes) if order else tuple(shape)


def _weights(request: LayoutRequest, shape: tuple[int, ...], element: DType, config: Config) -> Placement:
    kind = request.kind
    oc, ic, kh, kw = shape
    if element.bytes != KERNEL_BYTES[kind]:
        raise InputError("layout", f"{kind} is for {8 * KERNEL_BYTES[kind]}-bit weights, not {element}")
    if reason := layout.off_grid(kind, request.start * config.lane_bytes + request.offset, config):
        raise InputError(f"weights {element} {shape}", reason, "give such an offset")
    first = Tensor.free(request.start, request.offset, (1, 1, 1, 1), (1, 1, 1, 1), element, config)
    note = ""
    if oc != ic and not request.order:
        order = option("--order ic,oc,kh,kw", "`order`")
        note = f"the sizes are read as oc,ic,kh,kw; for those of the vendor's document give {order}"
    return Placement(kind, ConvWeights(first.address, (oc, ic, kh, kw), element, config), note)


def _trap(kind: str, shape: Shape, start: int, operand: Tensor, config: Config) -> str:
    if kind not in ("aligned", "dma") or not layout.dma_default_differs(shape, start, config):
        return ""
    who = "the compute engine's default"
    rule = layout.aligned
    if kind == "aligned":
        who = "a DMA copy without local strides"
        rule = layout.dma_default
    n_stride = rule(shape, operand.dtype, start, config).n
    return f"{who} has the n stride {n_stride}, not {operand.stride.n}: elements with n > 0 lie elsewhere; give strides"
