"""Sums by onnxruntime's integer kernels, by BLAS and by NumPy's integers are the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.zynq.cases import case
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.values import machine


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fast", [True, False])
def test_sums_are_exact(seed: int, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    print("seed", seed)
    if fast and not machine.vnni_available():
        pytest.skip("onnxruntime's integer kernels saturate on this CPU, or it is not installed")
    monkeypatch.setattr(machine, "vnni_available", lambda: fast)
    monkeypatch.setattr(machine, "STRIP_BYTES", 1 << 12)
    zw = int(np.random.default_rng(seed).integers(-100, 100)) * (seed % 2)
    given = case(seed, Config(), kind=int(Kind.CONV_OTHER), ic=64, oc=9, rows=7, cols=6, zw=zw)
    layer = given.layer
    extreme = np.where(given.data.astype(int) % 2, given.data.max(), given.data.min()).astype(given.data.dtype)
    sums = np.concatenate(list(machine._conv(layer, extreme, given.weights)))
    padded = np.pad(extreme.astype(int) - layer["zx"], ((1, 1), (1, 1), (0, 0)))
    weights = given.weights.astype(int) - zw
    right = sum(
        padded[y : y + 7, x : x + 6].reshape(42, 64) @ weights[:, 3 * y + x].T for y in range(3) for x in range(3)
    )
    np.testing.assert_array_equal(sums, right)


def test_without_vnni_there_is_no_such_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "VNNI_FLAGS", frozenset(("no_such_flag",)))
    assert machine.vnni_available.__wrapped__() is False


def test_kernels_that_saturate_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    if not machine.vnni_available():
        pytest.skip("this CPU has no exact kernels to break")

    def pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        products = a.astype(np.int32)[:, :, None] * b.astype(np.int32)
        return np.clip(products[:, ::2] + products[:, 1::2], -(1 << 15), (1 << 15) - 1).sum(axis=1)

    monkeypatch.setattr(machine, "vnni_product", pairs)
    assert machine.vnni_available.__wrapped__() is False
