"""Attention of 12 heads, 256 positions and 64 features a head, in float16 on the BM1684X, as a kernel in Python.

Each head is two matrix products with a softmax between them; sums and the softmax are float32. Heads are loaded in
pairs (runs of 256 bytes, which transfers want) while the pair before is computed and the one before that is stored.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.functions import exponential, load_exponential
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F16, F32
from tilewright.targets.bm1684x.values.window import Window

HEADS, POSITIONS, FEATURES = 12, 256, 64
PAIR, SIDE = 2 * FEATURES, 16
PEAK = 64 * 128  # multiply-accumulates a cycle
LOWEST = float(np.finfo(np.float32).min)


@kernel
def attention(tpu: Tpu, y: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
    """All (1, positions, 1, heads * features)."""
    _, positions, _, width = query.shape
    one, square = (1, positions, 1, PAIR), (1, positions, 1, positions)
    q, k, v, out = ([tpu.local(one, F16, bank) for _ in range(2)] for bank in (0, 1, 2, 3))
    scores, powers, work0, work1 = (tpu.local(square, F32, bank) for bank in (4, 5, 6, 7))
    short = tpu.local(square, F16, bank=8)
    q0, k0, v0, y0 = (tpu.local((1, positions, 1, FEATURES), F16, bank=11) for _ in range(4))
    folded, total = tpu.local((1, positions, 1, SIDE), F32, bank=9), tpu.local((1, positions, 1, 1), F32, bank=9)
    terms = tpu.local((1, tpu.config.lanes, 1, 10), F32, bank=10)
    load_exponential(tpu, terms)
    down, across = Window((positions // SIDE, 1)), Window((1, SIDE))

    def head(y: Tensor, q: Tensor, k: Tensor, v: Tensor) -> None:
        for aligned, half in ((q0, q), (k0, k), (v0, v)):  # as products want them
            tpu.bdc.copy(aligned, half)
        tpu.bdc.fp_mm(scores.rows(), q0.rows(), k0.rows(), right_transposed=True)
        tpu.bdc.max_pool2d(folded, scores.split(SIDE), LOWEST, window=down)
        tpu.bdc.max_pool2d(total, folded, LOWEST, window=across)
        tpu.bdc.fp_sub(powers, scores, total.over(*square))
        tpu.bdc.fp_mul(powers, powers, scale)
        exponential(tpu, scores, powers, work0, work1, terms)
        tpu.bdc.fp_avg_pool2d(folded, scores.split(SIDE), 1.0, window=down)
        tpu.bdc.fp_avg_pool2d(total, folded, 1.0, window=across)
        tpu.bdc.fp_div(total, 1.0, total)
        tpu.bdc.fp_mul(scores, scores, total.over(*square))
        tpu.bdc.cast(short, scores)
        tpu.bdc.fp_mm(y0.rows(), short.rows(), v0.rows())
        tpu.bdc.copy(y, y0)

    count = width // PAIR
    for step in range(count + 2):
        with tpu.parallel():
            if step < count:
                for near, far in ((q, query), (k, key), (v, value)):
                    tpu.gdma.copy(near[step % 2], far[:, :, :, PAIR * step : PAIR * (step + 1)])
            if 0 < step <= count:
                for first in range(0, PAIR, FEATURES):
                    head(*(x[(step - 1) % 2][:, :, :, first : first + FEATURES] for x in (out, q, k, v)))
            if step > 1:
                tpu.gdma.copy(y[:, :, :, PAIR * (step - 2) : PAIR * (step - 1)], out[step % 2])


def main() -> None:
    rng = np.random.default_rng(0)
    shape = (1, POSITIONS, 1, HEADS * FEATURES)
    query, key, value = (rng.normal(size=shape).astype(np.float16) for _ in range(3))
    scale = FEATURES**-0.5
    device = Device()
    y = device.empty(shape, F16)
    launched = device.launch(attention, y, *(device.put(x, F16) for x in (query, key, value)), scale)

    def by_head(x: Array) -> Array:
        return x.astype(np.float64).reshape(POSITIONS, HEADS, FEATURES).transpose(1, 0, 2)

    q, k, v = (by_head(x) for x in (query, key, value))
    powers = np.exp(q @ k.transpose(0, 2, 1) * scale)
    expected = powers / powers.sum(-1, keepdims=True) @ v
    error = np.abs(by_head(device.get(y)) - expected).max()
    print(launched.summary(peak=2 * HEADS * POSITIONS**2 * FEATURES // PEAK))
    print(f"largest error {error:.1e}, races: {len(launched.findings)}")


if __name__ == "__main__":
    main()
