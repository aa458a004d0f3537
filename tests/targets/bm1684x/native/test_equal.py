"""Three kernels in C and in Python: equal commands, to the bit of each encoded field, values, cycles and findings."""

from __future__ import annotations

import struct
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.targets.bm1684x.native.build import kernels
from tilewright.array import Array
from tilewright.targets.bm1684x.native.build import firmware
from tilewright.targets.bm1684x.native.firmware import Library
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.values.dtypes import F32, I8, DType

pytestmark = pytest.mark.gxx
FOLDER = ROOT / "examples" / "bm1684x_c"


def real(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def codes(seed: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, (1, 1024, 1, 1024)).astype(np.int8)


X, ROW = real(1, 512, 1, 1024), real(1, 1, 1, 1024)
#: By name: the sources, their type, what the kernel in Python gets after the tensors, and what follows them in C.
CASES: dict[str, tuple[list[Array], DType, tuple[float, ...], bytes]] = {
    "matmul": ([codes(0), codes(1)], I8, (1 << 20, -37), struct.pack("<2i", 1 << 20, -37)),
    "softmax": ([X], F32, (), struct.pack("<i", 512)),
    "layer_norm": ([X, ROW, ROW + 1], F32, (1e-5,), struct.pack("<if", 512, 1e-5)),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    binary = tmp_path_factory.mktemp("equal") / "bm1684x.bin"
    assert firmware([FOLDER / f"{name}.c" for name in CASES], binary, ["-Wextra", "-Werror"]) == ""
    return Library(binary)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_in_c_equals_the_one_in_python(library: Library, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    sources, dtype, attributes, tail = CASES[name]
    body = getattr(import_module(f"bm1684x_{name}"), name)
    python, c = Device(), Device()
    outcomes = []
    for device in (python, c):
        y = device.empty(sources[0].shape, dtype)
        tensors = [y, *(device.put(values, dtype) for values in sources)]
        if device is python:
            launched = device.launch(body, *tensors, *attributes)
        else:
            argument = struct.pack(f"<{len(tensors)}Q", *(tensor.address for tensor in tensors)) + tail
            launched = device.launch(kernels(library)[name], argument)
        outcomes.append((launched, device.record(launched).queues, device.get(y)))
    (in_c, queues, values), (in_python, recorded, results) = outcomes
    assert [step.command.operation for step in in_python.program.steps] == [
        s.command.operation for s in in_c.program.steps
    ]
    assert {unit: bytes(queue) for unit, queue in recorded.items()} == {u: bytes(q) for u, q in queues.items()}
    assert np.array_equal(results.view(np.uint8), values.view(np.uint8))
    assert in_python.cycles == in_c.cycles
    assert np.array_equal(in_python.trace.start, in_c.trace.start) and np.array_equal(
        in_python.trace.end, in_c.trace.end
    )
    assert [finding.kind for finding in in_python.findings] == [finding.kind for finding in in_c.findings] == []
    assert Path(in_python.program.steps[-1].name.split("(")[1].split(":")[0]).name == f"{name}.c"
