"""Damaged models and saved programs on the command line: one clear line or a finding, never a traceback."""

from __future__ import annotations

import io
import json
import resource
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.mlperf import model_path
from tilewright.cli import main
from tilewright.program import file

SEED, TRIALS = 20261121, 36
ODD: tuple[Any, ...] = (None, -1, 0, 1 << 40, "x", 3.5, [], {})
ODD_INTEGERS = (-1, 0, 1, 2, 3, 127, 255, 1 << 15, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31))
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
#: Growth of the process while hundreds of small damaged files are read and run.
MAX_GROWTH = 1 << 31
PROGRAMS = {
    "digits": ("vta", {}),
    "fused": ("vta", {"alu": "fused"}),
    "four": ("vta", {"stages": "4", "alu": "fused"}),
    "onnx": ("vta", {"alu": "float"}),
    "bm1684x": ("bm1684x", {"batch": "2", "lanes": "16"}),
}
Members = dict[str, bytes]


def with_host_ops(folder: Path) -> Path:
    """An ONNX model of a convolution and operators that onnxruntime runs."""
    from tests.model.onnx_nets import Net

    net = Net(SEED, np.int8)
    x = net.quantized(net.op("Conv", net.quantized(net.input((1, 3, 6, 6))), net.weights((4, 3, 3, 3))))
    y = net.op(
        "Slice", net.op("Sigmoid", net.quantized(net.op("Sigmoid", x))), net.const([1]), net.const([3]), net.const([1])
    )
    return net.save(folder / "net.onnx", net.op("AveragePool", y, kernel_shape=[2, 2]))


def compiled(name: str, folder: Path) -> Members:
    """The parts of a saved program."""
    path = folder / "good.twp"
    target, overrides = PROGRAMS[name]
    file.save(tw.compile(with_host_ops(folder) if name == "onnx" else DIGITS, target, overrides=overrides), path)
    with zipfile.ZipFile(path) as archive:
        return {member: archive.read(member) for member in archive.namelist()}


def write(members: Members, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every single value, of long lists the first few."""
    items = data.items() if isinstance(data, dict) else enumerate(data[:6]) if isinstance(data, list) else None
    if items is None:
        yield path
        return
    for key, value in items:
        yield from places(value, (*path, key))


def odd_header(members: Members, rng: np.random.Generator) -> Members:
    """One value of the header replaced."""
    data = json.loads(members["program.json"])
    where = list(places(data))
    path = where[int(rng.integers(len(where)))]
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = ODD[int(rng.integers(len(ODD)))]
    return members | {"program.json": json.dumps(data).encode()}


def odd_array(members: Members, rng: np.random.Generator) -> Members:
    """Some values of an array replaced, mostly of a launch: bits, bytes, or a whole instruction's."""
    arrays = [name for name in members if name.endswith(".npy")]
    launch = [name for name in arrays if name.startswith("step")]
    name = str(rng.choice(launch if launch and rng.random() < 0.8 else arrays))
    array = np.load(io.BytesIO(members[name]))
    data = np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy()
    at, kind = rng.integers(0, data.size, int(rng.integers(1, 9))), rng.integers(4)
    whole = slice(int(at[0]) // 16 * 16, int(at[0]) // 16 * 16 + 16)
    if kind == 0:
        data[at] = rng.integers(0, 256, at.size)
    elif kind == 1:
        data[at] ^= (1 << rng.integers(0, 8, at.size)).astype(np.uint8)
    else:
        data[whole] = 255 if kind == 2 else rng.integers(0, 256, data[whole].size)
    stream = io.BytesIO()
    np.save(stream, data.view(array.dtype).reshape(array.shape))
    return members | {name: stream.getvalue()}


def odd_model(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes, or aligned integers, replaced: in the last 20,000 bytes, where a .tflite file has its tables."""
    data, tail = np.frombuffer(content, np.uint8).copy(), max(0, len(content) - 20_000)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(tail, len(content) - 4))
        if rng.random() < 0.5:
            data[at] = rng.integers(256)
        else:
            odd = np.int32(ODD_INTEGERS[rng.integers(len(ODD_INTEGERS))])
            data[at // 4 * 4 : at // 4 * 4 + 4] = np.frombuffer(odd.tobytes(), np.uint8)
    return data.tobytes()


def check(command: list[str], capsys: pytest.CaptureFixture[str], codes: tuple[int, ...], what: str) -> int:
    """Run a command line: one of the exit codes, and one line of error at exit 2, at most one else."""
    status, lines = main(command), capsys.readouterr().err.count("\n")
    assert status in codes, f"{what}: {command[0]} exits with {status}"
    assert lines == 1 if status == 2 else lines <= 1, f"{what}: {command[0]} writes {lines} lines"
    return status


def check_programs(
    name: str, damage: Callable[[Members, np.random.Generator], Members], trials: range, folder: Path, capsys: Any
) -> Counter[int]:
    good, odd = compiled(name, folder), folder / "odd.twp"
    before, found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, Counter[int]()
    for trial in trials:
        write(damage(good, np.random.default_rng([SEED, trial])), odd)
        for command in (["check", str(odd)], ["exec", str(odd), "--json"], ["disasm", str(odd)]):
            found[check(command, capsys, (0, 1, 2), f"seed {SEED}, trial {trial}")] += 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_GROWTH
    return found


@pytest.mark.parametrize("name", ["digits", "onnx", "bm1684x"])
def test_odd_values_in_a_header_are_refused_or_found(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_programs(name, odd_header, range(TRIALS), tmp_path, capsys)[2] > TRIALS


@pytest.mark.parametrize("name", PROGRAMS)
def test_odd_values_in_arrays_are_refused_or_found(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = check_programs(name, odd_array, range(5), tmp_path, capsys)
    assert found[1] + found[2] > 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", [odd_header, odd_array])
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_odd_values_in_programs(
    name: str, damage: Callable[..., Members], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_programs(name, damage, range(1000, 1250), tmp_path, capsys)


def check_models(source: Path, trials: range, folder: Path, capsys: pytest.CaptureFixture[str]) -> Counter[int]:
    content, path, found = source.read_bytes(), folder / "odd.tflite", Counter[int]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for trial in trials:
        path.write_bytes(odd_model(content, np.random.default_rng([SEED, trial])))
        command = ["run", str(path), "-t", "vta", "--json"]
        found[check(command, capsys, (0, 2), f"seed {SEED}, trial {trial}")] += 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_GROWTH
    return found


def test_damaged_models_are_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = check_models(DIGITS, range(12), tmp_path, capsys)
    assert min(found[0], found[2]) > 0  # the test reaches both sides


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", "ad", "kws"])
def test_many_damaged_models(key: str, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_models(model_path(shared, key) if key else DIGITS, range(1000, 1400), tmp_path, capsys)


def test_layers_that_instructions_do_not_have_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A launch of several layers says whose each instruction is: an absurd number must not be counted up to."""
    for wrong in (-1, 1 << 40, 3):
        good = tw.compile(DIGITS, overrides={"alu": "fused"})
        launch = next(launch for launch in good.launches if len(launch.nodes) > 1)
        launch.arrays["layer"][0] = wrong if wrong != 3 else len(launch.nodes)
        file.save(good, tmp_path / "odd.twp")
        assert main(["exec", str(tmp_path / "odd.twp")]) == 2
        assert "layers each instruction belongs to; compile it again" in capsys.readouterr().err
