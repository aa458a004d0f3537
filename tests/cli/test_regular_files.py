"""Every file that a command reads is a regular one: a pipe that nobody writes to is refused, not waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.conftest import ROOT
from tilewright.cli import main
from tilewright.errors import InputError, ProgramError
from tilewright.files import regular
from tilewright.targets.bm1684x.host.firmware import Firmware
from tilewright.targets.bm1684x.runtime.recording import Recording

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
SECONDS = 20
#: Command lines with the place of the file, FILE, and what its name ends with. OUT is written, FLOAT a float model,
#: DATA its samples.
COMMANDS = {
    "run": ("run FILE -t vta", ".tflite"),
    "run onnx": ("run FILE -t vta", ".onnx"),
    "run -i npz": (f"run {DIGITS} -t vta -i FILE", ".npz"),
    "run -i png": (f"run {DIGITS} -t vta -i FILE", ".png"),
    "run -c": (f"run {DIGITS} -t vta -c FILE", ".json"),
    "run -c cfu": (f"run {DIGITS} -t cfu -c FILE", ".json"),
    "compile": ("compile FILE -t bm1684x -o OUT", ".tflite"),
    "explain": ("explain FILE -t vta", ".onnx"),
    "exec": ("exec FILE", ".twp"),
    "exec elf": ("exec FILE -t cfu", ".elf"),
    "check": ("check FILE", ".twp"),
    "disasm": ("disasm FILE", ".twp"),
    "cosim": ("cosim FILE", ".twp"),
    "asm": ("asm FILE -t vta -o OUT", ".txt"),
    "asm -c": (f"asm {ROOT / 'README.md'} -t vta -c FILE -o OUT", ".json"),
    "targets -c": ("targets vta -c FILE", ".json"),
    "header -c": ("header zynq -c FILE", ".json"),
    "layout -c": ("layout aligned 1,2,3,4 f16 -t bm1684x -c FILE", ".json"),
    "rtl -c": ("rtl vta -c FILE -o OUT", ".json"),
    "conform": ("conform vta FILE", ".npz"),
    "quantize": (f"quantize FILE --calibration {DIGITS}", ".onnx"),
    "quantize --calibration": ("quantize FLOAT --calibration FILE -o OUT", ".npz"),
    "quantize --labels": ("quantize FLOAT --calibration DATA --labels FILE -o OUT", ".npy"),
}


@contextmanager
def no_waiting() -> Iterator[None]:
    """A SIGALRM that ends what still waits after SECONDS."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("still waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def words(tmp_path: Path) -> dict[str, str]:
    """What the capitals in a command stand for."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.quantize.models import residual, samples, save

    model, data = save(tmp_path, residual(), samples())
    return {"FLOAT": model, "DATA": data, "OUT": str(tmp_path / "out")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_is_refused(
    name: str, words: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, suffix = COMMANDS[name]
    pipe = str(tmp_path / f"pipe{suffix}")
    os.mkfifo(pipe)
    with no_waiting():
        status = main([{**words, "FILE": pipe}.get(word, word) for word in command.split()])
    assert (status, capsys.readouterr().err) == (
        2,
        f"tilewright: {pipe}: is not a file but a pipe; save its output to a file, and give that file\n",
    )


@pytest.mark.parametrize("target", ["vta", "bm1684x"])
def test_a_pipe_in_a_folder_is_a_vector_that_fails(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "layout_addresses.npz")
    with no_waiting():
        assert main(["conform", target, str(tmp_path)]) == 1
    assert "is not a file but a pipe" in capsys.readouterr().out


def test_a_pipe_is_refused_by_the_api(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with no_waiting():
        for load in (Recording.load, Firmware.load):
            with pytest.raises(ProgramError, match="is not a file but a pipe"):
                load(pipe)
        with pytest.raises(InputError, match="is not a file but a pipe"):
            Firmware.build([pipe])


def test_what_else_is_no_file_is_named(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    for path, reason in (
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "a device"),
        (link, "No such file"),
        (tmp_path / "file" / "in", "No such file"),
        (tmp_path / "nul\0", "null"),
    ):
        with pytest.raises(InputError, match=f"is not a file.* {reason}"):
            regular(path)
    (tmp_path / "file").write_text("x")
    assert regular(str(link)) == link
