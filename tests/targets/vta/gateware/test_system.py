"""The machine as a board sees it: control registers, files, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.hdl.lite import read, write
from tests.targets.vta.streams import BASES, random_case, small
from tilewright.errors import ConfigError
from tilewright.hdl.axi import LITE_ADDRESS_BITS
from tilewright.hdl.build import yosys
from tilewright.hdl.model import Compiled
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import header
from tilewright.targets.vta.gateware.header import WINDOW_BITS
from tilewright.targets.vta.gateware.top import READ, WRITTEN, Vta, VtaSystem, board_files
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import run_passes

CONFIG = small(0, 2)
PAGE = 1 << 16


@pytest.mark.gxx
def test_the_host_launches_by_registers_twice() -> None:
    """Bytes as the machine's; `cycles` when compute ended FINISH, at the second launch too. Offsets are the header's.

    That finds on chip what the first one left, so what it stores is not compared.
    """
    model = Compiled(VtaSystem(CONFIG)).model()
    memory = np.zeros(PAGE + (1 << 12), np.uint8)
    model.attach("bus", memory, CONFIG.dram_latency)
    offset = registers_of_header(CONFIG)
    for seed in (3, 5):  # without races
        case = random_case(np.random.default_rng(seed), CONFIG, 1)
        insns, dram = encode(case.records, CONFIG), Dram([Segment("all", 0, case.dram.copy())])
        passes = run_passes(insns, CONFIG, dram, BASES, 1, RunOptions(timing="tilewright"))
        assert passes.trace is not None
        memory[: case.dram.shape[1]], memory[PAGE:][: insns.size] = case.dram[0], insns.reshape(-1)
        for name, base in BASES.items():
            write(model, offset[f"{name}_base"], base)
        write(model, offset["insn_base"], PAGE)
        write(model, offset["insn_count"], len(insns))
        assert read(model, offset["insn_count"]) == len(insns)
        write(model, offset["control"], 1)
        assert not read(model, offset["status"])
        model.run_until("interrupt", 10_000)
        model.step(200)  # stores that FINISH does not wait for
        assert (read(model, offset["status"]), read(model, offset["cycles"])) == (1, passes.trace.end[-1])
        assert seed != 3 or np.array_equal(memory[: case.dram.shape[1]], dram["all"][0])


def registers_of_header(config: Config) -> dict[str, int]:
    """Name: offset, as a driver that includes the header sees them."""
    found = re.findall(r"^#define VTA_REG_(\w+) +(0x\w+)$", header.text(config), re.MULTILINE)
    return {name.lower(): int(value, 16) for name, value in found if name != "RANGE"}


def test_header_gateware_and_readme_have_one_register_map() -> None:
    made = board_files(CONFIG)
    rows = re.findall(r"^\| (0x\w+) \| (\w+) \| (\S.*?) \|", made["README.md"], re.MULTILINE)
    readme = {name: (int(at, 16), access) for at, name, access in rows}
    gateware = {name: (at, "write, read") for at, name in WRITTEN.items()}
    gateware |= {name: (at, "read") for at, name in READ.items()}
    assert readme == gateware
    assert registers_of_header(CONFIG) == {name: at for name, (at, _) in gateware.items()}
    assert re.search(r"^#define VTA_REG_RANGE +0x1000$", header.text(CONFIG), re.MULTILINE)
    assert WINDOW_BITS == LITE_ADDRESS_BITS
    text = header.text(CONFIG)
    ours, hls = text.split(f"#ifdef {header.HLS_MAP}")
    assert "#define VTA_FETCH" not in ours  # never mixed
    assert re.search(r"VTA_FETCH_INSN_COUNT_OFFSET +16$", hls.split("#endif")[0], re.MULTILINE)


@pytest.mark.parametrize(
    "config", [CONFIG, pytest.param(small(0, 1, stages=4, alu="float"), marks=pytest.mark.slow)], ids=["three", "four"]
)
def test_the_files_of_a_board_are_a_design(config: Config, tmp_path: Any) -> None:
    made = board_files(config)
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    verilog = [name for name in made if name.endswith(".v")]
    assert set(made) == {*verilog, "synth.ys", "vta_axi.xdc", "README.md"}
    assert {"VtaSystem.v", "Vta.v", "LoadUnit.v", "StoreUnit.v", "TokenQueue.v", "vta_axi.v"} <= set(verilog)
    for name in verilog:
        assert re.findall(r"^module (\w+)", made[name], re.MULTILINE) == [name.removesuffix(".v")]
        assert made[name].startswith("// ")
    yosys(f"read_verilog {' '.join(verilog)}; hierarchy -check -top vta_axi; proc; flatten; check -assert", tmp_path)
    for name in (WRITTEN | READ).values():
        assert f"| {name} |" in made["README.md"]
    assert board_files(config) == made


def test_a_machine_without_gateware_is_refused() -> None:
    with pytest.raises(ConfigError, match="semantics=fsim is not supported"):
        Vta(small(0, 2, semantics="fsim"))
