"""Kernels in the debugger: source lines, names of arguments, refused commands, host functions; and pdb inside them."""

from __future__ import annotations

import io
import pdb
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.targets.bm1684x.native.build import SCALE, kernels, load
from tilewright.array import Array
from tilewright.debug.session import Session
from tilewright.debug.verbs import obey
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.host import Handle, function
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32, I8

SMALL = Config(lanes=4, l2_bytes=64)
VALUES = np.arange(1, 33, dtype=np.float32).reshape(1, 4, 2, 4)
HERE = Path(__file__).name


@kernel
def doubled(tpu: Tpu, y: Tensor, x: Tensor) -> None:
    a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
    tpu.gdma.copy(a, x)
    tpu.bdc.fp_add(b, a, a)  # the line that the tests look for
    tpu.gdma.copy(y, b)


LINE = doubled.body.__code__.co_firstlineno + 4


@pytest.fixture
def session() -> Session:
    device = Device(SMALL)
    return device.debug(doubled, device.empty((1, 4, 2, 4), F32), device.put(VALUES, F32))


def test_a_command_names_the_line_that_issued_it(session: Session) -> None:
    assert session.walk.text(1).endswith(f"({HERE}:{LINE})")
    assert session.to(1).text == session.walk.text(1)


def test_arguments_are_tensors_with_their_layouts(session: Session) -> None:
    np.testing.assert_array_equal(session.read("x"), VALUES)
    session.step(2)
    np.testing.assert_array_equal(session.read("1.y"), 2 * VALUES)
    assert not session.read("y").any()
    np.testing.assert_array_equal(session.read("local[1,1,0:32]").view(np.float32), 2 * VALUES[0, 1].reshape(-1))
    session.end()
    np.testing.assert_array_equal(session.read("y"), 2 * VALUES)
    assert [session.walk.placed(name).layout for name in session.walk.tensors] == ["f32, continuous"] * 2
    assert "aligned" in obey(session, "insn 1")[0]


def test_questions(session: Session) -> None:
    writer = session.writer("y[0,1,0,2]")
    assert writer is None
    session.end()
    writer = session.writer("y[0,1,0,2]")
    assert writer is not None and writer.step == 2
    dependences = session.depends("y[0,1,0,2]")
    assert dependences.steps == (0, 1, 2)
    assert dependences.inputs == (("dram.x", 40, 44, 4),)
    assert [wait.step for wait in session.why(2)] == [1, 0]
    session.start()
    assert session.until("local[0,1]").position == 2
    assert session.until("local[0,0]", forward=False).position == 1
    session.start()
    session.break_at('op == "fp_add" and y[0,0,0,0] == 0')
    assert session.run().step == 1


def test_a_refused_command_ends_the_walk() -> None:
    @kernel
    def wrong(tpu: Tpu, x: Tensor) -> None:
        a, b = tpu.local((1, 4, 2, 4), F32, 0), tpu.local((1, 4, 2, 4), I8, 1)
        tpu.gdma.copy(a, x)
        tpu.bdc.fp_add(b, a, a)

    device = Device(SMALL)
    session = device.debug(wrong, device.put(VALUES, F32))
    assert session.end().step == 1
    assert "types" in session.where().stuck or session.where().stuck
    np.testing.assert_array_equal(session.read("1.a"), VALUES)
    with pytest.raises(MachineError, match="cannot go on"):
        session.step()

    @kernel
    def full(tpu: Tpu) -> None:
        tpu.local((1, 4, 2, 4), F32, bank=99)

    with pytest.raises(MachineError, match="no bank 99"):
        Device(SMALL).debug(full)


def test_a_race_is_a_finding_with_both_lines() -> None:
    @kernel
    def racing(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
        tpu.gdma.copy(a, x)
        with tpu.parallel():
            tpu.gdma.copy(a, y)
            tpu.bdc.fp_add(b, a, a)

    device = Device(SMALL)
    session = device.debug(racing, device.put(VALUES, F32), device.put(VALUES, F32))
    first = racing.body.__code__.co_firstlineno
    text, _ = obey(session, "findings")
    assert f"({HERE}:{first + 5})" in text and f"({HERE}:{first + 6})" in text
    assert "#1 " in text and "#2 " in text


def test_a_function_of_a_host() -> None:
    @function(None)
    def twice(tpu: Tpu, argument: bytes) -> None:
        x = tpu.system(int.from_bytes(argument, "little"), (1, 4, 2, 4), F32)
        a = tpu.local(x.shape, F32, 0)
        tpu.gdma.copy(a, x)
        tpu.bdc.fp_add(a, a, a)
        tpu.gdma.copy(x, a)

    with Handle(config=SMALL) as handle:
        handle.load([twice])
        memory = handle.malloc(VALUES.nbytes)
        handle.s2d(memory, VALUES)
        session = handle.debug("twice", memory.address.to_bytes(8, "little"))
        assert len(session.walk.table) == 3
        np.testing.assert_array_equal(session.read("0.x"), VALUES)
        session.end()
        np.testing.assert_array_equal(session.read("0.x"), 2 * VALUES)
        held = np.zeros_like(VALUES)
        handle.d2s(held, memory)
        np.testing.assert_array_equal(held, 2 * VALUES)


@pytest.mark.gxx
def test_a_kernel_in_c_names_its_lines(tmp_path: Path) -> None:
    library, device = load(tmp_path, SCALE), Device()
    values = np.arange(4096, dtype=np.float32).reshape(1, 64, 8, 8)
    x, y = device.put(values, F32), device.empty((1, 64, 8, 8), F32)
    argument = y.address.to_bytes(8, "little") + x.address.to_bytes(8, "little") + np.float32(3).tobytes() + bytes(4)
    session = device.debug(kernels(library)["scale"], argument)
    names = [session.walk.text(step).rsplit("/", 1)[1] for step in range(3)]
    assert names == ["kernel.c:9)", "kernel.c:11)", "kernel.c:12)"]
    session.end()
    np.testing.assert_array_equal(session.read("2.y"), 3 * values)


def stops(body: Callable[[pdb.Pdb], None], *commands: str) -> str:
    """What pdb prints while it runs `commands`."""
    typed, told = io.StringIO("\n".join([*commands, "continue", ""])), io.StringIO()
    body(pdb.Pdb(stdin=typed, stdout=told, nosigint=True, readrc=False))
    return told.getvalue()


def test_pdb_stops_inside_a_kernel() -> None:
    """A break point in a kernel shows the values that its commands have written, also while it is being debugged."""

    def run(start: Callable[[Device], Callable[..., object]]) -> Callable[[pdb.Pdb], None]:
        def body(debugger: pdb.Pdb) -> None:
            @kernel
            def stopped(tpu: Tpu, y: Tensor, x: Tensor) -> None:
                a, b = (tpu.local(x.shape, F32, bank) for bank in (0, 1))
                tpu.gdma.copy(a, x)
                debugger.set_trace()
                tpu.bdc.fp_add(b, a, a)
                tpu.gdma.copy(y, b)

            device = Device(SMALL)
            y, x = device.empty((1, 4, 2, 4), F32), device.put(VALUES, F32)
            start(device)(stopped, y, x)
            values: Array = device.get(y)
            np.testing.assert_array_equal(values, 2 * VALUES)

        return body

    asked = ("p tpu.read(a)[0, 3].tolist()", "next", "p tpu.read(b)[0, 0, 0].tolist()")
    for start in (lambda device: device.launch, lambda device: device.debug):
        told = stops(run(start), *asked)
        assert str(VALUES[0, 3].tolist()) in told
        assert str((2 * VALUES[0, 0, 0]).tolist()) in told


def test_a_break_point_by_line() -> None:
    def body(debugger: pdb.Pdb) -> None:
        device = Device(SMALL)
        y, x = device.empty((1, 4, 2, 4), F32), device.put(VALUES, F32)
        debugger.set_break(__file__, LINE)
        debugger.runcall(device.launch, doubled, y, x)

    assert "the line that the tests look for" in stops(body, "continue", "p tpu.read(a).sum()")
