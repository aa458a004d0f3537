"""`tilewright new-target`: what it writes is a target with passing tests, found without an edit elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.mlperf import model_path, samples
from tilewright import contract, targets
from tilewright.cli import main
from tilewright.errors import InputError
from tilewright.run import run as run_program
from tilewright.template import new_target

DIGITS = ROOT / "examples" / "digits"
TEMPLATE = ROOT / "src" / "tilewright" / "template" / "onemac"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `new-target my_npu2` has been called."""
    path = tmp_path_factory.mktemp("new")
    new_target("my_npu2", path)
    return path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m ..` in the folder; only Tilewright itself is on PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_its_own_tests_pass(folder: Path) -> None:
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "tilewright_my_npu2")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d\d passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("machine.py", "exact_matmul(inputs[:, None]", "exact_matmul(inputs[:, None] + 1"),
        ("codegen.py", '("buf", index % 2), ("acc", half)', '("acc", half)'),
        pytest.param("timing.py", "dispatch=1,", "dispatch=2,", marks=pytest.mark.slow),
        pytest.param("isa.py", '("acc", "dram", "count")', '("acc", "dram")', marks=pytest.mark.slow),
        pytest.param("config.py", "Config.presets = PRESETS", "Config.presets = {}", marks=pytest.mark.slow),
    ],
)
def test_its_tests_fail_where_the_machine_is_wrong(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    package = new_target("npu", tmp_path)
    text = (package / name).read_text()
    assert right in text
    (package / name).write_text(text.replace(right, wrong))
    done = run(tmp_path, "pytest", "-q", "-x", "-p", "no:cacheprovider", package.name)
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stdout


def test_a_model_runs_on_it_exactly(folder: Path) -> None:
    command = ["tilewright", "--targets", ".", "run", str(DIGITS / "digits.tflite"), "-t", "my_npu2", "--json"]
    done = run(folder, *command, "-i", str(DIGITS / "samples.npz"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["matches_reference"], summary["hazards"], summary["correct"]) == (True, 0, 99)
    assert {layer["where"] for layer in summary["layers"]} == {"my_npu2", "host"}


def test_an_mlperf_model_equals_its_goldens(folder: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(targets.FOLDERS, str(folder))
    data = samples(shared, "ad")
    result = tw.compile(model_path(shared, "ad"), target="my_npu2").run(data["inputs"][:20])
    assert (result.matches_reference, result.findings) == (True, ())
    (outputs,) = result.outputs.values()
    np.testing.assert_array_equal(outputs.reshape(20, -1), data["golden"][:20])
    assert {layer.where for layer in result.layers} == {"my_npu2"}


def test_it_is_found_by_its_name_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "my_npu2" not in targets.names()
    monkeypatch.setenv(targets.FOLDERS, str(folder))
    assert "my_npu2" in targets.names()
    target = targets.get("my_npu2")
    assert (target.name, type(target).__name__) == ("my_npu2", "MyNpu2")
    assert "MY_NPU2_INSN_OPCODE_0 0" in target.header(target.config("wide", {}))


def test_what_is_wrong_with_a_package_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(targets.FOLDERS, str(tmp_path))
    for name, text in (
        ("empty_one", ""),
        ("misnamed", "from types import SimpleNamespace\nTARGET = SimpleNamespace(name='x')"),
    ):
        (tmp_path / f"tilewright_{name}").mkdir()
        (tmp_path / f"tilewright_{name}" / "__init__.py").write_text(text)
        with pytest.raises(InputError, match=f"tilewright_{name} exports"):
            targets.get(name)
    assert main(["targets"]) == 0  # the others are still listed
    printed, said = capsys.readouterr()
    assert "vta: " in printed
    assert said.count("\n") == 2
    (tmp_path / "tilewright_vta").mkdir()
    (tmp_path / "tilewright_vta" / "__init__.py").touch()
    with pytest.raises(InputError, match=f"rename {tmp_path}/tilewright_vta"):
        targets.get("vta")


def test_nothing_of_the_template_is_left(folder: Path) -> None:
    written = {path.name: path.read_text() for path in (folder / "tilewright_my_npu2").iterdir() if path.is_file()}
    assert {path.name.replace("onemac", "my_npu2") for path in TEMPLATE.iterdir() if path.is_file()} == set(written)
    for name, text in written.items():
        assert not re.search("onemac", text, re.IGNORECASE), name


def test_the_template_is_no_target() -> None:
    assert not {"onemac", "template"} & set(targets.names())


@pytest.mark.parametrize("name", ["", "Npu", "2npu", "my-npu", "class", "../npu", "vta", "npu\n"])
def test_other_names_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-target", "-o", str(tmp_path), "--", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["new-target", "npu", "-o", str(tmp_path / "a" / "b")]
    assert main(arguments) == 0
    assert "python -m pytest tilewright_npu" in capsys.readouterr().out
    config = tmp_path / "a" / "b" / "tilewright_npu" / "config.py"
    config.write_text("mine")
    assert main(arguments) == 2
    assert "already exists, and files are never overwritten" in capsys.readouterr().err
    assert config.read_text() == "mine"


def test_the_command_finds_the_target_in_a_folder_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-target", "npu8", "-o", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    for named in ("", "/", os.pathsep):  # an empty part is not the current folder
        monkeypatch.setenv(targets.FOLDERS, named)
        assert main(["targets", "npu8"]) == 2
        said = capsys.readouterr().err
        assert (said.count("\n"), "--targets DIR" in said) == (1, True)
    monkeypatch.delenv(targets.FOLDERS)
    assert main(["--targets", ".", "targets", "npu8"]) == 0
    assert targets.FOLDERS not in os.environ  # the option holds for one command
    monkeypatch.setenv(targets.FOLDERS, f"/nowhere{os.pathsep}.")
    assert main(["targets", "npu8"]) == 0
    capsys.readouterr()
    assert main(["--targets", "tilewright_npu8", "targets"]) == 2
    assert "has no target" in capsys.readouterr().err


def test_an_installed_target_is_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as pip would install it: the module and its metadata, in a folder of installed packages."""
    package = new_target("npu7", tmp_path)
    described = tomllib.loads((package / "pyproject.toml").read_text())
    assert described["tool"]["setuptools"]["package-dir"] == {"tilewright_npu7": "."}
    ((name, value),) = described["project"]["entry-points"][targets.GROUP].items()
    assert (name, value) == ("npu7", "tilewright_npu7:TARGET")
    metadata = tmp_path / "tilewright_npu7-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: tilewright-npu7\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{targets.GROUP}]\n{name} = {value}\nvta = {value}\nbad = gone:TARGET\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "npu7" not in targets.names()  # on Python's path, but not installed
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    assert "npu7" in targets.names()
    assert targets.get("npu7").name == "npu7"
    assert type(targets.get("vta")).__module__ == "tilewright.targets.vta"  # a package cannot replace a built-in one
    with pytest.raises(InputError, match="gone:TARGET cannot be imported"):
        targets.get("bad")


def test_json_names_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-target", "npu", "-o", str(tmp_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert set(summary["files"]) == {path.name for path in Path(summary["folder"]).iterdir()}
    assert len(summary["next"]) == 2


def test_machines_of_any_size_are_exact(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(targets.FOLDERS, str(folder))
    target = targets.get("my_npu2")
    seed = 5
    rng = np.random.default_rng(seed)
    for _ in range(8):
        keys = {
            "buffer_bytes": str(rng.integers(4, 3000)),
            "accumulators": str(rng.integers(2, 70)),
            "token_depth": str(rng.integers(2, 5)),
            "queue_depth": str(rng.integers(1, 5)),
        }
        result = run_program(target.compile(contract.network(), target.config(None, keys), "tflm"), contract.inputs())
        assert (result.matches_reference, result.findings) == (True, ()), (seed, keys)
