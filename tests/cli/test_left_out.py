"""Commands that run the launches of one sample say what they leave out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.bm1684x.networks import Builder
from tilewright import compile as compile_model
from tilewright import conform
from tilewright.cli import main
from tilewright.program import file
from tilewright.program.program import HostStep, Program
from tilewright.targets.gateware import CosimCase

Capture = pytest.CaptureFixture[str]


def program(target: str) -> Program:
    """A network with a launch on each target, and with a step that no target computes."""
    build = Builder(3, (6, 6, 8))
    x = build.conv(build.input, 8)
    return compile_model(build.graph(build.dense(build.mean(build.conv(x, 16)), 5)), target)


@pytest.mark.parametrize("target", ["vta", "zynq", "bm1684x", "gemmini"])
def test_debug_names_other_launches_host_steps_and_samples(
    target: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(target)
    hosts = sum(isinstance(step, HostStep) for step in made.steps)
    file.save(made, path := tmp_path / "a.twp")
    np.save(tmp_path / "x.npy", np.zeros((4, 6, 6, 8), np.int8))
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("where\n"))
        assert main(["debug", str(path), "--script", "-", "-i", str(tmp_path / "x.npy"), *more]) == 0
        captured = capsys.readouterr()
        said = captured.err if more else captured.out
        assert said.count("left out: ") == (len(made.launches) > 1) + (hosts > 0) + 1
        assert (f"{len(made.launches) - 1} other launch" in said) == (len(made.launches) > 1)
        assert (f"left out: {hosts} step" in said) == (hosts > 0)
        assert "the samples 2 to 4" in said


def case(name: str, *differences: str) -> CosimCase:
    return CosimCase(name, 3, 10, 10, len(differences), differences, 5 if differences else None)


@pytest.mark.parametrize(
    ("cases", "options", "expected"),
    [
        ([case("a"), case("b")], [], []),
        ([case("a"), case("b")], ["--wave"], ["is not written: no launch differs; --whole writes the first one"]),
        ([case("a"), case("b", "x"), case("c", "y")], ["--wave"], ["shows the launch b only"]),
        ([case("a"), case("b")], ["--wave", "--whole"], ["shows the launch a only"]),
        ([], ["--wave"], ["nothing was compared: no layer runs on the machine", "is not written: there is no launch"]),
    ],
)
def test_cosim_names_what_it_does_not_compare_or_write(
    cases: list[CosimCase],
    options: list[str],
    expected: list[str],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without RTL: the comparison is replaced."""

    def compared(*given: Any) -> Iterator[CosimCase]:
        yield from cases

    monkeypatch.setattr(conform, "cosim", compared)
    made = program("vta")
    hosts = sum(isinstance(step, HostStep) for step in made.steps)
    file.save(made, path := tmp_path / "a.twp")
    wave = [option if option != "--wave" else f"--wave={tmp_path / 'w.vcd'}" for option in options]
    status = int(any(one.differences for one in cases))
    assert main(["cosim", str(path), *wave]) == status
    text = capsys.readouterr().out
    assert all(line in text for line in expected)
    assert main(["cosim", str(path), *wave, "--json"]) == status
    told: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    assert len(told["left_out"]) == len(expected) + (hosts > 0)
