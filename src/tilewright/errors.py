"""The errors that a user can cause.

Each error has a place (file, op, field or instruction), a reason and a remedy. The command line prints the error as one
line on stderr and exits with status 2. Any other exception that escapes is a bug in Tilewright.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

#: The largest number of characters of a quoted value.
SHOWN = 60
#: The largest number of characters in each part of an error.
LONGEST = 1000
_AT_SHELL = ContextVar("at_shell", default=False)


@contextmanager
def at_shell() -> Iterator[None]:
    """Run a `with` block in which errors name options as on the command line (--option)."""
    token = _AT_SHELL.set(True)
    try:
        yield
    finally:
        _AT_SHELL.reset(token)


def option(shell: str, python: str = "") -> str:
    """Return an option as written in a shell, or in Python: `python`, or if it is empty, `shell` without dashes."""
    return shell if _AT_SHELL.get() else python or shell.lstrip("-")


def printable(text: str) -> str:
    """Replace unprintable characters by question marks, so that an error can print text from a file on one line."""
    return "".join(c if c.isprintable() else "?" for c in text)


def plain(text: str) -> str:
    """Replace unprintable characters by question marks, except for line ends and tabs.

    Tilewright applies this function to all text that it shows. Names in files can contain escape sequences, which
    control a terminal, and characters that change the direction of writing.
    """
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def shortened(text: str, most: int = LONGEST) -> str:
    """Shorten a text to at most `most` characters by omitting its middle."""
    return text if len(text) <= most else f"{text[: most - 105]} ... {text[-100:]}"


def shown(value: object) -> str:
    """Return a value from a file as one short line of JSON, for an error."""
    try:
        text = json.dumps(value, default=repr)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def one_of(name: object, choices: Iterable[object]) -> str:
    """Return the remedy for an unknown `name`: the known names, and a suggestion if one of them is similar."""
    from difflib import get_close_matches

    names = list(map(str, choices))
    close = get_close_matches(str(name)[:SHOWN], names, n=1)
    return f"choose one of {', '.join(names)}" + (f" (did you mean {close[0]}?)" if close else "")


class TilewrightError(Exception):
    """An error in the input: the place `where`, the `reason`, and the `remedy` (may be empty)."""

    def __init__(self, where: str | Path, reason: str, remedy: str = "") -> None:
        super().__init__(str(where), reason, remedy)
        self.where = str(where)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        where, reason, remedy = (shortened(plain(part)) for part in (self.where, self.reason, self.remedy))
        text = f"{where}: {reason}" if where else reason
        return f"{text}; {remedy}" if remedy else text

    def within(self, path: Path) -> Self:
        """Return the same error with the file's `path` in front of the place `where`."""
        where = self.where if str(path) in self.where else f"{path}: {self.where}".removesuffix(": ")
        return type(self)(where, self.reason, self.remedy)


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Add a file's path to the errors of a `with` block."""
    try:
        yield
    except TilewrightError as error:
        raise error.within(path) from None


class ModelError(TilewrightError):
    """A model file that cannot be read: truncated, malformed, out of bounds."""


class UnsupportedError(TilewrightError):
    """A valid model with an operator, type or feature that Tilewright does not support."""


class InputError(TilewrightError):
    """Samples of the wrong shape, type or file format; or a wrong option, file or name."""


class UnwritableError(InputError):
    """A file or folder that cannot be written: a full disk, a missing permission."""


class ConfigError(TilewrightError):
    """An illegal machine configuration. The reason is the rule that the configuration breaks."""


class ProgramError(TilewrightError):
    """An instruction stream, program file or assembly text that cannot be decoded or encoded."""


class MachineError(TilewrightError):
    """A program that the machine cannot run: deadlock, out-of-range access, missing FINISH."""


class HazardError(MachineError):
    """A program whose values are undefined. `findings` are the hazards that stopped the program."""

    def __init__(self, where: str | Path, reason: str, remedy: str = "", findings: tuple[Any, ...] = ()) -> None:
        super().__init__(where, reason, remedy)
        self.findings = findings
