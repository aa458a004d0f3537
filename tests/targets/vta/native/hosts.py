"""Hosts in C and C++ for VTA: how tests compile and run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tilewright.targets.vta.config import Config
from tilewright.targets.vta.native.hostlib import library

#: The arguments that upstream's bare-metal test needs, beside those of `build`.
HLS_REGISTERS = ("-DNO_SIM", "-DVTA_DEBUG=0", "-DVTA_TARGET_PYNQ", "-DVTA_UPSTREAM_HLS_REGISTERS")
STRICT = ("-Wall", "-Wextra", "-Werror")


def build(source: Path, folder: Path, config: Config, *more: str, warnings: tuple[str, ...] = STRICT) -> Path:
    """Compile a host for a machine, with warnings as errors; the library is made in `folder`.

    `more` are further arguments of the compiler, such as sources.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
        flags = library(config).flags()
    made = folder / f"{source.stem}-{config.digest()[:8]}"
    compiler = ("cc", "-std=c11") if source.suffix == ".c" else ("g++", "-std=c++11")
    given = [*flags["cflags"], *flags["libs"]]
    subprocess.run([*compiler, *warnings, str(source), *more, *given, "-o", str(made)], check=True)
    return made


def run(host: Path, *words: str, script: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(host), *words],
        input=script,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
