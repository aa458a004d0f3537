"""Concatenation of codes, and conversion of codes to another scale, by loads and stores without the array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from tilewright.graph.ir import Site
from tilewright.graph.ops import Concat, Quantize
from tilewright.graph.rounding import Rounding
from tilewright.schedule import ranges
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import Commands, spad

#: The number of loads that are issued before the first store.
AHEAD = 2


@dataclass(frozen=True)
class Copy:
    """A copy of matrices of codes into one matrix, side by side. Loads multiply codes by `scale`.

    Each matrix has `rows` rows, and `widths` has the number of columns of each matrix. With `wide`, a store is as wide
    as a load. Without `wide`, a store has one block of columns, which is faster but needs more responses of the bus.
    """

    rows: int
    widths: tuple[int, ...]
    scale: float = 1.0
    wide: bool = False

    def __str__(self) -> str:
        how = f"converts, scale {self.scale:.6g}," if self.scale != 1 else "copies"
        return f"{how} {self.rows} x {' + '.join(map(str, self.widths))} codes through the scratchpad"

    #: The hardware generates no zeros (see TiledLayer).
    has_borders = False

    def tilings(self, config: Config) -> Iterator[Copy]:
        """Yield the copy with narrow stores, and with wide stores if they differ."""
        yield self
        if max(self.widths) > config.dim and config.spad_blocks > 1:
            yield replace(self, wide=True)

    def emit(self, config: Config, *places: int) -> Commands:
        """Return the commands. `places` are the DRAM addresses of the inputs and of the result."""
        out = Commands(config)
        dim = config.dim
        whole = sum(self.widths)
        *inputs, y = places
        out.gemmini_config_st(whole)
        # Loads alternate between the halves of the scratchpad, so that loads and stores use different banks.
        half = config.half if config.half >= dim else 0
        most = max(min(config.spad_blocks, half // dim), 1) * dim
        slots = max(half // most, 1)
        turn = 0
        waiting = list[tuple[int, int, int, int]]()
        for index, (x, width) in enumerate(zip(inputs, self.widths, strict=True)):
            out.gemmini_extended_config_ld(width, self.scale)
            column = y + sum(self.widths[:index])
            for block, cut in product(ranges(self.rows, dim), ranges(width, most)):
                place = turn % 2 * half + turn // 2 % slots * most
                turn = turn + 1
                out.gemmini_extended_mvin(x + block.first * width + cut.first, spad(place), cut.size, block.size)
                waiting.append((column + block.first * whole + cut.first, place, cut.size, block.size))
                # A store waits for its load, so place AHEAD further loads before the store to keep the DMA reader busy.
                if len(waiting) > AHEAD:
                    self._store(out, *waiting.pop(0))
        for block_move in waiting:
            self._store(out, *block_move)
        out.gemmini_fence()
        return out

    def _store(self, out: Commands, dram: int, place: int, columns: int, rows: int) -> None:
        dim = out.config.dim
        for cut in ranges(columns, columns if self.wide else dim):
            out.gemmini_extended_mvout(dram + cut.first, spad(place + cut.first // dim * dim), cut.size, rows)


def copy(site: Site, rounding: Rounding, config: Config) -> Copy | str:
    """Return the copy that computes a Concat or a Quantize, or the reason why the host computes the node."""
    op = site.node.op
    out = site.output
    tensors = [site.input(index) for index in range(len(site.inputs))]
    if any(tensor.dtype != "int8" or tensor.data is not None for tensor in (*tensors, out)):
        return f"{op.label} of constants, or of other types than int8, is not compiled for gemmini"
    if isinstance(op, Concat):
        if op.activation != "none":
            return f"concat with activation {op.activation} is not compiled for gemmini"
        axis = op.axis % len(out.shape)
        return Copy(prod(out.shape[:axis]), tuple(prod(tensor.shape[axis:]) for tensor in tensors))
    assert isinstance(op, Quantize)
    scale = np.float32(tensors[0].scale / out.scale)
    codes = np.arange(-128, 128).astype(np.int8)
    # The machine multiplies in float32, but the rounding mode may use another arithmetic: compare all 256 codes.
    machine = np.clip(np.rint(codes.astype(np.float32) * scale), -128, 127)
    if not np.array_equal(op.evaluate(site, [codes], rounding)[0], machine):
        return "the new codes are not those of one float32 factor, rounded half to even"
    most = config.dim * config.spad_blocks
    width = most if out.size % most == 0 else out.image[3]
    return Copy(out.size // width, (width,), float(scale))
