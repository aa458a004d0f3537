"""The command `debug`: scripts, pipes, one line for each error, and the hint that findings end with."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.debug.planted import right, wrong
from tilewright.cli import main
from tilewright.program import file


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("debug") / "digits.twp"
    file.save(right(), path)
    return str(path)


def test_a_pipe_gets_plain_answers(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("# the store\nwho dram.acc[0]\nquit\nfoo\n"))
    assert main(["debug", program, "--launch", "0", "--at", "12"]) == 0
    captured = capsys.readouterr()
    assert not captured.err
    lines = captured.out.splitlines()
    assert lines[0] == "digits on vta, 7 launches; instructions run in stream order"
    assert lines[1].startswith("#12 conv2d_0, compute, cycles ")
    assert lines[-1].startswith("#9 store: store out")


def test_an_error_in_a_script_names_its_line(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "commands.txt"
    script.write_text("step\n\nto 999\n")
    assert main(["debug", program, "--script", str(script), "--echo"]) == 2
    captured = capsys.readouterr()
    assert captured.err == (
        f"tilewright: {script}, line 3: instruction #999: launch 'conv2d_0' has the instructions 0..26\n"
    )
    assert "(tilewright) step\n" in captured.out
    for options in (["--at", "x"], ["--launch", "9"], ["-t", "vta"], ["--script", "/nowhere"], ["--timing", "foo"]):
        assert main(["debug", program, *options]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_json_is_one_object_a_line(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "commands.txt"
    script.write_text("step 9\nshow acc[0]\nsuspects\n")
    assert main(["debug", program, "--script", str(script), "--json"]) == 0
    answers = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
    assert answers[0]["step"] == 9
    assert len(answers[1][0]) == 16
    assert answers[2] == []


def test_a_finding_ends_with_the_command_that_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "wrong.twp")
    file.save(wrong("overlap"), Path(path))
    samples = str(ROOT / "examples" / "digits" / "samples.npz")
    for command in (["check", path], ["exec", path, "-i", samples]):
        assert main(command) == 1
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"to look at it: tilewright debug {path} --launch conv2d_0 --at 5"
    (tmp_path / "none").touch()
    assert main(["debug", *last.split()[6:], "--script", str(tmp_path / "none")]) == 0


def test_a_program_without_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, made = tmp_path / "d.txt", str(tmp_path / "d.twp")
    source.write_text("load inp y_size=0 pop:compute\nfinish\n")
    assert main(["asm", str(source), "-t", "vta", "-o", made]) == 0
    capsys.readouterr()
    script = tmp_path / "commands.txt"
    script.write_text("where\nunits\nend\nmemories\ntensors\n")
    assert main(["debug", made, "--script", str(script)]) == 0
    assert "waits for a compute->load token that no instruction pushes" in capsys.readouterr().out
    for command in ("differs", "show t0", "cycle 3", "step 5"):
        script.write_text(command)
        status = main(["debug", made, "--script", str(script)])
        assert status == (0 if command == "step 5" else 2)
        assert capsys.readouterr().err.count("\n") == (status > 0)


def test_a_target_without_a_debugger_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(ROOT / "examples" / "digits" / "digits.tflite")
    assert main(["debug", model, "-t", "cfu"]) == 2
    assert "cfu cannot run instruction by instruction" in capsys.readouterr().err
    assert main(["debug", model]) == 2
    assert "--target: is missing" in capsys.readouterr().err
