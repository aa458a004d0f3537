"""Folders of raw binaries: reading, writing, damaged ones; and those of a checkout of onera/standalone-vta.

$STANDALONE_VTA names the checkout: its examples are run here, its compiler's output too, and its functional simulator
runs what we write. Without it these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.targets.vta.random_graphs import random_graph
from tests.targets.vta.raw_folders import ADDRESSES, PYNQ, product
from tilewright import conform
from tilewright.errors import ProgramError, TilewrightError
from tilewright.model import inputs
from tilewright.program.program import Program
from tilewright.run import differing, run, run_bare
from tilewright.targets.users import Loaded
from tilewright.targets.vta import TARGET, raw

DIGITS = Path("examples/digits/digits.tflite")


def ran(loaded: Loaded) -> list[str]:
    """Run a folder's program and return what is wrong: findings, and outputs that differ."""
    result = run_bare(loaded.program, expected=loaded.expected, findings=loaded.findings)
    return [*map(str, result.findings), *differing(result.outputs, loaded.expected)]


def test_a_folder_gives_the_bytes_that_numpy_computes(tmp_path: Path) -> None:
    loaded = raw.read(product(tmp_path), PYNQ)
    assert set(loaded.expected) == {"out"} and loaded.expected["out"].size == 64
    assert ran(loaded) == []


def test_a_wrong_byte_is_named(tmp_path: Path) -> None:
    path = product(tmp_path) / "expected_out.bin"
    data = bytearray(path.read_bytes())
    data[17] ^= 1
    path.write_bytes(data)
    (said,) = ran(raw.read(tmp_path, PYNQ))
    assert said == f"1 of 64 bytes of out differ; byte 17 is {data[17] ^ 1}, not {data[17]}"


def test_addresses_in_bytes_and_unknown_ones(tmp_path: Path) -> None:
    (product(tmp_path) / "memory_addresses.csv").write_text("inp,0x0\nwgt,0x0\nout,0x0\nuop,0x5000\nacc,0x3000\n")
    assert ran(raw.read(tmp_path, PYNQ)) == []


def test_bytes_after_the_end_of_a_file_are_a_finding(tmp_path: Path) -> None:
    path = product(tmp_path) / "input.bin"
    path.write_bytes(path.read_bytes()[:48])
    (finding,) = raw.read(tmp_path, PYNQ).findings
    assert (finding.low, finding.high) == (0x1030, 0x1040)
    path.write_bytes(b"")
    with pytest.raises(Exception, match="not inside one segment"):
        run_bare(raw.read(tmp_path, PYNQ).program)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("instructions.bin", b"", "has 0 bytes, not a multiple of 16"),
        ("instructions.bin", b"\0" * 17, "has 17 bytes, not a multiple of 16"),
        ("instructions.bin", b"\xff" * 16, "unknown opcode"),
        ("memory_addresses.csv", b"INP,0x1000,0x100\n", "has no line for WGT"),
        ("memory_addresses.csv", b"INP,here\n", "line 1: is 'INP,here'"),
        ("memory_addresses.csv", b"INP\n", "line 1: is 'INP'"),
        ("memory_addresses.csv", ADDRESSES.replace("0x20\n", "0x10\n").encode(), "overlaps"),
        ("memory_addresses.csv", ADDRESSES.replace("0x100\n", "0xffffffffff\n").encode(), "segment 'inp'.address: is"),
        ("memory_addresses.csv", b"INP,-0x1000\n", "line 1: is 'INP,-0x1000'"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (product(tmp_path) / name).write_bytes(content)
    with pytest.raises(Exception, match=message) as refused:
        run_bare(raw.read(tmp_path, PYNQ).program)
    assert isinstance(refused.value, TilewrightError)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (product(tmp_path) / "memory_addresses.csv").unlink()
    with pytest.raises(ProgramError, match=r"memory_addresses\.csv.*No such file"):
        raw.read(tmp_path, PYNQ)
    with pytest.raises(ProgramError, match=r"has no instructions\*\.bin"):
        raw.read(tmp_path / "..", PYNQ)


def written(program: Program, folder: Path) -> Loaded:
    """Write a program with a random sample, and read it back."""
    assert program.graph is not None
    conform.dump(program, inputs.random(program.graph).values, folder)
    return raw.read(folder, TARGET.config(program.config, {}))


def test_what_is_written_reads_back_with_the_same_cycles(tmp_path: Path) -> None:
    for seed in range(3):
        graph = random_graph(np.random.default_rng(seed))
        program = TARGET.compile(graph, PYNQ, "tflm")
        if not program.launches:
            continue
        again = written(program, tmp_path / str(seed))
        assert ran(again) == [], f"seed {seed}"
        cycles = run(program, inputs.random(graph).values).cycles
        assert run_bare(again.program).cycles == cycles, f"seed {seed}"


def test_extensions_do_not_fit_the_form(tmp_path: Path) -> None:
    program = TARGET.compile(random_graph(np.random.default_rng(0)), TARGET.config("pynq", {"alu": "fused"}), "tflm")
    with pytest.raises(ProgramError, match="compile it with alu=upstream"):
        written(program, tmp_path)


@pytest.fixture
def checkout() -> Path:
    named = os.environ.get("STANDALONE_VTA")
    if not named:
        pytest.skip("set STANDALONE_VTA to a checkout of onera/standalone-vta")
    return Path(named)


def test_examples_of_standalone_vta(checkout: Path) -> None:
    resources = checkout / "src/simulators/cycle_accurate_simulator/src/test/resources/examples_compute"
    folders = sorted(path.parent for path in resources.glob("*/instructions.bin"))
    assert len(folders) == 10
    said = {folder.name: ran(raw.read(folder, PYNQ)) for folder in folders}
    incomplete = {name: len(found) for name, found in said.items() if found}
    assert incomplete == {"32x32": 1, "32x32_relu": 1, "smm": 1}
    assert all("uninitialised" in found[0] for found in said.values() if found)


@pytest.mark.parametrize("layer", range(1, 6))
def test_layers_by_the_compiler_of_standalone_vta(checkout: Path, layer: int, tmp_path: Path) -> None:
    root = tmp_path / "standalone"
    shutil.copytree(checkout / "src/compiler", root / "src/compiler")
    (root / ".git").mkdir()
    (root / "compiler_output").mkdir()
    source = checkout / f"examples/matrix_operations/lenet5/lenet5_layer{layer}.json"
    files = (root / "src/compiler/vta_compiler/main_vta_compiler.py", source, checkout / "config/vta_config.json")
    subprocess.run([sys.executable, *map(str, files), "False"], check=True, capture_output=True)
    assert ran(raw.read(root / "compiler_output", PYNQ)) == []


def test_the_simulator_of_standalone_vta_runs_what_is_written(checkout: Path, tmp_path: Path) -> None:
    from tilewright.model import load

    simulator = checkout / "src/simulators/functional_simulator/build/functional_simulator"
    if not simulator.exists():
        pytest.skip("run `make` in src/simulators/functional_simulator of the checkout")
    written(TARGET.compile(load(DIGITS), PYNQ, "tflm"), tmp_path)
    work = tmp_path / "a/b/c"
    work.mkdir(parents=True)
    (tmp_path / "compiler_output").mkdir()
    ends = sorted(path.stem.removeprefix("instructions") for path in tmp_path.glob("instructions*.bin"))
    assert len(ends) > 1
    for end in ends:
        for path in tmp_path.glob(f"*{end}.bin"):
            shutil.copy(path, tmp_path / "compiler_output" / f"{path.stem.removesuffix(end)}.bin")
        assert simulated(simulator, work) == 0, end
        wrong = tmp_path / "compiler_output/expected_out.bin"
        wrong.write_bytes(bytes([wrong.read_bytes()[0] ^ 1]) + wrong.read_bytes()[1:])
        assert simulated(simulator, work) == 1, end


def simulated(simulator: Path, folder: Path) -> int:
    """Run standalone-vta's simulator in a folder; return its status, which is 1 if the output is not the expected."""
    return subprocess.run([simulator], cwd=folder, capture_output=True, check=False).returncode


def test_a_target_without_folders_writes_nothing(tmp_path: Path) -> None:
    from tilewright.cli import main

    output, raw = tmp_path / "digits.twp", tmp_path / "raw"
    assert main(["compile", str(DIGITS), "-t", "bm1684x", "-o", str(output), "--raw", str(raw)]) == 2
    assert not output.exists() and not raw.exists()
