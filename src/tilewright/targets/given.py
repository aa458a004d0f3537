"""What targets check of what they are given: whose configuration it is, for which machine a program was saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from tilewright.array import Array
from tilewright.errors import ConfigError, HazardError, ProgramError
from tilewright.program.program import Launch, Program
from tilewright.targets.base import Config

C = TypeVar("C", bound=Config)


def own(kind: type[C], config: Config, target: str) -> C:
    """The configuration itself, where it is the target's. Raises ConfigError."""
    if not isinstance(config, kind):
        raise ConfigError("config", f"is {type(config).__name__}, not of {target}")
    return config


def made_for(program: Program, config: C) -> C:
    """The configuration that was read from a program. Raises ProgramError where it is not what was saved."""
    if config.digest() != program.digest:
        reason = "its configuration does not have the digest it was saved with"
        raise ProgramError("program", reason, "compile it again")
    return config


@contextmanager
def untrusted(launch: Launch) -> Iterator[None]:
    """A saved launch says itself how its data lies: what does not fit is the file's fault, a ProgramError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        reason = f"its layout does not fit its network or its data: {error}"
        raise ProgramError(f"launch '{launch.name}'", reason, "compile it again") from None


@contextmanager
def named(launch: Launch) -> Iterator[None]:
    """Name the launch in a HazardError and in its findings."""
    try:
        yield
    except HazardError as error:
        found = tuple(finding.inside(launch.name) for finding in error.findings)
        raise HazardError(f"launch '{launch.name}'", error.reason, error.remedy, found) from None


def left_by(program: Program, launch: Launch, left: Mapping[str, Array]) -> dict[str, Array]:
    """What a launch without a network leaves in memory; several launches may use the same names."""
    prefix = f"{launch.name}/" if len(program.launches) > 1 else ""
    return {prefix + name: data for name, data in left.items()}
