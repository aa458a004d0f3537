"""Strips: tiles with neighbouring pixels of an image row, for few channels. Weight tiles are Toeplitz matrices.

If a tile has 16 channels of one pixel, a depthwise layer only uses the diagonal of the weight tiles, and needs a
micro-op for each tap. If lanes are pixels, one weight tile applies a whole row of the kernel. The host lays out the
strips. Neighbouring strips overlap, so each output strip reads one input strip per kernel row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Window
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.lowered import Lowered, Width, packing, tiles_of
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import Strip


def least_cycles(layer: Layer, config: Config) -> int:
    """Return a lower bound of a layer's cycles: the maximum of GEMM plus ALU, reads, and writes.

    Each input tile and each weight tile is read at least once. Each byte plane is stored once.
    """
    tiles = layer.out_tiles * layer.out_pixels
    beat = config.bus_bits // 8
    work = layer.gemm_uops() + tiles * (layer.planes - int(layer.carries))
    weights = (layer.depth * layer.out_tiles if layer.link != "banded" else layer.in_tiles) * layer.taps
    read = layer.in_tiles * layer.size[0] * layer.size[1] * config.inp.tile_bytes + weights * config.wgt.tile_bytes
    return max(work, read // beat, tiles * layer.planes * config.out.tile_bytes // beat)


def forms(
    site: Site, w: Array, start: Array, window: Window, width: Width, config: Config, split: bool
) -> Iterator[Lowered]:
    """Yield the strip forms of a convolution with weights w (O, T, K) that is depthwise or has few channels.

    Output channel o reads K input channels from `start[o]` on. `split`: whether several tiles may share the outputs.
    """
    # A tile of a depthwise layer may have any number of channels. A tile of another layer needs all channels.
    outputs, _, depth = w.shape
    alone = depth == 1 and np.array_equal(start, np.arange(outputs))
    if alone:
        pairs = [(channels, channels) for channels in range(1, min(config.block, outputs) + 1)]
    else:
        shares = sorted({-(-outputs // parts) for parts in range(1, outputs + 1 if split else 2)}, reverse=True)
        pairs = [(depth, share) for share in shares if not start.any() and max(depth, share) <= config.block]
    for channels, results in pairs:
        if strip := _widest(site.input(0).shape[2], site.output.shape[2], channels, results, window, config.block):
            yield _lower_strip(site, w, alone, strip, window, width, config)


def _widest(width: int, columns: int, channels: int, outputs: int, window: Window, block: int) -> Strip | None:
    """Return the layout with the fewest strips for an image of `width` columns; None if no strip fits a tile."""
    stride = window.stride[1]
    left = window.padding[2]
    # A whole image row in one tile needs no overlap.
    if (columns - 1) * outputs + outputs <= block and width * channels <= block:
        return Strip(width, columns, channels, outputs, 0, 0)
    pixels = min(block // outputs, (block // channels - window.extent[1]) // stride + 1, columns)
    if pixels < 1:
        return None
    pixels = -(-columns // -(-columns // pixels))  # strips of equal length
    reads = (pixels - 1) * stride + window.extent[1]
    return Strip(reads, pixels, channels, outputs, -left, pixels * stride)


def _lower_strip(
    site: Site, w: Array, alone: bool, strip: Strip, window: Window, width: Width, config: Config
) -> Lowered:
    height, wide = window.kernel
    block = config.block
    outputs = len(w)
    tiles = -(-outputs // strip.outputs)
    strips = -(-site.output.shape[2] // strip.writes)
    # A Toeplitz matrix for each kernel row: output lanes (pixel, channel) by input lanes (pixel, channel).
    by_tap = np.zeros((tiles * strip.outputs, height, wide, w.shape[2]), w.dtype)
    by_tap[:outputs] = w.reshape(outputs, height, wide, -1)
    by_tap = by_tap.reshape(tiles, strip.outputs, height, wide, -1)
    lanes = np.zeros((tiles, block, height, block), w.dtype)
    lanes_of_pixel = np.arange(strip.outputs)
    first = -window.padding[2] - strip.first  # lane pixel of the first output's first tap
    for pixel, tap in np.ndindex(strip.writes, wide):
        read = first + pixel * window.stride[1] + tap * window.dilation[1]
        # A tap outside the strip is in the padding: its weights stay zero.
        if not 0 <= read < strip.reads:
            continue
        rows = pixel * strip.outputs + lanes_of_pixel
        at = read * strip.channels
        if alone:
            lanes[:, rows, :, at + lanes_of_pixel] = by_tap[:, :, :, tap, 0].transpose(1, 0, 2)
        else:
            lanes[:, pixel * strip.outputs : (pixel + 1) * strip.outputs, :, at : at + strip.channels] = by_tap[
                :, :, :, tap
            ]
    layer = Layer(
        size=(site.input(0).shape[1], strips),
        out=(site.output.shape[1], strips),
        window=Window((height, 1), (window.stride[0], 1), (*window.padding[:2], 0, 0), (window.dilation[0], 1)),
        in_tiles=tiles if alone else 1,
        out_tiles=tiles,
        link="diagonal" if alone and tiles > 1 else "dense",
        planes=width.planes,
        carries=width.carries,
        packing=packing(f"strips of {strip.reads} pixels x {strip.channels} channels", config, False),
    )
    starts = np.repeat(np.arange(tiles) * block * alone, block)
    return Lowered(layer, tiles_of(lanes.reshape(tiles * block, height, block), starts, layer, block), strip=strip)
