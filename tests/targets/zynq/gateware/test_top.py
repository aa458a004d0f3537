"""The files of a design for a board: their form, and the cells that Yosys counts against the bill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hdl.cells import resources
from tilewright.cli import main
from tilewright.hdl.build import to_rtlil, yosys
from tilewright.targets import get
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.gateware.top import TOP, ZynqSystem

Capture = pytest.CaptureFixture[str]


def test_a_module_per_file_with_a_comment_and_the_python_line(tmp_path: Path, capsys: Capture) -> None:
    assert main(["rtl", "zynq", "-o", str(tmp_path)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    parts = {path.stem: path.read_text() for path in written if path.suffix == ".v"}
    for name, text in parts.items():
        assert re.findall(r"^module (\S+?)\s*\(", text, re.MULTILINE) == [name]
        assert text.startswith("// ")
        assert "// \n" not in text
        if name != TOP:
            assert re.search(r'src = "tilewright/\w', text)
        assert not re.search(r'src = "/', text)
    assert parts["Paging"].startswith("// Requests pages with one frame.")
    assert "output waiting;" in parts["Paging"]
    readme = (tmp_path / "README.md").read_text()
    assert all(f"`{name}.v`" in readme for name in parts)
    assert "$" not in readme
    read = f"read_verilog {' '.join(f'{name}.v' for name in parts)}"
    yosys(f"{read}; hierarchy -check -top {TOP}; proc; flatten; check -assert", tmp_path)


def test_what_cannot_be_built_says_so(capsys: Capture, tmp_path: Path) -> None:
    assert main(["rtl", "zynq", "--set", "banked=1", "-o", str(tmp_path / "rtl")]) != 0
    assert "banked=1 has no gateware: it needs a window buffer" in capsys.readouterr().err
    assert not (tmp_path / "rtl").exists()


@pytest.mark.slow
def test_the_preset_fast_is_written(capsys: Capture, tmp_path: Path) -> None:
    assert main(["rtl", "zynq", "-c", "fast", "-o", str(tmp_path)]) == 0
    parts = {path.stem: path.read_text() for path in tmp_path.glob("*.v")}
    assert {"WindowEngine", "WindowBuffer", "Groups", "Sweep", "Sums", "GroupResults"} <= set(parts)
    read = f"read_verilog {' '.join(f'{name}.v' for name in parts)}"
    yosys(f"{read}; hierarchy -check -top {TOP}", tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert "`JOB`" in readme
    assert "| compute unit (DSP48) | 216 |" in readme


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["repaired", "literal", "literal-hwc", "fast"])
def test_the_bill_is_what_yosys_counts(preset: str) -> None:
    config = Config(**PRESETS[preset])
    cells = resources(to_rtlil(ZynqSystem(config)), "xc7")
    assert cells["DSP"] == config.dsp
    # Yosys also uses parity bits for the lines of data.
    assert cells["BRAM"] == config.bram36 - (4 if config.window else 0)
    assert get("zynq").config(preset, {}) == config
