"""Prints what commands say. Only printable characters are printed: names in files can have escape sequences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from tilewright.errors import plain


def answer(as_json: bool, told: Mapping[str, Any], *lines: str) -> None:
    """Print the answer of a command: one JSON object, or lines of text."""
    if as_json:
        say_json(told)
        return
    for line in lines:
        say(line)


def say(text: object = "", err: bool = False) -> None:
    """Print text on stdout or stderr."""
    click.echo(plain(str(text)), err=err)


def say_json(told: object) -> None:
    """Print one JSON object, in which all but printable ASCII is escaped."""
    click.echo(json.dumps(told).replace("\x7f", "\\u007f"))
