"""The cycles of transfers, as the vendor's compiler estimates them.

The rule was found by sampling the vendor's estimator with random transfers. A tensor moves in runs of neighbouring
elements, of at least 256 bytes each. DDR has four channels, which take turns every 4096 bytes; a transfer that stays in
fewer of them is slower in proportion. The estimator looks at the first four pages of 4096 bytes that a transfer visits,
and counts them from the tensor's first byte. If source and destination differ in shape, it looks at the first four
pages of the tensor only, and takes the source's shape for both. A command without strides that exchanges n and c counts
as having planes of whole 16 bytes; a broadcast without strides moves row by row. Other commands have one rate.

The estimator gives no time to copies within local memory; here they take as long as copies into it.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import attribute
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Matrix, Tensor
from tilewright.targets.bm1684x.timing.model import Timing

#: Transfers that are timed by the bytes of one operand alone.
BY_BYTES = {
    "dma_linear": "y",
    "dma_linear_bcast": "x",
    "dma_cw_trans": "y",
    "dma_h_gather": "y",
    "dma_h_scatter": "x",
    "dma_mask_select": "x",
    "dma_nonzero": "x",
}


def transfer(command: Command, timing: Timing) -> int:
    """Return the estimated cycles of a transfer, which may be 0."""
    x, y = command.operands["x"], command.results["y"]
    name, size = command.operation.name, y.dtype.bytes
    from_lanes, to_lanes = not isinstance(x, Constant) and x.storage.is_local, y.storage.is_local
    if name in BY_BYTES:
        moved = prod(command[BY_BYTES[name]].shape) * size
        return int(moved * (2 if from_lanes and to_lanes else 1) / timing.turn_rate)
    if matrices := [end for end in (y, x) if isinstance(end, Matrix)]:
        rate = timing.matrix_read_rate if to_lanes else timing.matrix_write_rate
        if name == "dma_matrix_trans":
            rate *= timing.matrix_turn
        run = matrices[0].storage.shape.w * size
        return int(prod(y.shape) * size * max(1.0, timing.shortest_run / run) / rate)
    assert isinstance(y, Tensor)
    if isinstance(x, Constant):
        runs, run = _runs(y.shape, y.stride)
        return int(runs * max(timing.shortest_run, run * size) / timing.matrix_read_rate)
    assert isinstance(x, Tensor)
    if name == "dma_broadcast":  # each run is sent to all lanes at once
        n, _, h, w = y.shape
        by_rows = attribute(command.attributes, "without_strides")
        runs, run = (n * h, w) if by_rows else _runs(Shape(n, 1, h, w), x.stride, y.stride)
        return int(runs * max(timing.shortest_run, run * size) / timing.matrix_read_rate)
    # if the shapes differ, the estimator takes the source's for both ends
    runs, run = _runs(y.shape if name == "dma_nc_trans" else x.shape, x.stride, y.stride)
    out = timing.write_rate if from_lanes else timing.copy_rate
    rate = timing.read_rate if to_lanes else out
    rounded = np.float32(runs * max(timing.shortest_run, run * size))
    return int(rounded / np.float32(rate) * np.float32(timing.full) / np.float32(_channels(command, x, y, timing)))


def _runs(shape: Shape, *strides: Stride) -> tuple[int, int]:
    """Return the number of runs that are neighbouring elements under all `strides`, and the elements of each."""
    n, c, h, w = shape
    if all(stride.w == 1 or w == 1 for stride in strides):
        if all(stride.h == w or h == 1 for stride in strides):
            return n * c, h * w
        return n * c * h, w
    return n * c * h * w, 1


def _channels(command: Command, x: Tensor, y: Tensor, timing: Timing) -> int:
    """Return how many channels of DDR a transfer keeps busy, as the estimator counts them: 1 to `full`."""
    if x.storage.is_local and y.storage.is_local:
        return int(timing.full)
    far = x if y.storage.is_local else y
    shape, stride = far.shape, far.stride
    turned = command.operation.name == "dma_nc_trans"
    differ = turned or x.shape != y.shape
    if differ:  # the estimator takes the source's shape for both ends
        shape = Shape(y.shape.c, y.shape.n, y.shape.h, y.shape.w) if turned else x.shape
        if attribute(command.attributes, "without_strides"):
            plane = -(-shape.h * shape.w * far.dtype.bytes // timing.plane) * timing.plane
            stride = Stride(0, plane // far.dtype.bytes, shape.w, 1)
    size, pages = far.dtype.bytes, max(1, int(timing.full))
    long = max(1, -(-shape.h * stride.h * size // timing.unit))
    visited: list[int] = []
    for n, c in product(range(shape.n), range(shape.c)):
        page = (n * stride.n + c * stride.c) * size // timing.unit
        visited += [number for number in range(page, page + min(long, pages)) if number not in visited]
        if len(visited) >= pages:
            break
    if differ:  # pages after the first four do not count
        return sum(number < pages for number in visited)
    return len({number % pages for number in visited[:pages]})
