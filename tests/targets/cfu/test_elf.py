"""ELF files are untrusted: whatever is in one, there is an image or a ProgramError."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.targets.cfu.compiler import compiled
from tilewright.errors import ProgramError
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.rv32 import elf
from tilewright.targets.cfu.rv32.core import run
from tilewright.targets.cfu.rv32.source import Source

RISCV, EXECUTABLE = 243, 2


def tiny(**changes: int) -> bytes:
    """A file of one segment that halts with code 7, built by hand; `changes` to its headers."""
    values = {
        "machine": RISCV, "type": EXECUTABLE, "entry": RAM_BASE, "phoff": 52, "phnum": 1, "offset": 84,
        "address": RAM_BASE, "filesz": 20, "memsz": 20, "flags": 5, "klass": 1,
    } | changes  # fmt: skip
    v = values
    ident = b"\x7fELF" + bytes([v["klass"], 1, 1]) + bytes(9)
    header = struct.pack(
        "<HHIIIIIHHHHHH", v["type"], v["machine"], 1, v["entry"], v["phoff"], 0, 0, 52, 32, v["phnum"], 40, 0, 0
    )
    segment = struct.pack("<8I", 1, v["offset"], v["address"], v["address"], v["filesz"], v["memsz"], v["flags"], 4)
    code = struct.pack("<5I", 0x00700513, 0xF0002FB7, 0x00AFA023, 0x0000006F, 0x13)
    return ident + header + segment + code


def test_a_hand_made_file_runs() -> None:
    image = elf.load(tiny())
    assert run(image, Config()).exit_code == 7
    assert Source(image).where(RAM_BASE) == "0x40000000 in ?"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": 62}, "EM_X86_64"), ({"type": 1}, "ET_REL"), ({"filesz": 1 << 30}, "not in the file"),
        ({"offset": 0xFFFFFFF0}, "not in the file"), ({"memsz": 4}, "not in the file"), ({"phnum": 0}, "no code"),
        ({"flags": 4}, "no code"), ({"phnum": 65}, "segments"), ({"klass": 2}, "64-bit"),
    ],
)  # fmt: skip
def test_damage_is_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(ProgramError, match=rf"(?i){said}"):
        elf.load(tiny(**changes))


@pytest.mark.parametrize("changes", [{"address": 0x1000}, {"address": 0xFFFFFFF0}, {"memsz": 0xFFFFFFF0}])
def test_what_does_not_fit_into_ram_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ProgramError, match="not in RAM"):
        run(elf.load(tiny(**changes)), Config())


def test_an_entry_outside_is_a_trap() -> None:
    trap = run(elf.load(tiny(entry=0x50000000)), Config()).trap
    assert trap is not None and trap.kind == "instruction access fault"


def test_no_file_and_no_elf(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"nothing\.elf: is not a file"):
        elf.load(tmp_path / "nothing.elf")
    for data in (b"", b"\x7fELF", b"MZ" * 100, tiny()[:60]):
        with pytest.raises(ProgramError):
            elf.load(data)


def test_random_damage_gives_an_image_or_an_error(tmp_path: Path) -> None:
    """Bytes of a real file with symbols and lines are changed, mostly in headers; then lines are looked up too."""
    good = compiled(tmp_path, "int main(void) { return 3; }\n").read_bytes()
    rng = np.random.default_rng(5)
    loaded = 0
    for _ in range(300):
        data = bytearray(good[: int(rng.integers(1, len(good)))] if rng.random() < 0.2 else good)
        for _ in range(int(rng.integers(1, 6))):
            where = int(rng.integers(min(len(data), 200))) if rng.random() < 0.4 else int(rng.integers(len(data)))
            data[where] = int(rng.integers(256))
        try:
            image = elf.load(bytes(data))
        except ProgramError:
            continue
        loaded += 1
        Source(image).where(image.entry)
    assert loaded > 20
