"""Hosts in C with the headers of Gemmini: random shapes, the examples, and a message for each mistake."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tilewright.cli import main

pytestmark = pytest.mark.gxx
HERE = Path(__file__).parent
EXAMPLES = ROOT / "examples" / "gemmini_c"
#: Bodies of `main` that end in one message.
MISTAKES = {
    "gemmini_mvin((elem_t *)0x7f0000000000, 0); gemmini_fence();": "256 bytes at 0x7f0000000000 are not memory",
    "gemmini_mvin(a, BANK_NUM * BANK_ROWS - 3); gemmini_fence();": "reaches row 16396 of spad, which has 16384 rows",
    "return counter_read(0);": "performance counters are not modelled; use read_cycles()",
    "gemmini_preload(0, 1u << 31); gemmini_compute_preloaded(1u << 31, GARBAGE_ADDR); gemmini_fence();": "deadlock",
    "tiled_matmul(16, 16, 16, a, a, NULL, a, 16, 16, 16, 16, 1, 1, 1, 0, 1, 0, 0, 2, 1, 1, 0, 0, 0, 0, 0, WS);": (
        "a tile is larger than the matrices"
    ),
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the library of hosts between the tests of a session."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "gemmini-hosts"))


def execute(capsys: pytest.CaptureFixture[str], source: Path, *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["exec", str(source), "-t", "gemmini", "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def written(folder: Path, body: str) -> Path:
    source = folder / "host.c"
    head = '#include "include/gemmini_testutils.h"\nstatic elem_t a[DIM * DIM];\n'
    source.write_text(f"{head}int main(void) {{ {body} return 0; }}\n", encoding="utf-8")
    return source


@pytest.mark.parametrize("machine", ["default", "dim8", "dim4"])
def test_random_shapes_equal_plain_loops(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(1, 1 << 32)
    status, data = execute(capsys, HERE / "shapes.c", "-c", machine, "-D", f"SEED={seed}u", "-D", "ROUNDS=2")
    assert data["exit_code"] == 0, f"SEED {seed}: {data['output']}"
    assert data["cycles"] > 0
    assert {finding["kind"] for finding in data["findings"]} <= {"race"}, (
        f"SEED {seed}"
    )  # zeros of borders (docs/gemmini.md)
    assert status == bool(data["findings"])


def test_the_example_is_right_and_has_the_cycles_of_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    status, data = execute(capsys, EXAMPLES / "matmul.c")
    assert status == 0
    assert data["output"].splitlines() == [
        "tiled_matmul_auto: 69015 cycles, right",
        "by hand: 144971 cycles, right",
    ]
    assert data["cycles"] == 213_987
    assert [line["commands"] for line in data["lines"]][:2] == [1, 78]


def test_a_race_is_found_with_its_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "race.html"
    status, data = execute(capsys, EXAMPLES / "race.c", "--html", str(page))
    (finding,) = data["findings"]
    source = EXAMPLES / "race.c"
    assert (status, finding["kind"]) == (1, "race")
    assert finding["places"] == f"{source}:14, {source}:15"
    assert f"{source}:14" in page.read_text(encoding="utf-8")


def test_findings_in_hardware_loops_have_the_numbers_of_the_debugger(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zeros of a border overtake data: both commands are primitive ones, of one loop."""
    saved = tmp_path / "first.twp"
    monkeypatch.setenv("TILEWRIGHT_GEMMINI_SAVE", str(saved))
    _, data = execute(capsys, HERE / "shapes.c", "-D", "SEED=1u", "-D", "ROUNDS=1")
    finding = data["findings"][0]
    assert "(of a loop)" in finding["message"]
    assert main(["debug", str(saved), "--at", str(finding["steps"][1]), "--script", str(_script(tmp_path))]) == 0
    assert finding["message"].split("`")[1] in capsys.readouterr().out


def _script(folder: Path) -> Path:
    script = folder / "where.txt"
    script.write_text("where\n", encoding="utf-8")
    return script


def test_a_store_without_a_fence_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    body = "gemmini_config_ld(DIM); gemmini_config_st(DIM); gemmini_mvin(a, 0); gemmini_mvout(a, 0);"
    status, data = execute(capsys, written(tmp_path, body))
    assert (status, data["exit_code"]) == (1, 0)
    assert any("has no fence behind it" in finding["message"] for finding in data["findings"])


@pytest.mark.parametrize("body", MISTAKES)
def test_a_mistake_ends_the_program_with_one_message(
    body: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    body = f"gemmini_config_ex(WS, 0, 0); gemmini_config_ld(DIM); {body}"
    assert main(["exec", str(written(tmp_path, body)), "-t", "gemmini"]) == 1
    told = capfd.readouterr()
    assert MISTAKES[body.partition("gemmini_config_ld(DIM); ")[2]] in told.out + told.err
    assert "exit status 1" in told.out
    assert "Traceback" not in told.err


def test_a_normaliser_is_timed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = written(tmp_path, "gemmini_config_norm(1, 0, 0, 0, 0, 2, 3); gemmini_fence(); return 0;")
    assert main(["exec", str(source), "-t", "gemmini", "--set", "normaliser=1"]) == 0
    assert "no hazards" in capfd.readouterr().out


def test_a_status_and_a_signal_are_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["exec", str(written(tmp_path, "return 3;")), "-t", "gemmini"]) == 1
    assert main(["exec", str(written(tmp_path, "gemmini_flush(0); abort();")), "-t", "gemmini"]) == 1
    out = capfd.readouterr().out
    assert "exit status 3" in out
    assert "ended by signal 6" in out


def test_what_does_not_compile_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["exec", str(written(tmp_path, "gemmini_mvinn(a, 0);")), "-t", "gemmini"]) == 2
    assert "host.c: it does not compile: " in (told := capsys.readouterr().err)
    assert "gemmini_mvinn" in told


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "a C file does not name its target"),
        (["-t", "vta"], "vta runs no C files"),
        (["-t", "gemmini", "--limit", "5"], "is for ELF files only, not for C files"),
        (["-t", "gemmini", "--energy", "horowitz"], "is for program files only, not for C files"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["exec", str(written(tmp_path, "")), *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_host_built_by_hand_reports_and_saves_its_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["config", "--gemmini"]) == 0
    flags, host, saved = shlex.split(capsys.readouterr().out), tmp_path / "race", tmp_path / "race.twp"
    subprocess.run(["cc", str(EXAMPLES / "race.c"), *flags, "-o", str(host)], check=True)
    environment = os.environ | {"TILEWRIGHT_GEMMINI_SAVE": str(saved)}
    done = subprocess.run([str(host)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "equal\n"
    assert "1 hazard" in done.stderr
    assert main(["check", str(saved)]) == 1
    assert "`mvin dram=0x" in capsys.readouterr().out
    assert main(["exec", str(saved)]) == 1
    assert "137" in capsys.readouterr().out  # cycles, as in the host
