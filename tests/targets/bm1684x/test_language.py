"""What kernels are written with besides commands: views of tensors, room for weights, functions, NMS, the summary."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import InputError, MachineError
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Tensor, packed
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.functions import exponential, load_exponential, sigmoid
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.timing.model import ESTIMATE
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, DType
from tilewright.targets.bm1684x.values.elementwise import exponential as exact
from tilewright.targets.bm1684x.values.elementwise import sigmoid as exact_sigmoid
from tilewright.targets.bm1684x.values.window import Window

SEED = 23
FOUR = Config(lanes=4)


def test_views_address_what_they_say() -> None:
    whole = Tensor.local(0, 64, (1, 4, 1, 24), F32, FOUR)
    np.testing.assert_array_equal(whole.split(8).addresses, whole.addresses.reshape(1, 4, 3, 8))
    np.testing.assert_array_equal(whole.transposed_hw().addresses, whole.addresses.transpose(0, 1, 3, 2))
    over = whole.over(2, 10, 5, 24).addresses
    for n, c, h in ((0, 0, 0), (1, 9, 4), (0, 6, 2)):
        np.testing.assert_array_equal(over[n, c, h], whole.addresses[0, c % 4, 0])
    assert whole.typed(I32).addresses.tolist() == whole.addresses.tolist()
    assert whole.typed(I16) == Tensor.local(0, 64, (1, 4, 1, 24), I16, FOUR)


@pytest.mark.parametrize(("lane", "c", "wanted"), [(0, 1, 4), (0, 2, 4), (1, 4, 8), (0, 4, 3)])
def test_channels_repeat_from_all_lanes_only(lane: int, c: int, wanted: int) -> None:
    with pytest.raises(InputError, match=f"its c is {c}, which does not repeat to {wanted}"):
        Tensor.local(lane, 0, (1, c, 1, 8), F32, FOUR).over(1, wanted, 1, 8)


def test_rows_split_evenly() -> None:
    with pytest.raises(InputError, match="cannot be split into rows of 7"):
        Tensor.local(0, 0, (1, 4, 1, 24), F32, FOUR).split(7)


@pytest.mark.parametrize("dtype", [I8, F16, F32])
def test_packed_weights_lie_where_the_kernel_reads_them(dtype: DType) -> None:
    shape = (6, 70, 2, 3)
    values = np.random.default_rng(SEED).integers(-100, 100, shape).astype(dtype.storage)
    device = Device(FOUR)
    kernel_of = ConvWeights(0x0800_0000, shape, dtype, FOUR)
    device.memories.write(kernel_of.storage.addresses, packed(values, dtype, FOUR))
    np.testing.assert_array_equal(device.memories.read(kernel_of.addresses, dtype.storage), values)


@kernel
def convolves(tpu: Tpu, y: Tensor, x: Tensor, weights: Tensor, taps: int) -> None:
    a, out = tpu.local(x.shape, BF16, bank=0), tpu.local(y.shape, F32, bank=1)
    w = tpu.weights((y.shape.c, x.shape.c, taps, taps), BF16, bank=2)
    behind = tpu.local((1, 1, 1, 1), F32, bank=2)
    assert behind.lane_offset >= w.lane_end
    tpu.gdma.copy(a, x)
    tpu.gdma.copy(w.storage, weights)
    tpu.bdc.fp_conv2d(out, a, w, window=Window((taps, taps)))
    tpu.gdma.copy(y, out)


def test_a_convolution_with_weights_put_there() -> None:
    rng = np.random.default_rng(SEED)
    x, w = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((1, 40, 5, 6), (7, 40, 3, 3)))
    bits: list[Array] = [(value.view(np.uint32) >> 16).astype(np.uint16) for value in (x, w)]
    device = Device()
    y = device.empty((1, 7, 3, 4), F32)
    device.launch(convolves, y, device.put(bits[0], BF16), device.put_weights(bits[1], BF16), 3)
    expected = sum(
        np.einsum("ihw,oi->ohw", x[0, :, i : i + 3, j : j + 4], w[:, :, i, j]) for i in range(3) for j in range(3)
    )
    np.testing.assert_array_equal(device.get(y)[0], expected)


def test_weights_and_matrices_must_fit() -> None:
    def too_large(tpu: Tpu) -> None:
        with pytest.raises(MachineError, match="from bank 15 on: it ends at byte"):
            tpu.weights((512, 512, 3, 3), I8, bank=15)
        spread = tpu.matrix(3, 100, F16, bank=1, width=30)
        assert spread.shape == (3, 100)
        assert tpu.local((1, 1, 1, 1), F16, bank=1).lane_offset >= spread.lane_end

    Device().launch(kernel(too_large))


@pytest.mark.parametrize("function", [exponential, sigmoid])
@pytest.mark.parametrize("channels", [5, 70])
def test_sequences_compute_and_cost_what_the_operation_does(function: object, channels: int) -> None:
    rng = np.random.default_rng(SEED)
    x = (rng.normal(size=(1, channels, 1, 300)) * 10.0 ** rng.integers(-3, 3, 300)).astype(np.float32)
    x[0, 0, 0, :6] = 0, np.inf, -np.inf, 88.8, -88.8, -104

    @kernel
    def runs(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        terms = tpu.local((1, tpu.config.lanes, 1, 10), F32, bank=0)
        a, b, work0, work1 = (tpu.local(x.shape, F32, bank) for bank in (1, 2, 3, 4))
        load_exponential(tpu, terms)
        tpu.gdma.copy(a, x)
        function(tpu, b, a, work0, work1, terms)  # type: ignore[operator]
        tpu.gdma.copy(y, b)

    device = Device()
    y = device.empty(x.shape, F32)
    launched = device.launch(runs, y, device.put(x, F32))
    meaning = exact if function is exponential else exact_sigmoid
    np.testing.assert_array_equal(device.get(y).view(np.uint32), meaning(x).view(np.uint32), f"seed {SEED}")
    assert not launched.findings
    one_pass = -(-channels // 64) * -(-300 // 16)
    passes = ESTIMATE.exponential if function is exponential else ESTIMATE.sigmoid
    spent = launched.trace.busy()["tiu"] - 1  # without loading the terms
    assert abs(spent / one_pass - passes) < 1  # two of them are of 16 bits and rounded up


def test_nms_keeps_what_no_kept_box_suppresses() -> None:
    suppresses = np.zeros((5, 5), np.uint8)
    suppresses[0, 1] = suppresses[1, 2] = suppresses[3, 4] = suppresses[4, 0] = 1
    overlaps = np.array([[1, 0.9, 0], [0.9, 1, 0.5], [0, 0.5, 1]], np.float32)

    @kernel
    def drops(tpu: Tpu, kept: Tensor, count: Tensor, hard: Tensor, soft: Tensor, scores: Tensor) -> None:
        tpu.hau.hard_nms(kept[0:1], count[0:1], hard)
        tpu.hau.soft_nms(kept[1:2], count[1:2], soft, scores, threshold=0.2)

    device = Device()
    kept, count = device.empty((2, 1, 1, 4), I32), device.empty((2, 1, 1, 1), I32)
    scores = device.put(np.array([0.8, 0.9, 0.7], np.float32), F32)
    device.launch(drops, kept, count, device.put(suppresses, U8), device.put(overlaps, F32), scores)
    assert device.get(count).reshape(-1).tolist() == [3, 2]
    assert device.get(kept)[0].reshape(-1)[:3].tolist() == [0, 2, 3]
    assert device.get(kept)[1].reshape(-1)[:2].tolist() == [1, 2]

    def wrong(tpu: Tpu, x: Tensor) -> None:
        tpu.hau.hard_nms(kept, count, x)

    with pytest.raises(MachineError, match="not the square of a number of boxes"):
        device.launch(kernel(wrong), device.put(suppresses[:, :4], U8))


def test_a_summary_tells_what_overlaps() -> None:
    @kernel
    def both(tpu: Tpu, x: Tensor) -> None:
        a, b = tpu.local(x.shape, F32, bank=0), tpu.local(x.shape, F32, bank=1)
        with tpu.parallel():
            tpu.gdma.copy(a, x)
            tpu.bdc.fp_add(b, b, 1.0)
        tpu.bdc.fp_add(a, a, b)

    device = Device()
    launched = device.launch(both, device.put(np.ones((1, 64, 64, 64), np.float32), F32))
    busy = launched.trace.busy()
    first = 2 * 64 * 64 // 16  # in place
    assert launched.overlapped == first
    assert launched.cycles == busy["dma"] + busy["tiu"] - first
    text = launched.summary(peak=launched.cycles // 2)
    assert text.startswith(f"{launched.cycles:,} cycles: 50.0% of peak, busy tiu ")
    assert text.endswith(f"overlapped {first / launched.cycles:.1%}")
