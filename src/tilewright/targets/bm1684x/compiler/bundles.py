"""Bundle the constants of tiles into transfers. A short transfer takes as long as a longer one (timing/estimate.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import LARGEST, Tensor
from tilewright.targets.bm1684x.timing import estimate
from tilewright.targets.bm1684x.values.dtypes import U8

#: A layer's index, and the number of one of its blocks of constants.
Key = tuple[int, int]
#: The most bytes of a lane that several blocks take together. The first block waits until the last one has arrived.
MOST_BYTES = 1 << 12


@dataclass(frozen=True, eq=False)
class Bundle:
    """Blocks of constants that are transferred together: uint8 (lanes, n), of which the first `used` lanes matter.

    `begins` has the first byte of each block by its key.
    """

    used: int
    data: Array
    begins: Mapping[Key, int]

    def transfers(self, address: int, offset: int, config: Config) -> Iterator[Command]:
        """Yield the transfers from `address` in DDR to byte `offset` of the lanes."""
        lanes, size = self.data.shape
        for far in _parts(lanes, self.used, size, address, config):
            yield copy(Tensor.local(0, offset + far.address - address, far.shape, U8, config), far)


def bundled(
    blocks: Mapping[Key, Array], used: Callable[[Key], int], apart: Callable[[Key, Key], bool], config: Config
) -> list[Bundle]:
    """Return all blocks, in their order, in the bundles that take the fewest cycles to transfer.

    `used` says how many lanes of a block matter, and `apart` whether two neighbouring blocks stay in separate bundles.
    The first block stays alone, because the first layer waits for it.
    """
    keys = list(blocks)
    best: list[tuple[int, int]] = [(0, 0)]  # of the first n blocks: the fewest cycles, and where the last bundle begins
    for end in range(1, len(keys) + 1):
        choices: list[tuple[int, int]] = []
        lanes = size = 0
        for begin in range(end - 1, -1, -1):
            lanes, size = max(lanes, used(keys[begin])), size + blocks[keys[begin]].shape[1]
            alone = begin == end - 1
            if not alone and (not begin or size > MOST_BYTES or apart(keys[begin], keys[begin + 1])):
                break
            spent = sum(
                estimate.cycles(copy(part, part), config) for part in _parts(lanes, lanes, size, DDR_BASE, config)
            )
            choices.append((best[begin][0] + spent, begin))
        best.append(min(choices, key=lambda choice: (choice[0], -choice[1])))
    found, end = list[Bundle](), len(keys)
    while end:
        begin = best[end][1]
        own, parts = keys[begin:end], [blocks[key] for key in keys[begin:end]]
        *begins, _ = accumulate((block.shape[1] for block in parts), initial=0)
        data = np.concatenate(parts, axis=1)
        found.append(Bundle(max(map(used, own)), data, dict(zip(own, begins, strict=True))))
        end = begin
    return found[::-1]


def _parts(lanes: int, used: int, size: int, address: int, config: Config) -> list[Tensor]:
    """Return the parts of constants (lanes, size) in DDR that single transfers can move: the first `used` lanes."""
    most = LARGEST - LARGEST % config.eu_bytes
    return [
        Tensor(address + low, Shape(1, used, 1, min(size - low, most)), Stride(lanes * size, size, size, 1), U8, config)
        for low in range(0, size, most)
    ]


def copy(y: Tensor, x: Tensor) -> Command:
    """Return the transfer that copies `x` to `y`."""
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})
