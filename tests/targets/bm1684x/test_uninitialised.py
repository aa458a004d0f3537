"""Uninitialised reads of kernels by hand and of host launches: each is found where it matters, and no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.sim.findings import UNINITIALISED, Finding
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.conformance.calls import call_of
from tilewright.targets.bm1684x.conformance.ops import PAIRS, lay_out
from tilewright.targets.bm1684x.conformance.vectors import arrays, described
from tilewright.targets.bm1684x.host import PCIE, SOC, Handle, function
from tilewright.targets.bm1684x.isa.elaborate import ElaboratedProgram, Step
from tilewright.targets.bm1684x.isa.undefined import findings
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Kernel, Tpu, kernel
from tilewright.targets.bm1684x.values import memory
from tilewright.targets.bm1684x.values.dtypes import F32, U32
from tilewright.targets.bm1684x.values.memory import Knobs, Memories

SEED, SMALL = 5, Config(lanes=4)
VALUES = np.arange(1, 33, dtype=np.float32).reshape(1, 4, 2, 4)


@kernel
def passed_on(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    a = tpu.local(x.shape, F32, bank=0)
    tpu.gdma.copy(a, x)
    tpu.gdma.copy(y, a)


@kernel
def half_loaded(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    """Adds all of two tensors, of which one has its first row alone."""
    a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
    tpu.gdma.copy(a, x)
    tpu.gdma.copy(b[:, :, :1], x[:, :, :1])
    tpu.bdc.fp_add(b, a, b)
    tpu.gdma.copy(y, b)


def launch(body: Kernel, knobs: Knobs | None = None) -> tuple[Finding, ...]:
    device = Device(SMALL, knobs)
    return device.launch(body, device.empty(VALUES.shape, F32), device.put(VALUES, F32)).findings


@pytest.mark.parametrize("knobs", [Knobs(), Knobs(dma_execution="deferred"), Knobs(seed=1), Knobs(uninitialised="nan")])
def test_local_memory(knobs: Knobs) -> None:
    assert not launch(passed_on, knobs)
    (finding,) = launch(half_loaded, knobs)
    assert (finding.kind, finding.steps, finding.space) == (UNINITIALISED, (2,), "local 0x8000000")
    assert "fp_add reads local 0x8000000[16400:16416]" in finding.message
    assert finding.message.startswith("#2 tiu command 0 (test_uninitialised.py:")
    assert [high - low for low, high in finding.ranges] == [16] * 4  # the second row, in each lane


def test_ddr_is_written_by_the_host_or_by_an_earlier_launch() -> None:
    device = Device(SMALL)
    x, y = device.empty(VALUES.shape, F32), device.empty(VALUES.shape, F32)
    (finding,) = device.launch(passed_on, y, x).findings
    assert "dma_copy reads DDR 0x100000000[0:128], which nothing has written" in finding.message
    unwritten, given = device.empty(VALUES.shape, F32), device.put(VALUES, F32)
    assert not device.launch(passed_on, unwritten, given).findings
    assert not device.launch(passed_on, y, unwritten).findings


def test_local_memory_keeps_what_an_earlier_launch_left_unless_it_is_forgotten() -> None:
    @kernel
    def loads(tpu: Tpu, x: Tensor) -> None:
        tpu.gdma.copy(tpu.local(x.shape, F32, bank=2), x)

    @kernel
    def stores(tpu: Tpu, y: Tensor) -> None:
        tpu.gdma.copy(y, tpu.local(y.shape, F32, bank=2))

    for knobs, expected in ((Knobs(), 0), (Knobs(uninitialised="nan"), 1)):
        device = Device(SMALL, knobs)
        y = device.empty(VALUES.shape, F32)
        assert len(device.launch(stores, y).findings) == 1
        device.launch(loads, device.put(VALUES, F32))
        assert len(device.launch(stores, y).findings) == expected


def test_what_a_launch_wrote_before_it_failed_is_written() -> None:
    @kernel
    def fails(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        passed_on.body(tpu, y, x)
        raise RuntimeError("over")

    device = Device(SMALL)
    x, y, z = device.put(VALUES, F32), device.empty(VALUES.shape, F32), device.empty(VALUES.shape, F32)
    with pytest.raises(RuntimeError):
        device.launch(fails, y, x)
    assert not device.launch(passed_on, z, y).findings


def test_results_that_nothing_stores_do_not_matter() -> None:
    def stored(rows: slice) -> tuple[Finding, ...]:
        @kernel
        def doubles(tpu: Tpu, y: Tensor, x: Tensor) -> None:
            a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
            tpu.gdma.copy(a[:, :, :1], x[:, :, :1])
            tpu.bdc.fp_add(b, a, a)
            tpu.bdc.fp_exp(a, b)
            tpu.gdma.copy(y[:, :, rows], a[:, :, rows])

        return launch(doubles)

    assert not stored(slice(0, 1))
    (finding,) = stored(slice(0, 2))
    assert "fp_add reads local" in finding.message  # the first that read it, not the one that stores what became of it


def test_only_elements_that_values_choose_are_read_and_written() -> None:
    """Rows that no index names need not be there; rows that none names are not written by a scatter."""

    def gathered(index: list[int]) -> tuple[Finding, ...]:
        @kernel
        def gathers(tpu: Tpu, y: Tensor, x: Tensor, i: Tensor) -> None:
            a, at = tpu.local(x.shape, F32, bank=0), tpu.local((1, 1, 2, 1), U32, bank=1, kind="compact")
            tpu.gdma.copy(a[:, :, :3], x[:, :, :3])
            tpu.gdma.copy(at, i)
            tpu.gdma.h_gather(y, a, at, 0.0)

        device = Device(SMALL)
        x = device.put(np.ones((1, 1, 4, 8), np.float32), F32)
        i = device.put(np.array(index, "<u4").reshape(1, 1, 2, 1), U32)
        return device.launch(gathers, device.empty((1, 1, 2, 8), F32), x, i).findings

    assert not gathered([0, 2])
    assert not gathered([2, 9])  # beyond x: the fill
    assert [finding.kind for finding in gathered([1, 3])] == [UNINITIALISED]

    def scattered(index: list[int]) -> tuple[Finding, ...]:
        @kernel
        def scatters(tpu: Tpu, y: Tensor, x: Tensor, i: Tensor) -> None:
            tpu.gdma.h_scatter(y, x, i)

        device = Device(SMALL)
        x = device.put(np.ones((1, 1, 2, 8), np.float32), F32)
        y, z = device.empty((1, 1, 2, 8), F32), device.empty((1, 1, 2, 8), F32)
        i = device.put(np.array(index, "<u4").reshape(1, 1, 2, 1), U32)
        assert not device.launch(scatters, y, x, i).findings
        return device.launch(passed_on, z, y).findings

    assert not scattered([1, 0])
    (finding,) = scattered([1, 1])
    assert finding.ranges == ((0, 32),)


def test_host_launches() -> None:
    @function("<QQ")
    def copies(tpu: Tpu, arguments: tuple[int, int]) -> None:
        y, x = (tpu.system(address, VALUES.shape, F32) for address in arguments)
        passed_on.body(tpu, y, x)

    def count_findings(handle: Handle, *addresses: int) -> int:
        return len(handle.launch_sync("copies", np.array(addresses, "<u8")).findings)

    with Handle(config=SMALL, platform=PCIE) as handle:
        handle.load([copies])
        x, y, z = (handle.malloc(VALUES.nbytes) for _ in range(3))
        assert count_findings(handle, y.address, x.address) == 1
        handle.s2d(x, VALUES, 64)
        assert count_findings(handle, y.address, x.address) == 1
        assert handle.findings[-1].ranges == ((64, 128),)
        handle.s2d(x, VALUES.ravel()[16:].copy(), 64, 64)
        assert count_findings(handle, y.address, x.address) == 0
        unwritten = handle.malloc(VALUES.nbytes)
        handle.d2d(z, unwritten, VALUES.nbytes)
        assert count_findings(handle, y.address, z.address) == 1
        handle.d2d(z, x, VALUES.nbytes)
        assert count_findings(handle, y.address, z.address) == 0
        handle.free(unwritten)
        again = handle.malloc(VALUES.nbytes)
        assert count_findings(handle, y.address, again.address) == 1
    with Handle(config=SMALL, platform=SOC) as handle:
        handle.load([copies])
        x, y = (handle.malloc(VALUES.nbytes) for _ in range(2))
        handle.map(x)[:] = 1
        assert count_findings(handle, y.address, x.address) == 0


def test_a_recording_is_checked_too() -> None:
    device = Device(SMALL)
    y, x = device.empty(VALUES.shape, F32), device.put(VALUES, F32)
    recording = device.record(device.launch(half_loaded, y, x))
    second = Device(SMALL)
    second.empty(VALUES.shape, F32)
    second.put(VALUES, F32)
    assert [finding.kind for finding in second.replay(recording).findings] == [UNINITIALISED]


@pytest.mark.parametrize(
    "family", ["cast", "select", "move", "gdma", "hau", "quant", "matmul", "pool_dw", "conv_int8", "int_arith"]
)
def test_no_golden_vector_reads_what_it_was_not_given(family: str, shared: Path) -> None:
    """Each case on a device of its own, whose memory holds the case's operands alone."""
    path = shared / "tpu_vectors" / "ops" / f"{family}.npz"
    golden = arrays(path)
    checked = 0
    for case in described(path.with_suffix(".json")):
        values = {name: golden[f"{case['id']}/in/{name}"] for name in case["inputs"]}
        expected = {name: golden[f"{case['id']}/out/{name}"] for name in case["outputs"]}
        for output, name in PAIRS.get(case["op"], (("", case["op"].removesuffix("_broadcast")),)):
            memories = Memories(Config())
            try:
                command = lay_out(call_of(name), {"dtype": "f32", **case}, values, expected, memories, output)
            except TilewrightError:
                continue
            step = Step(command.operation.engine, 1, {}, command, "command 0")
            program = ElaboratedProgram.of([step], memories.regions, memories.knobs).run(memories)
            assert not findings(program), case["id"]
            checked += 1
    assert checked


def test_ranges_are_a_set_of_bytes() -> None:
    random = np.random.default_rng(SEED)
    ranges, bytes_ = memory.Ranges(), np.zeros(64, np.bool_)
    for _ in range(300):
        low, high = sorted(random.integers(0, 65, 2).tolist())
        if random.random() < 0.8:
            ranges.add(np.array([(low, high)], np.int64))
            bytes_[low:high] = True
        else:
            ranges.replace(low, memory.NONE, high)
            bytes_[low:high] = False
        expected = np.zeros(64, np.bool_)
        for a, b in ranges.array.tolist():
            assert a < b and not expected[max(a - 1, 0) : b + 1].any()  # disjoint, and none that touches another
            expected[a:b] = True
        np.testing.assert_array_equal(expected, bytes_)
        part: Array = np.zeros(high - low, np.bool_)
        for a, b in ranges.part(low, high).tolist():
            part[a:b] = True
        np.testing.assert_array_equal(part, bytes_[low:high])
