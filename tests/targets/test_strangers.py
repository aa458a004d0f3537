"""A file or a folder of a stranger's runs no code: a target is imported only if the user named or installed it.

Each test lies in a folder with packages and modules that leave a mark when they are imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tilewright.cli import main

MARK = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
#: Modules that commands import when they need them; a stranger's folder has files of these names.
LAZY = ("onnx", "numba", "tomllib", "rich", "json", "csv", "multiprocessing", "pandas", "optuna", "resource")
COMMANDS = [
    ["exec", "evil.twp"],
    ["check", "evil.twp"],
    ["disasm", "evil.twp"],
    ["targets"],
    ["targets", "evil"],
    ["debug", "evil.twp", "--script", "/dev/null"],
    ["report", "evil.twr", "--html", "page.html"],
    ["compare", "evil.twr", "evil.twr"],
    ["run", str(DIGITS), "-t", "evil"],
    ["asm", "evil.txt", "-o", "made.twp"],
    ["cosim", "evil.twp"],
    ["conform", "evil", "."],
    ["new-target", "evil2"],
    ["explore", "--resume", "study"],
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program and a run of it, both of the target `evil`."""
    folder = tmp_path_factory.mktemp("made")
    twp, twr = folder / "right.twp", folder / "right.twr"
    assert main(["compile", str(DIGITS), "-t", "vta", "-o", str(twp)]) == 0
    assert main(["exec", str(twp), "--save", str(twr)]) == 0
    for path in (twp, twr):
        evil = folder / f"evil{path.suffix}"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(evil, "w") as new:
            for member in old.namelist():
                data = old.read(member)
                new.writestr(member, data if member.endswith(".npy") else data.replace(b'"vta"', b'"evil"'))
    return folder / "evil.twp", folder / "evil.twr"


@pytest.fixture
def hostile(program: tuple[Path, Path], tmp_path: Path) -> Path:
    """A stranger's folder: a program of the target `evil`, and all that could be taken for this target."""
    for path in program:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "evil.txt").write_text(".target evil\n.code\n")
    package = tmp_path / "tilewright_evil"
    package.mkdir()
    (package / "__init__.py").write_text(MARK)
    for name in LAZY:
        (tmp_path / f"{name}.py").write_text(MARK)
    metadata = tmp_path / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tilewright.targets]\nevil = tilewright_evil:TARGET\n")
    return tmp_path


def marks(folder: Path) -> list[Path]:
    return sorted(folder.rglob("ran"))


def started(folder: Path, command: list[str], path: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**environment, "PYTHONPATH": path}
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_file_names_code_that_runs(arguments: list[str], hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, with the folder on Python's path as PYTHONPATH puts it there."""
    for name in LAZY:
        (hostile / f"{name}.py").unlink()
    monkeypatch.chdir(hostile)
    monkeypatch.syspath_prepend(str(hostile))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    sys.modules.pop("tilewright_evil", None)
    main(arguments)
    assert not marks(hostile)


@pytest.mark.parametrize("path", [str(ROOT / "src"), f"{ROOT / 'src'}{os.pathsep}{{here}}"], ids=["", "PYTHONPATH"])
@pytest.mark.parametrize("how", [["-m", "tilewright"], [str(Path(sys.executable).with_name("tilewright"))]])
def test_no_process_runs_it(how: list[str], path: str, hostile: Path) -> None:
    """`python -m` puts the current folder first on Python's path, and PYTHONPATH may name it."""
    if "{here}" in path:  # then Python itself imports the modules that are there
        for name in LAZY:
            (hostile / f"{name}.py").unlink()
    done = started(hostile, [sys.executable, *how, "exec", "evil.twp"], path.format(here=hostile))
    assert (done.returncode, "there is no target 'evil'" in done.stderr) == (2, True), done.stderr
    assert "--targets DIR" in done.stderr
    done = started(hostile, [sys.executable, *how, "targets", "vta", "--json"], path.format(here=hostile))
    assert json.loads(done.stdout)["targets"][0]["name"] == "vta", done.stderr
    assert not marks(hostile)


def test_no_worker_imports_from_the_current_folder(hostile: Path) -> None:
    command = [
        "explore",
        str(DIGITS),
        "-t",
        "vta",
        "--grid",
        "--vary",
        "LOG_BLOCK=4,5",
        "--workers",
        "2",
        "-o",
        "study",
    ]
    done = started(hostile, [sys.executable, "-m", "tilewright", *command], str(ROOT / "src"))
    assert done.returncode == 0, done.stderr
    assert not marks(hostile)
