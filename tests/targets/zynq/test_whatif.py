"""The what-if table: figures, bills, bottlenecks, and the design note's cycles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.targets.zynq.machines import whatif
from tilewright.targets.zynq import TARGET
from tilewright.targets.zynq.config import Config

KEYS = {"step", "options", "cycles", "seconds", "gops", "dsp", "bram36", "gops_per_dsp", "bottleneck"}
#: Steps that a double buffer's first and last blocks put further off: the table takes the longer of engine and PS.
FILL_AND_DRAIN = ("3", "4", "5")


def rows(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(whatif.main, ["--json", *arguments])
    assert done.exit_code == 0, done.output
    table: list[dict[str, Any]] = json.loads(done.stdout)
    return table


def test_the_table() -> None:
    """The design note, section 8, to 0.5 %; where blocks have to fill and drain, by the note's own rule."""
    table = rows()
    assert [row["step"] for row in table] == [step.name for step in whatif.STEPS]
    for row, step in zip(table, whatif.STEPS, strict=True):
        assert set(row) == KEYS
        assert row["dsp"] <= 220
        assert row["bram36"] <= 140
        assert row["gops"] == pytest.approx(30.940528640 / row["seconds"])
        cycles = row["cycles"]
        if step.name in FILL_AND_DRAIN:
            assert cycles == pytest.approx(1e6 * step.table, rel=0.016)
            cycles = whatif.least(whatif.vgg16(Config(**step.options)))
        if step.table:
            assert cycles == pytest.approx(1e6 * step.table, rel=0.005), step.name


def test_bottlenecks_are_named() -> None:
    named = {row["step"]: row["bottleneck"].split(" (")[0] for row in rows()}
    assert named["R0"] == named["A"] == named["E"] == named["G"] == "loader"
    assert named["B"] == named["D"] == named["2"] == "PS: data"
    assert named["6"] == named["9"] == "compute unit"


def test_a_design_point_beyond_100_gops() -> None:
    """Within the chip, at 200 MHz, the whole network, and every word that the lanes need loaded."""
    by_step = {row["step"]: row for row in rows()}
    assert by_step["9"]["gops"] > 110
    assert by_step["9"]["options"]["fetch"] == "full"
    assert Config.read("fast", {}) == Config(**by_step["9*"]["options"])
    assert by_step["9*"]["cycles"] == 55_027_906
    assert by_step["9*"]["cycles"] == pytest.approx(by_step["9"]["cycles"], rel=0.01)


def test_text_and_plot(tmp_path: Path) -> None:
    done = CliRunner().invoke(whatif.main, ["--plot", str(tmp_path / "w.svg")])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 1 + len(whatif.STEPS)
    assert (tmp_path / "w.svg").read_text().count("<rect") == 1 + len(whatif.STEPS)


def test_another_network() -> None:
    model = Path(__file__).parents[3] / "examples" / "digits" / "digits.tflite"
    table = rows("--model", str(model))
    assert 0 < table[0]["cycles"] < 10**7


def test_the_change_to_a_preset_names_its_keys() -> None:
    changes = TARGET.changes(Config(), TARGET.timing_models[0])
    (change,) = (change for change in changes if change.text.startswith("the preset fast"))
    changed = {key: str(value) for key, value in change.set.items()}
    assert change.text == f"the preset fast: {', '.join('='.join(item) for item in changed.items())}"
    fast = Config.read("fast", {})
    assert replace(Config.read(Config().to_dict(), changed), clock_mhz=fast.clock_mhz) == fast
