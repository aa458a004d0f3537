"""Verilog of the user's engine, given to `cosim`: equal if it is ours, and else the first difference is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.hdl.faults import faulty, selected
from tests.targets.zynq.cases import SHAPES, Case, case
from tests.targets.zynq.gateware.machines import image_of, machine
from tests.targets.zynq.networks import Chain
from tilewright.cli import main
from tilewright.hdl.verilog import UserRtl
from tilewright.program import file
from tilewright.targets import get
from tilewright.targets.gateware import CosimCase
from tilewright.targets.zynq.gateware import cosim
from tilewright.targets.zynq.gateware.top import board_files

pytestmark = pytest.mark.gxx
CONFIG = machine("rows")
#: The modules with faults.
USED = ("Engine.v", "States.v", "Paging.v", "ConvLoader.v", "Results.v")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Verilog that `tilewright rtl zynq` writes, and a program."""
    folder = tmp_path_factory.mktemp("rtl")
    for name, text in board_files(CONFIG).items():
        (folder / name).write_text(text)
    graph = Chain(3, (6, 4, 3)).conv(4).pool().flat().dense(7).graph()
    file.save(get("zynq").compile(graph, CONFIG, "ort"), folder / "program.twp")
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.v"))}


@pytest.mark.parametrize("top", ["zynq_axi", pytest.param("Engine", marks=pytest.mark.slow)])
def test_what_we_emit_is_equal(top: str, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the configured PS, and with one that takes random additional cycles."""
    command = ["cosim", str(written / "program.twp"), "--verilog", str(written), "--top", top, "--json"]
    for seed in ([], ["--memory-seed", "3"]):
        assert main([*command, *seed]) == 0
        launches = json.loads(capsys.readouterr().out)["launches"]
        assert [(one["differences"], one["mismatched_bytes"]) for one in launches] == [([], 0)] * 3
        assert all((one["rtl_cycles"] == one["cycles"]) is (not seed) for one in launches)
    assert main([*command[:-1], "--max-cycles", "50"]) == 1
    said = "  the RTL hangs: interrupt is still 0 after 50 cycles; the last page service was bias block 0 at "
    assert said in capsys.readouterr().out


def ran(given: Case, rtl: UserRtl, number: int) -> tuple[cosim.RtlRun, CosimCase]:
    with selected(number):
        return cosim.run(image_of(given), given.data, rtl), cosim.compare("mutant", image_of(given), given.data, rtl)


def first_difference(sound: cosim.RtlRun, mutant: cosim.RtlRun) -> int | None:
    """The cycle in which two runs of the RTL first differ: in a page service, a result or the end."""
    cycles = list[int]()
    pages = zip(sound.served, sound.moments, mutant.served, mutant.moments, strict=False)
    cycles += [moment for right, at, wrong, moment in pages if (right, at) != (wrong, moment)][:1]
    short = min(len(sound.results), len(mutant.results))
    for place in np.flatnonzero(sound.results[:short] != mutant.results[:short])[:1].tolist():
        block = place // CONFIG.block_bytes("result")
        moved = [
            at for page, at in zip(mutant.served, mutant.moments, strict=True) if page[:2] == (cosim.RESULT, block)
        ]
        cycles.append(moved[0])
    if mutant.stopped or (mutant.cycles, len(mutant.results)) != (sound.cycles, len(sound.results)):
        cycles.append(mutant.cycles)
    return min(cycles, default=None)


@pytest.mark.slow
def test_faults_are_named(written: Path) -> None:
    """20 seeded faults that change a byte or a cycle: the first is named by its cycle."""
    print("seed 1")
    given, files = case(1, CONFIG, **SHAPES["conv_1_1"]), texts(written)
    mutated, told = faulty({name: files[name] for name in USED}, np.random.default_rng(1), 120)
    rtl = UserRtl(files | mutated, "Engine", limit=30_000)
    sound, compared = ran(given, rtl, 0)
    assert compared.differences == ()
    named = 0
    for number, text in enumerate(told, 1):
        mutant, compared = ran(given, rtl, number)
        expected = first_difference(sound, mutant)
        assert compared.first_cycle == expected, text
        assert (compared.differences == ()) is (expected is None), text
        named += expected is not None
        if named == 20:
            break
    assert named == 20
