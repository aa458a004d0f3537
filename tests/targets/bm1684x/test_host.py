"""The host's side: memory, copies, firmware, launches, threads, and what each failure says."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError
from tilewright.targets.bm1684x.host import PCIE, SOC, DeviceMemory, Firmware, Handle, HostError, Status, capi, function
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import F32

SOURCE = """
import ctypes
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.host import function

class Scale(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("y", ctypes.c_uint64), ("x", ctypes.c_uint64), ("length", ctypes.c_int32), ("factor", ctypes.c_float)]

@function(Scale)
def scale(tpu, arguments):
    shape = (1, 1, 1, arguments.length)
    a = tpu.local(shape, F32, bank=0)
    tpu.gdma.copy(a, tpu.system(arguments.x, shape, F32))
    tpu.bdc.fp_mul(a, a, arguments.factor)
    tpu.gdma.copy(tpu.system(arguments.y, shape, F32), a)
"""


class Scale(ctypes.Structure):
    _pack_ = 1
    _fields_ = (
        ("y", ctypes.c_uint64),
        ("x", ctypes.c_uint64),
        ("length", ctypes.c_int32),
        ("factor", ctypes.c_float),
    )


@pytest.fixture
def firmware(tmp_path: Path) -> Path:
    source, path = tmp_path / "device_scale.py", tmp_path / "scale.fw"
    source.write_text(SOURCE)
    Firmware.build([source]).save(path)
    return path


def put(handle: Handle, values: Array) -> DeviceMemory:
    memory = handle.malloc(values.nbytes)
    handle.s2d(memory, values)
    return memory


def get(handle: Handle, memory: DeviceMemory) -> Array:
    values = np.empty(memory.size // 4, np.float32)
    handle.d2s(values, memory)
    return values


@function(None)
def fails(tpu: Tpu, raw: bytes) -> None:
    raise ValueError("on purpose")


@function("<QQif")
def scaled(tpu: Tpu, arguments: tuple[int, int, int, float]) -> None:
    y, x, length, factor = arguments
    a = tpu.local((1, 1, 1, length), F32, bank=0)
    tpu.gdma.copy(a, tpu.system(x, (1, 1, 1, length), F32))
    tpu.bdc.fp_mul(a, a, factor)
    tpu.gdma.copy(tpu.system(y, (1, 1, 1, length), F32), a)


def test_a_function_of_firmware_runs_by_name(firmware: Path) -> None:
    """As the source document's host program does."""
    status, handle = capi.bm_dev_request(0)
    assert status == capi.BM_SUCCESS and handle is not None
    assert capi.tpu_kernel_load_firmware(handle, firmware, execute=True) == capi.BM_SUCCESS
    values, result = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    (_, x), (_, y) = (capi.bm_malloc_device_byte(handle, values.nbytes) for _ in range(2))
    assert x is not None and y is not None
    assert capi.bm_memcpy_s2d(handle, x, values) == capi.BM_SUCCESS
    param = Scale(capi.bm_mem_get_device_addr(y), capi.bm_mem_get_device_addr(x), 100, 3.0)
    assert capi.tpu_kernel_launch_sync(handle, "scale", param, ctypes.sizeof(param)) == capi.BM_SUCCESS
    assert capi.bm_memcpy_d2s(handle, result, y) == capi.BM_SUCCESS
    np.testing.assert_array_equal(result, 3 * values)
    assert capi.bm_free_device(handle, x) == capi.BM_SUCCESS
    assert capi.bm_free_device(handle, x) == Status.PARAM
    assert "is freed" in capi.last_error()
    assert capi.bm_dev_free(handle) == capi.BM_SUCCESS
    assert capi.bm_malloc_device_byte(handle, 4) == (Status.DEVNOTREADY, None)


def test_firmware_runs_only_where_told_to(firmware: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    built = Firmware.build([tmp_path / "evil.py"])
    built.save(tmp_path / "evil.fw")
    with Handle() as handle:
        with pytest.raises(HostError, match="holds Python") as caught:
            handle.load(tmp_path / "evil.fw")
        assert caught.value.status == Status.PARAM
        assert not mark.exists()
        assert handle.load(tmp_path / "evil.fw", execute=True) == ()
        assert mark.exists()
        assert handle.load(firmware, execute=True) == ("scale",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "has version 2"),
        ({"format": "zip"}, 'format: is "zip"; choose one of tilewright bm1684x firmware'),
        ({"modules": {}}, "has 0 modules"),
        ({"modules": {"../x": ""}}, "must have a Python name"),
        ({"modules": {"x": 3}}, "is 3, not a text"),
        ({"more": 1}, 'has "more", which is unknown'),
    ],
)
def test_bad_files_are_refused(change: dict[str, Any], reason: str, firmware: Path) -> None:
    firmware.write_text(json.dumps(json.loads(firmware.read_text()) | change))
    with pytest.raises(ProgramError, match=reason):
        Firmware.load(firmware)
    with Handle() as handle, pytest.raises(HostError, match=reason) as caught:
        handle.load(firmware, execute=True)
    assert caught.value.status == Status.DATA


def test_damage_is_refused(firmware: Path, tmp_path: Path) -> None:
    whole = firmware.read_bytes()
    for content in (b"", whole[:100], b"\xff" * 50, b"[" * 100_000, whole + b" " * (1 << 24)):
        firmware.write_bytes(content)
        with pytest.raises(ProgramError):
            Firmware.load(firmware)
    (tmp_path / "wrong.py").write_text("def (:\n")
    with pytest.raises(InputError, match="is not Python source"):
        Firmware.build([tmp_path / "wrong.py"])
    with pytest.raises(ProgramError, match="module broken: ZeroDivisionError"):
        Firmware({"broken": "1 / 0"}).functions(execute=True)
    with pytest.raises(ProgramError, match="two functions are called scale"):
        Firmware({"one": SOURCE, "two": SOURCE}).functions(execute=True)


def test_only_functions_are_loaded() -> None:
    with Handle() as handle:
        with pytest.raises(HostError, match="decorate it with @function"):
            handle.load([scaled.kernel])  # type: ignore[list-item]
        with pytest.raises(HostError, match="two functions are called scaled"):
            handle.load([scaled, scaled])


def test_copies_of_parts() -> None:
    with Handle() as handle:
        a, b = put(handle, np.arange(8, dtype=np.float32)), put(handle, np.zeros(8, np.float32))
        handle.s2d(a, np.array([70, 80], np.float32), size=8, offset=4)
        assert get(handle, a).tolist() == [0, 70, 80, 3, 4, 5, 6, 7]
        handle.d2d(b, a, 8, target_offset=16, source_offset=8)
        assert get(handle, b).tolist() == [0, 0, 0, 0, 80, 3, 0, 0]
        handle.d2d(a, a, 16, target_offset=4)
        assert get(handle, a).tolist() == [0, 0, 70, 80, 3, 5, 6, 7]
        handle.s2d(b, np.array([1, 2], np.float32), offset=24)  # to its end
        assert get(handle, b).tolist() == [0, 0, 0, 0, 80, 3, 1, 2]
        part = bytearray(4)
        handle.d2s(part, a, size=4, offset=8)
        assert np.frombuffer(part, np.float32) == 70
        calls: list[Callable[[], None]] = [
            lambda: handle.s2d(a, bytes(31)),
            lambda: handle.s2d(a, bytes(32), size=32, offset=4),
            lambda: handle.s2d(a, bytes(32), size=-1),
            lambda: handle.d2s(bytes(32), a),
            lambda: handle.d2s(np.zeros((8, 2), np.float32)[:, 0], a),
            lambda: handle.s2d(a, 3),
        ]
        for wrong in calls:
            with pytest.raises(HostError) as caught:
                wrong()
            assert caught.value.status == Status.PARAM
        assert [(copy.kind, copy.size) for copy in handle.copies[2:5]] == [("s2d", 8), ("d2s", 32), ("d2d", 8)]


def test_memory_is_handed_out_again() -> None:
    with Handle(PCIE._replace(memory_bytes=3 * 4096)) as handle:
        pieces = [handle.malloc(4096) for _ in range(3)]
        with pytest.raises(HostError, match="do not fit") as caught:
            handle.malloc(1)
        assert caught.value.status == Status.NOMEM
        handle.free(pieces[1])
        assert handle.malloc(100).address == pieces[1].address
        with pytest.raises(HostError, match="freed, or belongs to another handle"):
            handle.s2d(pieces[1], bytes(4096))
        with pytest.raises(HostError, match="0 bytes are requested"):
            handle.malloc(0)


def test_modes_differ_in_where_data_lies_and_what_a_copy_costs() -> None:
    with Handle(PCIE) as card, Handle(SOC) as chip:
        for handle in (card, chip):
            handle.load([scaled])
        values = np.ones(1 << 20, np.float32)
        x, y = put(card, values), put(chip, values)
        assert card.copies[0].microseconds != chip.copies[0].microseconds
        with pytest.raises(HostError, match="copy with s2d") as caught:
            card.map(x)
        assert caught.value.status == Status.NOT_SUPPORTED
        chip.map(y).view(np.float32)[:4] = 5
        argument = np.array([(y.address, y.address, 8, 2.0)], "<u8,<u8,<i4,<f4")
        chip.launch_sync("scaled", argument)
        assert chip.map(y).view(np.float32)[:10].tolist() == [10] * 4 + [2] * 4 + [1] * 2
        assert len(chip.copies) == 1


def test_handles_are_independent() -> None:
    with Handle() as first, Handle() as two:
        first.load([scaled])
        a, b = put(first, np.ones(4, np.float32)), put(two, np.full(4, 2, np.float32))
        assert a.address == b.address
        assert get(first, a).tolist() == [1] * 4
        with pytest.raises(HostError, match="another handle"):
            two.d2s(bytearray(16), a)
        with pytest.raises(HostError, match="no function 'scaled'; load firmware first"):
            two.launch_sync("scaled", bytes(24))


def test_arguments_are_copied_at_the_launch() -> None:
    hold = threading.Event()

    @function("<Q")
    def waits(tpu: Tpu, _: tuple[int]) -> None:
        hold.wait()

    with Handle() as handle:
        handle.load([waits, scaled])
        x = put(handle, np.ones(4, np.float32))
        handle.launch_async("waits", bytes(8))
        argument = Scale(x.address, x.address, 4, 3.0)
        handle.launch_async("scaled", argument)
        argument.factor = 100.0
        calls: list[Callable[[], object]] = [lambda: handle.free(x), lambda: handle.load([scaled])]
        for refused in calls:
            with pytest.raises(HostError, match="launches are queued") as caught:
                refused()
            assert caught.value.status == Status.BUSY
        assert get(handle, x).tolist() == [1] * 4  # the host goes on
        hold.set()
        assert [len(launched.program.steps) for launched in handle.sync()] == [0, 3]
        assert get(handle, x).tolist() == [3] * 4
        handle.free(x)


def test_an_error_of_an_async_launch_surfaces_at_sync() -> None:
    with Handle() as handle:
        handle.load([fails, scaled])
        x = put(handle, np.ones(4, np.float32))
        argument = Scale(x.address, x.address, 4, 3.0)
        assert capi.tpu_kernel_launch_async(handle, "fails", b"", 0) == Status.SUCCESS
        assert capi.tpu_kernel_launch_async(handle, "scaled", argument, 24) == Status.SUCCESS
        assert capi.tpu_kernel_sync(handle) == Status.FAILURE
        assert "fails: ValueError: on purpose" in capi.last_error()
        assert get(handle, x).tolist() == [1] * 4  # what was queued behind did not run
        assert capi.tpu_kernel_sync(handle) == Status.SUCCESS
        handle.launch_sync("scaled", argument)
        assert get(handle, x).tolist() == [3] * 4
        with pytest.raises(HostError, match="on purpose"):
            handle.launch_sync("fails")
        assert not handle.sync()
        argument.x = 0x5_0000_0000
        with pytest.raises(
            HostError, match=r"scaled, dma command 0 \(test_host.py:\d+\), memory: no memory holds 0x500000000"
        ):
            handle.launch_sync("scaled", argument)


def test_an_unsynced_error_is_not_lost() -> None:
    with pytest.raises(HostError, match="on purpose"), Handle() as handle:
        handle.load([fails])
        handle.launch_async("fails")
    with pytest.raises(KeyError), Handle() as handle:
        handle.load([fails])
        handle.launch_async("fails")
        raise KeyError


def test_wrong_launches_are_refused_at_once() -> None:
    with Handle() as handle:
        handle.load([scaled])
        for argument, size, reason in (
            (bytes(23), None, "has 24 bytes, 23 are given"),
            (bytes(24), 25, "bytes, not 25"),
        ):
            with pytest.raises(HostError, match=reason) as caught:
                handle.launch_async("scaled", argument, size)
            assert caught.value.status == Status.PARAM
        with pytest.raises(HostError, match="has no bytes"):
            handle.launch_async("scaled", 3)
    with pytest.raises(InputError, match="is not a struct format"):
        function("float32 " * 2)
    with pytest.raises(InputError, match="has no fields of fixed size"):
        function(np.float32)


def test_a_kernel_that_exits_is_a_failure() -> None:
    @function(None)
    def leaves(tpu: Tpu, raw: bytes) -> None:
        raise SystemExit(3)

    with Handle() as handle:
        handle.load([leaves])
        handle.launch_async("leaves")
        with pytest.raises(HostError, match="leaves: SystemExit: 3"):
            handle.sync()


def test_a_kernel_cannot_call_the_host() -> None:
    with Handle() as handle:

        @function(None)
        def again(tpu: Tpu, raw: bytes) -> None:
            handle.sync()

        handle.load([again])
        with pytest.raises(HostError, match="a kernel calls a host function"):
            handle.launch_sync("again")


def test_threads_share_a_handle() -> None:
    """Each adds to its own memory, and all multiply one that they share: no launch, copy or piece is lost."""
    threads, times = 6, 5
    wrong: list[BaseException] = []
    with Handle() as handle:
        handle.load([scaled])
        shared = put(handle, np.ones(4, np.float32))

        def work(number: int) -> None:
            try:
                for step in range(times):
                    mine = put(handle, np.full(50 + number, number, np.float32))
                    handle.launch_sync("scaled", Scale(mine.address, mine.address, 50 + number, step))
                    assert get(handle, mine).tolist() == [number * step] * (50 + number)
                    handle.launch_async("scaled", Scale(shared.address, shared.address, 4, 2.0))
            except BaseException as error:
                wrong.append(error)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong
        assert len(handle.sync()) == threads * times
        assert get(handle, shared).tolist() == [2.0 ** (threads * times)] * 4
        assert len(handle.copies) == 2 + 2 * threads * times


def test_functions_can_take_any_struct() -> None:
    kinds = [function(kind)(scaled.kernel.body) for kind in (Scale, np.dtype("<u8,<u8,<i4,<f4"), "<QQif", None)]
    assert [kind.size for kind in kinds] == [24, 24, 24, None]
    raw = bytes(Scale(1, 2, 3, 0.5))
    as_struct, as_record, as_tuple, as_bytes = (kind.unpacked(raw) for kind in kinds)
    assert (as_struct.y, as_struct.factor) == (1, 0.5)
    assert as_record.tolist() == as_tuple == (1, 2, 3, 0.5)
    assert as_bytes == raw
