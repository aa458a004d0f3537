"""The area of machines: measured designs, exact counts of blocks, and the error of the fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hdl.cells import resources
from tilewright.errors import ConfigError
from tilewright.hdl.build import to_rtlil, yosys
from tilewright.hdl.memory import BankedMemory, PartedMemory, StreamFifo, Tiles
from tilewright.targets import vta
from tilewright.targets.rams import Ram
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.gateware import area
from tilewright.targets.vta.gateware.top import Vta

PYNQ = PRESETS["pynq"]
POINTS = area.points()
#: A machine that was not measured.
OTHER = replace(
    PYNQ, LOG_BLOCK=3, LOG_INP_BUFF_SIZE=12, LOG_WGT_BUFF_SIZE=14, LOG_ACC_BUFF_SIZE=14, LOG_UOP_BUFF_SIZE=12
)
#: Components with a memory, and the memory.
BUILT: tuple[tuple[Any, Ram], ...] = (
    (BankedMemory(Tiles(32, 64, 128)), Ram("uop", 2, 64, 1, 32)),
    (BankedMemory(Tiles(128, 64, 64)), Ram("inp", 1, 64, 2, 64)),
    (BankedMemory(Tiles(128, 64, 256)), Ram("inp", 1, 256, 2, 64)),
    (BankedMemory(Tiles(16, 64, 512)), Ram("inp", 4, 128, 1, 16)),
    (BankedMemory(Tiles(32, 64, 65536)), Ram("uop", 2, 32768, 1, 32)),
    (BankedMemory(Tiles(64, 64, 16384)), Ram("inp", 1, 16384, 1, 64)),
    (BankedMemory(Tiles(512, 64, 2048), False, True, True), Ram("out", 1, 2048, 1, 512)),
    (PartedMemory(Tiles(128, 64, 512), 4, 2), Ram("acc", 4, 128, 2, 64)),
    (StreamFifo(128, 64), Ram("queue", 1, 64, 1, 128)),
    (StreamFifo(128, 128), Ram("queue", 1, 128, 1, 128)),
    (StreamFifo(128, 1024), Ram("queue", 1, 1024, 1, 128)),
)


def number(point: area.Point) -> str:
    config = point.config
    return f"{config.bitstream}-{config.multipliers}-{config.alu}-{config.stages}-{config.bus_bits}"


@pytest.mark.parametrize("point", POINTS, ids=number)
def test_blocks_are_those_that_yosys_counted(point: area.Point) -> None:
    assert area.total(point.config) == point.cells["DSP"]
    assert area.bram36(point.config) == point.cells["BRAM"]


@pytest.mark.parametrize("point", POINTS, ids=number)
def test_a_measured_machine_has_its_measured_cells(point: area.Point) -> None:
    found = area.area(replace(point.config, TARGET="ultra96", LOG_BUS_WIDTH=point.config.bus_bits.bit_length() - 1))
    assert (found["lut"], found["ff"]) == (point.cells["LUT"], point.cells["FF"])
    assert found["estimate"] == [] and found["error"] == {} and not found["extrapolated"]


def test_the_stated_error_is_that_of_designs_outside_the_fit() -> None:
    model = area.fit()
    for key, name in area.FITTED.items():
        assert (model.weights[key] >= 0).all()
        errors = [
            abs(float(area.terms(point.config) @ model.weights[key]) / point.cells[name] - 1)
            for point in POINTS
            if point.held
        ]
        assert len(errors) >= 2 and model.error[key] == round(max(errors), 3) < 0.2


def test_an_estimate_says_so() -> None:
    found = vta.TARGET.area(OTHER)
    assert (
        found["estimate"] == ["lut", "ff", "area"] and found["error"] == area.fit().error and not found["extrapolated"]
    )
    small, large = (point.cells["LUT"] for point in (POINTS[0], next(p for p in POINTS if p.config.LOG_BLOCK == 3)))
    assert 0.8 * small < found["lut"] < 1.2 * large
    wide = replace(PYNQ, LOG_BATCH=2, LOG_INP_BUFF_SIZE=17, LOG_ACC_BUFF_SIZE=19)
    assert vta.TARGET.area(wide)["extrapolated"] and vta.TARGET.area(wide)["dsp"] == 1032


def test_one_number_stands_for_the_scarcest_cells() -> None:
    """The multiplier blocks of pynq, all 264, are 120 % of the 220 of a Zynq-7020; other machines run out of LUTs."""
    assert area.area(PYNQ)["area"] == 120
    found = area.area(replace(OTHER, multipliers="logic"))
    assert found["area"] == round(found["lut"] / 532, 2) > found["bram36"] / 1.4


def test_a_machine_without_gateware_is_refused() -> None:
    with pytest.raises(ConfigError, match="semantics=fsim is not supported"):
        area.area(replace(PYNQ, semantics="fsim"))
    wide: dict[str, Any] = {"LOG_INP_WIDTH": 4, "LOG_WGT_WIDTH": 4, "LOG_UOP_BUFF_SIZE": 13}
    with pytest.raises(ConfigError, match="do not fit one DSP48"):
        area.area(replace(PYNQ, **wide, multipliers="packed"))


def test_the_memories_are_those_of_the_design() -> None:
    """The bits of all memories, counted without the rule that makes blocks of them."""
    for config in (PYNQ, OTHER, replace(OTHER, stages=4, LOG_ALU_UOP_BUFF_SIZE=10, LOG_BUS_WIDTH=8)):
        bits = sum(ram.number * ram.depth * ram.parts * ram.bits for ram in area.rams(config))
        queues = f"{len(config.pipeline.units)} queues"
        kept = sum(size for name, size in config.storage.items() if name != "token queues")
        assert bits == 8 * kept, queues


@pytest.mark.slow
def test_yosys_makes_as_many_blocks_of_memories(tmp_path: Path) -> None:
    """Memories of many shapes, mapped to blocks only. One to five minutes."""
    script = []
    for index, (component, _) in enumerate(BUILT):
        (tmp_path / f"{index}.il").write_text(to_rtlil(component))
        maps = "synth_xilinx -flatten -top top -run begin:map_ffram"
        script.append(f"design -reset; read_rtlil {index}.il; {maps}; tee -o r{index} stat -json")
    yosys("; ".join(script), tmp_path)
    for index, (_, ram) in enumerate(BUILT):
        text = (tmp_path / f"r{index}").read_text()
        cells = json.loads(text[text.index("{") :])["design"]["num_cells_by_type"]
        assert 2 * cells.get("RAMB36E1", 0) + cells.get("RAMB18E1", 0) == ram.halves, ram


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if point.config.LOG_BLOCK <= 2], ids=number)
def test_yosys_counts_the_measured_cells(point: area.Point) -> None:
    """One to four minutes each."""
    assert resources(to_rtlil(Vta(point.config)), "xc7") == point.cells


def test_every_measured_design_is_a_machine_of_its_own() -> None:
    built: list[Config] = [point.config for point in POINTS]
    assert len(set(built)) == len(built)
