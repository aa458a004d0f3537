"""What a layer asks of the machine, in tiles: the one form that convolutions, products and pools come down to.

A layer reads a grid of input tiles [channel tile][row][column] through a window and sums (or takes the maximum
of) products with weight tiles into a grid of output tiles of the same layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from tilewright.graph.ops import Window
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES

#: HLS reads five signed bits.
LARGEST_SHIFT = 15
#: Which input tiles an output tile reads: all; its own; or a range of its own (`bands`).
Link = Literal["dense", "diagonal", "banded"]


@dataclass(frozen=True)
class Codes:
    """How sums become codes on chip. An output tile's bias depends on which taps lie inside the image: its class.

    `rows`, `columns`: the class of each row and column of output tiles. The parameters of a channel tile are a bias
    for each pair of classes, then the factors. `immediates`: what an ALU without REQ has in its instructions.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    immediates: Immediates | None
    factors: int = FACTOR_TILES

    @cached_property
    def classes(self) -> tuple[int, int]:
        return max(self.rows) + 1, max(self.columns) + 1

    @property
    def biases(self) -> int:
        """Bias tiles of a channel tile."""
        return self.classes[0] * self.classes[1]

    @property
    def tiles(self) -> int:
        """Parameter tiles of a channel tile."""
        return self.biases + self.factors

    @cached_property
    def words(self) -> Words:
        """What instructions depend on besides the classes: short, so that it is a quick key."""
        return Words(self.biases, self.tiles, self.immediates)


class Words(NamedTuple):
    """Bias tiles and all parameter tiles of a channel tile; immediates."""

    biases: int
    tiles: int
    immediates: Immediates | None


class Immediates(NamedTuple):
    """Zero point and bounds of the output codes; whether any channel shifts to the left first.

    `shift`: sums are only shifted to the right by so much, ties upwards: no factors, and no zero point.
    """

    zero_point: int
    low: int
    high: int
    left: bool
    shift: int | None = None


@dataclass(frozen=True)
class Layer:
    """Geometry of one layer in tiles; equal layers have equal plans and instruction streams.

    A `repeat` layer writes each input tile `repeat` (rows, columns) times, side by side.
    An `add` layer reads two tensors of the same tiles. `codes` None: sums leave as `planes` bytes each.

    A `matrix` layer has no window: its rows (pixels, `batch` a tile) lie along one row of tiles. `shared`: one
    weight tile serves every tap and channel (pools). `planes`: bytes of an accumulator that are stored.
    `clamp`: what the ALU clips a maximum to. `fold`: pixels side by side in one tile (see lowered.Fold); `size`, `out`
    and `window` count folded columns. `packing` says it all for people.
    """

    kind: Literal["sum", "max", "add", "repeat"]
    matrix: bool
    size: tuple[int, int]
    out: tuple[int, int]
    window: Window
    in_tiles: int
    out_tiles: int
    link: Link
    bands: tuple[tuple[int, int], ...]
    shared: bool
    planes: int
    clamp: tuple[int, int] | None
    fold: int
    packing: str
    codes: Codes | None = None
    repeat: tuple[int, int] = (1, 1)

    @cached_property
    def canonical(self) -> Layer:
        """The layer without the constants that plans do not depend on: equal for layers that are planned alike."""
        if self.codes is None or self.codes.immediates is None:
            return self if self.clamp is None else replace(self, clamp=(0, 0))
        known = self.codes.immediates
        shifts = None if known.shift is None else -(-known.shift // LARGEST_SHIFT) * LARGEST_SHIFT
        codes = replace(self.codes, immediates=Immediates(0, 0, 0, known.left, shifts))
        return replace(self, codes=codes, clamp=self.clamp and (0, 0))

    @property
    def closed(self) -> bool:
        """Whether the result is codes, with nothing left for the host."""
        return self.codes is not None or self.kind in ("max", "repeat")

    @property
    def operands(self) -> int:
        """Input tensors."""
        return 2 if self.kind == "add" else 1

    @property
    def shifts(self) -> bool:
        """Whether sums become codes by a shift alone: upstream's ALU can do that."""
        return self.codes is not None and self.codes.immediates is not None and self.codes.immediates.shift is not None

    @property
    def parameters(self) -> int:
        """Parameter tiles of an output channel tile; of all for an `add`: a set for each operand, one for the sum."""
        if self.kind == "add" and self.shifts:
            return 0
        return self.codes.tiles * (3 if self.kind == "add" else 1) if self.codes else 0

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]

    @property
    def depth(self) -> int:
        """Input tiles that one output tile reads, at most."""
        if self.link == "diagonal":
            return 1
        return self.in_tiles if self.link == "dense" else max(high - low for low, high in self.bands)

    @property
    def out_pixels(self) -> int:
        return self.out[0] * self.out[1]

    def valid_taps(self) -> int:
        """(output pixel, tap) pairs whose input lies inside the image."""
        total = 1
        for axis in (0, 1):
            w = self.window
            positions = (
                out * w.stride[axis] + tap * w.dilation[axis] - w.padding[2 * axis]
                for out in range(self.out[axis])
                for tap in range(w.kernel[axis])
            )
            total *= sum(0 <= position < self.size[axis] for position in positions)
        return total

    def gemm_uops(self) -> int:
        """Micro-ops that the sums need, without resets."""
        if self.kind == "repeat":
            return self.out_tiles * self.out_pixels
        reads = self.out_tiles * self.in_tiles if self.link == "dense" else self.out_tiles
        if self.link == "banded":
            reads = sum(high - low for low, high in self.bands)
        return self.valid_taps() * reads


def columns_of(shape: tuple[int, ...]) -> int:
    """Pixels in a row of an image; 1 where a tensor has no rows of pixels."""
    return shape[-2] if len(shape) > 2 else 1
