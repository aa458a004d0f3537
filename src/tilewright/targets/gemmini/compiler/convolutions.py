"""Convolutions by LOOP_CONV_WS: one hardware loop for each tile. The store may apply max pooling.

A tile is a rectangle of the (pooled) result, for a range of output channels and a range of input channels. The results
of a tile fit half of the accumulator, and its input and weights fit half of the scratchpad. So the machine can compute
one tile in one half, while it loads the next tile into the other half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ops.base import Window
from tilewright.targets.gemmini.compiler.requantise import RequantisingStore
from tilewright.targets.gemmini.config import ACC_BYTES, Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands

#: The border of zeros around an image in DRAM: rows above and below, columns left and right.
Frame = tuple[int, int, int, int]
#: No pooling.
NO_POOL = Window()
#: The largest values of the loop's registers, for sizes and channels, for strides, for dilations, and for the results
#: of a pooled tile along an axis.
MOST = (1 << 16) - 1
MOST_STRIDE = (1 << 8) - 1
MOST_DILATION = (1 << 10) - 1
MOST_POOLED = (1 << 8) - 1


class Span(NamedTuple):
    """The positions of a tile along one axis: first position, number of positions, padding before and after them."""

    first: int
    size: int
    before: int
    after: int


@dataclass(frozen=True)
class Convolution:
    """A convolution of an input (images, rows, columns, channels), and its tiles.

    `channels` has the numbers of input channels and output channels, and `group` has these numbers for one group. `out`
    has the rows and columns of the result before pooling, and `pooled` after pooling. `tile` has the rows and columns
    of a tile of the pooled result, its output channels and its input channels. One row of A contains `pixels` kernel
    columns.
    """

    images: int
    size: tuple[int, int]
    channels: tuple[int, int]
    group: tuple[int, int]
    window: Window
    out: tuple[int, int]
    pool: Window
    pooled: tuple[int, int]
    store: RequantisingStore
    tile: tuple[int, int, int, int] = (1, 1, 1, 1)
    pixels: int = 1

    def __str__(self) -> str:
        rows, columns, outputs, inputs = self.tile
        return f"LOOP_CONV_WS, tiles of {rows} x {columns} x {outputs} results from {inputs} channels{self.extras}"

    @property
    def extras(self) -> str:
        packed = f", {self.pixels} kernel columns at once" if self.pixels > 1 else ""
        pool = f", max pool {self.pool.kernel[0]}x{self.pool.kernel[1]}" if self.pool != NO_POOL else ""
        return f"{packed}{pool}, {self.store}"

    @property
    def has_borders(self) -> bool:
        """Whether the hardware generates zeros for the border of an image."""
        # Even a layer without padding may need zeros, because the hardware loads stride - 1 positions beyond the last
        # window.
        ends = zip(self.covered, self.window.padding[::2], self.size, strict=True)
        return any(self.window.padding) or any(count - before > size for count, before, size in ends)

    @property
    def covered(self) -> tuple[int, int]:
        """The number of rows and of columns that the hardware loads, including the border."""
        return self._read(0, self.out[0]), self._read(1, self.out[1])

    def _read(self, axis: int, count: int) -> int:
        """Return the number of input positions that the hardware loads along an axis for `count` results."""
        return count * self.window.stride[axis] + self.window.extent[axis] - 1

    def framed(self) -> tuple[Convolution, Frame]:
        """Return the same convolution for an input whose border is stored in DRAM, and the size of this border."""
        # With such an input, the hardware generates no zeros that could overtake loads, and kernel columns can be
        # packed.
        before = self.window.padding[::2]
        after = [
            max(count - first - size, 0) for count, first, size in zip(self.covered, before, self.size, strict=True)
        ]
        rows, columns = (sum(parts) for parts in zip(before, self.size, after, strict=True))
        window = replace(self.window, padding=(0, 0, 0, 0))
        return replace(self, size=(rows, columns), window=window), (before[0], after[0], before[1], after[1])

    @property
    def inputs(self) -> int:
        return self.images * prod(self.size) * self.channels[0]

    @property
    def fits_registers(self) -> bool:
        small = self.window.stride[0] <= MOST_STRIDE and self.window.dilation[0] <= MOST_DILATION
        return small and max(*self.size, *self.out, *self.channels) <= MOST

    @property
    def groups(self) -> int:
        return -(-self.channels[0] // self.group[0])

    def weights(self, codes: Array, config: Config) -> Array:
        """Return weights in their DRAM layout, int8 [groups, kernel rows, kernel columns, inputs, outputs per group].

        `codes` have the shape (outputs, kernel rows, kernel columns, inputs per group). A depthwise convolution has
        codes of the shape (1, kernel rows, kernel columns, channels): several of its channels form a group, whose
        weights are 0 outside the diagonal.
        """
        inputs, outputs = self.group
        if codes.shape[0] == self.channels[1]:
            groups = codes.reshape(self.groups, outputs, *codes.shape[1:])
            return np.ascontiguousarray(groups.transpose(0, 2, 3, 4, 1))
        held = np.zeros((self.groups, *self.window.kernel, inputs, outputs), np.int8)
        group, place = np.divmod(np.arange(self.channels[0]), inputs)
        held[group, :, :, place, place] = np.moveaxis(codes[0], -1, 0)
        return held

    def tilings(self, config: Config) -> Iterator[Convolution]:
        """Yield tilings of several shapes. Each tile is as large as the memories allow."""
        # Kernel columns are not packed if there is a border, because the border's zeros would overtake repeated pixels.
        dim = config.dim
        inputs, outputs = self.group
        packed = inputs <= dim // 2 and self.window.dilation == (1, 1) and not any(self.window.padding)
        packings = {1, min(self.window.kernel[1], dim // inputs) if packed else 1}
        blocks = -(-outputs // dim)
        for pixels, share in product(sorted(packings), sorted({1, 2, 4, blocks} & {*range(1, blocks + 1)})):
            # Prefer tiles with all input channels. With fewer channels, the sums of a tile need several loops.
            depth = inputs
            while depth:
                tiling = self._largest(config, min(outputs, share * dim), depth, pixels)
                if tiling is not None:
                    yield tiling
                    break
                depth = (depth - 1) // dim * dim

    def _largest(self, config: Config, outputs: int, inputs: int, pixels: int) -> Convolution | None:
        """Return the largest tile with these channels, or None. Try tiles of whole rows first."""
        columns = self.pooled[1]
        while columns:
            for rows in range(self.pooled[0], 0, -1):
                tiling = replace(self, tile=(rows, columns, outputs, inputs), pixels=pixels)
                if tiling.fits(config):
                    even = -(-self.pooled[0] // -(-self.pooled[0] // rows))
                    return replace(tiling, tile=(even, columns, outputs, inputs))
            columns //= 2
        return None

    def fits(self, config: Config) -> bool:
        """Return whether the largest tile, one in the middle of the image, fits half of each memory."""
        rows, columns, outputs, inputs = self.tile
        kernel = self.window.kernel
        channels = (-(-outputs // config.dim), -(-inputs // config.dim))
        out = [
            min(extent, (count - 1) * stride + size)
            for extent, count, stride, size in zip(
                self.out, (rows, columns), self.pool.stride, self.pool.kernel, strict=True
            )
        ]
        if self.pool != NO_POOL and max(*out, rows, columns, self.pooled[1]) > MOST_POOLED:
            return False
        rows, columns = (self._read(axis, count) >> self.downsampled for axis, count in enumerate(out))
        taken = channels[1] * rows * columns + channels[0] * kernel[0] * kernel[1] * inputs
        return taken <= config.all_spad_rows // 2 and channels[0] * out[0] * out[1] <= config.acc_rows // 2

    @property
    def downsampled(self) -> bool:
        """Whether the hardware loads only every second row and column of the input."""
        return self.window == Window((1, 1), (2, 2)) and not (self.size[0] | self.size[1]) & 1

    def emit(self, config: Config, x: int, w: int, d: int, y: int) -> Commands:
        """Return the commands. `x`, `w`, `d` and `y` are the DRAM addresses of inputs, weights, offsets and results."""
        out = Commands(config)
        depths, outputs = self.group
        stride = 1 if self.downsampled else self.window.stride[0]
        out.gemmini_extended_config_ex(WEIGHT_STATIONARY, 0, 0, stride, False, False)
        self.store.configure(out, self.channels[1])
        for image, group, row, column, output in product(
            range(self.images),
            range(self.groups),
            range(0, self.pooled[0], self.tile[0]),
            range(0, self.pooled[1], self.tile[1]),
            range(0, outputs, self.tile[2]),
        ):
            for depth in range(0, depths, self.tile[3]):
                corner = image, group, row, column, output, depth
                out.gemmini_loop_conv_ws(**self._layer, **self._tile(corner, x, w, d, y))
        out.gemmini_fence()
        return out

    @property
    def _layer(self) -> dict[str, int]:
        pooled = self.pool != NO_POOL
        inputs, outputs = self.channels
        depths, results = self.group
        return {
            **{"batch_size": 1, "batches": 1, "in_row_dim": self.size[0], "in_col_dim": self.size[1]},
            **{"in_channels": depths, "in_stride": inputs, "out_channels": results, "out_stride": outputs},
            **{"weight_stride": results, "out_row_dim": self.out[0], "out_col_dim": self.out[1]},
            **{"stride": self.window.stride[0], "kernel_dilation": self.window.dilation[0]},
            **{"kernel_dim": self.window.kernel[1], "krows": self.window.kernel[0], "kcols": self.window.kernel[1]},
            **{"no_pool": int(not pooled), "pool_size": self.pool.kernel[0], "pool_stride": self.pool.stride[0]},
            **{"pool_out_row_dim": self.pooled[0], "pool_out_col_dim": self.pooled[1]},
            **{
                "downsample": int(self.downsampled),
                "activation": self.store.activation,
                "max_pixels_per_row": self.pixels,
            },
        }

    def _tile(self, corner: tuple[int, int, int, int, int, int], x: int, w: int, d: int, y: int) -> dict[str, int]:
        """Return the registers of a tile. `corner` is (image, group, row, column, output channel, input channel)."""
        image, group, row, column, output, depth = corner
        inputs, outputs = self.channels
        depths, results = self.group
        first_in = group * depths
        first_out = group * results
        whole = *self.pooled, min(results, outputs - first_out), min(depths, inputs - first_in)
        counts = [min(most, extent - first) for most, extent, first in zip(self.tile, whole, corner[2:], strict=True)]
        spans = [self._spans(axis, first, counts[axis]) for axis, first in enumerate((row, column))]
        (orow, irow), (ocol, icol) = spans
        pixel = (image * self.size[0] + irow.first) * self.size[1] + icol.first
        place = (image * self.pooled[0] + row) * self.pooled[1] + column
        last = depth + counts[3] == whole[3]
        kernel = group * prod(self.window.kernel) * depths
        return {
            **{"porows": counts[0], "pocols": counts[1], "pochs": counts[2], "kchs": counts[3]},
            **{"orows": orow.size, "pupad": orow.before, "pdpad": orow.after, "upad": irow.before, "dpad": irow.after},
            **{"ocols": ocol.size, "plpad": ocol.before, "prpad": ocol.after, "lpad": icol.before, "rpad": icol.after},
            **{"input": x + pixel * inputs + first_in + depth, "weights": w + (kernel + depth) * results + output},
            **{"bias": d + (first_out + output) * ACC_BYTES if depth == 0 else 0},
            **{"output": y + place * outputs + first_out + output if last else 0},
        }

    def results(self, axis: int, first: int, count: int) -> Span:
        """Return the span of unpooled results, along an axis, that the pooled results `first`..`first + count` need."""
        size = self.pool.kernel[axis]
        step = self.pool.stride[axis]
        padding = self.pool.padding[2 * axis]
        return _inside(first * step - padding, (count - 1) * step + size, self.out[axis])

    def _spans(self, axis: int, first: int, count: int) -> tuple[Span, Span]:
        """Return the spans of unpooled results and of inputs, along an axis, that the same pooled results need."""
        out = self.results(axis, first, count)
        begin = out.first * self.window.stride[axis] - self.window.padding[2 * axis]
        return out, _inside(begin, self._read(axis, out.size), self.size[axis])


def _inside(first: int, count: int, extent: int) -> Span:
    """Return the positions inside 0..extent, of `count` positions from `first` on. Outside positions are padding."""
    before, after = max(0, -first), max(0, first + count - extent)
    return Span(first + before, count - before - after, before, after)
