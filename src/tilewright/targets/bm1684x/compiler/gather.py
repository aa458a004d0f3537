"""A gathered tensor: taps of a convolution as further channels of its input, copied by the compute engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.stored import Stored
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.window import Window


@dataclass(frozen=True)
class Gather:
    """How the input of a convolution is gathered: as `taps` copies of (h, w), each of `spacing` channels.

    `source` is the input, of which `replicas` copies are there, also `spacing` channels apart. `window` is the window
    of the convolution in the graph. `rows` and `columns` say along which axes its taps are folded.
    """

    source: Stored
    window: Window
    rows: bool
    columns: bool
    spacing: int
    replicas: int

    @property
    def taps(self) -> list[tuple[int, int]]:
        """The folded taps: the row and column of each in the kernel."""
        kh, kw = self.window.kernel
        return list(product(range(kh if self.rows else 1), range(kw if self.columns else 1)))

    @property
    def left(self) -> Window:
        """The window of the convolution that reads the gathered tensor."""
        own, (top, bottom, left, right) = self.window, self.window.pads
        pads = (*((0, 0) if self.rows else (top, bottom)), *((0, 0) if self.columns else (left, right)))
        kernel, stride, dilation = (
            (1 if self.rows else pair[0], 1 if self.columns else pair[1])
            for pair in (own.kernel, own.stride, own.dilation)
        )
        return Window(kernel, pads, stride, dilation)

    @property
    def stored(self) -> Stored:
        out = self.window.out(self.source.h, self.source.w)
        h, w = out[0] if self.rows else self.source.h, out[1] if self.columns else self.source.w
        return replace(self.source, c=len(self.taps) * self.spacing, h=h, w=w)

    def kernel(self, values: Array) -> Array:
        """Return the kernel (oc, ic, kh, kw) for the gathered tensor. Channels that are only spacing get zeros."""
        oc, ic, _, _ = values.shape
        (kh, kw), (lh, lw) = self.window.kernel, self.left.kernel
        split = values.reshape(oc, ic, kh // lh, lh, kw // lw, lw)
        spaced = np.pad(split, ((0, 0), (0, self.spacing - ic), *((0, 0),) * 4))
        return np.ascontiguousarray(spaced.transpose(0, 2, 4, 1, 3, 5).reshape(oc, -1, lh, lw))

    def commands(self, source: int, gathered: int, config: Config) -> Iterator[Command]:
        """Yield the commands that gather the input. `source` and `gathered` are byte offsets in a lane."""
        stored = self.stored
        x = Tensor.local(0, source, _shape(self.source, self.replicas * self.spacing), stored.dtype, config)
        y = Tensor.local(0, gathered, _shape(stored, stored.c), stored.dtype, config)
        zero = Constant.of(stored.zero, stored.dtype)
        for number, tap in enumerate(self.taps):
            own = y[:, number * self.spacing : (number + 1) * self.spacing]
            replica = number % self.replicas * self.spacing
            (r0, r1, first_row), (c0, c1, first_column) = (
                self._inside(axis, tap[axis], folded) for axis, folded in ((0, self.rows), (1, self.columns))
            )
            down, across = (self.window.stride[0] if self.rows else 1, self.window.stride[1] if self.columns else 1)
            if r0 < r1 and c0 < c1:
                there = x[:, replica : replica + self.spacing, first_row:, first_column:]
                stride = there.stride._replace(h=there.stride.h * down, w=across)
                there = replace(there, shape=there.shape._replace(h=r1 - r0, w=c1 - c0), stride=stride)
                yield Command(OPERATIONS["copy"], {"a": there}, {"y": own[:, :, r0:r1, c0:c1]})
            else:
                r0 = r1 = 0
            for rows, columns in (
                (slice(0, r0), slice(0, stored.w)),
                (slice(r1, stored.h), slice(0, stored.w)),
                (slice(r0, r1), slice(0, c0)),
                (slice(r0, r1), slice(c1, stored.w)),
            ):
                if rows.start < rows.stop and columns.start < columns.stop:
                    yield Command(OPERATIONS["copy"], {"a": zero}, {"y": own[:, :, rows, columns]})

    def _inside(self, axis: int, tap: int, folded: bool) -> tuple[int, int, int]:
        """Return the range of gathered rows (or columns) that a tap reads from the input, and where it begins there."""
        size, extent = ((self.source.h, self.stored.h), (self.source.w, self.stored.w))[axis]
        if not folded:
            return 0, extent, 0
        step, begin = self.window.stride[axis], tap * self.window.dilation[axis] - self.window.pads[2 * axis]
        first = max(0, -(begin // step))  # the first with begin + first * step >= 0
        end = min(extent, -(-(size - begin) // step))
        return first, max(first, end), begin + first * step


def _shape(stored: Stored, channels: int) -> tuple[int, int, int, int]:
    return 1, channels, stored.h, stored.w
