"""The commands of a session: one table for the prompt, for scripts, for completion and for help.

A command reads its arguments from words, and calls the session; debug/text.py prints the answer.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.debug import text
from tilewright.debug.places import place
from tilewright.debug.records import Access, Stop
from tilewright.debug.session import Session
from tilewright.errors import InputError, plain
from tilewright.sim.walk import Range, Scratchpad

#: The answer of a command: text for people, and JSON values.
Answer = tuple[str, Any]
QUIT = "quit"
#: The number of instructions that `list` shows.
LINES = 10


class Words:
    """The arguments of a command. Each method reads the next argument. Raises InputError for a wrong argument."""

    def __init__(self, verb: Verb, words: Sequence[str]) -> None:
        self._verb = verb
        self._left = list(words)

    def word(self) -> str:
        if not self._left:
            raise self.wrong("an argument is missing")
        return self._left.pop(0)

    def number(self, default: int | None = None) -> int:
        if not self._left and default is not None:
            return default
        word = self.word()
        try:
            return int(word.removeprefix("#"), 0)
        except ValueError:
            raise self.wrong(f"'{word}' is not a number") from None

    def maybe(self) -> int | None:
        return self.number() if self._left else None

    def rest(self) -> str:
        words = self._left
        self._left = []
        if not words:
            raise self.wrong("an argument is missing")
        return " ".join(words)

    def flag(self, *names: str) -> str:
        """Remove and return the last word if it is one of `names`, else return ""."""
        return self._left.pop() if self._left and self._left[-1] in names else ""

    def end(self) -> None:
        if self._left:
            raise self.wrong(f"has too many arguments: '{' '.join(self._left)}'")

    def wrong(self, reason: str) -> InputError:
        return InputError(self._verb.names[0], reason, f"write `{self._verb.usage}`")


class Parameter(NamedTuple):
    """A parameter of a command: its name in the usage, the function that reads its value, and its completions."""

    form: str
    read: Callable[[Words], Any]
    completions: Callable[[Session], Iterable[str]] = lambda session: ()


@dataclass(frozen=True)
class Verb:
    """A command: its group, names, arguments and help. `answer` calls the session, and `text` makes the text.

    `text` gets the session, the answer and the arguments. If `text` is None, `render` makes the text of the answer.
    """

    group: str
    names: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    help: str
    answer: Callable[..., Any]
    text: Callable[..., str | Iterable[str]] | None = None

    @property
    def usage(self) -> str:
        return " ".join([self.names[0], *(parameter.form for parameter in self.parameters)])


def _break_argument(words: Words) -> int | str:
    where = words.rest()
    if where.startswith("when "):
        return where.removeprefix("when ")
    if where.startswith("layer "):
        return f"layer == {where.removeprefix('layer ').strip()!r}"
    try:
        return int(where.removeprefix("#"), 0)
    except ValueError:
        raise words.wrong(f"'{where}' is neither a number nor a condition") from None


def _watch_arguments(words: Words) -> tuple[str, str]:
    where, _, condition = words.rest().partition(" if ")
    return where.strip(), condition.strip()


def _show_arguments(words: Words) -> tuple[str, str]:
    """Return the arguments of `show`: the place, and the number format: "" (codes), "hex" or "real"."""
    form = words.flag("hex", "real")
    return words.rest(), form


def _places(session: Session) -> list[str]:
    walk = session.walk
    tensors = (f"t{number}" for number in range(len(walk.tensors)))
    return [*walk.memories, *(f"dram.{part.name}" for part in walk.segments), *tensors]


def count(default: int | None) -> Parameter:
    return Parameter("[COUNT]", lambda words: words.maybe() if default is None else words.number(default))


NUMBER = Parameter("N", Words.number)
STEP = Parameter("[N]", Words.maybe)
CYCLE = Parameter("C", Words.number)
POINT = Parameter("NUMBER", Words.number)
TOKEN = Parameter("[K]", lambda words: words.number(0))
LISTED = Parameter("[N [COUNT]]", lambda words: (words.maybe(), words.number(LINES)))
LAYER = Parameter("NAME", Words.rest, lambda session: session.walk.layers)
LAUNCH = Parameter("N|NAME", Words.rest, lambda session: session.launches)
QUEUE = Parameter("QUEUE", Words.word, lambda session: [queue.name for queue in session.walk.table.queues])
PLACE = Parameter("PLACE", Words.rest, _places)
CHANGES = (Parameter("PLACE", Words.word, _places), count(8))
STOP = Parameter("N|layer NAME|when CONDITION", _break_argument)
WATCHED = Parameter("PLACE [if CONDITION]", _watch_arguments, _places)
SHOWN = Parameter("PLACE [hex|real]", _show_arguments, _places)


def _memories(session: Session) -> list[Scratchpad | Range]:
    return [*session.walk.memories.values(), *session.walk.segments]


def _delete(session: Session, number: int) -> tuple[Stop, ...]:
    session.delete(number)
    return session.stops


def _values(session: Session, shown: tuple[str, str]) -> Array:
    """Return the values at a place. Raises InputError if "real" is wanted and the place has no scale."""
    where, form = shown
    codes = np.asarray(session.read(where))
    if form != "real" or codes.dtype.kind == "f":
        return codes
    at = place(session.walk, where)
    graph = session.graph
    if not at.is_tensor or graph is None:
        raise InputError(f"show {where} real", "only tensors have a scale", "show codes or hex")
    tensor = graph.tensors[at.name]
    return (codes.astype(np.float64) - tensor.zero_point) * tensor.scale


def _listed(session: Session, listed: tuple[int | None, int]) -> list[Access]:
    first, count = listed
    if first is None:
        now = session.where().step
        first = max(0, (len(session.walk.table) if now is None else now) - LINES // 2)
    return session.listing(first, count)


VERBS = (
    Verb("Move", ("step", "s"), (count(1),), "execute instructions", Session.step),
    Verb("Move", ("back", "b"), (count(1),), "go back by instructions", Session.back),
    Verb("Move", ("to", "at"), (NUMBER,), "go to the moment before instruction N", Session.to),
    Verb("Move", ("start",), (), "go to the start of the launch", Session.start),
    Verb("Move", ("end",), (), "go to the end of the launch", Session.end),
    Verb("Move", ("cycle",), (CYCLE,), "go to the first instruction that starts in cycle C or later", Session.cycle),
    Verb("Move", ("layer",), (LAYER,), "go to the first instruction of a layer", Session.layer),
    Verb("Move", ("launch",), (LAUNCH,), "go to the start of a launch", Session.launch),
    Verb(
        "Move", ("token",), (QUEUE, TOKEN), "go to the instruction that pops token K (from 0) of a queue", Session.token
    ),
    Verb("Move", ("until",), (PLACE,), "go to the moment after the next write of a place", Session.until),
    Verb(
        "Move",
        ("since",),
        (PLACE,),
        "go back to the moment after the last write of a place",
        lambda session, where: session.until(where, forward=False),
    ),
    Verb("Move", ("run", "continue", "c"), (), "go on to a break or watch point, or to the end", Session.run),
    Verb("Move", ("reverse", "rc"), (), "go back to a break or watch point, or to the start", Session.reverse),
    Verb("Stop", ("break",), (STOP,), "stop before an instruction", Session.break_at),
    Verb(
        "Stop",
        ("watch",),
        (WATCHED,),
        "stop after each instruction that writes a place",
        lambda session, watched: session.watch(*watched),
    ),
    Verb("Stop", ("breaks",), (), "list the break and watch points", lambda session: session.stops),
    Verb("Stop", ("delete",), (POINT,), "remove a break or watch point", _delete),
    Verb("Look", ("where", "w"), (), "show where the session is", Session.where),
    Verb(
        "Look",
        ("show", "print", "p"),
        (SHOWN,),
        "show values of a memory, of DRAM or of a tensor",
        _values,
        text.values,
    ),
    Verb("Look", ("insn", "i"), (STEP,), "show an instruction, its footprint and its micro-ops", Session.instruction),
    Verb("Look", ("list", "l"), (LISTED,), "list instructions", _listed, text.listing),
    Verb("Look", ("units", "u"), (), "show what each unit does", Session.units),
    Verb("Look", ("queues", "q"), (), "show the tokens in each queue", Session.queues),
    Verb("Look", ("memories",), (), "list the memories and the segments of DRAM", _memories, text.every),
    Verb("Look", ("tensors",), (), "list the tensors of the launch that lie in DRAM", Session.tensors, text.tensors),
    Verb("Look", ("launches",), (), "list the launches", lambda session: list(session.launches), text.launches),
    Verb("Ask", ("who",), (PLACE,), "who wrote a place last", Session.writer, text.writer),
    Verb("Ask", ("writers",), (PLACE,), "who has written a place", Session.writers),
    Verb("Ask", ("changes",), CHANGES, "who has written a place, and the values there after it", Session.changes),
    Verb("Ask", ("next",), (PLACE,), "who reads a place next", Session.reader, text.reader),
    Verb("Ask", ("readers",), (PLACE,), "who reads a place from now on", Session.readers),
    Verb("Ask", ("why",), (STEP,), "why an instruction starts when it does", Session.why, text.why),
    Verb("Ask", ("waits",), (STEP,), "who waits for an instruction, and since when", Session.waiting, text.waiting),
    Verb("Ask", ("depends",), (PLACE,), "what a place was computed from", Session.depends, text.depends),
    Verb(
        "Ask",
        ("findings",),
        (count(None),),
        "list the hazards of the launch",
        lambda session, most: session.walk.findings[:most],
    ),
    Verb("Ask", ("differs",), (), "where the program first differs from the reference", Session.differs, text.differs),
    Verb(
        "Ask",
        ("suspects",),
        (count(5),),
        "which instructions computed wrong elements and few right ones",
        lambda session, most: session.suspects()[:most],
        text.suspects,
    ),
)
BY_NAME = {name: verb for verb in VERBS for name in verb.names}


def obey(session: Session, line: str) -> Answer:
    """Run one command. Raises InputError for an unknown command or wrong arguments."""
    # All arguments are read before the command runs, so that a wrong word changes nothing.
    name, *argument_words = _split(line)
    if name in ("help", "?", "h"):
        answer_text = help_text(argument_words[0] if argument_words else "")
        return answer_text, answer_text
    verb = BY_NAME.get(name)
    if verb is None:
        close = get_close_matches(name, [*BY_NAME, "help", QUIT], n=1)
        remedy = f"did you mean {close[0]}" if close else "see `help`"
        raise InputError(name, "there is no such command", remedy)
    words = Words(verb, argument_words)
    arguments = [parameter.read(words) for parameter in verb.parameters]
    words.end()
    answer = verb.answer(session, *arguments)
    if verb.text is None:
        return text.render(answer), text.to_json(answer)
    lines = verb.text(session, answer, *arguments)
    return plain(lines if isinstance(lines, str) else "\n".join(lines)), text.to_json(answer)


def completions(session: Session, command: str) -> list[str]:
    if command == "help":
        return sorted(BY_NAME)
    parameters = BY_NAME[command].parameters if command in BY_NAME else ()
    return [word for parameter in parameters for word in parameter.completions(session) if word.isprintable()]


def _split(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True, posix=False)
    except ValueError as error:
        raise InputError(line, f"cannot be split into words: {error}", "close the quotes") from None
    return words or [""]


def help_text(name: str) -> str:
    """Return the help of a command, or a list of all commands. Raises InputError if there is no such command."""
    if name:
        if name not in BY_NAME:
            raise InputError(f"help {name}", "there is no such command", "see `help`")
        verb = BY_NAME[name]
        also = f" (also {', '.join(verb.names[1:])})" if verb.names[1:] else ""
        return f"{verb.usage}: {verb.help}{also}"
    lines = []
    for group in dict.fromkeys(verb.group for verb in VERBS):
        lines.append(f"{group}:")
        lines += [f"  {verb.usage:34} {verb.help}" for verb in VERBS if verb.group == group]
    lines.append(
        "A place is acc[37], acc[0:4,0,5], dram[0x1000:0x1010], dram.wgt[0:16], t0[3,4], 'tensor'[3,4] or 57.y[0]."
    )
    return "\n".join([*lines, f"`{QUIT}` ends the session."])
