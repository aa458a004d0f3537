"""Residual additions by LOOP_WS: two inputs meet in the accumulator, and their sum leaves it as codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.graph.ir import Site
from tilewright.graph.ops import Add
from tilewright.graph.rounding import Rounding
from tilewright.targets.gemmini.compiler.leaving import NO_LOOPS, Leaving
from tilewright.targets.gemmini.compiler.products import cuts
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands


@dataclass(frozen=True)
class Addition:
    """The sum of two matrices of codes, rows x columns, that saturates; tiles of `i` x `j` blocks."""

    rows: int
    columns: int
    leaves: Leaving
    i: int = 1
    j: int = 1

    def __str__(self) -> str:
        return f"LOOP_WS adds {self.rows} x {self.columns} codes in tiles of at most {self.i} x {self.j} blocks"

    def read(self, config: Config) -> int:
        """Return the bytes of the second input that the hardware reads: it loads whole blocks of rows."""
        return -(-self.rows // config.dim) * config.dim * self.columns

    #: Whether the hardware makes zeros.
    has_borders = False

    def tilings(self, config: Config) -> Iterator[Addition]:
        """Yield several tiles; the largest ones take half of the accumulator."""
        blocks, most = (-(-self.rows // config.dim), -(-self.columns // config.dim)), config.acc_rows // 2 // config.dim
        for size in sorted({max(most // share, 1) for share in (1, 2, 4, 8)}):
            j = min(blocks[1], size)
            yield replace(self, i=min(size // j, blocks[0]), j=j)

    def emit(self, config: Config, x: int, x2: int, y: int) -> Commands:
        """Return the commands. `x`, `x2`, `y`: DRAM addresses of the inputs and of the sum."""
        out, width = Commands(config), self.columns
        out.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
        for state in range(2):
            out.gemmini_extended3_config_ld(width, 1.0, True, state)
        self.leaves.configure(out, width)
        for row, i, pad_i in cuts(self.rows, self.i, config.dim):
            for column, j, pad_j in cuts(width, self.j, config.dim):
                at = row * width + column
                sizes = i, j, 0, pad_i, pad_j, 0, x + at, x2 + at, 0, y + at, width, width, 0, width
                out.gemmini_loop_ws(*sizes, False, False, False, False, False, self.leaves.activation, 0, 0, True)
        out.gemmini_fence()
        return out


def addition(site: Site, rounding: Rounding, config: Config) -> Addition | str:
    """Return an Add as an addition of the machine, or the reason why the host computes it.

    onnxruntime adds real numbers and rounds. If all codes have one scale, that gives the sum of the codes, saturated.
    """
    op, out = site.node.op, site.output
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
    width = config.dma_bytes if out.size % config.dma_bytes == 0 else out.image[3]
    return Addition(out.size // width, width, Leaving(1.0, op.activation == "relu"))
