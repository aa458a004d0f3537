"""The words of a line of text, with their positions, so that errors can name the line and the column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from tilewright.errors import ProgramError

_TOKEN = re.compile(r'#.*|"(?:[^"\\]|\\.)*"|[^\s#]+')
_PLAIN = re.compile(r"[!$-~]+")  # printable ASCII without " and #


class Word(NamedTuple):
    """A word, with the line and column (counted from 1) of its first character."""

    text: str
    line: int
    column: int

    @property
    def key(self) -> str:
        """The text before the first `=`, or the whole word without `=`."""
        return self.text.partition("=")[0]

    @property
    def value(self) -> Word:
        """The part after the first `=`, with its position."""
        key, mark, value = self.text.partition("=")
        return Word(value, self.line, self.column + len(key) + len(mark))

    def refuse(self, expected: str) -> NoReturn:
        """Raises ProgramError with the position of this word and the expected text."""
        raise ProgramError(f"line {self.line}, column {self.column}", f"found '{self.text}'", f"expected {expected}")


def split(line: str, number: int) -> list[Word]:
    """Return the words of a line. A word in double quotes may contain blanks, and `#` starts a comment."""
    words = (Word(match[0], number, match.start() + 1) for match in _TOKEN.finditer(line))
    return [word for word in words if not word.text.startswith("#")]


def end(words: Sequence[Word]) -> None:
    """Raises ProgramError, naming the first word, if `words` is not empty."""
    for word in words:
        word.refuse("the end of the line")


def integer(word: Word, low: int, high: int, limits: str = "") -> int:
    """Return the number (decimal or 0x..) in a word.

    Raises ProgramError if the word is not a number in `low`..`high`. `limits` is the text for the range in the message.
    """
    try:
        value = int(word.text, 0)
    except ValueError:
        word.refuse("a number, decimal or 0x..")
    if not low <= value <= high:
        word.refuse(limits or f"{low}..{high:#x}")
    return value


def pairs(words: Sequence[Word], keys: Collection[str], plain: Collection[str] = ()) -> dict[str, Word]:
    """Return {key: word} of the words `key=value`, and {word: word} of the words in `plain`.

    Raises ProgramError for other words and for repeated words.
    """
    by_key: dict[str, Word] = {}
    for word in words:
        if word.text not in plain and ("=" not in word.text or word.key not in keys):
            word.refuse(", ".join([*plain, *(f"{key}=" for key in keys)]))
        if word.key in by_key:
            word.refuse(f"{word.key} only once")
        by_key[word.key] = word
    return by_key


class WordType(NamedTuple):
    """The text form of a type. `show` converts a value to text, and `read` converts text or raises ProgramError."""

    show: Callable[[Any], str]
    read: Callable[[Word], Any]


def number(show: str = "d", low: int = 0, high: int = (1 << 63) - 1) -> WordType:
    """Return the type of integers in `low`..`high`, written in Python's format `show`."""
    return WordType(lambda value: format(value, show), lambda word: integer(word, low, high))


def choice(names: Iterable[str]) -> WordType:
    allowed = tuple(names)

    def read(word: Word) -> str:
        if word.text not in allowed:
            word.refuse(f"one of {', '.join(allowed)}")
        return word.text

    return WordType(str, read)


def _name(word: Word) -> str:
    if not word.text.startswith('"'):
        return word.text
    try:
        return str(json.loads(word.text))
    except ValueError:
        word.refuse("a name, plain or quoted as in JSON")


def quoted(name: str) -> str:
    """Return a name as a JSON string in printable ASCII, with # escaped."""
    return json.dumps(name).replace("#", "\\u0023").replace("\x7f", "\\u007f")


#: Types of names. NAME writes quotes only around names with unusual characters, QUOTED around every name.
NAME = WordType(lambda name: name if _PLAIN.fullmatch(name) else quoted(name), _name)
QUOTED = WordType(json.dumps, _name)
