"""A layer by explicit commands, as the compiler sees it: its tiles to choose from, and its program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tilewright.targets.gemmini.compiler.convolutions import MOST, MOST_POOLED, NO_POOL
from tilewright.targets.gemmini.compiler.leaving import Leaving
from tilewright.targets.gemmini.compiler.streams.emit import emit
from tilewright.targets.gemmini.compiler.streams.shape import Shape
from tilewright.targets.gemmini.compiler.streams.stage import Addresses
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands


class Stream(Shape):
    """A convolution by explicit commands, in tiles."""

    def __str__(self) -> str:
        outputs = min(self.blocks * self.config.dim, self.layer.group[1])
        return f"commands, tiles of {self.rows} x {self.columns} x {outputs} results{self.layer.extras}"

    @property
    def has_borders(self) -> bool:
        """Whether zeros are loaded."""
        return any(self.layer.window.padding)

    @property
    def inputs(self) -> int:
        """Bytes of the input in DRAM."""
        return self.layer.inputs

    @property
    def leaves(self) -> Leaving:
        return self.layer.leaves

    def tilings(self, config: Config) -> Iterator[Stream]:
        """Yield tiles of several shapes, whose sums fit half of the accumulator.

        Pooling windows overlap, so large tiles compute the fewest results twice: they come first.
        """
        half, found = config.acc_rows // 2, dict[Stream, None]()
        sizes = sorted({max(half // share, 1) for share in (1, 2, 4, 8)})
        for pixels in sizes if self.layer.pool == NO_POOL else reversed(sizes):
            rows, columns = self._rectangle(pixels)
            tile = replace(self, rows=rows, columns=columns)
            taken = tile.most[0] * tile.most[1]
            if taken > half:
                continue
            most = min(self.all_blocks, half // taken)
            for blocks in (most, min(most, config.spad_blocks)):
                whole = blocks == self.all_blocks or blocks < config.spad_blocks
                made = replace(tile, blocks=blocks if whole else blocks - blocks % config.spad_blocks)
                if made.lanes[0] and made.fits_registers:
                    found[made] = None
        yield from found

    @property
    def fits_registers(self) -> bool:
        """Whether the fields of config_ld and config_st hold the sizes."""
        pooled = self.layer.pool == NO_POOL or max(*self.most, self.layer.pooled[1]) <= MOST_POOLED
        return self.places[-1] <= MOST and pooled

    def variants(self) -> Iterator[Stream]:
        """Yield the same tiles in other orders."""
        yield replace(self, eager=False)
        yield replace(self, ends=False)
        yield replace(self, ends=False, eager=False)

    def _rectangle(self, pixels: int) -> tuple[int, int]:
        """Return the rows and columns of tiles whose results take about `pixels` rows of the accumulator a block.

        Without pooling, a tile has whole rows of the image, or is a part of one row.
        """
        own, dim = self.layer, self.config.dim
        if own.pool == NO_POOL:
            columns = min(own.pooled[1], pixels)
            rows = min(own.pooled[0], pixels // columns)
            columns = -(-own.pooled[1] // -(-own.pooled[1] // columns))
            if own.pooled[0] == 1:
                columns = min(own.pooled[1], -(-columns // dim) * dim)
        else:
            for side in count(1):
                rows, columns = min(side, own.pooled[0]), min(side, own.pooled[1])
                larger = replace(self, rows=min(side + 1, own.pooled[0]), columns=min(side + 1, own.pooled[1]))
                if larger.most[0] * larger.most[1] > pixels or (larger.rows, larger.columns) == (rows, columns):
                    break
        return -(-own.pooled[0] // -(-own.pooled[0] // rows)), columns

    def emit(self, config: Config, x: int, w: int, d: int, y: int) -> Commands:
        """Return the commands. `x`, `w`, `d`, `y`: DRAM addresses of inputs, weights, offsets and results."""
        out, own = Commands(config), self.layer
        out.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
        out.gemmini_extended4_config_ld(own.window.stride[1] * own.channels[0], 1.0, False, self.places[-1], 0)
        out.gemmini_extended3_config_ld(config.dim * config.spad_blocks, 1.0, False, 1)
        out.gemmini_extended3_config_ld(0, 1.0, False, 2)
        if own.pool == NO_POOL:
            own.leaves.configure(out, own.channels[1])
        out.extend(emit(self, Addresses(x, w, d, y)))
        out.gemmini_fence()
        return out
