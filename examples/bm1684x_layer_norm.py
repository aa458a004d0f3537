"""A float32 layer norm over 1024 rows of 1024 numbers on the BM1684X, as a kernel in Python.

y = (x - mean) / sqrt(variance + epsilon) * gamma + beta. Rows lie in lanes; every lane has a copy of gamma and beta.
Means are pools: first over rows of 16, then over those 16. Tiles of 128 rows are loaded and stored while others are
computed. examples/bm1684x_c/layer_norm.c issues the same commands from C.
"""

from __future__ import annotations

import numpy as np

from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, U32
from tilewright.targets.bm1684x.values.window import Window

ROWS, COLUMNS, TILE, SIDE = 1024, 1024, 128, 16
EPSILON = 1e-5
INFINITY = 0x7F800000


@kernel
def layer_norm(tpu: Tpu, y: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> None:
    """Over w of (1, rows, 1, w). gamma and beta are (1, 1, 1, w)."""
    _, rows, _, columns = x.shape
    one = (1, TILE, 1, columns)
    source, result = ([tpu.local(one, F32, bank) for bank in banks] for banks in ((0, 1), (2, 3)))
    centred, squares = (tpu.local(one, F32, bank) for bank in (4, 5))
    folded, total = tpu.local((1, TILE, 1, SIDE), F32, bank=6), tpu.local((1, TILE, 1, 1), F32, bank=7)
    copies = [tpu.local((1, tpu.config.lanes, 1, columns), F32, bank) for bank in (8, 9)]
    for copy, far in zip(copies, (gamma, beta), strict=True):
        tpu.gdma.broadcast(copy, far)
    scale, shift = (copy.over(*one) for copy in copies)
    bits = total.typed(U32)
    down, across = Window((columns // SIDE, 1)), Window((1, SIDE))

    def mean(values: Tensor) -> None:
        tpu.bdc.fp_avg_pool2d(folded, values.split(SIDE), SIDE / columns, window=down)
        tpu.bdc.fp_avg_pool2d(total, folded, 1 / SIDE, window=across)

    count = rows // TILE
    for step in range(count + 2):
        with tpu.parallel():
            if step < count:
                tpu.gdma.copy(source[step % 2], x[:, TILE * step : TILE * (step + 1)])
            if 0 < step <= count:
                a, b = source[(step - 1) % 2], result[(step - 1) % 2]
                mean(a)
                tpu.bdc.fp_sub(centred, a, total.over(*one))
                tpu.bdc.fp_mul(squares, centred, centred)
                mean(squares)
                tpu.bdc.fp_add(total, total, epsilon)
                tpu.bdc.fp_rsqrt(total, total)
                tpu.bdc.equal_select(bits, bits, INFINITY, 0, bits)  # 1 / sqrt(0) is 0, as in tpu_bdc_fp32_rsqrt
                tpu.bdc.fp_mul(b, centred, total.over(*one))
                tpu.bdc.fp_mul(b, b, scale)
                tpu.bdc.fp_add(b, b, shift)
            if step > 1:
                tpu.gdma.copy(y[:, TILE * (step - 2) : TILE * (step - 1)], result[step % 2])


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(2, 3, size=(1, ROWS, 1, COLUMNS)).astype(np.float32)
    gamma, beta = (rng.normal(size=(1, 1, 1, COLUMNS)).astype(np.float32) for _ in range(2))
    device = Device()
    y = device.empty(x.shape, F32)
    places = (device.put(values, F32) for values in (x, gamma, beta))
    launched = device.launch(layer_norm, y, *places, EPSILON)
    exact = x.astype(np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    expected = centred / np.sqrt(exact.var(-1, keepdims=True) + EPSILON) * gamma + beta
    print(launched.summary())
    print(f"largest error {np.abs(device.get(y) - expected).max():.1e}, races: {len(launched.findings)}")


if __name__ == "__main__":
    main()
