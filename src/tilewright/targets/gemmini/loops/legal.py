"""Checks of a loop's registers: what the unrollers cannot run, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import ProgramError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops.fields import CONV, MATMUL

NAMES = {MATMUL: "LOOP_WS", CONV: "LOOP_CONV_WS"}


def check(unroller: int, registers: Mapping[str, int], command: int, config: Config) -> None:
    """Raise ProgramError if the unroller cannot run a loop with these registers, which `command` starts."""
    where = f"command {command} ({NAMES[unroller]})"
    if unroller == MATMUL:
        _matmul(registers, where, config)


def _matmul(r: Mapping[str, int], where: str, config: Config) -> None:
    dim = config.dim
    for name in "ij" if r["residual"] else "ijk":
        if not r[name]:
            raise ProgramError(where, f"{name.upper()} is 0", "give at least one block")
        if r[f"pad_{name}"] >= dim:
            raise ProgramError(where, f"pad_{name.upper()} is {r[f'pad_{name}']}", f"give at most {dim - 1}")
