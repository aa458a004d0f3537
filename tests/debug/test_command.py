"""The command `debug`: scripts, pipes, one line for each error, and the hint that findings end with."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.debug.planted import right, wrong
from tests.targets.vta.raw_folders import product
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
    assert lines[1:3] == [
        "left out: 6 other launches, which `launch NAME` opens",
        "left out: 3 steps on the host, which the reference computes",
    ]
    assert lines[3].startswith("#12 conv2d_0, compute, cycles ")
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
    """GDB serves the processor of cfu: the error says so, for networks and for ELF files."""
    model = str(ROOT / "examples" / "digits" / "digits.tflite")
    elf = tmp_path / "kernel.elf"
    elf.write_bytes(b"\x7fELF" + bytes(60))
    for path in (model, str(elf)):
        assert main(["debug", path, "-t", "cfu"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and ".elf -t cfu --gdb PORT" in said
    assert main(["debug", model]) == 2
    assert "--target: is missing" in capsys.readouterr().err


SAMPLES = str(ROOT / "examples" / "digits" / "samples.npz")


@pytest.mark.parametrize("given", ["-t vta", "-t bm1684x --set batch=2", "-t zynq -c fast"])
def test_a_saved_run_opens_its_program(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, name = given.split(), "digits_vgg" if "zynq" in given else "digits"
    model, saved = tmp_path / "model.tflite", str(tmp_path / "run.twr")
    model.write_bytes((ROOT / "examples" / name / f"{name}.tflite").read_bytes())
    script = tmp_path / "commands.txt"
    script.write_text("launches\ndiffers\n")
    assert main(["run", str(model), *options, "-i", SAMPLES, "--save", saved]) == 0
    capsys.readouterr()
    opened = ["debug", saved, "-i", SAMPLES, "--script", str(script)]
    assert main(opened) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "every launch gives the values of the reference"
    assert main([*opened, "-t", "vta"]) == 2
    assert "--target: is not for .twr files" in capsys.readouterr().err
    model.write_bytes(model.read_bytes() + b" ")
    assert main(opened) == 2
    assert "has changed since" in capsys.readouterr().err
    model.unlink()
    assert main(opened) == 2
    assert "is missing" in capsys.readouterr().err


def test_a_run_with_other_plans_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A saved run does not hold the schedule that its options named."""
    model, plans = str(ROOT / "examples" / "digits" / "digits.tflite"), tmp_path / "plans.json"
    assert main(["explain", model, "-t", "vta", "--save-schedule", str(plans)]) == 0
    text = plans.read_text()
    assert '"columns": 22' in text
    plans.write_text(text.replace('"columns": 22', '"columns": 16', 1))
    saved = str(tmp_path / "run.twr")
    assert main(["run", model, "-t", "vta", "--schedule", str(plans), "-i", SAMPLES, "--save", saved]) == 0
    capsys.readouterr()
    assert main(["debug", saved, "--script", str(plans)]) == 2
    assert "was compiled otherwise" in capsys.readouterr().err


def test_a_folder_of_another_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its outputs are compared with those that lie in the folder."""
    product(tmp_path)
    script = tmp_path / "commands.txt"
    script.write_text("differs\nsuspects\n")
    command = ["debug", str(tmp_path), "-t", "vta", "-c", "pynq", "--script", str(script)]
    assert main(command) == 0
    assert "every launch gives the values" in capsys.readouterr().out
    path = tmp_path / "expected_out.bin"
    data = bytearray(path.read_bytes())
    data[17] ^= 1
    path.write_bytes(data)
    assert main(command) == 0
    told = capsys.readouterr().out
    assert f"first dram.out[17]: the byte is {data[17] ^ 1}, not {data[17]}" in told
    assert "was written by #5 store out" in told and "#4 computed 1 of the wrong" in told
    assert main(["debug", str(tmp_path), "-t", "bm1684x"]) == 2
    assert "reads no folders" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["tpu-missing-wait", "tpu-wrong-weights"])
def test_findings_of_the_bm1684x_end_with_the_command(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "wrong.twp")
    file.save(wrong(fault), Path(path))
    assert main(["check", path]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"to look at it: tilewright debug {path} --at ")
    (tmp_path / "none").touch()
    assert main(["debug", *last.split()[6:], "--script", str(tmp_path / "none")]) == 0
    assert f"#{last.split()[-1]} " in capsys.readouterr().out


def test_findings_of_zynq_end_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are about a layer, which is one instruction."""
    model, path = str(ROOT / "examples" / "digits_vgg" / "digits_vgg.tflite"), str(tmp_path / "wrong.twp")
    assert main(["compile", model, "-t", "zynq", "-c", "literal", "--set", "lat_use=0", "-o", path]) == 0
    assert main(["check", path]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"to look at it: tilewright debug {path} --launch conv2d_0"
    script = tmp_path / "commands.txt"
    script.write_text("differs\n")
    assert main(["debug", *last.split()[6:], "--script", str(script)]) == 0
    assert "layer conv2d_0: " in capsys.readouterr().out
