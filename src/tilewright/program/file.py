"""The program file `FILE.twp`, an archive (see program/archive.py), and the text form of a program.

Assembly text begins with comment lines that name the machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import ProgramError
from tilewright.fields import parsed
from tilewright.files import regular
from tilewright.program import archive
from tilewright.program.archive import naming
from tilewright.program.program import Program
from tilewright.program.serial import program_from_data, program_to_data

FORMAT = archive.Format("tilewright program", "program.json", "program file", "compile or assemble it again")

MAX_TEXT_BYTES = 1 << 28
_TARGET = "# target "
_CONFIG = "# config "


def save(program: Program, path: str | Path, *, compress: bool = True) -> None:
    """Write a program file completely, or not at all.

    Without `compress`, the file is larger, but writing and reading are several times as fast. Raises ProgramError if
    the file cannot be written, or if `load` would reject it.
    """
    with naming(path):
        data, arrays = program_to_data(program)
        program_from_data(data, arrays)
    archive.write(path, FORMAT, data, arrays, compress)


def load(path: str | Path) -> Program:
    """Read a program and validate its graph. The target checks the digest of the configuration later.

    Raises ProgramError, naming the file, if the file cannot be read or is malformed in any way.
    """
    data, arrays = archive.read(path, FORMAT)
    with naming(path), archive.damage_of(FORMAT):
        return program_from_data(data, arrays)


def with_machine(program: Program, text: str) -> str:
    """Put two comment lines with the target and configuration of a program before `text`."""
    return f"{_TARGET}{program.target}\n{_CONFIG}{json.dumps(dict(program.config), sort_keys=True)}\n{text}"


def read_text(path: str | Path) -> str:
    """Read a text file. Raises ProgramError if the file is larger than MAX_TEXT_BYTES or not UTF-8 text."""
    path = regular(path, ProgramError)
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise ProgramError(str(path), f"is larger than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProgramError(str(path), f"is not text: {error.reason} at byte {error.start}") from None


def machine_of(text: str, where: str) -> tuple[str | None, Mapping[str, Any] | None]:
    """Return the target and the configuration in the first comment lines of a text (None: not named).

    Raises ProgramError if the configuration is not a JSON object.
    """
    target = None
    config = None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("#"):
            break
        if line.startswith(_TARGET):
            target = line.removeprefix(_TARGET).strip()
        elif line.startswith(_CONFIG):
            try:
                config = parsed(line.removeprefix(_CONFIG))
            except ValueError as error:
                raise ProgramError(f"{where}: line {number}", f"the configuration is not JSON: {error}") from None
            if not isinstance(config, dict):
                raise ProgramError(f"{where}: line {number}", "the configuration is not a JSON object")
    return target, config
