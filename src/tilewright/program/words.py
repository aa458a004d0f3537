"""Words of a line of text. Each knows where it stands, so that an error names the line and the column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from tilewright.errors import ProgramError

_TOKEN = re.compile(r'#.*|"(?:[^"\\]|\\.)*"|[^\s#]+')
_PLAIN = re.compile(r"[!$-~]+")  # printable ASCII without " and #


class Word(NamedTuple):
    """A word and where it starts: line and column, both counted from 1."""

    text: str
    line: int
    column: int

    @property
    def key(self) -> str:
        """What stands in front of the first `=`; the whole word where there is none."""
        return self.text.partition("=")[0]

    @property
    def value(self) -> Word:
        """What stands behind the first `=`."""
        key, mark, value = self.text.partition("=")
        return Word(value, self.line, self.column + len(key) + len(mark))

    def refuse(self, expected: str) -> NoReturn:
        """Raise ProgramError for this word."""
        raise ProgramError(f"line {self.line}, column {self.column}", f"found '{self.text}'", f"expected {expected}")


def split(line: str, number: int) -> list[Word]:
    """The words of a line. A word in double quotes may have blanks; `#` starts a comment."""
    found = (Word(match[0], number, match.start() + 1) for match in _TOKEN.finditer(line))
    return [word for word in found if not word.text.startswith("#")]


def end(words: Sequence[Word]) -> None:
    """Refuse the first of these words: the line should have ended before it."""
    for word in words:
        word.refuse("the end of the line")


def integer(word: Word, low: int, high: int, limits: str = "") -> int:
    """The number that a word writes, decimal or 0x..; `limits` says in an error what is allowed."""
    try:
        value = int(word.text, 0)
    except ValueError:
        word.refuse("a number, decimal or 0x..")
    if not low <= value <= high:
        word.refuse(limits or f"{low}..{high:#x}")
    return value


def pairs(words: Sequence[Word], keys: Collection[str], plain: Collection[str] = ()) -> dict[str, Word]:
    """The words `key=value` by key, and those of `plain` by themselves. Refuses other words and repeated ones."""
    found: dict[str, Word] = {}
    for word in words:
        if word.text not in plain and ("=" not in word.text or word.key not in keys):
            word.refuse(", ".join([*plain, *(f"{key}=" for key in keys)]))
        if word.key in found:
            word.refuse(f"{word.key} only once")
        found[word.key] = word
    return found


class WordType(NamedTuple):
    """How one kind of value is written as a word: `show` gives the text, `read` the value, or refuses the word."""

    show: Callable[[Any], str]
    read: Callable[[Word], Any]


def number(show: str = "d", low: int = 0, high: int = (1 << 63) - 1) -> WordType:
    """A number in a range, shown in Python's format `show`."""
    return WordType(lambda value: format(value, show), lambda word: integer(word, low, high))


def choice(names: Iterable[str]) -> WordType:
    """One of some names."""
    known = tuple(names)

    def read(word: Word) -> str:
        if word.text not in known:
            word.refuse(f"one of {', '.join(known)}")
        return word.text

    return WordType(str, read)


def _name(word: Word) -> str:
    if not word.text.startswith('"'):
        return word.text
    try:
        return str(json.loads(word.text))
    except ValueError:
        word.refuse("a name, or one in quotes as JSON has it")


def quoted(name: str) -> str:
    """A name as a JSON string without #."""
    return json.dumps(name).replace("#", "\\u0023")


#: A name, in quotes where it has blanks or other unusual characters; one that is always written in quotes.
NAME = WordType(lambda name: name if _PLAIN.fullmatch(name) else quoted(name), _name)
QUOTED = WordType(json.dumps, _name)
