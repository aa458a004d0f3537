"""The other commands, and the one line that says what was wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.digits import MODEL, SAMPLES, Capture, Use
from tilewright.cli import main

BAD = {
    "no such command": ["fly"],
    "no such option": ["run", MODEL, "-t", "fake", "--fast"],
    "no target": ["run", MODEL],
    "no model": ["run", "-t", "fake"],
    "missing model": ["run", "missing.tflite", "-t", "fake"],
    "not a model": ["run", __file__, "-t", "fake"],
    "bad set": ["run", MODEL, "-t", "fake", "--set", "clock"],
    "bad key": ["run", MODEL, "-t", "fake", "--set", "clocks=1"],
    "bad preset": ["run", MODEL, "-t", "fake", "-c", "huge"],
    "bad rounding": ["run", MODEL, "-t", "fake", "--rounding", "up"],
    "bad timing": ["run", MODEL, "-t", "fake", "--timing", "exact"],
    "missing samples": ["run", MODEL, "-t", "fake", "-i", "missing.npz"],
    "no such folder": ["run", MODEL, "-t", "fake", "-o", "missing/out.npz"],
    "output is a folder": ["run", MODEL, "-t", "fake", "-o", "."],
    "no output": ["compile", MODEL, "-t", "fake"],
    "not a program": ["exec", SAMPLES],
    "missing program": ["check", "missing.twp"],
    "missing text": ["asm", "missing.txt", "-o", "x.twp"],
    "binary text": ["asm", SAMPLES, "-o", "x.twp"],
    "no vectors": ["conform", "fake", "missing"],
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
def test_bad_usage_or_input_is_one_line_and_status_2(
    use: Use, capsys: Capture, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed, said = capsys.readouterr()
    assert not printed
    assert said.startswith("tilewright: ")
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unknown_target_is_named_with_the_known_ones(capsys: Capture) -> None:
    assert main(["run", MODEL, "-t", "tpu9"]) == 2
    assert "there is no target 'tpu9'; choose one of" in capsys.readouterr().err
    assert main(["run", MODEL, "-t", "vtb"]) == 2
    assert "(did you mean vta?)" in capsys.readouterr().err


def test_check_lists_findings(use: Use, capsys: Capture, tmp_path: Path) -> None:
    program = str(tmp_path / "p.twp")
    assert main(["compile", MODEL, "-t", "fake", "-o", program]) == 0
    capsys.readouterr()
    assert main(["check", program]) == 0
    assert capsys.readouterr().out == "hazards 0\n"
    use("race")
    assert main(["check", program]) == 1
    assert capsys.readouterr().out == "race: load #0 and compute #3 touch inp[0:16]\nhazards 1\n"
    assert main(["check", program, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["steps"] == [0, 3]


def test_explain_shows_every_stage(use: Use, capsys: Capture) -> None:
    assert main(["explain", MODEL, "-t", "fake"]) == 0
    out = capsys.readouterr().out
    for text in ("no exponential on the array", "== graph ==", "== fake program ==", "plans [with brackets]"):
        assert text in out


def test_targets_lists_presets_and_evidence(use: Use, capsys: Capture) -> None:
    assert main(["targets"]) == 0
    out = capsys.readouterr().out
    for text in ("small", "large", "timing model guess: nothing at all", "bus bits: 64"):
        assert text in out
    assert main(["targets", "fake", "-c", "large"]) == 0
    out = capsys.readouterr().out
    assert "large" in out
    assert "small" not in out
    assert main(["targets", "-c", "large"]) == 2
    assert "need a TARGET" in capsys.readouterr().err
    assert main(["targets", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"][0]["presets"]["small"]["macs_per_cycle"] == 256


def test_conform_counts_and_names_failures(use: Use, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("good.npz", "in/fine.npz", "note.txt"):
        (tmp_path / name).touch()
    assert main(["conform", "fake", str(tmp_path), str(tmp_path / "good.npz")]) == 0
    assert capsys.readouterr().out == "passed 2, failed 0\n"
    (tmp_path / "bad.npz").touch()
    (tmp_path / "broken.npz").touch()
    assert main(["conform", "fake", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAILED bad: out[0] is 1, not 2"
    assert lines[1].startswith("FAILED broken: ")
    assert lines[2:] == ["passed 2, failed 2"]
    assert main(["conform", "fake", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["passed"], found["failed"], found["failures"][0]["name"]) == (2, 2, "bad")


def test_a_folder_without_vectors_is_bad_input(use: Use, tmp_path: Path) -> None:
    assert main(["conform", "fake", str(tmp_path)]) == 2


def test_asm_names_file_line_and_column(use: Use, capsys: Capture, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("jump x\n")
    assert main(["asm", str(text), "-o", str(tmp_path / "a.twp")]) == 2
    assert "give -t, or a first line '# target NAME'" in capsys.readouterr().err
    assert main(["asm", str(text), "-o", str(tmp_path / "a.twp"), "-t", "fake"]) == 2
    assert f"{text}: line 1, column 1: found 'jump'; expected step" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tilewright", "run"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tilewright: Missing argument 'MODEL'. (see tilewright run --help)\n"


def test_start_up_imports_nothing_heavy() -> None:
    heavy = "{'numba', 'llvmlite', 'PIL', 'rich', 'tflite', 'perfetto', 'onnx', 'onnxruntime'}"
    code = f"import sys; from tilewright.cli import main; main(['--help']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert "conform" in done.stdout


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m tilewright --help | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141")


def test_explain_takes_a_timing_model(capsys: Capture) -> None:
    """Cycles of the model that `run` uses, or of the one that is named."""
    said = []
    for options in ([], ["--timing", "tilewright"], ["--timing", "hls"]):
        assert main(["explain", MODEL, "-t", "vta", *options]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert "607 cycles (timing model tilewright)" in said[0]
    assert "(timing model hls)" in said[2]
    assert main(["run", MODEL, "-t", "vta", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["cycles"] == 607
    assert main(["explain", MODEL, "-t", "vta", "--timing", "none"]) == 2
    assert "vta has no timing model 'none'; choose one of tilewright" in capsys.readouterr().err
    assert main(["explain", MODEL, "-t", "vta", "--timing", "hls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["timing"] == "hls"
