"""What a user of kernels does beside running them: looks at tensors, stops in them, saves traces, asks about banks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tilewright.errors import MachineError, TilewrightError
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.runtime.recording import Launched
from tilewright.targets.bm1684x.values.dtypes import BF16, F32, I8
from tilewright.targets.bm1684x.values.memory import Knobs
from tilewright.targets.bm1684x.values.window import Window

PROGRAM = """
import numpy as np
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.runtime.kernel import kernel

@kernel
def doubles(tpu, y, x):
    a = tpu.local(x.shape, F32, bank=0)
    tpu.gdma.copy(a, x)
    breakpoint()
    tpu.bdc.fp_add(a, a, a)
    tpu.gdma.copy(y, a)

device = Device()
x = device.put(np.float32([3, 4]), F32)
device.launch(doubles, device.empty(x.shape, F32), x)
"""


def test_a_debugger_steps_through_a_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="p tpu.read(a)\nn\np tpu.read(a)\np a\nc\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = [part.strip() for part in done.stdout.split("(Pdb) ") if part.startswith(("array", "Tensor"))]
    before, after, what = printed
    assert "[[[[3., 4.]]]]" in before
    assert "[[[[6., 8.]]]]" in after
    assert what.startswith("Tensor(f32 (1, 1, 1, 2): strides n 16, c 16")


def test_tensors_are_printed_with_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    @kernel
    def prints(tpu: Tpu, x: Tensor) -> None:
        a = tpu.local(x.shape, BF16, bank=1)
        tpu.gdma.copy(a, x)
        tpu.print("loaded", a)
        tpu.print(tpu.matrix(1, 4, I8, bank=2, width=2), 7)

    device = Device()
    device.launch(prints, device.put(np.array([0x3FC0, 0xC000], np.uint16), BF16))
    said = capsys.readouterr().out
    assert said.startswith("loaded Tensor(bf16 (1, 1, 1, 2): strides n 32, c 32, h 2, w 1 elements; from lane 0, byte")
    assert "[[[[ 1.5 -2. ]]]]" in said
    assert "Matrix(i8 (1, 4); from lane 0, byte 0x8000; 64 lanes)\n[[0 0 0 0]] 7" in said
    assert repr(device.empty((1, 1, 1, 2), F32)).endswith("at 0x100001000)")


def test_bf16_is_made_by_a_conversion() -> None:
    with pytest.raises(MachineError, match=r"bf16 is stored as uint16; values\.floats\.narrow converts float32 to it"):
        Device().put(np.zeros(3, np.float32), BF16)


def overlapping(near: int, knobs: Knobs) -> Launched:
    """Loads into bank `near` + 1 while a sum of two tensors of banks 0 and `near` is written to bank 2."""

    @kernel
    def both(tpu: Tpu, x: Tensor) -> None:
        a, y = tpu.local(x.shape, F32, bank=0), tpu.local(x.shape, F32, bank=2)
        b, c = tpu.local(x.shape, F32, bank=near), tpu.local(x.shape, F32, bank=near + 1)
        with tpu.parallel():
            tpu.gdma.copy(c, x)
            tpu.bdc.fp_add(y, a, b)

    device = Device(knobs=knobs)
    return device.launch(both, device.put(np.ones((1, 64, 16, 32), np.float32), F32))


def test_bank_conflicts_are_a_model_that_one_asks_for() -> None:
    plain, with_model = Knobs(), Knobs(bank_conflicts=True)
    apart = overlapping(4, plain)
    one_pass = apart.trace.busy()["tiu"]
    transfer = apart.trace.busy()["dma"]
    assert one_pass == 32
    assert overlapping(4, with_model).trace.busy() == apart.trace.busy()
    assert overlapping(0, plain).trace.busy() == apart.trace.busy()
    assert overlapping(0, with_model).trace.busy() == {"tiu": 2 * one_pass, "dma": transfer}  # a and b in bank 0
    shared = overlapping(1, with_model)  # c lies in bank 2, as y does
    assert shared.trace.busy() == {"tiu": one_pass, "dma": transfer + one_pass}
    assert "(bank conflicts: a model)" in shared.summary()
    assert "conflicts" not in apart.summary()


def test_a_trace_is_saved(tmp_path: Path) -> None:
    launched = overlapping(4, Knobs())
    launched.save_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = {e["name"]: e for e in events if e["ph"] == "X" and tracks[e["tid"]] in ("dma", "tiu")}
    lines = re.compile(r" \(test_user\.py:\d+\)")
    assert [lines.sub("", name) for name in sorted(slices)] == ["dma command 0: dma_copy", "tiu command 0: fp_add"]
    assert slices[min(slices)]["dur"] == launched.trace.busy()["dma"] / launched.clock_mhz
    pytest.importorskip("perfetto")
    launched.save_trace(tmp_path / "t.pftrace")
    assert (tmp_path / "t.pftrace").stat().st_size > 200


def tensor(tpu: Tpu, bank: int) -> Tensor:
    return tpu.local((1, 4, 2, 8), F32, bank=bank)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda tpu, x: tpu.local((1, 2, 3), F32, bank=0), r"its shape is \(1, 2, 3\); give four integers"),
        (lambda tpu, x: tpu.local((1, 2.5, 3, 4), F32, bank=0), "give four integers: n, c, h, w"),
        (lambda tpu, x: tpu.local((1, 2, 3, 4), "f32", bank=0), "its type is 'f32'; give one of"),
        (lambda tpu, x: tpu.local((1, 2, 3, 4), F32, bank="a"), "there is no bank 'a'"),
        (lambda tpu, x: tpu.weights((4, 4, 1), F32, bank=0), "give four integers"),
        (lambda tpu, x: x[0], "0 is not a slice; every axis stays"),
        (lambda tpu, x: tpu.bdc.fp_add(), "fp_add: no result tensor was given; give y, a, b"),
        (lambda tpu, x: tpu.bdc.fp_add(tensor(tpu, 0), np.ones(3), 1.0), "a is a ndarray; give a tensor or a number"),
        (lambda tpu, x: tpu.bdc.fp_add(tensor(tpu, 0), x, 1.0), "a is not in local memory"),
        (lambda tpu, x: tpu.bdc.fp_add(tensor(tpu, 0), 1.0, 1.0, saturat=True), "there is no attribute saturat"),
        (
            lambda tpu, x: tpu.bdc.fp_conv2d(tensor(tpu, 0), tensor(tpu, 1), tpu.weights((4, 4, 1, 1), F32, 2)),
            "attribute window: missing; give window=",
        ),
        (
            lambda tpu, x: tpu.bdc.fp_conv2d(tensor(tpu, 0), tensor(tpu, 1), tensor(tpu, 2), window=Window((1, 1))),
            "w is a tensor; weights have a layout of their own",
        ),
        (lambda tpu, x: tpu.bdc.fp_mm(tensor(tpu, 0), tensor(tpu, 1), tensor(tpu, 2)), r"give its rows\(\)"),
        (
            lambda tpu, x: tpu.bdc.max_pool2d(tensor(tpu, 0), tensor(tpu, 1), 0.0, window=Window((9, 9))),
            "a window of 9 x 9 does not fit into the padded map of 2 x 8",
        ),
        (lambda tpu, x: tpu.bdc.max(tpu.local((1, 1, 1, 1), I8, 0), 1, float("nan")), "nan is not a value of i8"),
    ],
)
def test_mistakes_are_told_in_a_sentence(body: Callable[..., object], reason: str) -> None:
    device = Device()
    with pytest.raises(TilewrightError, match=reason):
        device.launch(kernel(body), device.put(np.ones((1, 4, 2, 8), np.float32), F32))  # type: ignore[arg-type]


def test_numbers_of_numpy_are_constants() -> None:
    @kernel
    def adds(tpu: Tpu, y: Tensor) -> None:
        a, b = tensor(tpu, 0), tpu.local((1, 4, 2, 8), I8, bank=1)
        tpu.bdc.fp_add(a, np.float32(2), 0.5)
        tpu.bdc.max(b, np.int64(3), -5)
        tpu.bdc.cast(tensor(tpu, 2), b)
        tpu.gdma.copy(y, a)

    device = Device()
    y = device.empty((1, 4, 2, 8), F32)
    device.launch(adds, y)
    assert (device.get(y) == 2.5).all()
