"""Random legal programs of LOOP_CONV_WS, with their results by a convolution in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.targets.gemmini.loops.machine import (
    FENCE,
    Memory,
    bits,
    config_execute,
    config_load,
    config_store,
    leaving,
)
from tests.targets.gemmini.loops.products import Case, Commands
from tilewright.array import Array
from tilewright.targets.gemmini.config import Config

#: Kinds of programs: the flags of the loop that each one sets.
KINDS = (
    "plain",
    "pooled",
    "rotated",
    "weight_1203",
    "weight_0132",
    "out_1203",
    "in_3120",
    "dilated",
    "packed",
    "downsampled",
)


@dataclass
class Layer:
    """A convolution: sizes, int8 operands (input NHWC, weights [kh][kw][ci][co]), int32 bias, and the result's form."""

    kind: str
    batches: int
    size: tuple[int, int]  # of the input
    channels: tuple[int, int]
    kernel: int
    stride: int
    padding: int
    dilation: int
    pool: tuple[int, int, int]  # size, stride, padding
    scale: float
    relu: bool
    x: Array = field(default_factory=lambda: np.zeros(0))
    w: Array = field(default_factory=lambda: np.zeros(0))
    bias: Array | None = None

    @property
    def seen(self) -> tuple[int, int]:
        """The size of the input, with the zeros between pixels if it is dilated."""
        if self.kind != "dilated":
            return self.size
        return 2 * self.size[0] - 1, 2 * self.size[1] - 1

    def across(self, extent: int) -> int:
        """Return the number of outputs along an axis of the (dilated) input."""
        return (extent + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    @property
    def out(self) -> tuple[int, int]:
        return self.across(self.seen[0]), self.across(self.seen[1])

    @property
    def pooled(self) -> tuple[int, int]:
        size, stride, padding = self.pool
        rows, columns = ((extent + 2 * padding - size) // stride + 1 for extent in self.out)
        return rows, columns

    def sums(self) -> Array:
        """Return the convolution in int64, (batch, row, column, channel)."""
        batches, (rows, columns) = self.batches, self.seen
        p, step = self.padding, 2 if self.kind == "dilated" else 1
        padded = np.zeros((batches, rows + 2 * p, columns + 2 * p, self.channels[0]), np.int64)
        padded[:, p : p + rows : step, p : p + columns : step] = self.x
        total = np.zeros((batches, *self.out, self.channels[1]), np.int64)
        weights = self.w[::-1, ::-1] if self.kind == "rotated" else self.w
        for ky in range(self.kernel):
            for kx in range(self.kernel):
                y, x = ky * self.dilation, kx * self.dilation
                window = padded[:, y:, x:][:, :: self.stride, :: self.stride][:, : self.out[0], : self.out[1]]
                total += window @ weights[ky, kx].astype(np.int64)
        return total if self.bias is None else total + self.bias

    def result(self) -> Array:
        """Return the int8 result, pooled if the layer pools: maxima of windows, in which pixels outside count as 0."""
        codes = leaving(self.sums(), self.scale, self.relu)
        if self.kind != "pooled":
            return codes
        size, stride, padding = self.pool
        around = np.pad(codes, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        rows, columns = self.pooled
        windows = [
            around[:, y:, x:][:, ::stride, ::stride][:, :rows, :columns] for y in range(size) for x in range(size)
        ]
        highest: Array = np.max(windows, axis=0)
        return highest


def convolution(rng: np.random.Generator, config: Config, kind: str) -> Case:
    """Return a random program that computes one layer in tiles of rows, output channels and input channels."""
    while True:
        layer = _layer(rng, config, kind)
        if min(*layer.out, *layer.pooled) < 1:
            continue
        tile = _tile(rng, layer, config)
        if tile is not None:
            return _program(rng, layer, tile, config)


def _layer(rng: np.random.Generator, config: Config, kind: str) -> Layer:
    dim, kernel = config.dim, int(rng.integers(1, 4))
    batches, channels = int(rng.integers(1, 3)), rng.integers(1, 2 * dim + 3, 2).tolist()
    size, stride, dilation = rng.integers(3, 11, 2).tolist(), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    padding = int(rng.integers(0, kernel))
    if kind == "downsampled":
        kernel, stride, dilation, padding, size = 1, 2, 1, 0, [2 * extent for extent in size]
    elif kind == "dilated":
        stride = dilation = 1
        padding = kernel // 2
    elif kind == "packed":
        channels[0] = int(rng.integers(1, max(dim // kernel, 1) + 1))
        dilation = 1
    elif kind == "in_3120":
        batches = int(rng.integers(1, dim + 3))
    pool = (int(rng.integers(1, 4)), int(rng.integers(1, 4)), 0) if kind == "pooled" else (1, 1, 0)
    pool = (pool[0], pool[1], int(rng.integers(0, pool[0])))
    layer = Layer(
        kind,
        batches,
        (size[0], size[1]),
        (channels[0], channels[1]),
        kernel,
        stride,
        padding,
        dilation,
        pool,
        float(rng.choice([1.0, 0.25, 0.0371])),
        bool(rng.random() < 0.5),
    )
    layer.x = rng.integers(-8, 8, (batches, *layer.size, channels[0])).astype(np.int8)
    layer.w = rng.integers(-8, 8, (kernel, kernel, *layer.channels)).astype(np.int8)
    if rng.random() < 0.7:
        layer.bias = rng.integers(-500, 500, channels[1]).astype(np.int32)
    return layer


@dataclass
class Tile:
    """How a layer is cut: pooled rows, output channels and input channels of one loop."""

    rows: int
    out_channels: int
    in_channels: int


def _tile(rng: np.random.Generator, layer: Layer, config: Config) -> Tile | None:
    """Return a random legal tile; None if none was found."""
    dim, (batches, ci, co) = config.dim, (layer.batches, *layer.channels)
    whole = layer.kind in ("dilated", "in_3120", "packed")  # these are not cut along rows or input channels
    for _ in range(20):
        rows = layer.pooled[0] if whole else int(rng.integers(1, layer.pooled[0] + 1))
        out_channels = min(co, dim * int(rng.integers(1, 3)))
        in_channels = ci if whole else min(ci, dim * int(rng.integers(1, 3)))
        orows = min(layer.out[0], rows * layer.pool[1] + layer.pool[0] - 1)
        irows = orows * layer.stride + layer.dilation * (layer.kernel - 1)
        icols = layer.out[1] * layer.stride + layer.dilation * (layer.kernel - 1)
        inputs = -(-in_channels // dim) * batches * irows * icols
        if layer.kind == "in_3120":
            inputs = -(-batches // dim) * in_channels * irows * icols
        weights = layer.kernel**2 * max(-(-out_channels // dim) * in_channels, -(-in_channels // dim) * out_channels)
        results = -(-out_channels // dim) * batches * orows * layer.out[1]
        if inputs + weights <= config.all_spad_rows // 2 and results <= config.acc_rows // 2:
            return Tile(rows, out_channels, in_channels)
    return None


def _program(rng: np.random.Generator, layer: Layer, tile: Tile, config: Config) -> Case:
    memory, kind = Memory(rng), layer.kind
    x = layer.x.transpose(3, 1, 2, 0) if kind == "in_3120" else layer.x
    w = {"weight_1203": layer.w.transpose(2, 0, 1, 3), "weight_0132": layer.w.transpose(0, 1, 3, 2)}.get(kind, layer.w)
    result = layer.result()
    if kind == "out_1203":
        result = result.transpose(1, 2, 0, 3)
    before = rng.integers(-128, 128, result.shape).astype(np.int8)
    addresses = {"x": memory.put(x), "w": memory.put(w), "y": memory.put(before)}
    addresses["bias"] = 0 if layer.bias is None else memory.put(layer.bias)
    activation, co = int(layer.relu), layer.channels[1]
    commands: Commands = [
        config_execute(
            int(kind == "in_3120"),
            int(kind == "weight_0132"),
            1 if kind == "downsampled" else layer.stride,
            2 if kind == "dilated" else 1,
        ),
        config_store(co * (layer.batches if kind == "out_1203" else 1), layer.scale, activation),
        config_load(0, 1, 0, config.dim),
    ]
    for first in range(0, layer.pooled[0], tile.rows):
        for out in range(0, co, tile.out_channels):
            for part in range(0, layer.channels[0], tile.in_channels):
                commands += _loop(layer, tile, (first, out, part), addresses)
    commands.append(FENCE)
    return Case(commands, memory.whole(), {addresses["y"]: result})


def _loop(layer: Layer, tile: Tile, corner: tuple[int, int, int], addresses: dict[str, int]) -> Commands:
    """Return the loop of the tile that begins at a pooled row, an output channel and an input channel."""
    first, out, part = corner
    ci, co = layer.channels
    porows = min(tile.rows, layer.pooled[0] - first)
    pochs, kchs = min(tile.out_channels, co - out), min(tile.in_channels, ci - part)
    pool_size, pool_stride, pool_padding = layer.pool
    # The rows and columns of the result that the tile needs, and what of its windows lies outside.
    orow, orow_end = first * pool_stride - pool_padding, (first + porows - 1) * pool_stride - pool_padding + pool_size
    pupad, pdpad = max(0, -orow), max(0, orow_end - layer.out[0])
    orow, orow_end = max(0, orow), min(layer.out[0], orow_end)
    used = (layer.pooled[1] - 1) * pool_stride - pool_padding + pool_size
    plpad, prpad, ocols = pool_padding, max(0, used - layer.out[1]), min(layer.out[1], used)
    orows = orow_end - orow
    irow = orow * layer.stride - layer.padding
    dilated = layer.dilation * (layer.kernel - 1)
    irows, icols = orows * layer.stride + dilated, ocols * layer.stride + dilated
    upad, lpad = max(0, -irow), layer.padding
    dpad = max(0, irow + irows - layer.seen[0])
    rpad = max(0, icols - layer.padding - layer.seen[1])
    irow = max(0, irow)
    last = part + kchs == ci
    x, w, y = addresses["x"], addresses["w"], addresses["y"]
    rows, columns = layer.size
    if layer.kind == "in_3120":
        x += part * rows * columns * layer.batches
    else:
        x += irow * columns * ci + part
    size = layer.kernel
    w += {"weight_1203": part * size * size * co + out, "weight_0132": out * ci + part}.get(layer.kind, part * co + out)
    y += first * layer.pooled[1] * (layer.batches if layer.kind == "out_1203" else 1) * co + out
    bias = addresses["bias"] + 4 * out if addresses["bias"] and part == 0 else 0
    zero = not addresses["bias"] and part == 0  # the accumulator begins with zeros
    flags = {"rotated": 1, "out_1203": 2, "weight_1203": 3, "weight_0132": 4, "in_3120": 5}
    pixels = size if layer.kind == "packed" else 1
    return [
        (16, bits((layer.batches, 0), (rows, 16), (ci, 32), (co, 48)),
         bits((layer.out[0], 0), (layer.pooled[0], 16), (layer.out[1], 32), (layer.stride, 48), (layer.padding, 56))),
        (17, bits((pool_padding, 0), (pool_stride, 8), (pool_size, 16), (layer.pooled[1], 32), (size, 48)),
         bits((pochs, 0), (layer.pooled[1], 16), (porows, 32), (layer.batches, 48))),
        (18, bits((lpad, 0), (kchs, 16), (size, 32), (size, 48)),
         bits((columns, 0), (plpad, 16), (dpad, 24), (upad, 32), (rpad, 48))),
        (19, bits((layer.dilation, 0), (pdpad, 10), (pupad, 21), (prpad, 32), (orows, 48)),
         bits((ocols, 0), (co, 16), (co, 32), (ci, 48))),
        (20, w, y if last else 0),
        (21, bias or (x if zero else 0), x),
        (15, bits((int(zero), 0), *((1, bit) for kind, bit in flags.items() if kind == layer.kind), (pixels, 8)),
         bits((int(layer.kind != "pooled"), 0), (int(layer.kind == "downsampled"), 1),
              (int(layer.kind == "dilated"), 2), (int(layer.relu), 3))),
    ]  # fmt: skip
