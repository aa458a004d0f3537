"""Each knob shows what it is for, on a kernel with that defect, and changes nothing of one without."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import ConfigError, MachineError
from tilewright.sim.findings import OUT_OF_RANGE, RACE, UNINITIALISED
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host import Handle, function
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Kernel, Launched, Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I8
from tilewright.targets.bm1684x.values.memory import Knobs

SMALL = Config(lanes=4)
VALUES = np.arange(1, 33, dtype=np.float32).reshape(1, 4, 2, 4)
LATE = Knobs(dma_execution="deferred")


@kernel
def doubled(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
    tpu.gdma.copy(a, x)
    tpu.bdc.fp_add(b, a, a)
    tpu.gdma.copy(y, b)


@kernel
def racing(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    """Adds to what a transfer of the same region brings."""
    a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
    tpu.gdma.copy(a, x)
    with tpu.parallel():
        tpu.gdma.copy(a, y)
        tpu.bdc.fp_add(b, a, a)
    tpu.gdma.copy(y, b)


def run(body: Kernel, knobs: Knobs, fill: float = 0) -> tuple[Array, Launched]:
    device = Device(SMALL, knobs)
    y = device.put(np.full_like(VALUES, fill), F32)
    launched = device.launch(body, y, device.put(VALUES, F32))
    return device.get(y), launched


def test_a_kernel_without_defects_is_the_same_under_all() -> None:
    for knobs in (LATE, *(Knobs(seed=seed) for seed in range(3)), Knobs(uninitialised="nan", out_of_bounds="ignore")):
        y, launched = run(doubled, knobs)
        np.testing.assert_array_equal(y, 2 * VALUES)
        assert not launched.findings


def test_detect_races() -> None:
    assert [finding.kind for finding in run(racing, Knobs())[1].findings] == [RACE]
    assert not run(racing, Knobs(detect_races=False))[1].findings


def test_dma_execution() -> None:
    """Eager transfers end before the sum, deferred ones begin behind it."""
    np.testing.assert_array_equal(run(racing, Knobs(), fill=7)[0], np.full_like(VALUES, 14))
    np.testing.assert_array_equal(run(racing, LATE, fill=7)[0], 2 * VALUES)


def test_what_is_not_waited_for_is_not_there() -> None:
    seen: list[list[float]] = []

    @kernel
    def looks(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a = tpu.local(x.shape, F32, bank=0)
        tpu.gdma.copy(a, x)
        seen.append(tpu.read(a).ravel()[:2].tolist())
        tpu.poll()
        seen.append(tpu.read(a).ravel()[:2].tolist())

    run(looks, LATE)
    run(looks, Knobs())
    assert seen == [[0, 0], [1, 2], [1, 2], [1, 2]]


def test_seed() -> None:
    results = [float(run(racing, Knobs(seed=seed), fill=7)[0].flat[0]) for seed in range(12)]
    assert results == [float(run(racing, Knobs(seed=seed), fill=7)[0].flat[0]) for seed in range(12)]
    assert set(results) == {2, 14}


def test_uninitialised() -> None:
    @kernel
    def forgets(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
        tpu.gdma.copy(a, x)
        tpu.bdc.fp_add(b, a, b)
        tpu.gdma.copy(y, b)

    y, launched = run(forgets, Knobs())
    np.testing.assert_array_equal(y, VALUES)
    assert {finding.kind for finding in launched.findings} == {UNINITIALISED}
    assert not run(forgets, Knobs(detect_uninitialised=False))[1].findings
    y, launched = run(forgets, Knobs(uninitialised="nan"))
    assert np.isnan(y).all()
    assert {finding.kind for finding in launched.findings} == {UNINITIALISED}
    device = Device(SMALL, Knobs(uninitialised="nan"))
    assert np.isnan(device.get(device.empty((1, 1, 1, 5), F32))).all()
    assert (device.get(device.empty((1, 1, 1, 5), I8)) == -1).all()
    with Handle(config=SMALL, knobs=Knobs(uninitialised="nan")) as handle:
        values = np.zeros(4, np.float32)
        handle.d2s(values, handle.malloc(16))
    assert np.isnan(values).all()


def test_out_of_bounds() -> None:
    @kernel
    def beyond(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a = tpu.local((1, 4, 2, 5), F32, bank=0)
        tpu.gdma.copy(a, tpu.system(x.address, (1, 4, 2, 5), F32))
        tpu.gdma.copy(tpu.system(y.address, (1, 4, 2, 5), F32), a)

    with pytest.raises(MachineError, match=r"dma command 0 \(test_knobs.py:\d+\), memory: no memory holds"):
        run(beyond, Knobs())
    for uninitialised in ("kept", "nan"):
        seen: list[Array] = []

        @kernel
        def looks(tpu: Tpu, y: Tensor, x: Tensor, seen: list[Array] = seen) -> None:
            beyond.body(tpu, y, x)
            seen.append(tpu.read(tpu.system(x.address, (1, 1, 1, 34), F32)).ravel())

        y, launched = run(looks, Knobs(out_of_bounds="ignore", uninitialised=uninitialised))
        np.testing.assert_array_equal(y, VALUES)
        np.testing.assert_array_equal(seen[0], [*VALUES.ravel(), *[np.nan if uninitialised == "nan" else 0] * 2])
        assert [finding.kind for finding in launched.findings] == [OUT_OF_RANGE] * 2
        assert "): dma_copy: 8 elements of x lie outside of its memory" in launched.findings[0].message
        assert "8 elements of y" in launched.findings[1].message

    @kernel
    def nowhere(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        tpu.gdma.copy(y, tpu.system(0x5_0000_0000, x.shape, F32))

    y, launched = run(nowhere, Knobs(out_of_bounds="ignore"), fill=3)
    assert not y.any()
    assert [finding.kind for finding in launched.findings] == [OUT_OF_RANGE]


def test_refusals_that_are_held_back_name_their_command() -> None:
    @kernel
    def wrong(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        with tpu.parallel():
            tpu.gdma.copy(tpu.local((1, 1, 1, 3), F32, bank=0), x)

    for knobs in (Knobs(), LATE, Knobs(seed=1)):
        with pytest.raises(
            MachineError, match=r"dma command 0 \(test_knobs.py:\d+\), dma_copy: the shapes of its operands do not fit"
        ):
            run(wrong, knobs)


def test_handles_have_knobs_of_their_own() -> None:
    @function("<QQ")
    def races(tpu: Tpu, arguments: tuple[int, int]) -> None:
        y, x = (tpu.system(address, VALUES.shape, F32) for address in arguments)
        racing.body(tpu, y, x)

    results = []
    for knobs in (Knobs(), LATE):
        with Handle(config=SMALL, knobs=knobs) as handle:
            handle.load([races])
            x, y = handle.malloc(VALUES.nbytes), handle.malloc(VALUES.nbytes)
            handle.s2d(x, VALUES)
            handle.s2d(y, np.zeros_like(VALUES))
            assert handle.launch_sync("races", np.array([y.address, x.address], "<u8")).findings
            assert "race in races: " in str(handle.findings[0])
            result = np.empty_like(VALUES)
            handle.d2s(result, y)
            results.append(float(result.flat[0]))
    assert results == [0, 2]


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ConfigError, match='dma_execution is "lazy"; choose one of eager, deferred'):
        Knobs(dma_execution="lazy")
