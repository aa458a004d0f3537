"""The input of a network for a convolution of few channels: strides and taps become channels.

The cube multiplies 64 channels of a pixel at a time; an image has 3. So the host lays the image out, padded, by phase:
pixel (y * sh + py, x * sw + px) of channel c is element (y, x) of channel (py, px, c), and a convolution of stride
(sh, sw) becomes one of stride 1 with fewer taps. Then the DMA engine loads it once for each tap to be folded, each time
shifted by it, into other lanes: taps become channels too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array


@dataclass(frozen=True)
class Phases:
    """An image (c, h, w) in DDR as (sh * sw * c, rows, columns) with `top` and `left` padding; loaded at `offsets`."""

    c: int
    h: int
    w: int
    sh: int
    sw: int
    top: int
    left: int
    rows: int
    columns: int
    offsets: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.sh * self.sw * self.c

    @property
    def elements(self) -> int:
        """With what a shifted load reads behind the last row."""
        return self.channels * self.rows * self.columns + max(self.offsets) + 1 & ~1

    def spread(self, image: Array, fill: int) -> Array:
        """(S, c, h, w) as (S, elements); `fill` is the padding."""
        samples = len(image)
        area = np.full((samples, self.c, self.rows * self.sh, self.columns * self.sw), fill, image.dtype)
        inside = area[:, :, self.top : self.top + self.h, self.left : self.left + self.w]
        inside[...] = image[:, :, : inside.shape[2], : inside.shape[3]]
        split = area.reshape(samples, self.c, self.rows, self.sh, self.columns, self.sw)
        laid = split.transpose(0, 3, 5, 1, 2, 4).reshape(samples, -1)
        return np.pad(laid, ((0, 0), (0, self.elements - laid.shape[1])))
