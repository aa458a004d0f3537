"""A table that fits the terminal. To avoid cutting off text, the table omits unimportant columns and wraps texts.

The import of rich is slow. Therefore `render` imports this module only to print a table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions
from rich.text import Text

from tilewright.errors import option, plain, shortened

#: A word of up to WHOLE characters is broken only if the table can drop no more columns.
WHOLE = 24
GAP = "  "
#: A word that is too long is broken after one of these characters, if possible.
_BREAKS = re.compile(r"(?<=[_/.:;,=\-])(?=.)")


class Row(NamedTuple):
    """The cells of a row, one for each column, and the style of the row."""

    cells: tuple[str, ...]
    style: str


class Fit(NamedTuple):
    """The indices of the shown columns, their widths in characters, and the names of the dropped columns."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    dropped: tuple[str, ...]


@dataclass
class Grid:
    """A table for `Console.print`. Numbers are aligned on the right and are never wrapped.

    `drop` names the columns that a narrow table may drop, in this order. `least` has a smallest width for columns of
    text. A column becomes narrower only if no more columns can be dropped. A line below the table names the dropped
    columns.
    """

    columns: Sequence[str]
    numeric: Collection[str] = ()
    drop: Sequence[str] = ()
    least: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        self.rows: list[Row | None] = []

    def add_row(self, *cells: object, style: str = "") -> None:
        self.rows.append(Row(tuple(shortened(plain(str(cell))) for cell in cells), style))

    def add_section(self) -> None:
        """Add a line across the table."""
        self.rows.append(None)

    def fit(self, width: int) -> Fit:
        """Return the columns and their widths for a terminal with `width` characters in a line."""
        spans = [self._span(index) for index in range(len(self.columns))]
        shown = list(range(len(self.columns)))
        for name in self.drop:
            if sum(spans[index][0] for index in shown) + len(GAP) * (len(shown) - 1) <= width:
                break
            shown = [index for index in shown if self.columns[index] != name]
        room = width - len(GAP) * (len(shown) - 1)
        least, most = zip(*(spans[index] for index in shown), strict=True)
        if sum(least) > room:  # no column is left to drop, so words must be broken
            least, most = (1,) * len(shown), least
        widths = _shared(least, most, room)
        return Fit(tuple(shown), widths, tuple(name for i, name in enumerate(self.columns) if i not in shown))

    def _span(self, index: int) -> tuple[int, int]:
        """Return the minimum width of a column without broken words, and its minimum width without wrapped text."""
        name = self.columns[index]
        head = _words(name)
        cells = [row.cells[index] for row in self.rows if row]
        longest = max((cell_len(cell) for cell in cells), default=0)
        if name in self.numeric:
            return max(longest, head), max(longest, *(cell_len(line) for line in _heading(name)))
        floor = min((self.least or {}).get(name, 0), longest)
        return max(head, floor, *map(_words, cells), 1), max(longest, cell_len(name), 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        fit = self.fit(options.max_width)
        heads = [_heading(name) if name in self.numeric else (name,) for name in self.columns]
        line = "-" if not console.is_terminal or options.ascii_only else "─"
        rule = GAP.join(line * width for width in fit.widths)
        top = [
            [text for part in heads[i] for text in wrapped(part, w)] for i, w in zip(fit.shown, fit.widths, strict=True)
        ]
        # A heading with fewer lines than others stands directly above its column.
        deep = max(map(len, top))
        yield from self._lines([[""] * (deep - len(lines)) + lines for lines in top], fit, "bold")
        yield _line(rule, "")
        for row in self.rows:
            if row is None:
                yield _line(rule, "")
            else:
                cells = [wrapped(row.cells[i], w) for i, w in zip(fit.shown, fit.widths, strict=True)]
                yield from self._lines(cells, fit, row.style)
        if fit.dropped:
            elsewhere = option("--json", "to_json()")
            said = f"dropped for {options.max_width} columns: {', '.join(fit.dropped)}; {elsewhere} has all"
            for text in wrapped(said, options.max_width):
                yield _line(text, "dim")

    def _lines(self, cells: Sequence[list[str]], fit: Fit, style: str) -> Iterator[Text]:
        for parts in zip_longest(*cells, fillvalue=""):
            columns = zip(parts, fit.shown, fit.widths, strict=True)
            yield _line(GAP.join(_aligned(part, w, self.columns[i] in self.numeric) for part, i, w in columns), style)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of `text`, each of up to `width` characters. Only a word that is longer is broken."""
    lines = list[str]()
    line = ""
    for word in text.split():
        if line and cell_len(line) + 1 + cell_len(word) <= width:
            line += f" {word}"
            continue
        lines += [line] if line else []
        line = ""
        # The word begins a new line. Only a word that is too long for a line is cut into pieces.
        for piece in [word] if cell_len(word) <= width else _BREAKS.split(word):
            if cell_len(line) + cell_len(piece) <= width:
                line += piece
                continue
            *whole, last = chop_cells(piece, width) if cell_len(piece) > width else [piece]
            lines += [line, *whole] if line else whole
            line = last
    return [*lines, line] if line or not lines else lines


def _words(text: str) -> int:
    """Return the smallest width that breaks no word of `text`. A word longer than WHOLE may break at _BREAKS."""
    needed = 0
    for word in text.split():
        if cell_len(word) > WHOLE:
            needed = max(needed, min(WHOLE, max(map(cell_len, _BREAKS.split(word)))))
        else:
            needed = max(needed, cell_len(word))
    return needed


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> tuple[int, ...]:
    """Return widths between `least` and `most`, with a sum of at most `room`. Wide columns get equal widths."""
    best = tuple(least)
    # The common width of wide columns grows until the table is full.
    for level in range(1, max(most) + 1):
        widths = tuple(min(max(level, low), high) for low, high in zip(least, most, strict=True))
        if sum(widths) > room:
            break
        best = widths
    return best


def _heading(name: str) -> tuple[str, ...]:
    # The numbers are narrower than the heading "DRAM read", so the heading has two lines.
    return tuple(name.replace("DRAM ", "DRAM\n").split("\n"))


def _aligned(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _line(text: str, style: str) -> Text:
    return Text(text.rstrip(), style, no_wrap=True, overflow="ignore")
