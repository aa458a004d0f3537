"""How the accumulators of a group start, so that neither GEMM clears them nor the ALU adds a bias to their sums.

A group finds in its accumulators what an earlier group left: results that were clipped, at least FLOOR. The minimum of
them and of anything at most FLOOR is the latter. So one ALU micro-op sets a tile to its bias less a constant K, if no
bias is above K + FLOOR. K is a multiple of 2^(shift + 8): it leaves the low byte of a shifted sum as it is, if the
bounds of the clip are lower by K / 2^shift. Four stages gain most, because the unit that multiplies does nothing else.
The operation REQ adds the bias itself: there, FLOOR is the start, and the bias is higher by -FLOOR. So it is where the
ALU shifts a residual left, for a bias in the accumulators would be shifted too. A pool leaves sums that were not
clipped: with four stages, where the ALU has time, it first shifts them right until they are above FLOOR.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.compiler.epilogue import FLOOR
from tilewright.targets.vta.compiler.layer import Codes, Layer
from tilewright.targets.vta.compiler.lowered import Lowered
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.codes import CODE_MIN


def started(found: Lowered, config: Config) -> Lowered:
    """Return a lowered layer with the cheapest start of its accumulators that leaves its results as they are."""
    layer, codes, tiles = found.layer, found.layer.codes, found.parameters
    if codes is None or tiles is None or layer.kind != "sum" or (layer.pool and config.stages == 3):
        return found
    biases = tiles[:, : codes.biases].astype(np.int64)
    left = layer.residual.left if layer.residual else 0
    if codes.immediates is None or left:
        # Three stages: GEMM clears a tile in one cycle, as the ALU would.
        made = (biases - (FLOOR << left), replace(codes, start="constant")) if config.stages == 4 else None
    else:
        made = _moved(biases, codes)
    if made is None or not _fits(layer, *made, config):
        return found
    moved = tiles.copy()
    moved[:, : codes.biases] = made[0]
    return replace(found, layer=replace(layer, codes=made[1]), parameters=moved)


def _moved(biases: Array, codes: Codes) -> tuple[Array, Codes] | None:
    """Return biases less K, and codes whose bounds are lower by K / 2^shift; None if there is no such K."""
    immediates = codes.immediates
    assert immediates
    if immediates.shift is None:
        return None
    unit = 1 << (immediates.shift + 8)
    times = -(-(int(biases.max()) - FLOOR) // unit)
    low, high = (bound - (times << 8) for bound in (immediates.low, immediates.high))
    if low < FLOOR:
        return None
    return biases - times * unit, replace(codes, start="bias", immediates=immediates._replace(low=low, high=high))


def _fits(layer: Layer, biases: Array, codes: Codes, config: Config) -> bool:
    """Return whether each sum of products, with these biases, has two bits less than the accumulators.

    Then no sum leaves the accumulators, and a right shift by LARGEST_SHIFT of a sum of 32 bits is at least FLOOR.
    """
    most = layer.taps * layer.depth * config.block * CODE_MIN * CODE_MIN
    if layer.residual and layer.residual.after is None:
        most += -(FLOOR + (CODE_MIN << layer.residual.weight)) << layer.residual.left
    reach = max(abs(int(biases.max())), abs(int(biases.min()))) + most - FLOOR
    return reach < 1 << (config.acc.width - 2)
