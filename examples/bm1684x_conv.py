"""A 3x3 int8 convolution (a layer of ResNet-18, batch 8) on the BM1684X, as a kernel in Python.

The weights stay in local memory. In each parallel region the next image is loaded, the one before it is convolved and
rescaled by channel, and the one before that is stored.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import I8, I32
from tilewright.targets.bm1684x.values.window import Window

BATCH, CHANNELS, SIZE = 8, 128, 28
PEAK = 64 * 256  # multiply-accumulates a cycle
SHIFT, WINDOW = -31, Window((3, 3), pads=(1, 1, 1, 1))


@kernel
def conv(tpu: Tpu, y: Tensor, x: Tensor, weights: Tensor, scales: Tensor) -> None:
    """y = x * weights, times scales (1, c, 1, 3): multiplier, shift and offset of each channel."""
    count, c, h, width = x.shape
    one = (1, c, h, width)
    w = tpu.weights((c, c, 3, 3), I8, bank=0)
    scale = tpu.local(scales.shape, I32, bank=2)
    source, result = ([tpu.local(one, I8, bank) for bank in banks] for banks in ((3, 4), (5, 6)))
    sums = tpu.local(one, I32, bank=8)
    tpu.gdma.copy(w.storage, weights)
    tpu.gdma.copy(scale, scales)
    by_channel = [scale[:, :, :, i : i + 1] for i in range(3)]
    for step in range(count + 2):
        with tpu.parallel():
            if step < count:
                tpu.gdma.copy(source[step % 2], x[step : step + 1])
            if 0 < step <= count:
                last = (step - 1) % 2
                tpu.bdc.int8_asym_quant_conv2d(sums, source[last], w, window=WINDOW)
                tpu.bdc.int_requant(result[last], sums, *by_channel, mode="half_up")
            if step > 1:
                tpu.gdma.copy(y[step - 2 : step - 1], result[step % 2])


def reference(x: Array, w: Array, scales: Array) -> Array:
    """The same in NumPy."""
    n, c, h, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.float64)
    sums = np.zeros((n, c, h, width))  # exact: far below 2**53
    for i in range(3):
        for j in range(3):
            tap = padded[:, :, i : i + h, j : j + width].reshape(n, c, -1)
            sums += (w[:, :, i, j].astype(np.float64) @ tap).reshape(sums.shape)
    multiplier, _, offset = np.moveaxis(scales[..., None], 3, 0).astype(np.int64)
    rounded = (sums.astype(np.int64) * multiplier + (1 << (-SHIFT - 1))) >> -SHIFT
    return np.clip(rounded + offset, -128, 127).astype(np.int8)


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (BATCH, CHANNELS, SIZE, SIZE)).astype(np.int8)
    w = rng.integers(-128, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
    scales = np.zeros((1, CHANNELS, 1, 3), np.int32)
    scales[..., 0], scales[..., 1] = rng.integers(1 << 17, 1 << 18, (1, CHANNELS, 1)), SHIFT
    scales[..., 2] = rng.integers(-9, 10, (1, CHANNELS, 1))
    device = Device()
    y = device.empty(x.shape, I8)
    launched = device.launch(conv, y, device.put(x, I8), device.put_weights(w, I8), device.put(scales, I32))
    exact = np.array_equal(device.get(y), reference(x, w, scales))
    macs = x.size * CHANNELS * 9
    print(launched.summary(peak=macs // PEAK))
    print(f"exact: {exact}, races: {len(launched.findings)}")


if __name__ == "__main__":
    main()
