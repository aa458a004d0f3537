"""`tilewright exec FILE.elf`: text, JSON, profile, and status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.targets.cfu.elf_files import file_of, tiny
from tilewright.cli import main
from tilewright.targets.base import TimingModel
from tilewright.targets.cfu import TARGET


def test_json_and_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, profile = tmp_path / "a.elf", tmp_path / "p.json"
    path.write_bytes(tiny())
    status = main(["exec", str(path), "-t", "cfu", "--json", "--profile", str(profile), "--set", "clock_mhz=100"])
    found = json.loads(capsys.readouterr().out)
    assert status == 1  # the program ends with code 7
    assert (found["exit_code"], found["trap"], found["findings"]) == (7, None, [])
    assert found["microseconds"] == found["cycles"] / 100 and found["instructions"] == 3
    assert found["evidence"] and found["timing"] == "sourced"
    assert json.loads(profile.read_text())["profiles"][0]["endValue"] == found["cycles"]


def test_an_endless_loop_meets_a_limit_that_can_be_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(file_of([0x0000006F]))  # jumps to itself
    monkeypatch.setattr("tilewright.targets.cfu.runtime.execute.EXEC_INSTRUCTIONS", 5000)
    for arguments, count in (([], 5000), (["--limit", "100"], 100)):
        assert main(["exec", str(path), "-t", "cfu", *arguments]) == 1
        out = capsys.readouterr().out
        assert f"trap: limit of {count} instructions at " in out
        assert "; if it should run longer, give --limit N" in out
        assert f"{count:,} instructions" in out


def test_a_fitted_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(tiny())
    main(["exec", str(path), "-t", "cfu", "--timing", "fitted"])
    assert "fitted to the seven published times" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--target"), (["-t", "vta"], "no processor"), (["-t", "cfu", "-i", "x.npz"], "--input"),
        (["-t", "cfu", "--timing", "guess"], "no timing model"), (["-t", "cfu", "--set", "rows=1"], "unknown key"),
        (["-t", "cfu", "--set", "transfer=fast"], "choose one of addressed"), (["-t", "cfu", "-c", "big"], "published"),
    ],
)  # fmt: skip
def test_bad_usage(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(tiny())
    assert main(["exec", str(path), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_options_for_elf_files_are_refused_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.twp"
    path.write_bytes(b"no program")
    assert main(["exec", str(path), "-t", "cfu"]) == 2
    assert "--target" in capsys.readouterr().err


def test_every_timing_model_says_what_it_rests_on() -> None:
    assert all(isinstance(model, TimingModel) and model.evidence for model in TARGET.timing_models)


def test_a_page_a_timeline_and_a_saved_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(tiny())
    page, trace, kept = (tmp_path / name for name in ("p.html", "t.json", "r.twr"))
    assert (
        main(
            ["exec", str(path), "-t", "cfu", "--json", "--html", str(page), "--trace", str(trace), "--save", str(kept)]
        )
        == 1
    )
    found = json.loads(capsys.readouterr().out)
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(event.get("args", {}).get("cycles") == found["cycles"] for event in events)
    assert "outside of regions" in page.read_text()
    assert main(["report", str(kept), "-o", str(tmp_path / "again.html")]) == 0
    assert main(["exec", str(path), "-t", "cfu", "--trace", str(tmp_path / "t.foo")]) == 2
    assert "t.foo would not be a .foo file; name it t.pftrace or t.json" in capsys.readouterr().err
