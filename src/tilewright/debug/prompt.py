"""Run the commands of a session from a script, from a pipe, or from a prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tilewright.debug.session import Session
from tilewright.debug.verbs import BY_NAME, QUIT, completions, obey
from tilewright.errors import ConfigError, TilewrightError, option
from tilewright.files import user_folder, writable
from tilewright.install import hint

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from tilewright.debug.view import View

PROMPT = "(tilewright) "
Say = Callable[[str], None]


def script(session: Session, lines: Iterable[str], name: str, say: Say, as_json: bool, echo: bool) -> None:
    """Run commands, one per line; `#` at the start of a word begins a comment.

    `echo` repeats each command before its answer. Stops at the first command that fails, and raises its error with
    `name` and the line number added.
    """
    for number, line in enumerate(lines, 1):
        command = line.strip()
        if not command or command.startswith("#"):
            continue
        if command in (QUIT, "exit"):
            return
        if echo and not as_json:
            say(f"{PROMPT}{command}")
        try:
            text, value = obey(session, command)
        except TilewrightError as error:
            raise type(error)(f"{name}, line {number}: {error.where}", error.reason, error.remedy) from None
        say(json.dumps({"command": command, "answer": value}) if as_json else text)


def converse(session: Session, say: Say) -> None:
    """Read commands at a prompt until `quit`. Raises ConfigError if prompt_toolkit is not installed."""
    say(session.head)
    say(obey(session, "where")[0])
    last = ""
    for line in _typed(session):
        command = line.strip() or last  # an empty line repeats the last command
        if command in (QUIT, "exit"):
            return
        if not command:
            continue
        last = command
        try:
            say(obey(session, command)[0])
        except TilewrightError as error:
            say(str(error))
        except KeyboardInterrupt:
            say("interrupted")


def view(session: Session) -> View:
    """Return a terminal view of a session. Raises ConfigError if Textual is not installed."""
    try:
        from tilewright.debug.view import View
    except ImportError:
        remedy = f"{hint('debug')}, or {option('leave out --view', 'use no view')}"
        raise ConfigError(option("--view"), "the view needs the package textual", remedy) from None
    return View(session)


def _typed(session: Session) -> Iterator[str]:
    """Yield the lines that the user types. Raises ConfigError if prompt_toolkit is not installed."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
        from prompt_toolkit.history import FileHistory
    except ImportError:
        remedy = f"{hint('debug')}, or {option('give commands by --script or a pipe', 'pass commands')}"
        raise ConfigError("debug", "the prompt needs the package prompt_toolkit", remedy) from None
    folder = writable(user_folder())
    prompt = PromptSession[str](
        PROMPT,
        history=FileHistory(str(folder / "debug_history")),
        completer=completer(session),
        auto_suggest=AutoSuggestFromHistory(),
        complete_while_typing=False,
    )
    while True:
        try:
            yield prompt.prompt()
        except KeyboardInterrupt:
            continue  # as in a shell, Ctrl-C discards the line
        except EOFError:
            return


def completer(session: Session) -> Completer:
    """Return a completer for commands and their arguments. The possible arguments depend on the open launch."""
    from prompt_toolkit.completion import DynamicCompleter, NestedCompleter

    def of_this_launch() -> Completer:
        words = {name: dict.fromkeys(completions(session, name)) or None for name in (*BY_NAME, "help", QUIT)}
        return NestedCompleter.from_nested_dict(words)

    return DynamicCompleter(of_this_launch)


def lines_of(path: str) -> list[str]:
    from tilewright.program.file import read_text

    return (sys.stdin.read() if path == "-" else read_text(path)).splitlines()
