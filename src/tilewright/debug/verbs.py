"""The commands of a session: one table, which the prompt, scripts, completion and help share.

A verb takes the session and its arguments as words, and returns records; debug/text.py prints them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tilewright.debug import text
from tilewright.debug.session import Session
from tilewright.errors import InputError

#: What a command answers: text for people, and JSON values.
Answer = tuple[str, Any]
QUIT = "quit"
#: Instructions that `list` shows, and suspects.
LINES, SUSPECTS = 10, 5


class Words:
    """The arguments of a command. Each method takes the next one; it raises InputError if the argument is wrong."""

    def __init__(self, verb: Verb, words: Sequence[str]) -> None:
        self._verb, self._left = verb, list(words)

    def more(self) -> bool:
        return bool(self._left)

    def word(self) -> str:
        """Take a word."""
        if not self._left:
            raise self.wrong("an argument is missing")
        return self._left.pop(0)

    def number(self, default: int | None = None) -> int:
        """Take a number; `#` in front of it, as in `#57`, is allowed."""
        if not self._left and default is not None:
            return default
        word = self.word()
        try:
            return int(word.removeprefix("#"), 0)
        except ValueError:
            raise self.wrong(f"'{word}' is not a number") from None

    def maybe(self) -> int | None:
        """Take the number of an instruction; None if there are no more words."""
        return self.number() if self._left else None

    def rest(self) -> str:
        """Take all words that are left, as one text."""
        words, self._left = self._left, []
        if not words:
            raise self.wrong("an argument is missing")
        return " ".join(words)

    def flag(self, *names: str) -> str:
        """Take the last word if it is one of `names`; "" otherwise."""
        return self._left.pop() if self._left and self._left[-1] in names else ""

    def end(self) -> None:
        """Check that no words are left."""
        if self._left:
            raise self.wrong(f"'{' '.join(self._left)}' is too much")

    def wrong(self, reason: str) -> InputError:
        return InputError(self._verb.names[0], reason, f"write `{self._verb.usage}`")


@dataclass(frozen=True)
class Verb:
    """A command: its names, the form of its arguments, one line of help, and what it does."""

    names: tuple[str, ...]
    arguments: str
    help: str
    act: Callable[[Session, Words], Any]
    group: str

    @property
    def usage(self) -> str:
        return f"{self.names[0]} {self.arguments}".strip()


def _break(session: Session, words: Words) -> Any:
    what = words.rest()
    if what.startswith("when "):
        return session.break_at(what.removeprefix("when "))
    if what.startswith("layer "):
        return session.break_at(f"layer == {what.removeprefix('layer ').strip()!r}")
    try:
        return session.break_at(int(what.removeprefix("#"), 0))
    except ValueError:
        raise words.wrong(f"'{what}' is neither a number nor a condition") from None


def _watch(session: Session, words: Words) -> Any:
    where, _, condition = words.rest().partition(" if ")
    return session.watch(where.strip(), condition.strip())


def _delete(session: Session, words: Words) -> Any:
    session.delete(words.number())
    return session.stops


def _show(session: Session, words: Words) -> Any:
    form = words.flag("hex", "real")
    where = words.rest()
    return text.Shown(session, where, form)


def _list(session: Session, words: Words) -> Any:
    now = session.where()
    first = words.number(max(0, (now.step if now.step is not None else len(session.walk.table)) - LINES // 2))
    return text.Listing(session.listing(first, words.number(LINES)), now.step)


def _suspects(session: Session, words: Words) -> Any:
    count = words.number(SUSPECTS)
    return text.Suspected(session, session.suspects()[:count])


VERBS = (
    Verb(("step", "s"), "[COUNT]", "execute instructions", lambda s, w: s.step(w.number(1)), "Move"),
    Verb(("back", "b"), "[COUNT]", "go back by instructions", lambda s, w: s.back(w.number(1)), "Move"),
    Verb(("to", "at"), "N", "go to the moment before instruction N", lambda s, w: s.to(w.number()), "Move"),
    Verb(("start",), "", "go to the start of the launch", lambda s, w: s.start(), "Move"),
    Verb(("end",), "", "go to the end of the launch", lambda s, w: s.end(), "Move"),
    Verb(
        ("cycle",),
        "C",
        "go to the first instruction that starts in cycle C or later",
        lambda s, w: s.cycle(w.number()),
        "Move",
    ),
    Verb(("layer",), "NAME", "go to the first instruction of a layer", lambda s, w: s.layer(w.rest()), "Move"),
    Verb(("launch",), "N|NAME", "go to the start of a launch", lambda s, w: s.launch(w.rest()), "Move"),
    Verb(
        ("token",),
        "QUEUE [K]",
        "go to the instruction that pops token K (from 0) of a queue",
        lambda s, w: s.token(w.word(), w.number(0)),
        "Move",
    ),
    Verb(
        ("until",), "PLACE", "go to the moment after the next write of a place", lambda s, w: s.until(w.rest()), "Move"
    ),
    Verb(
        ("since",),
        "PLACE",
        "go back to the moment after the last write of a place",
        lambda s, w: s.until(w.rest(), False),
        "Move",
    ),
    Verb(("run", "continue", "c"), "", "go on to a break or watch point, or to the end", lambda s, w: s.run(), "Move"),
    Verb(("reverse", "rc"), "", "go back to a break or watch point, or to the start", lambda s, w: s.reverse(), "Move"),
    Verb(("break",), "N|layer NAME|when CONDITION", "stop before an instruction", _break, "Stop"),
    Verb(("watch",), "PLACE [if CONDITION]", "stop after each instruction that writes a place", _watch, "Stop"),
    Verb(("breaks",), "", "list the break and watch points", lambda s, w: s.stops, "Stop"),
    Verb(("delete",), "NUMBER", "remove a break or watch point", _delete, "Stop"),
    Verb(("where", "w"), "", "show where the session is", lambda s, w: s.where(), "Look"),
    Verb(("show", "print", "p"), "PLACE [hex|real]", "show values of a memory, of DRAM or of a tensor", _show, "Look"),
    Verb(
        ("insn", "i"),
        "[N]",
        "show an instruction, its footprint and its micro-ops",
        lambda s, w: s.instruction(w.maybe()),
        "Look",
    ),
    Verb(("list", "l"), "[N [COUNT]]", "list instructions", _list, "Look"),
    Verb(("units", "u"), "", "show what each unit does", lambda s, w: s.units(), "Look"),
    Verb(("queues", "q"), "", "show the tokens in each queue", lambda s, w: s.queues(), "Look"),
    Verb(("memories",), "", "list the memories and the segments of DRAM", lambda s, w: text.Memories(s), "Look"),
    Verb(("tensors",), "", "list the tensors of the launch that lie in DRAM", lambda s, w: text.TensorList(s), "Look"),
    Verb(("launches",), "", "list the launches", lambda s, w: text.LaunchList(s), "Look"),
    Verb(
        ("who",),
        "PLACE",
        "who wrote a place last",
        lambda s, w: text.One(s.writer(p := w.rest()), f"no instruction has written {p}"),
        "Ask",
    ),
    Verb(("writers",), "PLACE", "who has written a place", lambda s, w: s.writers(w.rest()), "Ask"),
    Verb(
        ("changes",),
        "PLACE [COUNT]",
        "who has written a place, and the values there after it",
        lambda s, w: s.changes(w.word(), w.number(8)),
        "Ask",
    ),
    Verb(
        ("next",),
        "PLACE",
        "who reads a place next",
        lambda s, w: text.One(s.reader(p := w.rest()), f"no instruction reads {p} from here on"),
        "Ask",
    ),
    Verb(("readers",), "PLACE", "who reads a place from now on", lambda s, w: s.readers(w.rest()), "Ask"),
    Verb(
        ("why",),
        "[N]",
        "why an instruction starts when it does",
        lambda s, w: text.Waits(s, s.why(w.maybe()), "starts at once"),
        "Ask",
    ),
    Verb(
        ("waits",),
        "[N]",
        "who waits for an instruction, and since when",
        lambda s, w: text.Waits(s, s.waiting(w.maybe()), "nobody waits for it"),
        "Ask",
    ),
    Verb(
        ("depends",),
        "PLACE",
        "what a place was computed from",
        lambda s, w: text.Dependence(s, s.depends(w.rest())),
        "Ask",
    ),
    Verb(
        ("findings",),
        "[COUNT]",
        "list the hazards of the launch",
        lambda s, w: s.walk.findings[: w.number(len(s.walk.findings))],
        "Ask",
    ),
    Verb(
        ("differs",),
        "",
        "where the program first differs from the reference",
        lambda s, w: text.Differs(s, s.differs()),
        "Ask",
    ),
    Verb(("suspects",), "[COUNT]", "which instructions computed wrong elements and few right ones", _suspects, "Ask"),
)
BY_NAME = {name: verb for verb in VERBS for name in verb.names}


def obey(session: Session, line: str) -> Answer:
    """Run one command. Raises InputError for a command that does not exist, or with wrong arguments."""
    words = _split(line)
    if words[0] in ("help", "?", "h"):
        told = help_text(words[1] if len(words) > 1 else "")
        return told, told
    verb = BY_NAME.get(words[0])
    if verb is None:
        close = get_close_matches(words[0], [*BY_NAME, "help", QUIT], n=1)
        remedy = f"did you mean {close[0]}" if close else "see `help`"
        raise InputError(words[0], "there is no such command", remedy)
    given = Words(verb, words[1:])
    found = verb.act(session, given)
    given.end()
    return text.render(found), text.to_json(found)


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
