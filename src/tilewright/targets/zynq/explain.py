"""Plans for people."""

from __future__ import annotations
from tilewright.program.program import HostStep, Program
from tilewright.targets.zynq.config import Config


def text(program: Program, config: Config) -> str:
    return "\n"
