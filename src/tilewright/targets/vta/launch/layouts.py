"""The layout of each layer of a launch, for the host: a typed form of the `meta`, and the placements of the tensors.

The tiles of a tensor have the order [channel tile][row][column][batch][block], and are padded with zeros. In a matrix
product, consecutive rows fill the batch; images use one row of the batch. The other forms are defined here as steps of
a placement: strips of an image row, image rows as channel tiles, several neighbouring pixels in one tile, patches.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, MatMul, Window
from tilewright.graph.ops.linear import matrices
from tilewright.program.placement import Placement
from tilewright.program.program import Launch

#: The arrays of the correction, which the host subtracts from sums: by row class, column class and channel.
TABLES = ("correction", "row_class", "column_class")
#: The array with the earlier result tiles whose top byte planes are part of the sums (see plan.carried).
CARRIED = "carried"
#: The array with the place of each result tile in DRAM, for a layer stored in the order of groups (see plan.stored).
STORED = "stored"
#: The array with the tile in the lower half of a shared byte, for each tile in the upper half (see plan.paired).
PAIRED = "paired"
#: The arrays that list which channels the machine reads and computes, for layers that leave out channels.
READ = "read"
COMPUTED = "computed"
#: The prefix of `plan` for a node that is computed by the layer of another node.
JOINED = "computed with "


class Strip(NamedTuple):
    """The layout of strips: lane `pixel * channels + channel` of tile [channel tile][row][strip]."""

    reads: int  # the pixels of an input strip
    writes: int  # the pixels of an output strip
    channels: int  # the channels of an input tile
    outputs: int  # the channels of an output tile
    first: int  # the column of the first strip's first pixel, which may lie in the padding
    step: int  # columns from one input strip to the next

    @property
    def of_results(self) -> Strip:
        """The layout of the output strips as an input of the next layer. Output strips do not overlap."""
        return Strip(self.writes, self.writes, self.outputs, self.outputs, 0, self.writes)

    def arrange(self, image: Placement, tiles: int, strips: int, block: int) -> Placement:
        """Arrange an image [row][column][channel] as [row, strip][lane of all channel tiles]; the outside is 0."""
        height, width, channels = image.slots
        # Strips overlap, so `take` repeats each column for every strip that contains the column.
        columns = self.first + np.arange(strips)[:, None] * self.step + np.arange(self.reads)
        before, after = max(0, -int(columns.min())), max(0, int(columns.max()) + 1 - width)
        padded = image.pad((0, 0), (before, after), (0, tiles * self.channels - channels))
        split = padded.take(1, columns + before).reshape(height, strips, self.reads, tiles, self.channels)
        lanes = split.transpose(0, 1, 3, 2, 4).reshape(height * strips, tiles, self.reads * self.channels)
        whole = lanes.pad((0, 0), (0, 0), (0, block - lanes.slots[2]))
        return whole.reshape(height * strips, tiles * block)


@dataclass(frozen=True, kw_only=True)
class NodeLayout:
    """A node of a launch: the layout of the node's tensors in tiles, and the plan as text.

    See Layer and Lowered for the other fields. The default values describe a view.
    """

    node: str
    batch: int
    block: int
    result: str | None = None  # the DRAM segment of the result; None if the host does not need the result
    first: int = 0  # the tile of the segment at which the result begins
    inputs: list[str] = field(default_factory=list)  # the input segments, which the host fills
    tensors: list[str] = field(default_factory=list)  # the tensors of `inputs`
    residual: list[list[str]] = field(default_factory=list)  # residuals, as pairs (segment, tensor)
    weights: str | None = None  # the segment of weights, if the host fills it
    chunks: list[list[int]] | None = None  # of these weights: (first output tile, tiles, first input tile, tiles)
    matrix: bool = False
    codes: bool = True  # False: the result is sums, in byte planes
    in_tiles: int
    in_pixels: int
    out_tiles: int
    out_pixels: int
    planes: int = 1
    fold: int = 1
    strip: list[int] | None = None
    bits: int = 8  # of a code, and of a plane of sums
    turned: bool = False  # whether the input has the layout [row][channel tile][column]
    plan: str

    @classmethod
    def all_of(cls, launch: Launch) -> list[NodeLayout]:
        """Return the forms of a launch. Raises KeyError or TypeError if a field is missing or unknown."""
        return [cls(**data) for data in launch.meta["layers"]]

    def to_json(self) -> dict[str, Any]:
        return {
            key: value for key, value in asdict(self).items() if (key, value) not in (("chunks", None), ("bits", 8))
        }

    @property
    def computed_with(self) -> str | None:
        """The other node whose layer computes this node; None for a view, and for the first node of a layer."""
        return self.plan.removeprefix(JOINED) if self.plan.startswith(JOINED) else None

    @property
    def tile_bytes(self) -> int:
        return self.batch * self.block * self.bits // 8

    def input_bytes(self, result_like: bool = False) -> int:
        """Return the size of an input in DRAM; with `result_like`, the size of a residual."""
        if result_like:
            return self.out_tiles * self.out_pixels * self.tile_bytes
        return self.in_tiles * self.in_pixels * self.tile_bytes

    def of_input(self, site: Site, shape: tuple[int, ...], channels: Array | None) -> Placement:
        """Return the placement of an input of this shape; `channels`: the channels the machine reads, None for all."""
        place = Placement.of(shape, bits=self.bits)
        if channels is not None:
            place = place.take(len(shape) - 1, channels)
        if self.matrix:
            return self._tiled(self._split_pixels(_rows(place, site, self.block), 0), self.in_tiles, self.in_pixels)
        if self.strip:
            strips = self._strips(place, Strip(*self.strip), self.in_tiles, self.in_pixels)
            return self._tiled(strips, self.in_tiles, self.in_pixels)
        if not self.turned:
            return self._tiled(self._image(place), self.in_tiles, self.in_pixels)
        # For [row][channel tile][column], place the image as usual, then swap the two outer axes.
        height, width = place.slots[-3:-1]
        tiles = self.in_pixels // width
        placed = self._tiled(self._image(place), tiles, self.in_tiles * width)
        return placed.reshape(tiles, height, width * self.batch, self.block).transpose(1, 0, 2, 3)

    def of_result(self, site: Site, computed: Array | None, tensor: tuple[int, ...] | None = None) -> Placement:
        """Return the placement of the result, or of a residual in the same layout, for a tensor of shape `tensor`.

        `computed`: the channels that the machine computes, None for all.
        """
        shape = tensor or site.output.shape
        sums = not (tensor or self.codes)
        place = Placement.of(shape, "int32" if sums else "int8", self.planes if sums else 0, self.bits)
        if computed is not None:
            place = place.take(len(shape) - 1, computed)
        if self.matrix:
            if isinstance(site.node.op, MatMul):
                count, rows, _, columns = matrices(site)
                place = _side_by_side(place, count, rows, columns, self.block)
            else:
                channels = place.slots[-1] if place.slots else 1  # a scalar result has no axes
                place = place.reshape(_positions(place), channels)
            return self._tiled(self._split_pixels(place, 0), self.out_tiles, self.out_pixels)
        if self.strip:
            strips = self._strips(place, Strip(*self.strip).of_results, self.out_tiles, self.out_pixels)
            return self._tiled(strips, self.out_tiles, self.out_pixels)
        tiles = self.out_tiles
        pixels = self.out_pixels
        if self.turned:  # each row is a channel tile
            tiles, pixels = pixels, tiles
        return self._tiled(self._image(place), tiles, pixels)

    def of_weights(self, site: Site) -> Placement:
        """Return the placement of a matrix product's second operand: matrices side by side, as weight tiles."""
        count, _, depth, columns = matrices(site)
        matrix = Placement.of(site.input(1).shape, bits=self.bits).reshape(count, depth, columns)
        place = matrix.split(2, self.block).split(1, self.block)
        tiles = place.transpose(0, 3, 1, 4, 2)  # [matrix][output tile][k][block][block]
        _, wide, deep, *_ = tiles.slots
        order = np.arange(count * wide * deep).reshape(count * wide, deep)
        listed = [order[out : out + outs, k : k + sums].reshape(-1) for out, outs, k, sums in self.chunks or ()]
        return tiles.reshape(order.size, self.block, self.block).take(0, np.concatenate(listed))

    def _image(self, place: Placement) -> Placement:
        """Arrange an image [..., row, column, channel] as [position][lane], with `fold` pixels in a position."""
        width = columns_of(place.slots)
        rows = place.reshape(_positions(place) // width, width, place.slots[-1])
        folded = self._split_pixels(rows, 1)
        return folded.reshape(folded.slots[0] * folded.slots[1], folded.slots[2])

    def _split_pixels(self, place: Placement, axis: int) -> Placement:
        """Merge groups of `fold` neighbours along an axis into the lanes, which are the last axis."""
        if self.fold == 1:
            return place
        divided = place.split(axis, self.fold)
        *others, fold, lanes = divided.slots
        return divided.reshape(*others, fold * lanes)

    def _strips(self, place: Placement, strip: Strip, tiles: int, pixels: int) -> Placement:
        image = place.reshape(*place.slots[-3:])
        return strip.arrange(image, tiles, pixels // image.slots[0], self.block)

    def _tiled(self, place: Placement, tiles: int, pixels: int) -> Placement:
        """Arrange [position][lane] as `tiles` channel tiles of `pixels` tiles each."""
        rows = self.batch if self.matrix else 1
        positions, lanes = place.slots
        padded = place.pad((0, pixels * rows - positions), (0, tiles * self.block - lanes))
        whole = padded.reshape(pixels, rows, tiles, self.block).transpose(2, 0, 1, 3)
        return whole.pad((0, 0), (0, 0), (0, self.batch - rows), (0, 0))


def columns_of(shape: tuple[int, ...]) -> int:
    """Return the number of pixels in an image row of a tensor of shape `shape`; 1 if the rank is below 3."""
    return shape[-2] if len(shape) > 2 else 1


def _positions(place: Placement) -> int:
    return int(np.prod(place.slots[:-1]))


def _rows(place: Placement, site: Site, block: int) -> Placement:
    op = site.node.op
    if isinstance(op, FullyConnected):
        every = place.slots[-1] == site.input(0).shape[-1]
        # If all channels are read, the tensor is flattened to rows of the matrix.
        depth = site.input(1).shape[1] if every else place.slots[-1]
        return place.reshape(int(np.prod(place.slots)) // depth, depth)
    if isinstance(op, MatMul):
        count, rows, depth, _ = matrices(site)
        return _side_by_side(place, count, rows, depth, block)
    if isinstance(op, Conv2D | DepthwiseConv2D):
        return _patches(place.reshape(*place.slots[-3:]), op.window, held_zero_point(site.input(0)))
    return place.reshape(_positions(place), place.slots[-1])


def _patches(image: Placement, window: Window, zero_point: int) -> Placement:
    """Arrange an image [row][column][channel] as patches (im2col); padding is the zero point."""
    top, bottom, left, right = window.padding
    padded = image.pad((top, bottom), (left, right), (0, 0), value=zero_point)
    for axis in (1, 0):  # an axis becomes two: outputs and taps
        outputs = (padded.slots[axis] - window.extent[axis]) // window.stride[axis] + 1
        starts = np.arange(outputs)[:, None] * window.stride[axis]
        padded = padded.take(axis, starts + np.arange(window.kernel[axis]) * window.dilation[axis])
    height, tall, width, wide, channels = padded.slots
    return padded.transpose(0, 2, 1, 3, 4).reshape(height * width, tall * wide * channels)


def _side_by_side(place: Placement, count: int, rows: int, lanes: int, block: int) -> Placement:
    """Arrange `count` matrices side by side as one matrix, [row][lane]. Each matrix begins at a whole tile."""
    padded = place.reshape(count, rows, lanes).pad((0, 0), (0, 0), (0, -lanes % block))
    return padded.transpose(1, 0, 2).reshape(rows, count * padded.slots[2])


CODE_DTYPES = ("int8", "uint8")
CODE_MIN, CODE_MAX = -128, 127


def held_offset(tensor: Tensor) -> int:
    """Return the offset of a tensor's codes, zero point and bounds from the machine's int8 values (128 for uint8)."""
    return 128 if tensor.dtype == "uint8" else 0


def held_zero_point(tensor: Tensor) -> int:
    return tensor.zero_point - held_offset(tensor)


def held_codes(codes: Array) -> Array:
    """Return the int8 values that represent codes on the machine."""
    return codes if codes.dtype == np.int8 else (codes ^ np.uint8(128)).view(np.int8)


def given_back(codes: Array, tensor: Tensor) -> Array:
    """Return int8 codes from the machine in the tensor's dtype: the inverse of `held_codes`."""
    return codes if tensor.dtype == "int8" else codes.view(np.uint8) ^ np.uint8(128)
