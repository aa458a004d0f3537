"""The files that `tilewright rtl cfu` writes; the written Verilog simulated; the bill against Yosys's counts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.hdl.cells import resources
from tests.hdl.written import from_verilog
from tests.targets.cfu.gateware.sequences import random_commands, run
from tilewright.cli import main
from tilewright.hdl.build import to_rtlil, yosys
from tilewright.hdl.model import Compiled
from tilewright.targets import get
from tilewright.targets.cfu.bill import bill, excess
from tilewright.targets.cfu.config import PRESETS, Config
from tilewright.targets.cfu.gateware.cosim import Compared
from tilewright.targets.cfu.gateware.top import Cfu

SMALL = Config(array=4, transfer="counter", buffer_rows=32, readout="random", start="blocking", srdhm="single")
#: CFU-Playground's CPU-CFU interface, with clock and reset.
PORTS = {
    "cmd_valid", "cmd_ready", "cmd_payload_function_id", "cmd_payload_inputs_0", "cmd_payload_inputs_1",
    "rsp_valid", "rsp_ready", "rsp_payload_outputs_0", "clk", "reset",
}  # fmt: skip


def test_each_module_is_a_file_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rtl", "cfu", "-c", "addressed4", "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    files = {path.stem: path.read_text() for path in tmp_path.glob("*.v")}
    assert {"Cfu", "MatrixUnit", "Sequencer", "BufferA", "SystolicArray", "ProcessingElement"} <= files.keys()
    for name, text in files.items():
        assert text.startswith("// "), name
        assert re.findall(r"^module (\w+)", text, re.MULTILINE) == [name]
        places = set(re.findall(r'src = "([^"]+):\d+"', text))
        assert places and all(place.startswith(("tilewright/", "amaranth/")) for place in places), name
    ports = re.search(r"^module Cfu\((.*?)\);", files["Cfu"], re.MULTILINE)
    assert ports and set(ports[1].split(", ")) == PORTS
    assert (tmp_path / "README.md").read_text().count("| `") == 9  # the document's instructions


def test_the_synthesis_script_reads_all_files(tmp_path: Path) -> None:
    main(["rtl", "cfu", "-c", "addressed4", "-o", str(tmp_path)])
    script = (tmp_path / "synth.ys").read_text().splitlines()
    read = next(line for line in script if line.startswith("read_verilog"))
    assert set(read.split()[1:]) == {path.name for path in tmp_path.glob("*.v")}
    yosys(f"{read}; hierarchy -check -top Cfu; check -assert", tmp_path)


def test_a_machine_that_does_not_fit_its_board_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "91" not in excess(Config()) and excess(Config()) == ""
    assert "178 RAMB36 of 135" in excess(Config(buffer_rows=8192))
    assert "155,118 LUT of 63,400" in excess(Config(array=32))
    assert main(["rtl", "cfu", "--set", "array=4", "--set", "transfer=counter", "--set", "buffer_rows=32768",
                 "-o", str(tmp_path)]) == 0  # fmt: skip
    assert "too many for the xc7a100t" in capsys.readouterr().err
    assert "**This design does not fit its board.**" in (tmp_path / "README.md").read_text()


@pytest.mark.slow
def test_a_preset_with_a_dma_has_a_bus_master_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rtl", "cfu", "-c", "tuned", "-o", str(tmp_path)]) == 0
    assert "348 RAMB36 of 135" in capsys.readouterr().err
    ports = re.search(r"^module Cfu\((.*?)\);", (tmp_path / "Cfu.v").read_text(), re.MULTILINE)
    bus = ("valid", "ready", "address", "bytes", "data_valid", "data", "data_error")
    assert ports and set(ports[1].split(", ")) == PORTS | {f"dma__{name}" for name in bus}
    files = " ".join(path.name for path in tmp_path.glob("*.v"))
    yosys(f"read_verilog {files}; hierarchy -check -top Cfu", tmp_path)


def test_the_written_verilog_is_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = from_verilog(Cfu(SMALL), tmp_path)
    monkeypatch.setattr(Compiled, "of_machine", lambda component, config, engine: written)
    for case in range(5):
        both = Compared(SMALL)
        run(both, random_commands(SMALL, np.random.default_rng([7, case]), 200))
        assert both.differences == [], case


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        Config(array=4, transfer="addressed"),
        Config(array=8, transfer="counter"),
        Config(array=8, transfer="addressed", readout="random", srdhm="single", start="blocking", buffer_rows=64),
        Config(array=4, transfer="counter", readout="random", buffer_rows=512),
    ],
    ids=str,
)
def test_the_bill_is_what_yosys_counts(config: Config) -> None:
    """The published array takes minutes: docs/gateware-cfu.md has its counts."""
    found, counted = bill(config), resources(to_rtlil(Cfu(config)), "xc7")
    assert (found["cfu_dsp"], found["cfu_bram36"]) == (counted["DSP"], counted["BRAM"])
    for key in ("LUT", "FF"):
        assert found[f"cfu_{key.lower()}"] == pytest.approx(counted[key], rel=0.1), key


def test_the_bills_are_those_of_the_page() -> None:
    """Yosys's counts, as in docs/gateware-cfu.md."""
    for config, dsp, bram, lut, ff in (
        (Config(), 236, 87, 8_552, 7_030),
        (Config(transfer="addressed", readout="random", buffer_rows=1024), 236, 22.5, 8_782, 6_850),
        (Config(extensions="dot"), 236, 103, 9_362, 7_204),
        (PRESETS["im2col"], 236, 215, 20_113, 10_084),
        (PRESETS["add"], 236, 215, 22_110, 10_837),
        (PRESETS["pool"], 236, 215, 22_681, 11_083),
        (PRESETS["dma"], 236, 216, 23_054, 11_142),
        (PRESETS["overlap"], 236, 344, 23_038, 11_177),
        (PRESETS["burst"], 236, 216, 22_995, 11_149),
        (PRESETS["add4"], 236, 344, 25_276, 11_424),
        (PRESETS["tuned"], 236, 344, 25_515, 11_426),
    ):
        found = bill(config)
        assert (found["cfu_dsp"], found["cfu_bram36"]) == (dsp, bram)
        assert found["cfu_lut"] == pytest.approx(lut, rel=0.04)
        assert found["cfu_ff"] == pytest.approx(ff, rel=0.05)


def test_targets_tells_the_bill() -> None:
    told = get("cfu").describe(Config())
    assert (told["bram36"], told["dsp_beside_array"], told["products_in_logic"]) == (91, 8, 24)
