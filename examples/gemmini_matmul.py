"""Multiply two 64 x 64 matrices on Gemmini, once with primitive commands and once with a hardware loop.

    python examples/gemmini_matmul.py

Both programs use the names of gemmini.h. The hardware loop needs one command a tile, and overlaps loads with computes.
"""

from __future__ import annotations

import numpy as np

from tilewright.targets.gemmini.runtime import NO_ACTIVATION, WEIGHT_STATIONARY, Buffer, Gemmini, acc, spad

SIZE, DIM = 64, 16
BLOCKS = SIZE // DIM
GARBAGE = 0xFFFF_FFFF


def configure(g: Gemmini) -> None:
    g.gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0)
    g.gemmini_config_st(SIZE)
    for state in range(3):
        g.gemmini_extended3_config_ld(SIZE, 1.0, False, state)


def by_primitives(g: Gemmini, a: Buffer, b: Buffer, c: Buffer) -> None:
    """Load all blocks, multiply block by block, and store."""
    rows = BLOCKS * DIM
    for i in range(BLOCKS):
        for j in range(BLOCKS):
            offset = i * DIM * SIZE + j * DIM
            g.gemmini_mvin(a.address + offset, spad((i * BLOCKS + j) * DIM))
            g.gemmini_extended_mvin2(b.address + offset, spad((i * BLOCKS + j) * DIM + BLOCKS * rows), DIM, DIM)
    for j in range(BLOCKS):
        for k in range(BLOCKS):
            for i in range(BLOCKS):
                weights = spad((k * BLOCKS + j) * DIM + BLOCKS * rows)
                result = acc((i * BLOCKS + j) * DIM, accumulate=k > 0)
                g.gemmini_preload(GARBAGE if i else weights, result)
                compute = g.gemmini_compute_accumulated if i else g.gemmini_compute_preloaded
                compute(spad((i * BLOCKS + k) * DIM), GARBAGE)
    for i in range(BLOCKS):
        for j in range(BLOCKS):
            g.gemmini_mvout(c.address + i * DIM * SIZE + j * DIM, acc((i * BLOCKS + j) * DIM))
    g.gemmini_fence()


def by_loop(g: Gemmini, a: Buffer, b: Buffer, c: Buffer) -> None:
    """Let the hardware unroll the product."""
    sizes, strides = (BLOCKS, BLOCKS, BLOCKS, 0, 0, 0), (SIZE, SIZE, 0, SIZE)
    flags = (False, False, False, False, False, NO_ACTIVATION, 0, 0, False)
    g.gemmini_loop_ws(*sizes, a.address, b.address, 0, c.address, *strides, *flags)  # type: ignore[arg-type]
    g.gemmini_fence()


def main() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(-2, 3, (2, SIZE, SIZE)).astype(np.int8)
    expected = np.clip(left.astype(np.int32) @ right, -128, 127)
    for name, program in (("primitives", by_primitives), ("LOOP_WS", by_loop)):
        with Gemmini() as g:
            a, b, c = g.to_device(left), g.to_device(right), g.empty((SIZE, SIZE), "int8")
            configure(g)
            program(g, a, b, c)
            result = g.run()
            wrong = int((c.data != expected).sum())
            use, hazards = 100 * result.macs / result.cycles / DIM**2, len(result.findings)
            print(f"{name}: {result.cycles} cycles, {use:.0f} % of the array, {wrong} wrong, {hazards} hazards")


if __name__ == "__main__":
    main()
