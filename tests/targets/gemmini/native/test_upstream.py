"""The bare-metal tests of ucb-bar/gemmini-rocc-tests, unchanged. $TILEWRIGHT_GEMMINI_TESTS is a checkout (180c468)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.native.build import program
from tilewright.program.file import load
from tilewright.program.launch_image import LaunchImage
from tilewright.targets.gemmini import TARGET
from tilewright.targets.gemmini.isa.fields import NBYTES, commands
from tilewright.targets.gemmini.native.commands import ADDRESSES, LEAST
from tilewright.targets.gemmini.native.hostlib import library

CHECKOUT = Path(os.environ.get("TILEWRIGHT_GEMMINI_TESTS", "/nowhere"))
SOURCES = sorted((CHECKOUT / "bareMetalC").glob("*.c")) or [Path("none.c")]
pytestmark = [
    pytest.mark.gxx,
    pytest.mark.skipif(not CHECKOUT.is_dir(), reason="needs gemmini-rocc-tests: set TILEWRIGHT_GEMMINI_TESTS"),
]
#: Tests that cannot pass, by the reason (docs/gemmini-c.md).
COUNTERS = {"gemmini_counter", "tiled_matmul_ws_perf"}
STALE = {"transpose_scale"}  # its call of gemmini_extended_config_ex has two arguments too many, for upstream as well


@pytest.fixture(scope="module")
def flags() -> dict[str, list[str]]:
    options = library(TARGET.config(None, {})).flags()
    return {kind: list(words) for kind, words in options.items()}


def built(source: Path, folder: Path, flags: dict[str, list[str]], *more: str) -> Path:
    binary = folder / source.stem
    program(source.name, binary, source, ["-w", "-DBAREMETAL=1", *more, *flags["cflags"]], flags["libs"])
    return binary


def ran(host: Path, saved: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TILEWRIGHT_GEMMINI_SAVE": str(saved)}
    return subprocess.run([str(host)], env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_they_pass(source: Path, tmp_path: Path, flags: dict[str, list[str]]) -> None:
    if source.stem in STALE:
        pytest.skip("does not compile with upstream's own headers")
    done = ran(built(source, tmp_path, flags), tmp_path / "ours.twp")
    if source.stem in COUNTERS:
        assert "performance counters are not modelled" in done.stderr
    else:
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_their_own_header_issues_the_same_commands(source: Path, tmp_path: Path, flags: dict[str, list[str]]) -> None:
    """The functions of our headers choose the tiles of upstream: both record the same commands, addresses apart."""
    if source.stem in STALE | COUNTERS:
        pytest.skip("records no commands")
    theirs = tmp_path / "theirs"
    shutil.copytree(CHECKOUT / "include", theirs / "include")
    header, helpers = theirs / "include" / "gemmini.h", theirs / "include" / "gemmini_testutils.h"
    for file, pattern, replacement in (
        (header, r'asm volatile\("fence"\)', "tw_gemmini_fence(__FILE__, __LINE__)"),
        (helpers, r'asm volatile \("rdcycle.*', "cycles = tw_gemmini_cycles();"),
    ):
        text, count = re.subn(pattern, replacement, file.read_text(encoding="utf-8"))
        assert count == 1
        file.write_text(text, encoding="utf-8")
    streams: list[Array | None] = []
    for name, more in (("ours", []), ("theirs", [f"-I{theirs}", "-DACC_READ_FULL_WIDTH"])):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        ran(built(source, folder, flags, *more), saved := folder / "program.twp")
        streams.append(_masked(saved) if saved.exists() else None)
    ours, upstreams = streams
    assert (ours is None) == (upstreams is None)
    if ours is not None and upstreams is not None:
        np.testing.assert_array_equal(ours, upstreams)


def _masked(saved: Path) -> Array:
    """Return the commands of a program, uint64 [n, 3], each address of DRAM replaced by 1."""
    cmds = commands(LaunchImage.of(load(saved).launches[0], NBYTES).insns).copy()
    for funct, registers in ADDRESSES.items():
        for column in (int(register[-1]) for register in registers):
            rows = (cmds[:, 0] == funct) & (cmds[:, column] >= LEAST)
            cmds[rows, column] = 1
    return cmds
