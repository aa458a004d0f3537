"""Sorting, gathers, scatters and selections in kernels: values, order and time."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.findings import RACE
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U32

SEED = 5
CONFIG = Config(lanes=4)


@kernel
def best(tpu: Tpu, y: Tensor, index: Tensor | None, x: Tensor, numbers: Tensor | None, descending: bool) -> None:
    tpu.hau.sort(y, index, x, numbers, descending=descending)


@pytest.mark.parametrize("descending", [False, True])
def test_top_k_with_indices(descending: bool) -> None:
    values = np.random.default_rng(SEED).integers(0, 20, 100).astype(np.float32)  # many equal ones
    device = Device(CONFIG)
    x, numbers = device.put(values, F32), device.put(np.arange(1000, 1100, dtype=np.int32), I32)
    y, index, all_of_it = device.empty((1, 1, 1, 10), F32), device.empty((1, 1, 1, 10), I32), device.empty(x.shape, F32)
    order = np.argsort(-values if descending else values, kind="stable")
    launched = device.launch(best, y, index, x, None, descending)
    np.testing.assert_array_equal(device.get(y).ravel(), values[order[:10]])
    np.testing.assert_array_equal(device.get(index).ravel(), order[:10])
    assert launched.cycles == 100 * 7
    assert launched.trace.bytes_read.sum() == 400
    device.launch(best, y, index, x, numbers, descending)
    np.testing.assert_array_equal(device.get(index).ravel(), 1000 + order[:10])
    device.launch(best, all_of_it, None, x, None, descending)
    np.testing.assert_array_equal(device.get(all_of_it).ravel(), values[order])


@kernel
def sorts_sums(tpu: Tpu, y: Tensor, x: Tensor, between: Tensor, apart: bool) -> None:
    a = tpu.local(x.shape, F32, bank=0)
    tpu.gdma.copy(a, x)
    tpu.bdc.fp_add(a, a, a)
    if apart:
        tpu.gdma.copy(between, a)
        tpu.hau.sort(y, None, between)
        tpu.gdma.copy(between, y)
    else:
        with tpu.parallel():
            tpu.gdma.copy(between, a)
            tpu.hau.sort(y, None, between)


def test_sorting_is_ordered_with_the_other_engines() -> None:
    values = np.random.default_rng(SEED).normal(size=(1, 4, 4, 16)).astype(np.float32)
    for apart in (True, False):
        device = Device(CONFIG)
        x = device.put(values, F32)
        y, between = device.empty(x.shape, F32), device.empty(x.shape, F32)
        launched = device.launch(sorts_sums, y, x, between, apart)
        np.testing.assert_array_equal(device.get(y).ravel(), np.sort(2 * values.ravel()))
        assert [finding.kind for finding in launched.findings] == [RACE] * (not apart)
        start, end = launched.trace.start, launched.trace.end
        assert bool(start[3] < end[2]) is not apart  # the sort, and the transfer before it
        if apart:
            np.testing.assert_array_equal(device.get(between), device.get(y))
            assert start[4] >= end[3]


def test_sorting_works_in_ddr_only() -> None:
    def local(tpu: Tpu, x: Tensor) -> None:
        tpu.hau.sort(tpu.local(x.shape, F32, bank=0), None, x)

    def number(tpu: Tpu, x: Tensor) -> None:
        tpu.hau.sort(x, None, 3.0)

    for body in (local, number):
        device = Device(CONFIG)
        with pytest.raises(MachineError, match="works from DDR to DDR"):
            device.launch(kernel(body), device.put(np.ones(4, np.float32), F32))


@kernel
def moves(tpu: Tpu, gathered: Tensor, scattered: Tensor, x: Tensor, index: Tensor) -> None:
    a, i = tpu.local(x.shape, F32, bank=0), tpu.local(index.shape, U32, bank=1)
    picked = tpu.local(gathered.shape, F32, bank=2)
    tpu.gdma.copy(a, x)
    tpu.gdma.copy(i, index)
    tpu.gdma.h_gather(picked, a, i, -1.0)
    tpu.gdma.copy(gathered, picked)
    tpu.gdma.h_scatter(scattered, picked, i)


@kernel
def selects(tpu: Tpu, y: Tensor, count: Tensor, x: Tensor, mask: Tensor) -> None:
    tpu.gdma.mask_select(y, count, x, mask)


@kernel
def positions(tpu: Tpu, y: Tensor, count: Tensor, x: Tensor) -> None:
    tpu.gdma.nonzero(y, count, x)


def test_gather_and_scatter() -> None:
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(1, 6, 8, 5)).astype(np.float32)
    index = np.stack([rng.permutation(9)[:3] for _ in range(6)]).astype(np.uint32)[None, :, :, None]  # 8 is beyond x
    device = Device(CONFIG)
    gathered, scattered = device.empty((1, 6, 3, 5), F32), device.put(np.full_like(x, 7), F32)
    launched = device.launch(moves, gathered, scattered, device.put(x, F32), device.put(index, U32))
    picked, back = np.full((1, 6, 3, 5), -1, np.float32), np.full_like(x, 7)
    for c in range(6):
        for k, row in enumerate(index[0, c, :, 0]):
            if row < 8:
                picked[0, c, k] = x[0, c, row]
                back[0, c, row] = x[0, c, row]
    assert (index == 8).any()
    np.testing.assert_array_equal(device.get(gathered), picked)
    np.testing.assert_array_equal(device.get(scattered), back)
    assert not launched.findings


def test_selections() -> None:
    rng = np.random.default_rng(SEED)
    x, mask = rng.normal(size=(1, 2, 3, 7)).astype(np.float32), rng.integers(0, 2, (1, 2, 3, 7)).astype(np.uint8)
    device = Device(CONFIG)
    kept, where, count = device.empty(x.shape, F32), device.empty(x.shape, U32), device.empty((1, 1, 1, 1), U32)

    def first(tensor: Tensor, expected: Array) -> None:
        assert device.get(count).item() == expected.size
        np.testing.assert_array_equal(device.get(tensor).ravel()[: expected.size], expected)

    device.launch(selects, kept, count, device.put(x, F32), device.put(mask, U8))
    first(kept, x[mask != 0])
    device.launch(positions, where, count, device.put(mask, U8))
    first(where, np.flatnonzero(mask))
