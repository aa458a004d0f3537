"""A program's text with the machine that it is for: comment lines in front of what the target writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import ProgramError
from tilewright.files import regular
from tilewright.program.program import Program

TARGET, CONFIG = "# target ", "# config "
MAX_BYTES = 1 << 28


def with_machine(program: Program, text: str) -> str:
    """`text` after lines that name the target and the configuration; `#` starts a comment in every target."""
    return f"{TARGET}{program.target}\n{CONFIG}{json.dumps(dict(program.config), sort_keys=True)}\n{text}"


def read(path: str | Path) -> str:
    """The text of a file. Raises ProgramError where it is no text."""
    path = regular(path, ProgramError)
    if path.stat().st_size > MAX_BYTES:
        raise ProgramError(str(path), f"is larger than {MAX_BYTES >> 20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProgramError(str(path), f"is not text: {error.reason} at byte {error.start}") from None


def machine(text: str, where: str) -> tuple[str | None, Mapping[str, Any] | None]:
    """The target and configuration that the leading comment lines of a text name. Raises ProgramError."""
    target, config = None, None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("#"):
            break
        if line.startswith(TARGET):
            target = line.removeprefix(TARGET).strip()
        elif line.startswith(CONFIG):
            try:
                config = json.loads(line.removeprefix(CONFIG))
            except (ValueError, RecursionError) as error:
                raise ProgramError(f"{where}: line {number}", f"the configuration is not JSON: {error}") from None
            if not isinstance(config, dict):
                raise ProgramError(f"{where}: line {number}", "the configuration is not a JSON object")
    return target, config


def assembled(assemble: Callable[[str], Program], text: str, where: str) -> Program:
    """`assemble(text)`, with the file's name in its errors."""
    try:
        return assemble(text)
    except ProgramError as error:
        raise ProgramError(f"{where}: {error.where}", error.reason, error.remedy) from None
