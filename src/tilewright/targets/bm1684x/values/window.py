"""Sliding windows with padding, stride and dilation over a feature map (n, c, h, w), and their elements."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.array import Array
from tilewright.errors import MachineError


@dataclass(frozen=True)
class Window:
    """A sliding window. `pads` are (top, bottom, left, right); all other fields are (vertical, horizontal).

    `inserted` is the number of elements inserted between neighbouring elements of the feature map, for transposed
    convolutions. Raises MachineError if a number is too small.
    """

    kernel: tuple[int, int]
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    inserted: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(*self.pads, *self.inserted) < 0:
            reason = f"kernel {self.kernel}, stride {self.stride} and dilation {self.dilation} must be 1 or more"
            raise MachineError("window", f"{reason}, and pads and inserted zeros not negative", "correct its sizes")

    def padded(self, h: int, w: int) -> tuple[int, int]:
        """Return the height and width of a feature map of h x w after padding and insertion."""
        top, bottom, left, right = self.pads
        down, across = self.inserted
        return (h - 1) * (down + 1) + 1 + top + bottom, (w - 1) * (across + 1) + 1 + left + right

    def out(self, h: int, w: int) -> tuple[int, int]:
        """Return the result's height and width for a map of h x w. If the window does not fit, they are less than 1."""
        sizes = zip(self.padded(h, w), self.kernel, self.stride, self.dilation, strict=True)
        height, width = ((size - (k - 1) * d - 1) // s + 1 for size, k, s, d in sizes)
        return height, width

    def rows(self, r0: int, r1: int) -> tuple[int, int]:
        """Return the rows [first, end) that the result rows [r0, r1) read. Rows outside of the map are padding."""
        low, last = (row * self.stride[0] - self.pads[0] for row in (r0, r1 - 1))
        return low, last + (self.kernel[0] - 1) * self.dilation[0] + 1

    def cut(self, r0: int, r1: int, h: int) -> Window:
        """Return the window that computes only the result rows [r0, r1) of a map of `h` rows, from a part of the map.

        The part has only the rows that these result rows read.
        """
        low, high = self.rows(r0, r1)
        return replace(self, pads=(max(0, -low), max(0, high - h), *self.pads[2:]))

    def taps(self, x: Array, fill: Array | int | float = 0, between: Array | int | float = 0) -> Array:
        """Return the elements of each window, (n, c, kh, kw, oh, ow).

        Padding has the value `fill`, and inserted elements have the value `between`. Raises ValueError if the window
        does not fit into the padded map.
        """
        n, c, h, w = x.shape
        height, width = self.padded(h, w)
        down, across = self.inserted
        area = np.full((n, c, height, width), fill, x.dtype)
        middle = area[:, :, self.pads[0] : height - self.pads[1], self.pads[2] : width - self.pads[3]]
        if down or across:
            # fill the map with the inserted value; the elements of x overwrite their own positions below
            middle[...] = between
        middle[:, :, :: down + 1, :: across + 1] = x
        kh, kw = self.kernel
        oh, ow = self.out(h, w)
        if min(oh, ow) < 1:
            raise ValueError(f"a window of {kh} x {kw} does not fit into the padded map of {height} x {width}")
        sn, sc, sh, sw = area.strides
        strides = (sn, sc, sh * self.dilation[0], sw * self.dilation[1], sh * self.stride[0], sw * self.stride[1])
        # Overlapping windows share elements of `area`, so the result is a view without copies.
        return as_strided(area, (n, c, kh, kw, oh, ow), strides, writeable=False)
