"""Kernels in Python: values, dependencies, overlap, races, and what is refused where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import InputError, MachineError
from tilewright.sim.findings import RACE
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8
from tilewright.targets.bm1684x.values.window import Window

SEED = 17


@kernel
def double(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    a, b = tpu.local(x.shape, x.dtype, bank=0), tpu.local(x.shape, x.dtype, bank=1)
    tpu.gdma.copy(a, x)
    tpu.bdc.fp_add(b, a, a)
    tpu.gdma.copy(y, b)


@kernel
def stream(tpu: Tpu, y: Tensor, x: Tensor, ahead: int) -> None:
    """Doubles x, one n at a time: loads the next and stores the last one while it computes. `ahead` 2 is right."""
    single, count = (1, *x.shape[1:]), x.shape.n
    source = [tpu.local(single, x.dtype, bank) for bank in (0, 2)]
    result = [tpu.local(single, x.dtype, bank) for bank in (4, 6)]
    for step in range(count + 2):
        with tpu.parallel():
            if step < count:
                tpu.gdma.copy(source[step % 2], x[step : step + 1])
            if 0 < step <= count:
                tpu.bdc.fp_add(result[(step - 1) % 2], source[(step + ahead - 1) % 2], source[(step - 1) % 2])
            if step > 1:
                tpu.gdma.copy(y[step - 2 : step - 1], result[step % 2])


@kernel
def product(tpu: Tpu, y: Tensor, left: Tensor, right: Tensor, multiplier: int, shift: int) -> None:
    a, b = tpu.local(left.shape, I8, bank=0), tpu.local(right.shape, I8, bank=2)
    sums, small = tpu.local(y.shape, I32, bank=4), tpu.local(y.shape, I8, bank=8)
    with tpu.parallel():
        tpu.gdma.copy(a, left)
        tpu.gdma.copy(b, right)
    tpu.bdc.int8_zp_mm(sums.rows(), a.rows(), b.rows())
    tpu.bdc.int_requant(small, sums, multiplier, shift, 3, mode="half_up")
    tpu.gdma.copy(y, small)


def values(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(SEED).normal(size=shape).astype(np.float32)


def test_commands_follow_each_other() -> None:
    device = Device()
    x = device.put(values((2, 70, 3, 5)), F32)
    y = device.empty(x.shape, F32)
    launched = device.launch(double, y, x)
    np.testing.assert_array_equal(device.get(y), 2 * device.get(x))
    assert not launched.findings
    times = launched.trace
    assert times.start[1:].tolist() == times.end[:-1].tolist()
    assert [(step.engine, step.id, step.needs) for step in launched.program.steps] == [
        ("dma", 1, {"tiu": 0, "hau": 0}),
        ("tiu", 1, {"dma": 1, "hau": 0}),
        ("dma", 2, {"tiu": 1, "hau": 0}),
    ]


def test_regions_overlap() -> None:
    device = Device()
    x = device.put(values((6, 64, 56, 56)), F32)
    y = device.empty(x.shape, F32)
    launched = device.launch(stream, y, x, 2)
    np.testing.assert_array_equal(device.get(y), 2 * device.get(x))
    assert not launched.findings
    busy = launched.trace.busy()
    assert launched.cycles == busy["dma"]  # the transfers hide all sums
    assert busy["tiu"] > 0


def test_a_race_in_a_region_is_found() -> None:
    device = Device()
    x = device.put(values((4, 64, 8, 8)), F32)
    launched = device.launch(stream, device.empty(x.shape, F32), x, 1)
    assert {finding.kind for finding in launched.findings} == {RACE}
    assert "fp_add" in launched.findings[0].message
    assert "dma_copy" in launched.findings[0].message


def test_an_integer_product() -> None:
    rng = np.random.default_rng(SEED)
    left, right = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((1, 70, 1, 130), (1, 130, 1, 96)))
    device = Device()
    y = device.empty((1, 70, 1, 96), I8)
    launched = device.launch(product, y, device.put(left, I8), device.put(right, I8), 1 << 20, -30)
    sums = left[0, :, 0].astype(np.int64) @ right[0, :, 0].astype(np.int64)
    expected = np.clip(((sums * (1 << 20) + (1 << 29)) >> 30) + 3, -128, 127)
    np.testing.assert_array_equal(device.get(y)[0, :, 0], expected)
    assert not launched.findings


def test_parts_of_tensors_lie_where_the_whole_does() -> None:
    config = Config(lanes=4)
    whole = Tensor.local(3, 64, (3, 11, 4, 6), F16, config)
    part = whole[1:3, 5:9, :, 2:5]
    np.testing.assert_array_equal(part.addresses, whole.addresses[1:3, 5:9, :, 2:5])
    assert whole[:].shape == whole.shape
    for wrong in ((slice(2, 2),), (slice(0, 2, 2),)):
        with pytest.raises(InputError, match="empty or has a step"):
            whole[wrong]


def test_numbers_are_constants_of_the_right_type() -> None:
    assert Constant.of(-3, I8).bits == 0xFD
    assert Constant.of(1.5, BF16).bits == 0x3FC0
    assert Constant.of(1, F16).bits == 0x3C00
    for number, dtype in ((300, I8), (0.5, I16), (-1, U8)):
        with pytest.raises(MachineError, match=f"is not a value of {dtype}"):
            Constant.of(number, dtype)


def run(body: object) -> None:
    device = Device(Config(lanes=4))
    device.launch(kernel(body), device.put(values((1, 4, 2, 8)), F32))  # type: ignore[arg-type]


def test_refusals_name_the_command() -> None:
    def divides(tpu: Tpu, x: Tensor) -> None:
        a = tpu.local(x.shape, F16, bank=0)
        tpu.bdc.fp_mul(a, a, 2.0)
        tpu.bdc.fp_div(a, a, 2.0)

    with pytest.raises(MachineError, match=r"tiu command 1 \(test_kernel.py:\d+\), fp_div: .* computed in f32 only"):
        run(divides)


def test_local_memory_is_handed_out_by_bank() -> None:
    def fills(tpu: Tpu, x: Tensor) -> None:
        first, second = (tpu.local((1, 4, 1, 8), F32, bank=2) for _ in range(2))
        assert (first.lane_offset, second.lane_offset) == (2 << 14, (2 << 14) + 64)
        large = tpu.local((1, 4, 1, 8000), F32, bank=4)
        assert large.lane_end > 5 << 14
        with pytest.raises(MachineError, match="reach bank 4, which is in use"):
            tpu.local((1, 4, 1, 8000), F32, bank=3)
        with pytest.raises(MachineError, match="no bank 16"):
            tpu.local((1, 1, 1, 1), F32, bank=16)
        with pytest.raises(MachineError, match="from bank 15 on: it ends at byte"):
            tpu.local((1, 4, 1, 8000), F32, bank=15)

    run(fills)


def test_misuse_is_said() -> None:
    def nested(tpu: Tpu, x: Tensor) -> None:
        with tpu.parallel(), tpu.parallel():
            pass

    with pytest.raises(MachineError, match="a region begins inside another region"):
        run(nested)

    def unknown(tpu: Tpu, x: Tensor) -> None:
        tpu.bdc.fly(x)

    with pytest.raises(AttributeError, match="there is no operation fly; choose one of abs, and"):
        run(unknown)

    def too_many(tpu: Tpu, x: Tensor) -> None:
        tpu.gdma.copy(x, x, x)

    with pytest.raises(MachineError, match="3 operands are given, but it takes y, x"):
        run(too_many)
    with pytest.raises(MachineError, match="i8 is stored as int8"):
        Device().put(np.zeros(4, np.float32), I8)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            lambda tpu, x: tpu.bdc.fp_add(
                tpu.local((1, 2, 1, 8), F32, bank=1, lane=1), tpu.local((1, 2, 1, 8), F32, bank=2), 1.0
            ),
            "begin in different lanes: a in lane 0, y in lane 1; copy across lanes",
        ),
        (
            lambda tpu, x: tpu.gdma.broadcast(tpu.local((1, 3, 2, 8), F32, bank=1, lane=2), x[:, 0:1]),
            "3 channels from lane 2 on exceed the 4 lanes",
        ),
        (
            lambda tpu, x: tpu.gdma.copy(tpu.system(x.address, (1, 1, 2, 1), F32), x[:, 0:1, :, 0:1]),
            "",
        ),
        (
            lambda tpu, x: tpu.gdma.copy(
                tpu.local((1, 1, 1, 2), F32, bank=1), replace(x, shape=Shape(1, 1, 1, 2), stride=Stride(0, 0, 0, 33))
            ),
            "x has a stride of 132 bytes along w; the largest is 128",
        ),
        (
            lambda tpu, x: tpu.bdc.fp_conv2d(
                tpu.local((1, 1, 2, 8), F32, bank=1),
                replace(tpu.local((1, 4, 2, 8), F32, bank=2), address=0x0800_8020),
                tpu.weights((1, 4, 1, 1), F32, bank=3),
                window=Window((1, 1)),
            ),
            "x is aligned but begins at address 0x8008020; give a multiple of 64",
        ),
        (
            lambda tpu, x: tpu.bdc.fp_conv2d(
                tpu.local((1, 1, 2, 8), F16, bank=1),
                tpu.local((1, 4, 2, 8), F16, bank=2),
                replace(tpu.weights((1, 4, 1, 1), F16, bank=3), address=0x0800_C020),
                window=Window((1, 1)),
            ),
            "weights w begin at address 0x800c020; give a multiple of 64",
        ),
    ],
)
def test_what_lies_in_the_wrong_place_is_refused(body: object, reason: str) -> None:
    if not reason:
        run(body)
        return
    with pytest.raises(MachineError, match=reason):
        run(body)
