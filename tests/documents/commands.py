"""The command lines of ours in a text, and what they name that does not exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from tilewright import targets
from tilewright.cli import cli
from tilewright.errors import TilewrightError

COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?tilewright (.*)")
#: What ends a command in a shell.
END = {"|", ">", ">>", "&&", ";", "2>", "<", "&"}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each command line of ours in a text."""
    for line in text.replace("\\\n", " ").splitlines():
        if found := COMMAND.match(line.strip()):
            try:
                words = shlex.split(found[1], comments=True)
            except ValueError:  # a quotation that goes on in the next line
                continue
            ends = [number for number, word in enumerate(words) if word in END]
            yield words[: ends[0]] if ends else words


def wrong(words: list[str]) -> str | None:
    """Return what a command line names that does not exist."""
    context, command = click.Context(cli, info_name="tilewright"), None
    current: click.Command = cli
    while isinstance(current, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        if not re.fullmatch(r"[a-z][a-z-]*", name):  # a placeholder
            return None
        command = current.get_command(context, name)
        if command is None:
            return f"there is no command {name}"
        context, current = click.Context(command, info_name=name, parent=context), command
    if command is None:
        return None
    words = [word for word in words if word not in ("...", "[...]")]
    if command.context_settings.get("ignore_unknown_options"):  # `config` takes the name of a target as an option
        words = [word for word in words if word.removeprefix("--") not in targets.names()]
    try:
        values, _, _ = command.make_parser(context).parse_args([word.strip("[]") for word in words])
    except click.UsageError as error:
        return None if "requires an argument" in error.format_message() else error.format_message()
    target, config = values.get("target"), values.get("config")
    if not (isinstance(target, str) and re.fullmatch(r"[a-z0-9]+", target)) or target in OWN:
        return None
    if target not in targets.names():
        return f"there is no target {target}"
    if isinstance(config, str) and re.fullmatch(r"[a-z0-9-]+", config):
        try:
            targets.get(target).config(config, {})
        except TilewrightError as error:
            return str(error)
    return None


#: Targets that a page makes.
OWN = {"npu", "mine", "foo", "dot8"}
