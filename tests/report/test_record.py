"""Saved runs: there and back, equal to --json, and one error for a file that is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.report.runs import LAUNCH, RUN, result, summed
from tilewright import targets
from tilewright.cli import main
from tilewright.errors import ProgramError
from tilewright.model import inputs
from tilewright.report import record

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
SEED = 20


@pytest.fixture(scope="module")
def made() -> record.Record:
    return record.of(summed(RUN, "1 sample", 100.0))


def equal(a: record.Record, b: record.Record) -> bool:
    same = a.arrays.keys() == b.arrays.keys() and json.dumps(a.run) == json.dumps(b.run)
    return same and all(np.array_equal(a.arrays[key], b.arrays[key]) for key in a.arrays)


@pytest.mark.parametrize("target", targets.names())
def test_a_run_is_what_it_was(target: str, tmp_path: Path) -> None:
    program = tw.compile(DIGITS, target)
    result = program.run(inputs.random(tw.load(DIGITS)).values)
    kept = record.of(summed(result, "random", 100.0), record.Origin("a", "b", "c"))
    record.save(kept, tmp_path / "a.twr")
    assert equal(record.load(tmp_path / "a.twr"), kept)
    launches = kept.run["launches"]
    assert sum(launch["cycles"] for launch in launches) == result.cycles
    assert [launch["name"] for launch in launches] == list(result.trace)
    for index, trace in enumerate(result.trace.values()):
        columns = dict(zip(record.COLUMNS, kept.arrays[f"steps/{index}"], strict=True))
        np.testing.assert_array_equal(columns["start"], trace.start)
        texts = [launches[index]["texts"][text] for text in columns["text"]]
        assert texts == [trace.table.describe(step) for step in range(len(trace.table))]


def test_the_page_of_a_saved_run_is_that_of_the_run(tmp_path: Path) -> None:
    html, saved, again = (str(tmp_path / name) for name in ("a.html", "a.twr", "b.html"))
    assert main(["run", DIGITS, "-t", "vta", "--html", html, "--save", saved, "--no-what-if"]) == 0
    assert main(["report", saved, "-o", again]) == 0
    assert Path(html).read_bytes() == Path(again).read_bytes()
    assert f"run {DIGITS} -t vta" in Path(html).read_text()


def changed(made: record.Record, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> record.Record:
    run, arrays = json.loads(json.dumps(made.run)), {key: array.copy() for key, array in made.arrays.items()}
    change(run, arrays)
    return record.Record(run, arrays)


def put(array: Any, place: Any, value: Any) -> None:
    array[place] = value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run, arrays: run.pop("title"), "run: lacks 'title'"),
        (lambda run, arrays: run.update(clock_mhz="fast"), 'run.clock_mhz: is "fast", not a number'),
        (lambda run, arrays: run["summary"].update(layers=3), "summary.layers: is 3, not a list"),
        (lambda run, arrays: run["summary"].pop("cycles"), "summary: lacks 'cycles'"),
        (lambda run, arrays: run["summary"].update(causes=[]), "summary.causes: is \\[\\], not an object"),
        (lambda run, arrays: run["summary"]["layers"][0].update(macs=-4), r"summary.layers\[0\].macs: is -4"),
        (
            lambda run, arrays: run["summary"]["layers"][0].update(causes={"a": 0}),
            r"summary.layers\[0\].causes.a: is 0",
        ),
        (lambda run, arrays: run["summary"].update(whatifs=[{"change": 1}]), r"summary.whatifs\[0\]: lacks 'cycles'"),
        (lambda run, arrays: run["launches"][0].update(layers=9), r"launches\[0\]: names layers that are not among"),
        (lambda run, arrays: run["launches"][0].pop("texts"), r"launches\[0\]: lacks 'texts'"),
        (lambda run, arrays: arrays.pop("path/0"), "path/0: is missing"),
        (lambda run, arrays: arrays.update({"extra/0": np.zeros((3, 0), np.int64)}), "holds the array 'extra/0'"),
        (lambda run, arrays: put(arrays["steps/0"], (0, 0), 99), "launch 0: has a value of 'unit' that is not in 0.."),
        (lambda run, arrays: put(arrays["steps/0"], (2, 0), -1), "launch 0: has a value of 'start'"),
        (lambda run, arrays: put(arrays["steps/0"], (7, 0), 99), "launch 0: has a value of 'text'"),
        (lambda run, arrays: put(arrays["chart/0"], (0, 0), 1), "launch 0: has a value of 'chart' that is not in 0..0"),
        (lambda run, arrays: put(arrays["chart/0"], (4, 0), 51), "launch 0: has a value of 'chart' that is not in"),
        (lambda run, arrays: arrays.pop("chart/0"), "chart/0: is missing"),
        (lambda run, arrays: run["launches"][0]["chart"].pop("rows"), r"launches\[0\].chart: lacks 'rows'"),
        (
            lambda run, arrays: put(run["launches"][0]["chart"]["kinds"][0], 2, "dotted"),
            r"launches\[0\].chart: has a kind 'page #'",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    change: Callable[[dict[str, Any], dict[str, Any]], Any], said: str, made: record.Record, tmp_path: Path
) -> None:
    record.save(changed(made, change), tmp_path / "a.twr")
    with pytest.raises(ProgramError, match=rf"a\.twr: {said}"):
        record.load(tmp_path / "a.twr")


def test_random_damage_is_refused_or_read(made: record.Record, tmp_path: Path) -> None:
    record.save(made, tmp_path / "a.twr")
    content, rng = (tmp_path / "a.twr").read_bytes(), np.random.default_rng(SEED)
    refused = 0
    for trial in range(100):
        damaged = bytearray(content[: int(rng.integers(1, len(content)))] if trial % 4 == 0 else content)
        for at in rng.integers(0, len(damaged), 3).tolist():
            damaged[at] = int(rng.integers(256))
        (tmp_path / "b.twr").write_bytes(damaged)
        try:
            record.load(tmp_path / "b.twr")
        except ProgramError as error:
            assert str(error).startswith(str(tmp_path / "b.twr")), f"seed {SEED}, trial {trial}"
            refused += 1
    assert refused > 80, f"seed {SEED}"


def test_a_program_is_no_saved_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, page = str(tmp_path / "a.twp"), str(tmp_path / "a.html")
    assert main(["compile", DIGITS, "-t", "vta", "-o", program]) == 0
    assert main(["report", program, "-o", page]) == 2
    assert "a.twp" in (said := capsys.readouterr().err) and "run --save" in said
    assert not Path(page).exists()


def test_many_steps_are_told_by_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "DESCRIBED", 1)
    kept = record.of(summed(result(replace(LAUNCH, name="many")), "1 sample", 100.0))
    assert kept.run["launches"][0]["texts"] == list(LAUNCH.trace.kinds()[0] if LAUNCH.trace else ())


def test_odd_values_of_a_saved_run_give_one_line_or_a_page(
    made: record.Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any one value of the JSON object replaced: `report` and `compare` write their page or one line of error."""
    saved, page, good = str(tmp_path / "a.twr"), str(tmp_path / "a.html"), str(tmp_path / "good.twr")
    record.save(made, good)
    odds: tuple[Any, ...] = (None, -1, "<b>", [], {}, 1 << 70)
    for number, way in enumerate(ways(made.run)):
        for odd in odds[number % 3 :: 3]:
            run = json.loads(json.dumps(made.run))
            place = run
            for key in way[:-1]:
                place = place[key]
            place[way[-1]] = odd
            record.save(record.Record(run, made.arrays), saved)
            for command in (["report", saved, "-o", page], ["compare", good, saved, "--html", page]):
                status, said = main(command), capsys.readouterr().err
                assert (status, said.count("\n")) in ((0, 0), (2, 1)), f"{way} = {odd!r}: {said}"


def ways(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON object, in lists to the first two."""
    items = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for key, value in items:
        yield (*way, key)
        yield from ways(value, (*way, key))
