"""A float32 softmax over 1024 rows of 1024 numbers on the BM1684X, as a kernel in Python.

Rows lie in lanes. Maxima and sums are pools: first over rows of 16, then over those 16. The exponential is the
sequence of commands that the vendor's compiler writes. Tiles of 128 rows are loaded and stored while others are
computed; transfers decide how long it takes.
"""

from __future__ import annotations

import numpy as np

from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.functions import exponential, load_exponential
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.values.window import Window

ROWS, COLUMNS, TILE, SIDE = 1024, 1024, 128, 16
LOWEST = float(np.finfo(np.float32).min)


@kernel
def softmax(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    """Over w of (1, rows, 1, w)."""
    _, rows, _, columns = x.shape
    one = (1, TILE, 1, columns)
    source, result = ([tpu.local(one, F32, bank) for bank in banks] for banks in ((0, 1), (2, 3)))
    work0, work1, shifted = (tpu.local(one, F32, bank) for bank in (4, 5, 6))
    folded = tpu.local((1, TILE, 1, SIDE), F32, bank=7)
    total = tpu.local((1, TILE, 1, 1), F32, bank=8)
    terms = tpu.local((1, tpu.config.lanes, 1, 10), F32, bank=9)
    load_exponential(tpu, terms)
    down, across = Window((columns // SIDE, 1)), Window((1, SIDE))
    count = rows // TILE
    for step in range(count + 2):
        with tpu.parallel():
            if step < count:
                tpu.gdma.copy(source[step % 2], x[:, TILE * step : TILE * (step + 1)])
            if 0 < step <= count:
                a, b = source[(step - 1) % 2], result[(step - 1) % 2]
                tpu.bdc.max_pool2d(folded, a.split(SIDE), LOWEST, window=down)
                tpu.bdc.max_pool2d(total, folded, LOWEST, window=across)
                tpu.bdc.fp_sub(shifted, a, total.over(*one))
                exponential(tpu, b, shifted, work0, work1, terms)
                tpu.bdc.fp_avg_pool2d(folded, b.split(SIDE), 1.0, window=down)
                tpu.bdc.fp_avg_pool2d(total, folded, 1.0, window=across)
                tpu.bdc.fp_div(total, 1.0, total)
                tpu.bdc.fp_mul(b, b, total.over(*one))
            if step > 1:
                tpu.gdma.copy(y[:, TILE * (step - 2) : TILE * (step - 1)], result[step % 2])


def main() -> None:
    x = np.random.default_rng(0).normal(scale=4, size=(1, ROWS, 1, COLUMNS)).astype(np.float32)
    device = Device()
    y = device.empty(x.shape, F32)
    launched = device.launch(softmax, y, device.put(x, F32))
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True)
    error = np.abs(device.get(y) / expected - 1).max()
    print(launched.summary())
    print(f"relative error {error:.1e}, races: {len(launched.findings)}")


if __name__ == "__main__":
    main()
