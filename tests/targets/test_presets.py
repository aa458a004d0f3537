"""Configuration files that start from a preset, on every target; VTA's clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilewright as tw
from tilewright import targets
from tilewright.cli import main
from tilewright.errors import ConfigError

DIGITS = "examples/digits/digits.tflite"
#: A preset of each target that is not its first, and a key with another value.
CHANGED = {
    "vta": ("zcu104", "dram_latency", 20),
    "cfu": ("burst", "clock_mhz", 60),
    "zynq": ("literal", "clock_mhz", 150),
    "bm1684x": ("figures", "clock_mhz", 900),
}


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_a_file_starts_from_a_preset(name: str, tmp_path: Path) -> None:
    target = targets.get(name)
    preset, key, value = CHANGED[name]
    (tmp_path / "m.json").write_text(json.dumps({"preset": preset, key: value}))
    made = target.config(str(tmp_path / "m.json"), {})
    assert made.to_dict() == target.config(preset, {key: str(value)}).to_dict()
    assert target.config({"preset": preset}, {}).digest() == target.config(preset, {}).digest()
    with pytest.raises(ConfigError, match=rf"m.json: preset: there is no preset .*did you mean {preset}\?"):
        (tmp_path / "m.json").write_text(json.dumps({"preset": f"{preset}x"}))
        target.config(str(tmp_path / "m.json"), {})


def test_the_clock_of_vta(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for arguments in ([], ["--set", "clock_mhz=200"]):
        assert main(["run", DIGITS, "-t", "vta", "--json", *arguments]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [run["clock_mhz"] for run in found] == [100.0, 200.0]
    assert found[0]["cycles"] == found[1]["cycles"]
    with pytest.raises(ConfigError, match=r"clock_mhz is 0, not an integer in 1..5000"):
        tw.compile(DIGITS, "vta", overrides={"clock_mhz": "0"})


def test_errors_spell_options_as_the_caller_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", DIGITS, "-t", "vtaa"]) == 2
    assert "--target: there is no target 'vtaa'; choose one of" in (said := capsys.readouterr().err)
    assert "(did you mean vta?)" in said
    with pytest.raises(Exception, match=r"^target: there is no target 'vtaa'"):
        tw.compile(DIGITS, "vtaa")
    with pytest.raises(ConfigError, match=r"^config: there is no preset .pynk."):
        tw.compile(DIGITS, "vta", "pynk")
    with pytest.raises(Exception, match=r"^timing: vta has no timing model"):
        tw.compile(DIGITS, "vta", timing="fast")
    with pytest.raises(ConfigError, match="did you mean dram_latency"):
        tw.compile(DIGITS, "vta", overrides={"dram_latencie": "3"})
