"""One output tile of a layer: the input it reads, and which taps are valid where, along each axis."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from tilewright.targets.vta.compiler.layer import Layer


class Taps(NamedTuple):
    """Taps first..first+size-1 are valid for exactly the outputs low..high-1 of the tile."""

    first: int
    size: int
    low: int
    high: int


class Span(NamedTuple):
    """A tile along one axis: outputs start..start+extent-1 read inputs first..first+size-1.

    Output r of the tile reads, for tap k, input r * stride + k * dilation + offset of those it has loaded.
    """

    start: int
    extent: int
    first: int
    size: int
    offset: int
    taps: tuple[Taps, ...]

    @property
    def shape(self) -> tuple[int, int, int, tuple[Taps, ...]]:
        """What micro-kernels depend on: equal for tiles that differ in position only."""
        return self.extent, self.size, self.offset, self.taps


def spans(layer: Layer, axis: int, extent: int) -> list[Span]:
    """The tiles of `extent` outputs along axis 0 (rows) or 1 (columns); the last takes what is left."""
    out = layer.out[axis]
    return [span(layer, axis, start, min(extent, out - start)) for start in range(0, out, extent)]


def cut(layer: Layer, axis: int, whole: Span, sizes: tuple[int, ...], shared: bool) -> list[Span]:
    """A tile cut into tiles of `sizes` outputs along its axis; `shared`: each has the input of the whole."""
    starts = accumulate(sizes, initial=whole.start)
    parts = [span(layer, axis, start, size) for start, size in zip(starts, sizes, strict=False)]
    if not shared:
        return parts
    return [
        part._replace(
            first=whole.first, size=whole.size, offset=part.offset + (part.first - whole.first) * layer.repeat[axis]
        )
        for part in parts
    ]


def span(layer: Layer, axis: int, start: int, extent: int) -> Span:
    """The tile of `extent` outputs from `start`; where inputs are repeated f times, output r reads (r + offset) / f."""
    w, times = layer.window, layer.repeat[axis]
    if times > 1:
        first = start // times
        return Span(start, extent, first, (start + extent - 1) // times + 1 - first, start - first * times, ())
    geometry = (layer.size[axis], w.kernel[axis], w.stride[axis], w.dilation[axis], w.padding[2 * axis])
    return _span(*geometry, start, extent)


@lru_cache(maxsize=4096)
def _span(size: int, kernel: int, stride: int, dilation: int, before: int, start: int, extent: int) -> Span:
    origin = start * stride - before
    first = min(max(0, origin), size - 1)
    last = min(size, origin + (extent - 1) * stride + (kernel - 1) * dilation + 1)
    groups: list[Taps] = []
    for tap in range(kernel):
        at = origin + tap * dilation
        low = max(0, -(at // stride))  # the first output whose input is not before the image
        high = min(extent, (size - 1 - at) // stride + 1)
        if low >= high:
            continue
        if groups and groups[-1][2:] == (low, high) and groups[-1].first + groups[-1].size == tap:
            groups[-1] = groups[-1]._replace(size=groups[-1].size + 1)
        else:
            groups.append(Taps(tap, 1, low, high))
    return Span(start, extent, first, max(1, last - first), origin - first, tuple(groups))
