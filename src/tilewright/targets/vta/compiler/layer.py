"""The geometry of a layer in tiles, in one form for convolutions, matrix products and pools.

A layer reads a grid of input tiles [channel tile][row][column] through a window. For each tile of the output grid,
which has the same layout, the layer sums products with weight tiles (or finds a maximum). A `Span` describes a part of
the output grid along one axis: the inputs that it reads, and the taps that are valid at each position. A `TileTransfer`
moves such a part between DRAM and a memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ops import Window
from tilewright.targets.vta.isa.alu import LARGEST_SHIFT
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES

#: The input tiles of an output channel tile. dense: all. diagonal: the same index. banded: a range (Layer.bands).
Link = Literal["dense", "diagonal", "banded"]
#: The first value of a group's accumulators: GEMM writes zero; the ALU writes the biases or a constant.
Start = Literal["zero", "bias", "constant"]
#: Largest x_size, y_size and x_stride of a transfer, tiles: the fields have 16 bits.
LARGEST_SIZE = (1 << 16) - 1

#: The byte planes of sums that are clamped (Layer.narrow).
NARROW = 2


@dataclass(frozen=True)
class Requantisation:
    """The requantisation of sums to codes on chip: the layout of its parameters, and its constants.

    The bias of an output tile depends on the taps that lie inside the image, because the zero point of the input is
    part of the bias. Output rows with the same taps form a class, and so do output columns. A channel tile has one bias
    tile for each pair of classes, then `factors` tiles of factors.
    """

    rows: tuple[int, ...]  # the class of each output row
    columns: tuple[int, ...]  # the class of each output column
    immediates: Immediates | None  # constants in ALU instructions; None if the ALU has REQ, which reads tiles
    factors: int = FACTOR_TILES
    start: Start = "zero"  # the first value of a group's accumulators (see joint.py)

    @cached_property
    def classes(self) -> tuple[int, int]:
        return max(self.rows) + 1, max(self.columns) + 1

    @property
    def biases(self) -> int:
        """The number of bias tiles per channel tile."""
        return self.classes[0] * self.classes[1]

    @property
    def tiles(self) -> int:
        return self.biases + self.factors

    @cached_property
    def key(self) -> RequantisationKey:
        """A small key for caches of ALU instructions: the values on which instructions depend, without the classes."""
        return RequantisationKey(self.biases, self.tiles, self.immediates, self.start)


class RequantisationKey(NamedTuple):
    """The key of cached ALU steps: bias tiles and parameter tiles per channel tile, immediates, and the start."""

    biases: int
    tiles: int
    immediates: Immediates | None
    start: Start


class Immediates(NamedTuple):
    """The constants in ALU instructions that requantise: zero point and bounds of the output codes, and shifts."""

    zero_point: int
    low: int
    high: int
    left: bool  # whether the sums of some channel are shifted left before the multiplication
    shift: int | None = None  # if given, sums are only shifted right (ties up): no factors, zero point 0


class Residual(NamedTuple):
    """A tensor of codes to multiply by 2**(weight + left) and add to a layer's sums."""

    weight: int  # GEMM multiplies the codes by 2**weight
    left: int  # then the ALU shifts the products left by this number of bits
    after: int | None  # bits by which sums are shifted right before the codes are added; None: before products


@dataclass(frozen=True)
class Layer:
    """The geometry of one layer, in tiles; equal layers have equal plans and instruction streams.

    If `pool` is given, the layer's results are the maxima of its sums in that window, requantised (see kernels.Blocks);
    `grid` then has the rows and columns of sums, and `out` the rows and columns of results.
    """

    size: tuple[int, int]  # rows and columns of input tiles
    out: tuple[int, int]  # rows and columns of output tiles
    in_tiles: int
    out_tiles: int
    packing: str  # the layout as text for the report
    kind: Literal["sum", "max", "add", "repeat"] = "sum"  # `add` reads two tensors of the same shape
    matrix: bool = False  # no window; a row of tiles has config.batch matrix rows per tile
    link: Link = "dense"
    planes: int = 1  # the number of bytes (byte planes) stored per accumulator
    window: Window = Window()
    bands: tuple[tuple[int, int], ...] = ()
    shared: bool = False  # whether all taps and channels use the same weight tile (pools)
    carries: bool = False  # a group adds to the top byte plane that an earlier group left (see plan.carried)
    clamp: tuple[int, int] | None = None  # bounds of a maximum
    fold: int = 1  # neighbouring pixels in one tile (lowered.Fold); `size`, `out`, `window` count folded columns
    requantisation: Requantisation | None = None  # None if the host requantises the sums
    repeat: tuple[int, int] = (1, 1)  # `repeat` writes each input tile so many times (rows, columns)
    pool: Window | None = None
    grid: tuple[int, int] = (0, 0)
    residual: Residual | None = None  # codes in the layout of the output, added to the sums
    # If not 0, results lie in DRAM in the order of the groups: a store writes one row, in as few bursts of `by_group`
    # tiles as possible. The host puts the results in order (see plan.stored).
    by_group: int = 0
    narrow: int = 0  # the number of output channel tiles, the last ones, whose sums are clamped (see narrow.py)
    paired: bool = False  # whether two of the other tiles share one byte of the third byte plane (see narrow.py)

    @cached_property
    def canonical(self) -> Layer:
        """The layer without the values that have no effect on a plan's cycles. Equal canonical layers share a search.

        The values of clamps, zero points and weights cost no cycles. A right shift costs an ALU instruction for each
        LARGEST_SHIFT bits, so this layer keeps only the number of these instructions.
        """
        residual = self.residual and Residual(0, self.residual.left and 1, None)
        if self.requantisation is None or self.requantisation.immediates is None:
            same = self.clamp is None and residual == self.residual
            return self if same else replace(self, residual=residual, clamp=self.clamp and (0, 0))
        immediates = self.requantisation.immediates
        # A residual in the middle splits the shift. Each part of the shift has separate instructions.
        shifts = None if immediates.shift is None else _whole(immediates.shift)
        if self.residual and self.residual.after is not None and immediates.shift is not None:
            residual = Residual(0, 0, _whole(self.residual.after))
            shifts = _whole(self.residual.after) + _whole(immediates.shift - self.residual.after)
        requantisation = replace(self.requantisation, immediates=Immediates(0, 0, 0, immediates.left, shifts))
        return replace(self, requantisation=requantisation, residual=residual, clamp=self.clamp and (0, 0))

    @property
    def outputs_codes(self) -> bool:
        """Whether the machine computes the final codes, so that the host need not change them."""
        return self.requantisation is not None or self.kind in ("max", "repeat")

    @property
    def operands(self) -> int:
        """The number of tensors that the layer reads as input tiles: 2 for an addition, else 1."""
        return 2 if self.kind == "add" else 1

    @property
    def more_weights(self) -> int:
        """The number of weight tiles beside those of the chunks: for residuals, or for the offsets of clamped sums."""
        return self.narrow + (self.residual is not None)

    @property
    def stored_planes(self) -> float:
        """The byte planes that are stored, on average over all tiles."""
        above = max(0, self.planes - NARROW) * (1 - self.narrow / self.out_tiles)
        return min(self.planes, NARROW) + above / (1 + self.paired)

    @property
    def shifts(self) -> bool:
        """Whether the sums are requantised by right shifts only, which upstream's ALU supports, too."""
        return (
            self.requantisation is not None
            and self.requantisation.immediates is not None
            and self.requantisation.immediates.shift is not None
        )

    @property
    def start(self) -> Start:
        return self.requantisation.start if self.requantisation else "zero"

    @property
    def parameters(self) -> int:
        """The number of parameter tiles per output channel tile. All channels of an `add` share one set."""
        if self.kind == "add" and self.shifts:
            return 0
        return self.requantisation.tiles * (3 if self.kind == "add" else 1) if self.requantisation else 0

    def parameter_tiles(self, outs: int) -> int:
        """Return the number of parameter tiles for `outs` output channel tiles; an `add` has one set for all."""
        return self.parameters * (1 if self.kind == "add" else outs)

    @property
    def taps(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1]

    @property
    def depth(self) -> int:
        """The largest number of input channel tiles that one output tile reads."""
        if self.link == "diagonal":
            return 1
        return self.in_tiles if self.link == "dense" else max(high - low for low, high in self.bands)

    @property
    def out_pixels(self) -> int:
        return self.out[0] * self.out[1]

    @property
    def sums(self) -> tuple[int, int]:
        """The size (rows, columns) of the grid of sums. Without a pool, this is the output's size."""
        return self.grid if self.pool else self.out

    def gemm_uops(self) -> int:
        """Return the number of GEMM micro-ops that compute the layer's sums, without resets."""
        if self.kind == "repeat":
            return self.out_tiles * self.out_pixels
        reads = self.out_tiles * self.in_tiles if self.link == "dense" else self.out_tiles
        if self.link == "banded":
            reads = sum(high - low for low, high in self.bands)
        w = self.window
        valid = 1  # the pairs of an output pixel and a tap whose input lies inside the image
        for axis in (0, 1):
            origins = [out * w.stride[axis] - w.padding[2 * axis] for out in range(self.sums[axis])]
            taps = [tap * w.dilation[axis] for tap in range(w.kernel[axis])]
            valid *= sum(0 <= origin + tap < self.size[axis] for origin in origins for tap in taps)
        return valid * reads


def _whole(shift: int) -> int:
    """Round a right shift up to a multiple of the largest shift of a step; the number of steps stays the same."""
    return -(-shift // LARGEST_SHIFT) * LARGEST_SHIFT


class Taps(NamedTuple):
    """Window taps first..first+size-1 along one axis, and the outputs low..high-1 that have these taps in the image."""

    first: int
    size: int
    low: int
    high: int


class Span(NamedTuple):
    """An image tile along one axis: outputs start..start+extent-1 read inputs first..first+size-1.

    Output r of the tile reads, for tap k, the loaded input with number `r * stride + k * dilation + offset`. If a pool
    follows, the outputs are results of the pool, `pooled` describes the sums, and `offset` and `taps` are empty.
    """

    start: int
    extent: int
    first: int
    size: int
    offset: int
    taps: tuple[Taps, ...]
    pooled: Pooled | None = None

    @property
    def shape(self) -> tuple[int, int, int, tuple[Taps, ...], Pooled | None]:
        """The fields that determine the instructions. Tiles that differ only in position have equal fields."""
        return self.extent, self.size, self.offset, self.taps, self.pooled

    @property
    def held(self) -> int:
        return sum(phase.span.extent for phase in self.pooled.phases) if self.pooled else self.extent


class Phase(NamedTuple):
    """The sums of a tile, along one axis, that have the same position in the windows of a pool.

    A pool of stride s divides the rows (or columns) of sums into s phases: every s-th row belongs to the same phase.
    Sum i of the phase is tap `tap` of output `first + i`. If `twice`, windows overlap: the sum is also tap `tap + s` of
    output `first + i - 1`. `span`: the sums of the phase, as outputs of the layer's window with an s times larger
    stride.
    """

    tap: int
    twice: bool
    first: int
    span: Span


class Pooled(NamedTuple):
    """The phases of a tile's sums along one axis. The first phase receives the maxima: no two outputs share its sums.

    `kept`: whether sums shared with the previous tile are not computed again (Plan.keeps).
    """

    phases: tuple[Phase, ...]
    kept: bool


def spans(layer: Layer, axis: int, extent: int) -> list[Span]:
    """Return the tiles of `extent` outputs along axis 0 (rows) or 1 (columns). The last tile is the remainder."""
    out = layer.out[axis]
    return [span(layer, axis, start, min(extent, out - start)) for start in range(0, out, extent)]


def pieces(layer: Layer, axis: int, whole: Span, sizes: tuple[int, ...], shared: bool) -> list[Span]:
    """Cut tile `whole` along `axis` into tiles of `sizes` outputs.

    `shared`: whether all parts use the load of `whole`. If so, offsets are relative to the first input of `whole`.
    """
    starts = accumulate(sizes, initial=whole.start)
    parts = [span(layer, axis, start, size) for start, size in zip(starts, sizes, strict=False)]
    if not shared:
        return parts
    return [
        part._replace(
            first=whole.first, size=whole.size, offset=part.offset + (part.first - whole.first) * layer.repeat[axis]
        )
        for part in parts
    ]


def span(layer: Layer, axis: int, start: int, extent: int) -> Span:
    """Return the tile of `extent` outputs from `start` on."""
    w = layer.window
    times = layer.repeat[axis]
    if layer.pool:
        return pooled_span(layer, axis, start, extent, kept=False)
    if times > 1:
        # Each input is written `times` times, so output r reads input (r + offset) // times.
        first = start // times
        return Span(start, extent, first, (start + extent - 1) // times + 1 - first, start - first * times, ())
    geometry = (layer.size[axis], w.kernel[axis], w.stride[axis], w.dilation[axis], w.padding[2 * axis])
    return _span(*geometry, start, extent)


@lru_cache(maxsize=4096)
def _span(size: int, kernel: int, stride: int, dilation: int, before: int, start: int, extent: int) -> Span:
    origin = start * stride - before  # the input of tap 0 for the first output; negative in the padding
    first = min(max(0, origin), size - 1)
    last = min(size, origin + (extent - 1) * stride + (kernel - 1) * dilation + 1)
    groups: list[Taps] = []
    for tap in range(kernel):
        at = origin + tap * dilation
        low = max(0, -(at // stride))  # the first output whose input is not before the image
        high = min(extent, (size - 1 - at) // stride + 1)  # one past the last output whose input is in the image
        if low >= high:
            continue
        # One loop of an instruction contains consecutive taps that are valid for the same outputs.
        if groups and groups[-1][2:] == (low, high) and groups[-1].first + groups[-1].size == tap:
            groups[-1] = groups[-1]._replace(size=groups[-1].size + 1)
        else:
            groups.append(Taps(tap, 1, low, high))
    return Span(start, extent, first, max(1, last - first), origin - first, tuple(groups))


def result_phase(pool: Window, axis: int, grid: int, out: int) -> int | None:
    """Return a tap of a pool that every output has and no two outputs share; None if there is no such tap.

    The accumulator of this tap can receive the maximum of the output. `grid`: the number of sums along the axis; `out`:
    the number of outputs.
    """
    kernel = pool.kernel[axis]
    stride = pool.stride[axis]
    before = pool.padding[2 * axis]
    # A sum at tap t is also at tap t + stride of the previous output and at tap t - stride of the next output. For an
    # unshared sum, neither tap may be in the window. Tap t of the first output must lie inside the image, too.
    single = range(max(kernel - stride, before, 0), min(kernel, stride))
    inside = (tap for tap in single if (out - 1) * stride + tap - before < grid)
    # With a larger kernel, a sum would belong to three windows; Phase has at most two.
    return next(inside, None) if kernel <= 2 * stride and before <= stride and pool.dilation[axis] == 1 else None


@lru_cache(maxsize=4096)
def pooled_span(layer: Layer, axis: int, start: int, extent: int, kept: bool) -> Span:
    """Return the tile of `extent` pool results from `start` on, with its phases of sums."""
    w = layer.window
    pool = layer.pool
    grid = layer.grid[axis]
    assert pool
    kernel = pool.kernel[axis]
    stride = pool.stride[axis]
    before = pool.padding[2 * axis]
    result = result_phase(pool, axis, grid, layer.out[axis])
    assert result is not None
    unaligned: list[Phase] = []
    for tap in (result, *(tap for tap in range(min(kernel, stride)) if tap != result)):
        twice = tap + stride < kernel
        base = start * stride + tap - before
        # If shared sums were kept in the previous tile's slot, the first row need not be computed again.
        low = max(int(kept and twice), -(base // stride))
        high = min(extent + twice, (grid - 1 - base) // stride + 1)
        # The sums of a phase are the outputs 0, 1, .. of a window with a larger stride.
        origin = (base + low * stride) * w.stride[axis] - w.padding[2 * axis]
        geometry = (layer.size[axis], w.kernel[axis], stride * w.stride[axis], w.dilation[axis], -origin)
        if low < high:
            unaligned.append(Phase(tap, twice, low, _span(*geometry, 0, high - low)))
    first = min(phase.span.first for phase in unaligned)
    last = max(phase.span.first + phase.span.size for phase in unaligned)
    # All phases use one load, so offsets count from the first input of this load.
    phases = tuple(
        phase._replace(
            span=phase.span._replace(first=0, size=last - first, offset=phase.span.offset + phase.span.first - first)
        )
        for phase in unaligned
    )
    return Span(start, extent, first, last - first, 0, (), Pooled(phases, kept))


class TileTransfer(NamedTuple):
    """A transfer of `rows` rows of `length` tiles."""

    at: int  # the first tile of a slot; tiles are consecutive on chip
    offset: int  # the first tile of the tensor in DRAM
    rows: int
    length: int
    stride: int  # tiles from row to row in DRAM


@lru_cache(maxsize=65536)
def covered(part: TileTransfer) -> Array:
    """Return the numbers of the tensor's tiles that a transfer moves, int64 [rows * length]."""
    rows = part.offset + np.arange(part.rows)[:, None] * part.stride
    tiles: Array = (rows + np.arange(part.length)).reshape(-1)
    return tiles


@lru_cache(maxsize=65536)
def transfers(
    size: tuple[int, int], channel: int, channels: int, row: int, rows: int, column: int, columns: int
) -> tuple[TileTransfer, ...]:
    """Return the transfers that move a box of a [channel tile][row][column] tensor of `size` (rows, columns).

    Raises ValueError if a row of the box does not fit a transfer.
    """
    plane = size[0] * size[1]
    start = channel * plane + row * size[1] + column
    run = rows * columns
    if (columns == size[1] or rows == 1) and run <= LARGEST_SIZE:  # each channel tile is one contiguous run
        if run == plane and channels * run <= LARGEST_SIZE:  # the runs are consecutive
            return (TileTransfer(0, start, 1, channels * run, channels * run),)
        if plane <= LARGEST_SIZE or channels == 1:
            # One row per channel tile. A single row does not use the stride, so the stride may be cut to fit its field.
            return (TileTransfer(0, start, channels, run, min(plane, LARGEST_SIZE)),)
        return tuple(TileTransfer(c * run, start + c * plane, 1, run, run) for c in range(channels))
    if rows == 1 or columns > LARGEST_SIZE or size[1] > LARGEST_SIZE:
        raise ValueError(f"a row of {size[1]} tiles does not fit the 16 bits of x_size and x_stride")
    return tuple(TileTransfer(c * run, start + c * plane, rows, columns, size[1]) for c in range(channels))
