"""ELF files are untrusted: whatever is in one, there is an image or a ProgramError."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.targets.cfu.compiler import compiled
from tests.targets.cfu.elf_files import tiny
from tilewright.errors import ProgramError
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.runtime import elf
from tilewright.targets.cfu.runtime.core import run
from tilewright.targets.cfu.runtime.elf import Source


def test_a_hand_made_file_runs() -> None:
    image = elf.load(tiny())
    assert run(image, Config()).exit_code == 7
    assert Source(image).where(RAM_BASE) == "0x40000000 in ?"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": 62}, "EM_X86_64"), ({"type": 1}, "ET_REL"), ({"filesz": 1 << 30}, "not in the file"),
        ({"offset": 0xFFFFFFF0}, "not in the file"), ({"memsz": 4}, "not in the file"), ({"phnum": 0}, "no executable"),
        ({"flags": 4}, "no executable"), ({"phnum": 65}, "segments"), ({"klass": 2}, "64-bit"),
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


@pytest.mark.riscv
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
