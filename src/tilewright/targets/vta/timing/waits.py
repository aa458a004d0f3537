"""Cycles that a pipelined operation waits for its own results, where micro-ops reach a tile soon after each other."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES, AluKernel

#: Microseconds of `waited` for each micro-op, uncompiled.
MICRO_OP_US = 4


def waits(kernel: AluKernel, interval: int, latency: int) -> int:
    """Cycles by which an instruction is longer; a tile is read `latency` cycles after its last read as a destination,
    or later.

    Micro-ops take `interval` cycles, factors of REQ a cycle a tile in front of each outer iteration. The source is
    read in the first of a micro-op's cycles, the destination in the last; what waits, all behind it waits with.
    """
    count, loop = kernel.size, kernel.loop
    if count < 2:
        return 0
    first = np.arange(count) * interval
    if kernel.factors is not None:
        first += FACTOR_TILES * (1 + np.arange(count) // (count // loop.iter_out))
    last, dst, src = first + interval - 1, kernel.dst, kernel.src if kernel.reads_source else kernel.dst
    reads = first if kernel.reads_source else last
    for back in range(1, min(count, latency)):
        again = (dst[back:] == dst[:-back]) & (last[back:] - last[:-back] < latency)
        again |= (src[back:] == dst[:-back]) & (reads[back:] - last[:-back] < latency)
        if again.any():
            return int(waited.of(MICRO_OP_US * count)(src, dst, reads, last, latency))
    return 0


@compiled
def waited(src: Array, dst: Array, first: Array, last: Array, latency: int) -> int:
    """The wait of all reads of `src` at `first` and of `dst` at `last`, each behind those of the micro-ops before."""
    count = dst.shape[0]
    read = np.zeros(count, np.int64)
    late = 0
    for i in range(count):
        for tile, due in ((src[i], first[i]), (dst[i], last[i])):
            j = i - 1
            while j >= 0 and due + late - read[j] < latency:
                if dst[j] == tile:
                    late += latency - (due + late - read[j])
                j -= 1
        read[i] = last[i] + late
    return late
