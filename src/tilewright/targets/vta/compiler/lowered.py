"""What lowering makes of a node: a `Layer` with its weight tiles and what finishes the sums.

How codes, weights and neighbouring pixels lie in tiles is here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops import Linear, Window
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.compiler.layer import Layer, Link
from tilewright.targets.vta.config import Config

CODE_DTYPES = ("int8", "uint8")
CODE_MIN, CODE_MAX = -128, 127
#: Cycles that an output tile takes besides its sums, roughly: reset, two shifts.
TILE_CYCLES = 5


@dataclass(frozen=True, eq=False)
class Lowered:
    """`tiles` int8 [out tile, k, tap, block, block], None where the host brings them at every run.

    `correction` int32 [row class, column class, channel], the classes of output rows and columns: which taps lie inside
    the image. The host subtracts it, zero point times the sum of the weights used; pools have none. `parameters` (see
    parameters.py) are there where the machine finishes by itself.
    """

    layer: Layer
    tiles: Array | None
    correction: Array
    row_class: Array
    column_class: Array
    parameters: Array | None = None


class Context(NamedTuple):
    """`timing`: the model that plans are timed by.

    `single`: no pixels share a tile and no patches are laid out, because the input comes from another layer.

    `codes`: sums become codes on the machine, if it can do that.
    """

    config: Config
    rounding: Rounding
    timing: str
    single: bool = False
    codes: bool = True


def windowed(
    site: Site,
    fold: Fold,
    start: Array,
    config: Config,
    planes: int,
    out: tuple[int, int] | None = None,
) -> Layer:
    """A window over an image; `out`: rows and columns of the output, where its shape does not say so."""
    block, pixels, w = config.block, fold.pixels, fold.weights
    (height, width), (out_height, out_width) = site.input(0).shape[1:3], out or site.output.shape[1:3]
    in_tiles, out_tiles = -(-site.input(0).shape[3] * pixels // block), -(-w.shape[0] // block)
    bands: tuple[tuple[int, int], ...] = ((0, 1),)  # folded: one tile
    if pixels == 1:
        first, last = start // block, (start + w.shape[2] - 1) // block + 1
        edges = np.arange(0, w.shape[0], block)
        low, high = np.minimum.reduceat(first, edges), np.maximum.reduceat(last, edges)
        bands = tuple(zip(low.tolist(), high.tolist(), strict=True))
    link: Link = "banded"
    if all(band == (0, in_tiles) for band in bands):
        link = "dense"
    elif bands == tuple((o, o + 1) for o in range(out_tiles)):
        link = "diagonal"
    return Layer(
        kind="sum",
        matrix=False,
        size=(height, -(-width // pixels)),
        out=(out_height, -(-out_width // pixels)),
        window=fold.window,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        link=link,
        bands=bands if link == "banded" else (),
        shared=not isinstance(site.node.op, Linear),
        planes=planes,
        fold=pixels,
        packing=packing("the image", pixels, f"1 of {config.batch} tile rows used" if config.batch > 1 else ""),
    )


def packing(what: str, pixels: int, rows: str) -> str:
    return ", ".join(part for part in (what, f"{pixels} pixels side by side" if pixels > 1 else "", rows) if part)


def held_offset(tensor: Tensor) -> int:
    """How much less than in the graph codes are held, zero points and bounds too: the machine has int8 only."""
    return 128 if tensor.dtype == "uint8" else 0


def held_zero_point(tensor: Tensor) -> int:
    return tensor.zero_point - held_offset(tensor)


def held_codes(codes: Array) -> Array:
    """int8 of the same shape."""
    return codes if codes.dtype == np.int8 else (codes ^ np.uint8(128)).view(np.int8)


def given_back(codes: Array, tensor: Tensor) -> Array:
    """Codes of the tensor's dtype from int8, as the machine held them."""
    return codes if tensor.dtype == "int8" else codes.view(np.uint8) ^ np.uint8(128)


def planes_of(w: Array, config: Config) -> int:
    """Bytes that hold every sum of products of w (O, T, K) with codes, whichever taps take part.

    Raises UnsupportedError where the accumulators do not.
    """
    positive = np.maximum(w, 0).sum(axis=(1, 2), dtype=np.int64)
    negative = np.maximum(-w, 0).sum(axis=(1, 2), dtype=np.int64)
    high = int((CODE_MAX * positive - CODE_MIN * negative).max())
    low = int((CODE_MIN * positive - CODE_MAX * negative).min())
    bits = max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1
    if bits > config.acc.width:
        raise UnsupportedError("VTA", f"its sums need {bits} bits; the accumulators have {config.acc.width}")
    return -(-bits // 8)


def tiles_of(w: Array, start: Array, layer: Layer, block: int) -> Array:
    """w (O, T, K) as weight tiles int8 [out tile, k, tap, block, block]; k counts from the tile's first input tile."""
    outputs, taps, depth = w.shape
    wide = np.zeros((layer.out_tiles * block, taps, layer.depth * block), np.int8)
    lows = np.zeros(layer.out_tiles, np.int64)
    if layer.link == "dense" and not start.any():
        wide[:outputs, :, :depth] = w
    else:
        if layer.link != "dense":
            lows = np.arange(layer.out_tiles) if layer.link == "diagonal" else np.array([b[0] for b in layer.bands])
        rows = np.arange(outputs)
        columns = (start - lows[rows // block] * block)[:, None] + np.arange(depth)
        wide[rows[:, None], :, columns] = w.transpose(0, 2, 1)
    split = wide.reshape(layer.out_tiles, block, taps, layer.depth, block)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4))


def classes_of(size: Sequence[int], out: Sequence[int], window: Window) -> list[tuple[Array, Array]]:
    """For rows and columns: the class of each output position, and each class's taps inside the image (0 or 1).

    Raises UnsupportedError where a class has none.
    """
    found = []
    for axis in (0, 1):
        positions = np.arange(out[axis])[:, None] * window.stride[axis] - window.padding[2 * axis]
        taps = positions + np.arange(window.kernel[axis]) * window.dilation[axis]
        masks, index = np.unique((taps >= 0) & (taps < size[axis]), axis=0, return_inverse=True)
        if not masks.any(axis=1).all():
            reason = f"padding={list(window.padding)} is not supported: a window lies wholly in it"
            raise UnsupportedError("VTA", reason)
        found.append((index.reshape(-1).astype(np.int64), masks.astype(np.int64)))
    return found


class Fold(NamedTuple):
    """Several neighbouring pixels in one tile, where one pixel's channels would leave half of it or more empty.

    `p` pixels of C channels are seen as one of p * C; a linear layer stays linear, with wider weights. Its tiles, and
    with them resets, shifts and stores, become p times fewer. `weights` (p * O, taps, p * C); for an image, the window
    over folded columns.
    """

    pixels: int
    weights: Array
    window: Window


def folded_rows(w: Array, count: int, config: Config, single: bool = False) -> Fold:
    """A product of `count` rows with w (O, 1, K): as many rows to a tile as their outputs leave room for.

    `single`: one, because the input lies so.
    """
    outputs, _, depth = w.shape
    pixels = 1 if single else min(config.block // outputs, count)
    if pixels < 2:
        return Fold(1, w, Window())
    more_weights = (pixels - 1) * -(-depth // config.block) * config.wgt.tile_bytes * 8 // config.bus_bits
    if more_weights > count * (pixels - 1) // pixels * TILE_CYCLES:
        return Fold(1, w, Window())
    wide = np.zeros((pixels, outputs, 1, pixels, depth), w.dtype)
    for pixel in range(pixels):
        wide[pixel, :, :, pixel] = w
    return Fold(pixels, wide.reshape(pixels * outputs, 1, pixels * depth), Window())


def folded_columns(
    w: Array, start: Array, channels: int, window: Window, width: int, config: Config, single: bool = False
) -> Fold:
    """A window over an image of `width` output columns; output o reads w.shape[2] of `channels` from start[o]."""
    outputs, _, depth = w.shape
    pixels = 1 if single else min(config.block // max(channels, outputs), width)
    if pixels < 2:
        return Fold(1, w, window)
    (high, wide), stride, dilation, left = window.kernel, window.stride[1], window.dilation[1], window.padding[2]
    # Output pixel j of a tile reads, for tap k, the pixel at[j, k] from the tile's first.
    at = np.arange(pixels)[:, None] * stride + np.arange(wide) * dilation - left
    first = int(at.min() // pixels)
    taps = int(at.max() // pixels) - first + 1
    if taps > wide * pixels // 2:
        return Fold(1, w, window)
    dense = np.zeros((outputs, high * wide, channels), w.dtype)
    dense[np.arange(outputs)[:, None], :, start[:, None] + np.arange(depth)] = w.transpose(0, 2, 1)
    by_tap = dense.reshape(outputs, high, wide, channels)
    folded = np.zeros((pixels, outputs, high, taps, pixels, channels), w.dtype)
    for (pixel, tap), position in np.ndenumerate(at):
        folded[pixel, :, :, position // pixels - first, position % pixels] = by_tap[:, :, tap]
    padding = (window.padding[0], window.padding[1], -first, 0)
    return Fold(
        pixels,
        folded.reshape(pixels * outputs, high * taps, pixels * channels),
        replace(window, kernel=(high, taps), padding=padding, dilation=(window.dilation[0], 1)),
    )
