"""Saved programs whose values make no sense: one clear line or a finding, never a traceback."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright.cli import main
from tilewright.program import file

SEED, TRIALS = 20261121, 60
ODD: tuple[Any, ...] = (None, -1, 0, 1 << 40, "x", 3.5, [], {})


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every single value, of long lists the first few."""
    items = data.items() if isinstance(data, dict) else enumerate(data[:6]) if isinstance(data, list) else None
    if items is None:
        yield path
        return
    for key, value in items:
        yield from places(value, (*path, key))


def with_host_ops(folder: Path) -> Path:
    """An ONNX model of a convolution and operators that onnxruntime runs."""
    from tests.model.onnx_nets import Net

    net = Net(SEED, np.int8)
    x = net.quantized(net.op("Conv", net.quantized(net.input((1, 3, 6, 6))), net.weights((4, 3, 3, 3))))
    y = net.op(
        "Slice", net.op("Sigmoid", net.quantized(net.op("Sigmoid", x))), net.const([1]), net.const([3]), net.const([1])
    )
    return net.save(folder / "net.onnx", net.op("AveragePool", y, kernel_shape=[2, 2]))


@pytest.mark.parametrize("model", ["digits", "onnx"])
def test_odd_values_in_a_program_are_refused_or_found(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, odd = tmp_path / "good.twp", tmp_path / "odd.twp"
    source = ROOT / "examples" / "digits" / "digits.tflite" if model == "digits" else with_host_ops(tmp_path)
    file.save(tw.compile(source), good)
    rng = np.random.default_rng(SEED)
    with zipfile.ZipFile(good) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    where = list(places(json.loads(members["program.json"])))
    for trial in range(TRIALS):
        data = json.loads(members["program.json"])
        path = where[int(rng.integers(len(where)))]
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = ODD[int(rng.integers(len(ODD)))]
        with zipfile.ZipFile(odd, "w") as archive:
            for name, content in members.items():
                damaged = json.dumps(data).encode() if name == "program.json" else content
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), damaged)
        for command in (["check", str(odd)], ["exec", str(odd), "--json"], ["disasm", str(odd)]):
            status = main(command)
            lines = capsys.readouterr().err.count("\n")
            assert status in (0, 1, 2), f"seed {SEED}, trial {trial}: {command[0]} with {path} = {place[path[-1]]!r}"
            assert lines == 1 if status == 2 else lines <= 1
