"""ELF files are untrusted: whatever is in one, there is an image or a ProgramError."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.targets.cfu.elf_files import tiny
from tests.targets.cfu.running import run
from tilewright.errors import ProgramError
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.runtime import elf
from tilewright.targets.cfu.runtime.elf import Source

BARE = """
int data = 7, zero[10];
__attribute__((naked)) void _start(void) { __asm__("li sp, 0x40100000\\n j go"); }
void go(void) { zero[1] = data; *(volatile int *)0xF0002000 = zero[1]; for (;;); }
"""


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


def test_a_link_with_ttext_alone_gets_options_that_work() -> None:
    """ld and lld put the file's headers before the code at -Ttext: the first segment begins below RAM."""
    image = elf.load(tiny(offset=0, address=RAM_BASE - 84, filesz=104, memsz=104))
    with pytest.raises(
        ProgramError, match=r"headers would be loaded at 0x3fffffac.*-Ttext=0x40000000 -Wl,-N,--no-relax"
    ):
        run(image, Config())


@pytest.mark.riscv
def test_these_options_work(tmp_path: Path) -> None:
    gcc = shutil.which("riscv64-unknown-elf-gcc")
    if gcc is None:
        pytest.skip("needs riscv64-unknown-elf-gcc: other linkers place segments elsewhere")
    (tmp_path / "a.c").write_text(BARE)
    flags = ["-march=rv32im", "-mabi=ilp32", "-nostdlib", "-ffreestanding", "-O1", f"-Ttext={RAM_BASE:#x}"]
    for more, said in (([], "headers would be loaded"), (["-Wl,-N,--no-relax"], "")):
        call = [gcc, *flags, *more, "a.c", "-o", "a.elf"]
        subprocess.run(call, cwd=tmp_path, check=True, capture_output=True)
        image = elf.load(tmp_path / "a.elf")
        if said:
            with pytest.raises(ProgramError, match=said):
                run(image, Config())
        else:
            assert run(image, Config()).exit_code == 7
