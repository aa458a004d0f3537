"""A product of 256 x 256 matrices on Gemmini, command by command: four schedules, each with one idea more.

The array needs 65,536 cycles. One LOOP_WS takes 71,866 cycles, and tiled_matmul_auto of gemmini.h 69,015.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tilewright.targets.gemmini.runtime import GARBAGE_ADDR, NO_ACTIVATION, WEIGHT_STATIONARY, Gemmini, acc, spad

N, DIM = 256, 16
BLOCKS, BANK, HALF = N // DIM, 4096, 512  # blocks of a side; rows of a bank, and of half of the accumulator


class Schedule(NamedTuple):
    """What a schedule does."""

    apart: bool = False  # A and B alternate between two banks each: a bank is written while another one is read
    spread: int = 1  # a store is issued with every n-th product, so that stores never fill their queue
    edges: bool = False  # narrow loads at the start, and a last tile of one block: little to wait for at both ends


class Tile(NamedTuple):
    """Blocks of C that are computed together, in the accumulator from row `place` on."""

    row: int
    col: int
    rows: int
    cols: int
    place: int


def tiles(edges: bool) -> list[Tile]:
    """Return tiles of 8 x 4 blocks in alternating halves; with `edges`, the last one in three parts."""
    corners = [(row, col) for row in range(0, BLOCKS, 8) for col in range(0, BLOCKS, 4)]
    made = [Tile(row, col, 8, 4, index % 2 * HALF) for index, (row, col) in enumerate(corners)]
    if not edges:
        return made
    row, col, _, _, place = made.pop()
    other = HALF - place  # stores read the half of the tile before
    last = Tile(row + 7, col, 1, 3, other), Tile(row + 7, col + 3, 1, 1, place + 31 * DIM)
    return [*made, Tile(row, col, 7, 4, place), *last]


def products(edges: bool) -> Iterator[tuple[Tile, int, int, int]]:
    """Yield all products of blocks in order: the tile, the depth k, the column of B, the row of A."""
    for tile in tiles(edges):
        for k in range(BLOCKS):
            for j in range(tile.col, tile.col + tile.cols):
                for i in range(tile.row, tile.row + tile.rows):
                    yield tile, k, j, i


def program(g: Gemmini, a: int, b: int, c: int, own: Schedule) -> None:
    """Issue the commands of a schedule; a, b and c are the addresses of the matrices."""
    loaded: set[tuple[str, int, int]] = set()
    stores: list[tuple[int, int, int, int]] = []
    steps, ahead = list(products(own.edges)), 0

    def a_row(i: int, k: int) -> int:
        return k // 4 % 2 * BANK + (k // 8 * 64 + i * 4 + k % 4) * DIM if own.apart else (i * BLOCKS + k) * DIM

    def b_row(k: int, j: int) -> int:
        return (2 + k % 2) * BANK + (k // 2 * BLOCKS + j) * DIM if own.apart else BANK + (k * BLOCKS + j) * DIM

    def load(name: str, dram: int, row: int, col: int, place: int, narrow: bool) -> None:
        """Load a block and those beside it, up to a multiple of four."""
        if (name, row, col) not in loaded:
            wide = 1 if narrow else 4 - col % 4
            g.gemmini_extended_mvin(dram + (row * N + col) * DIM, spad(place), wide * DIM, DIM)
            loaded.update((name, row, col + more) for more in range(wide))

    g.gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0)
    g.gemmini_config_ld(N)
    g.gemmini_config_st(N)
    for n, (tile, k, j, i) in enumerate(steps):
        for first, depth, col, row in steps[ahead : n + min(n, 32) + 1]:  # loads run up to 32 products ahead
            narrow = depth == 0 and (own.edges or row == col == 0) and first == steps[0][0]
            load("b", b, depth, col, b_row(depth, col), narrow)
            load("a", a, row, depth, a_row(row, depth), narrow)
        ahead = n + min(n, 32) + 1
        fresh, width = i == tile.row, tile.cols
        place = tile.place + ((i - tile.row) * width + j - tile.col) * DIM
        g.gemmini_preload(spad(b_row(k, j)) if fresh else GARBAGE_ADDR, acc(place, accumulate=k > 0))
        (g.gemmini_compute_preloaded if fresh else g.gemmini_compute_accumulated)(spad(a_row(i, k)), GARBAGE_ADDR)
        if k == BLOCKS - 1 and j == tile.col + width - 1:
            stores.append((c + (i * N + tile.col) * DIM, acc(place - (width - 1) * DIM), width * DIM, DIM))
        if stores and n % own.spread == own.spread - 1:
            g.gemmini_extended_mvout(*stores.pop(0))
    for store in stores:
        g.gemmini_extended_mvout(*store)
    g.gemmini_fence()


def main() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(-3, 4, (2, N, N)).astype(np.int8)
    golden = np.clip(left.astype(np.int64) @ right, -128, 127)
    for name, own in {
        "tiles of 8 x 4 blocks": Schedule(),
        "operands in two banks": Schedule(apart=True),
        "stores spread": Schedule(apart=True, spread=8),
        "short start and end": Schedule(apart=True, spread=8, edges=True),
    }.items():
        with Gemmini() as g:
            a, b = g.to_device(left), g.to_device(right)
            c = g.empty((N, N), "int8")
            program(g, a.address, b.address, c.address, own)
            result = g.run()
            equal = "equal" if np.array_equal(c.data, golden) else "different"
            print(f"{name:22} {result.cycles:,} cycles, {equal}, {len(result.findings)} hazards")


if __name__ == "__main__":
    main()
