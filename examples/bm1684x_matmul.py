"""A 1024 x 1024 x 1024 int8 matrix product with int8 output on the BM1684X, as a kernel in Python.

Tiles of 64 rows of both factors are loaded while those before them are multiplied. Loading grows a square (each pair
of tiles adds an L of products), then takes right tiles only, then left ones only: results leave in runs of 512 bytes or
more, and little is left to store at the end.
"""

from __future__ import annotations

import time

import numpy as np

from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import I8, I32

TILE, TILES = 64, 16
HALF = TILES // 2
PEAK = 64 * 256  # multiply-accumulates a cycle


@kernel
def matmul(tpu: Tpu, y: Tensor, left: Tensor, right: Tensor, multiplier: int, shift: int) -> None:
    """y (M, N) = left (M, K) times right (N, K) transposed, rescaled."""
    a, b, out = (tpu.local(far.shape, I8, bank) for far, bank in ((left, 0), (right, 1), (y, 8)))
    block = (1, TILE, 1, TILE * TILES)
    sums, small = tpu.local(block, I32, bank=4), tpu.local(block, I8, bank=5)

    def tiles(first: int, end: int) -> slice:
        return slice(TILE * first, TILE * end)

    def multiply(rows: slice, columns: slice) -> None:
        part = out[:, rows, :, columns]
        wide, narrow = sums.resized(*part.shape), small.resized(*part.shape)  # products and requantisation want aligned
        tpu.bdc.int8_zp_mm(wide.rows(), a[:, rows].rows(), b[:, columns].rows(), right_transposed=True)
        tpu.bdc.int_requant(narrow, wide, multiplier, shift, 0, mode="half_up")
        tpu.bdc.copy(part, narrow)

    def store(rows: slice, columns: slice) -> None:
        tpu.gdma.copy(y[:, rows, :, columns], out[:, rows, :, columns])

    stages: list[tuple[int | None, int | None]] = [(i, i) for i in range(HALF)]  # the left and right tile to load
    stages += [(None, i) for i in range(HALF, TILES)]
    stages += [*((i, None) for i in range(HALF, TILES)), (None, None), (None, None)]
    for number, loaded in enumerate(stages):
        with tpu.parallel():
            for tile, local, far in zip(loaded, (a, b), (left, right), strict=True):
                if tile is not None:
                    tpu.gdma.copy(local[:, tiles(tile, tile + 1)], far[:, tiles(tile, tile + 1)])
            row, column = stages[number - 1]  # what was loaded before
            if row is not None:  # a new left tile: with all right ones that are there
                multiply(tiles(row, row + 1), tiles(0, TILES if column is None else column + 1))
            if column:  # a new right tile: with all left ones before it
                multiply(tiles(0, min(column, HALF)), tiles(column, column + 1))
            stored = number - 1 - HALF  # quarters of the first half, then whole rows
            if 0 <= stored < TILES:
                store(tiles(stored % HALF, stored % HALF + 1), tiles(*((0, HALF) if stored < HALF else (HALF, TILES))))
            if stored > HALF:
                store(tiles(stored - 1, stored), tiles(0, TILES))


def main() -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-128, 128, (1024, 1024)).astype(np.int8)[None, :, None] for _ in range(2))
    device = Device()
    y = device.empty(left.shape, I8)
    start = time.process_time()
    launched = device.launch(matmul, y, device.put(left, I8), device.put(right, I8), 1 << 20, -37)
    seconds = time.process_time() - start
    sums = left[0, :, 0].astype(np.float64) @ right[0, :, 0].astype(np.float64).T
    exact = np.array_equal(device.get(y)[0, :, 0], np.clip(np.floor(sums * 2.0**-17 + 0.5), -128, 127))
    print(f"{launched.summary(peak=1024**3 // PEAK)}; {seconds:.2f} s of simulation")
    print(f"exact: {exact}, races: {len(launched.findings)}")


if __name__ == "__main__":
    main()
