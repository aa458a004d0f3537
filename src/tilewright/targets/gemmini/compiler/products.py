"""Matrix products and residual additions by LOOP_WS: one hardware loop for each tile.

A product multiplies rows of inputs by all weights, and adds an offset to each output. An addition loads both inputs to
the accumulator, which adds them, and stores the sum as codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add
from tilewright.graph.rounding import Rounding
from tilewright.targets.gemmini.compiler.requantise import NO_LOOPS, RequantisingStore
from tilewright.targets.gemmini.config import ACC_BYTES, INPUT_BYTES, Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands


@dataclass(frozen=True)
class Product:
    """A matrix product, rows x depth by depth x outputs, in tiles of `i` x `k` by `k` x `j` blocks."""

    rows: int
    depth: int
    outputs: int
    store: RequantisingStore
    i: int = 1
    j: int = 1
    k: int = 1

    def __str__(self) -> str:
        sizes = f"{self.rows} x {self.depth} x {self.outputs}"
        return f"{sizes}: LOOP_WS of at most {self.i} x {self.k} x {self.j} blocks, {self.store}"

    #: The hardware generates no zeros (see TiledLayer).
    has_borders = False

    @property
    def inputs(self) -> int:
        return self.rows * self.depth

    def weights(self, codes: Array, config: Config) -> Array:
        """Return weights (outputs, depth) in their DRAM layout, int8 [depth + dim, outputs]."""
        # The hardware loads whole blocks of rows, so it may read up to one block beyond the last row.
        rows_beyond = np.zeros((config.dim, self.outputs), np.int8)
        return np.concatenate([codes.reshape(self.outputs, self.depth).T, rows_beyond])

    def tilings(self, config: Config) -> Iterator[Product]:
        """Yield tilings whose results fit half of the accumulator, and whose operands fit half of the scratchpad."""
        # Loops alternate between the halves of the memories, so a loop can load its operands while the previous loop
        # computes.
        dim = config.dim
        blocks = [-(-size // dim) for size in (self.rows, self.outputs, self.depth)]
        results = config.acc_rows // 2 // dim
        operands = config.all_spad_rows // 2 // dim
        if not results or operands < 2:
            return
        # Square tiles reuse the operands most often. Narrow tiles leave room for more depth, so fewer loops are needed.
        for most in sorted({max(1, int(results**0.5)), max(1, results // 2), results, 1, 2, 4}):
            j = min(blocks[1], most, operands - 1)
            i = min(blocks[0], results // j, operands - j)
            if i < 1:
                continue
            j = min(blocks[1], results // i, operands - i)
            yield replace(self, i=_even(blocks[0], i), j=_even(blocks[1], j), k=_even(blocks[2], operands // (i + j)))

    def emit(self, config: Config, x: int, w: int, d: int, y: int) -> Commands:
        """Return the commands. `x`, `w`, `d` and `y` are the DRAM addresses of inputs, weights, offsets and results."""
        out = Commands(config)
        dim = config.dim
        size = self.store.nbytes
        out.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
        for state, stride in enumerate((self.depth * INPUT_BYTES, self.outputs * INPUT_BYTES, 0)):
            out.gemmini_extended3_config_ld(stride, 1.0, False, state)
        self.store.configure(out, self.outputs)
        for row, i, pad_i in cuts(self.rows, self.i, dim):
            for col, j, pad_j in cuts(self.outputs, self.j, dim):
                # All loops of a tile of results add to the same sums. The first loop loads the offsets, and the last
                # loop stores the results. The address 0 marks an absent matrix.
                for k0, k, pad_k in cuts(self.depth, self.k, dim):
                    a, b = x + row * self.depth + k0, w + k0 * self.outputs + col
                    bias = d + col * ACC_BYTES if k0 == 0 else 0
                    c = y + (row * self.outputs + col) * size if k0 + k * dim >= self.depth else 0
                    places = (i, j, k, pad_i, pad_j, pad_k, a, b, bias, c, self.depth, self.outputs, 0, self.outputs)
                    full = self.store.scale is None
                    activation = self.store.activation
                    out.gemmini_loop_ws(*places, False, False, full, False, True, activation, 0, 0, False)
        out.gemmini_fence()
        return out


def _even(blocks: int, most: int) -> int:
    most = max(1, min(blocks, most))
    return -(-blocks // -(-blocks // most))


def cuts(size: int, blocks: int, dim: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tiles along a side: first element, number of blocks, number of elements beyond the side's end."""
    for first in range(0, size, blocks * dim):
        count = min(blocks, -(-(size - first) // dim))
        yield first, count, max(0, first + count * dim - size)


@dataclass(frozen=True)
class Addition:
    """The saturating sum of two matrices of codes, rows x columns, in tiles of `i` x `j` blocks."""

    rows: int
    columns: int
    store: RequantisingStore
    i: int = 1
    j: int = 1

    def __str__(self) -> str:
        return f"LOOP_WS adds {self.rows} x {self.columns} codes in tiles of at most {self.i} x {self.j} blocks"

    def read(self, config: Config) -> int:
        """Return the size of the second input in bytes, in whole blocks of rows, as the hardware reads it."""
        return -(-self.rows // config.dim) * config.dim * self.columns

    #: The hardware generates no zeros (see TiledLayer).
    has_borders = False

    def tilings(self, config: Config) -> Iterator[Addition]:
        """Yield tilings of several sizes, up to tiles that fill half of the accumulator."""
        blocks = (-(-self.rows // config.dim), -(-self.columns // config.dim))
        most = config.acc_rows // 2 // config.dim
        for size in sorted({max(most // share, 1) for share in (1, 2, 4, 8)}):
            j = min(blocks[1], size)
            yield replace(self, i=min(size // j, blocks[0]), j=j)

    def emit(self, config: Config, x: int, x2: int, y: int) -> Commands:
        """Return the commands. `x`, `x2` and `y` are the DRAM addresses of the inputs and of the sum."""
        out = Commands(config)
        width = self.columns
        out.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
        for state in range(2):
            out.gemmini_extended3_config_ld(width, 1.0, True, state)
        self.store.configure(out, width)
        for row, i, pad_i in cuts(self.rows, self.i, config.dim):
            for column, j, pad_j in cuts(width, self.j, config.dim):
                at = row * width + column
                sizes = i, j, 0, pad_i, pad_j, 0, x + at, x2 + at, 0, y + at, width, width, 0, width
                out.gemmini_loop_ws(*sizes, False, False, False, False, False, self.store.activation, 0, 0, True)
        out.gemmini_fence()
        return out


def addition(site: Site, rounding: Rounding, config: Config) -> Addition | str:
    """Return the addition that computes an Add, or the reason why the host computes the node."""
    # onnxruntime adds real numbers and rounds the sum. If all codes have the same scale, the rounded sum equals the
    # saturated sum of the codes.
    op = site.node.op
    out = site.output
    assert isinstance(op, Add)
    inputs = [site.input(0), site.input(1)]
    if any(x.data is not None or x.shape != out.shape for x in inputs):
        return "adds a constant or tensors of different shapes"
    if any(x.dtype != "int8" or x.zero_point or x.scale != out.scale for x in (*inputs, out)):
        return (
            "adds codes of different scales, or with a zero point; `tilewright quantize --scheme symmetric` gives one"
        )
    if rounding.elementwise != "ort" or op.activation not in ("none", "relu"):
        return f"add by the rounding '{rounding.name}', with activation {op.activation}, is not compiled for gemmini"
    if config.dataflow == "os":
        return NO_LOOPS
    if config.acc_rows < 2 * config.dim:
        return "a block of results does not fit half of the accumulator"
    # The shape of the matrix does not matter. Rows as long as the largest DMA request make the best use of the bus.
    width = config.dma_bytes if out.size % config.dma_bytes == 0 else out.image[3]
    return Addition(out.size // width, width, RequantisingStore(1.0, op.activation == "relu"))
