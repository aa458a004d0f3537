"""Non-maximum suppression of 2048 boxes on the BM1684X with all three engines, as a kernel in Python.

HAU sorts the scores, GDMA gathers the best 256 boxes, BDC compares each with each, HAU drops boxes that a better one
overlaps. What HAU's command does is a model: no vector shows one.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U32

BOXES, BEST, THRESHOLD = 2048, 256, 0.5


@kernel
def suppress(tpu: Tpu, kept: Tensor, count: Tensor, best: Tensor, boxes: Tensor, scores: Tensor, room: Tensor) -> None:
    """`best` (1, 1, K, 1): numbers of the best boxes; `kept`: which of those stay, `count` of them. Boxes are
    (1, 1, n, 4) as x0, y0, x1, y1; `room` is DDR for K boxes twice, and K * K bytes."""
    k = best.shape.h
    top = tpu.system(room.address, (1, 1, k, 4), F32)
    columns = tpu.system(room.address + 16 * k, (1, 1, 4, k), F32)
    pairs = tpu.system(room.address + 32 * k, (1, k, 1, k), U8)
    tpu.hau.sort(tpu.system(room.address, (1, 1, 1, k), F32), best, scores, descending=True)
    tpu.gdma.h_gather(top, boxes, best.typed(U32), 0.0)
    square = (1, k, 1, k)
    mine = tpu.local((1, k, 1, 4), F32, bank=0)  # of the row's box
    tpu.gdma.copy(mine, tpu.system(top.address, mine.shape, F32))
    theirs = [tpu.local((1, tpu.config.lanes, 1, k), F32, bank=1) for _ in range(4)]  # of the column's, in every lane
    tpu.gdma.copy(columns, top.transposed_hw())  # a broadcast reads neighbouring elements only
    for i, one in enumerate(theirs):
        tpu.gdma.broadcast(one, columns[:, :, i : i + 1])
    wide, high, area = (tpu.local(square, F32, bank) for bank in (3, 4, 5))
    own, both = tpu.local((1, k, 1, 1), F32, bank=6), tpu.local((1, tpu.config.lanes, 1, k), F32, bank=7)
    low = tpu.local(square, F32, bank=8)
    result = tpu.local(square, U8, bank=9)

    def side(y: Tensor, axis: int) -> None:
        """How far two boxes overlap along an axis."""
        tpu.bdc.min(y, mine[:, :, :, axis + 2 : axis + 3].over(*square), theirs[axis + 2].over(*square))
        tpu.bdc.max(low, mine[:, :, :, axis : axis + 1].over(*square), theirs[axis].over(*square))
        tpu.bdc.fp_sub(y, y, low)
        tpu.bdc.max(y, y, 0.0)

    def size(y: Tensor, sides: list[Tensor], work: Tensor) -> None:
        """The area of a box."""
        tpu.bdc.fp_sub(y, sides[2], sides[0])
        tpu.bdc.fp_sub(work, sides[3], sides[1])
        tpu.bdc.fp_mul(y, y, work)

    side(wide, 0)
    side(high, 1)
    tpu.bdc.fp_mul(area, wide, high)
    size(own, [mine[:, :, :, i : i + 1] for i in range(4)], tpu.local(own.shape, F32, bank=6))
    size(both, theirs, tpu.local(both.shape, F32, bank=7))
    tpu.bdc.fp_add(wide, own.over(*square), both.over(*square))
    tpu.bdc.fp_sub(wide, wide, area)  # the union
    tpu.bdc.fp_mul(wide, wide, THRESHOLD)
    tpu.bdc.greater(result, area, wide, 1)
    tpu.gdma.copy(pairs, result)
    tpu.hau.hard_nms(kept, count, pairs)


def reference(boxes: Array, scores: Array) -> list[int]:
    """The same in NumPy, box after box."""
    order = np.argsort(-scores, kind="stable")[:BEST]
    kept: list[int] = []
    x0, y0, x1, y1 = boxes[order].T
    area = (x1 - x0) * (y1 - y0)
    for i in range(BEST):
        wide, high = (np.maximum(np.minimum(b, b[i]) - np.maximum(a, a[i]), 0) for a, b in ((x0, x1), (y0, y1)))
        over = wide * high > ((area + area[i]) - wide * high) * np.float32(THRESHOLD)
        if not over[kept].any():
            kept.append(i)
    return [int(order[i]) for i in kept]


def main() -> None:
    rng = np.random.default_rng(0)
    centre, half = rng.uniform(0, 400, (BOXES, 2)), rng.uniform(10, 60, (BOXES, 2))
    boxes = np.concatenate((centre - half, centre + half), 1).astype(np.float32)
    scores = rng.uniform(size=BOXES).astype(np.float32)
    device = Device()
    best, kept, count = (
        device.empty((1, 1, BEST, 1), I32),
        device.empty((1, 1, 1, BEST), I32),
        device.empty((1,) * 4, I32),
    )
    room = device.empty((1, 1, BEST, 32 + BEST), U8)
    launched = device.launch(
        suppress, kept, count, best, device.put(boxes[None, None], F32), device.put(scores, F32), room
    )
    stay = device.get(kept).reshape(-1)[: device.get(count).item()]
    found = device.get(best).reshape(-1)[stay].tolist()
    equal, races = found == reference(boxes, scores), len(launched.findings)
    print(launched.summary())
    print(f"{len(found)} of {BEST} boxes stay, equal: {equal}, races: {races}")


if __name__ == "__main__":
    main()
