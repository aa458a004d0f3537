"""The result of lowering a node: a `Layer` with its weight tiles and the constants that finish its sums.

The layout of codes, weights and neighbouring pixels in tiles is here too. Weights `w` are (O, T, K): output channels,
window taps, and the input channels of each output channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph.ir import Site
from tilewright.graph.ops import Linear, Window
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.compiler.layer import Layer, Link, Requantisation, Residual
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import Strip
from tilewright.targets.vta.schedule import LayerSchedule

#: Assumed cycles of an output tile without its sums: a reset and two shifts. Decides whether folding pays off.
TILE_CYCLES = 5


class Parameters(NamedTuple):
    """The parameters of a layer and their layout. `tiles`: int32 [channel tile, bias or factor, row, block]."""

    tiles: Array | None
    requantisation: Requantisation


@dataclass(frozen=True, eq=False)
class Lowered:
    """A layer and its constants."""

    layer: Layer
    tiles: Array | None  # int8 [out tile, k, tap, block, block]: weights; None if the host supplies them at every run
    # int32 [row class, column class, channel]: the zero point of the input times the sum of the weights whose taps lie
    # inside the image; 0 by default, and for pools. The host or the biases subtract the correction from the sums.
    correction: Array = field(default_factory=lambda: np.zeros((1, 1, 1), np.int32))
    row_class: Array = field(default_factory=lambda: np.zeros(1, np.int64))  # class of each output row (classes_of)
    column_class: Array = field(default_factory=lambda: np.zeros(1, np.int64))  # class of each output column
    parameters: Array | None = None  # tiles of parameters.py; None if the machine reads no parameters
    inputs: Array | None = None  # int64: the channels that the machine reads; None: all (see constant.py)
    outputs: Array | None = None  # int64: the channels that the machine computes; None: all
    strip: Strip | None = None  # the layout of strips, if tiles hold strips (see strips.py)
    transposed: bool = False  # whether the input has the layout [row][channel tile][column]
    offsets: Array | None = None  # int64 [Layer.narrow, block]: offsets of clamped sums, in units of narrow.UNIT
    alternatives: tuple[Lowered, ...] = ()  # other forms of the same node

    @property
    def form(self) -> str:
        """The name of the form in a schedule (schedule.FORMS); the forms of a node have different names."""
        return "strips" if self.strip else "rows" if self.transposed else "plain"

    def requantised(self, by: Parameters, residual: Residual | None = None) -> Lowered:
        """Return the layer with requantisation on the machine, to codes of one byte."""
        layer = replace(self.layer, planes=1, carries=False, requantisation=by.requantisation, residual=residual)
        return replace(self, layer=layer, parameters=by.tiles)


class Bounds(NamedTuple):
    """The lowest and the highest code that each channel of a tensor can have, int64 [channels]."""

    low: Array
    high: Array

    @property
    def constant(self) -> Array:
        """Whether each channel has only one code, bool [channels]."""
        same: Array = self.low == self.high
        return same


class Context(NamedTuple):
    """The conditions under which a node is lowered."""

    config: Config
    rounding: Rounding
    timing: str  # the timing model that ranks plans
    single: bool = False  # a tile must contain one pixel, as another layer on the machine writes the input
    requantises: bool = True  # whether the machine requantises sums where possible
    proven: Mapping[str, Bounds] | None = None  # ranges (constant.ranges) if the host requantises all sums
    given: Mapping[str, LayerSchedule] = MappingProxyType({})  # the user's schedules, by first node
    starts: bool = False  # whether the search may change the user's schedules
    source: str = "schedule"  # the file of the schedules, for error messages


def windowed(
    site: Site,
    fold: Fold,
    channels: int,
    start: Array,
    config: Config,
    width: Width,
    out: tuple[int, int] | None = None,
) -> Layer:
    """Return the layer of a convolution or pool. `out` replaces the height and width of the output."""
    block = config.block
    pixels = fold.pixels
    w = fold.weights
    height, columns = site.input(0).shape[1:3]
    out_height, out_columns = out or site.output.shape[1:3]
    in_tiles = -(-channels * pixels // block)
    out_tiles = -(-w.shape[0] // block)
    bands: tuple[tuple[int, int], ...] = ((0, 1),)  # folded pixels share one tile
    if pixels == 1:
        # For each output tile, the first input tile that its channels read, and the index after the last.
        first = start // block
        last = (start + w.shape[2] - 1) // block + 1
        edges = np.arange(0, w.shape[0], block)
        low = np.minimum.reduceat(first, edges)
        high = np.maximum.reduceat(last, edges)
        bands = tuple(zip(low.tolist(), high.tolist(), strict=True))
    # Most layers are dense or depthwise, which need no table of bands.
    link: Link = "banded"
    if all(band == (0, in_tiles) for band in bands):
        link = "dense"
    elif bands == tuple((o, o + 1) for o in range(out_tiles)):
        link = "diagonal"
    return Layer(
        size=(height, -(-columns // pixels)),
        out=(out_height, -(-out_columns // pixels)),
        window=fold.window,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        link=link,
        bands=bands if link == "banded" else (),
        shared=not isinstance(site.node.op, Linear),
        planes=width.planes,
        carries=width.carries,
        fold=pixels,
        packing=packing("the image", config, False, pixels),
    )


def packing(what: str, config: Config, matrix: bool, pixels: int = 1) -> str:
    """Describe the layout of a layer's input, with `pixels` pixels in a tile, as a text for the report."""
    used = f"{config.batch}" if matrix else f"1 of {config.batch}"
    rows = f"{used} tile rows used" if config.batch > 1 else ""
    return ", ".join(part for part in (what, f"{pixels} pixels side by side" if pixels > 1 else "", rows) if part)


class Width(NamedTuple):
    """The number of bytes of a sum, and whether an earlier sum's top byte can be added without overflow."""

    planes: int
    carries: bool


def weight_limits(config: Config) -> tuple[int, int]:
    """Return the smallest and the largest weight of a machine."""
    return -(1 << config.wgt.width - 1), (1 << config.wgt.width - 1) - 1


def width_of(low: int, high: int, config: Config) -> Width:
    """Return the width of sums in `low`..`high`. Raises UnsupportedError if the accumulators are too narrow."""
    bits = _bits(low, high)
    if bits > config.acc.width:
        raise UnsupportedError("VTA", f"its sums need {bits} bits; the accumulators have {config.acc.width}")
    plane = config.out.width
    planes = -(-bits // plane)
    carried = _bits(low - (1 << plane - 1), high + (1 << plane - 1) - 1)
    return Width(planes, planes > 1 and carried <= min(plane * planes, config.acc.width))


def _bits(low: int, high: int) -> int:
    """Return the number of bits of a signed integer with a range of `low` to `high` (low <= 0 <= high)."""
    return max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1


def tiles_of(w: Array, start: Array, layer: Layer, block: int) -> Array:
    """Return the weights w (O, T, K) as tiles, int8 [out tile, k, tap, block, block].

    Index k is the number of an input channel tile; the first tile that the output tile reads has number 0. Output
    channel o reads K input channels from `start[o]` on.
    """
    outputs, taps, depth = w.shape
    wide = np.zeros((layer.out_tiles * block, taps, layer.depth * block), np.int8)
    lows = np.zeros(layer.out_tiles, np.int64)
    if layer.link == "dense" and not start.any():
        wide[:outputs, :, :depth] = w
    else:
        if layer.link != "dense":
            lows = np.arange(layer.out_tiles) if layer.link == "diagonal" else np.array([b[0] for b in layer.bands])
        rows = np.arange(outputs)
        # An output tile only has weights for the tiles of its band. Column 0 is the band's first channel.
        columns = (start - lows[rows // block] * block)[:, None] + np.arange(depth)
        wide[rows[:, None], :, columns] = w.transpose(0, 2, 1)
    split = wide.reshape(layer.out_tiles, block, taps, layer.depth, block)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4))


def classes_of(size: Sequence[int], out: Sequence[int], window: Window) -> list[tuple[Array, Array]]:
    """Sort output rows and output columns into classes with the same window taps inside the image.

    Return a pair for rows and a pair for columns: each position's class, int64 [positions], and each class's taps as a
    mask, int64 [class, tap]. Raises UnsupportedError if a window lies wholly in the padding.
    """
    classes = []
    for axis in (0, 1):
        positions = np.arange(out[axis])[:, None] * window.stride[axis] - window.padding[2 * axis]
        taps = positions + np.arange(window.kernel[axis]) * window.dilation[axis]
        # Each distinct mask of taps inside the image is a class.
        masks, index = np.unique((taps >= 0) & (taps < size[axis]), axis=0, return_inverse=True)
        if not masks.any(axis=1).all():
            reason = f"padding={list(window.padding)} is not supported: a window lies wholly in it"
            raise UnsupportedError("VTA", reason)
        classes.append((index.reshape(-1).astype(np.int64), masks.astype(np.int64)))
    return classes


class Fold(NamedTuple):
    """A layout with p neighbouring pixels in one tile, for pixels whose channels fill at most half of a tile.

    A fold treats p pixels of C channels as one pixel of `p * C` channels. A folded layer is still linear, with wider
    weights, and needs p times fewer tiles, resets, shifts and stores. `pixels`: p. `weights`: (p * O, taps, p * C).
    `window`: the window with its columns counted in folded columns.
    """

    pixels: int
    weights: Array
    window: Window


def folded_rows(w: Array, count: int, config: Config, single: bool = False) -> Fold:
    """Return the fold for a matrix product of `count` input rows with weights w (O, 1, K).

    Rows are folded if this saves more cycles than the load of the wider weights takes. `single`: whether a tile must
    have one row, because another layer writes the input in this layout.
    """
    outputs, _, depth = w.shape
    pixels = 1 if single else min(config.block // outputs, count)
    if pixels < 2:
        return Fold(1, w, Window())
    more_weights = (pixels - 1) * -(-depth // config.block) * config.wgt.tile_bytes * 8 // config.bus_bits
    # Folding saves the sums of p - 1 of p rows. But the weights to load are p times larger (p diagonal blocks).
    if more_weights > count * (pixels - 1) // pixels * TILE_CYCLES:
        return Fold(1, w, Window())
    wide = np.zeros((pixels, outputs, 1, pixels, depth), w.dtype)  # a block diagonal matrix
    for pixel in range(pixels):
        wide[pixel, :, :, pixel] = w
    return Fold(pixels, wide.reshape(pixels * outputs, 1, pixels * depth), Window())


def folded_columns(
    w: Array, start: Array, channels: int, window: Window, width: int, config: Config, single: bool = False
) -> Fold:
    """Return the fold for a window over `width` output columns (1 pixel per tile if folding needs too many taps).

    Output channel o reads w.shape[2] of the `channels` input channels, from `start[o]` on. `single`: see folded_rows.
    """
    outputs, _, depth = w.shape
    pixels = 1 if single else min(config.block // max(channels, outputs), width)
    if pixels < 2:
        return Fold(1, w, window)
    high, wide = window.kernel
    stride = window.stride[1]
    dilation = window.dilation[1]
    left = window.padding[2]
    # For tap k, output pixel j of a tile reads input pixel at[j, k], relative to the first pixel of the tile.
    at = np.arange(pixels)[:, None] * stride + np.arange(wide) * dilation - left
    first = int(at.min() // pixels)
    taps = int(at.max() // pixels) - first + 1
    if taps > wide * pixels // 2:  # each tap is a product with a whole tile: folding must save half of them
        return Fold(1, w, window)
    dense = np.zeros((outputs, high * wide, channels), w.dtype)
    dense[np.arange(outputs)[:, None], :, start[:, None] + np.arange(depth)] = w.transpose(0, 2, 1)
    by_tap = dense.reshape(outputs, high, wide, channels)
    folded = np.zeros((pixels, outputs, high, taps, pixels, channels), w.dtype)
    for (pixel, tap), position in np.ndenumerate(at):
        folded[pixel, :, :, position // pixels - first, position % pixels] = by_tap[:, :, tap]
    # Folded taps count from `first`, which is negative if the window includes pixels of the previous tile.
    padding = (window.padding[0], window.padding[1], -first, 0)
    return Fold(
        pixels,
        folded.reshape(pixels * outputs, high * taps, pixels * channels),
        replace(window, kernel=(high, taps), padding=padding, dilation=(window.dilation[0], 1)),
    )
