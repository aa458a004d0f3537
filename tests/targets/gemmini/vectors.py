"""The golden programs of Gemmini: $TILEWRIGHT_SHARED/gemmini_vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conftest import SHARED
from tilewright.array import Array
from tilewright.targets.gemmini.config import Config

FOLDER = SHARED / "gemmini_vectors"
#: The presets whose RTL was run, by the name of the build in the vectors.
BUILDS = {"both": "default", "wsonly": "wsonly"}
LATENCIES = (16, 100)
#: Groups of programs that use hardware loops.
LOOPS = ("loopws", "loopconv", "loopdw", "loopresadd")


class Run(NamedTuple):
    """What an RTL run recorded."""

    build: str
    latency: int
    config: Config
    accept: Array  # int64 [n]
    times: Array  # int64 [m, 3]: taken, issued, done
    prims: Array | None  # uint64 [m, 3], if the program has loops


def names(*groups: str, config: str = "*") -> list[str]:
    """Return the names of the programs of some groups (all groups if none is given), in alphabetical order."""
    paths = (path for group in groups or ("",) for path in FOLDER.glob(f"{config}__{group}*.npz"))
    return sorted(path.stem for path in paths)


def program(name: str) -> tuple[dict[str, Array], Config]:
    """Return the arrays of a program, and the machine that it is for."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file), Config.read(name.partition("__")[0], {"rtl": "2023"})


def runs(arrays: dict[str, Array]) -> Iterator[Run]:
    """Yield the RTL runs of a program."""
    for build, preset in BUILDS.items():
        for latency in LATENCIES:
            end = f"{build}_{latency}"
            if f"times_{end}" in arrays:
                times, accept = (arrays[f"{kind}_{end}"].astype(np.int64) for kind in ("times", "accept"))
                config = Config.read(preset, {"memory_latency": str(latency), "rtl": "2023"})
                yield Run(build, latency, config, accept, times, arrays.get(f"prim_{end}"))


def parted(programs: list[str], every: int = 6) -> list[Any]:
    """Return the names as parameters of a test, of which all but one in `every` are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * bool(at % every)) for at, name in enumerate(programs)]
