"""A run's profile: cycles by function, source line, category, cause and kind of instruction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.targets.cfu.isa.table import name as custom_name
from tilewright.targets.cfu.rv32.core import Run
from tilewright.targets.cfu.rv32.decode import IMM
from tilewright.targets.cfu.rv32.ops import Op
from tilewright.targets.cfu.rv32.source import Place, Source
from tilewright.targets.cfu.rv32.state import Cause

from .counts import CATEGORIES, Counts, counts


class Row(NamedTuple):
    """One function or line: its own cycles and instructions, and the cycles of each category."""

    name: str
    cycles: int
    instructions: int
    categories: dict[str, int]


@dataclass(frozen=True)
class Profile:
    """Rows are sorted by cycles, the most first. `misses` count lines fetched into each first-level cache."""

    cycles: int
    instructions: int
    categories: dict[str, int]
    causes: dict[str, int]
    misses: dict[str, int]
    mix: dict[str, int]
    functions: tuple[Row, ...]
    lines: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        rows = {
            key: [row._asdict() for row in rows] for key, rows in (("functions", self.functions), ("lines", self.lines))
        }
        return {
            "cycles": self.cycles,
            "instructions": self.instructions,
            "categories": self.categories,
            "causes": self.causes,
            "misses": self.misses,
            "mix": self.mix,
            **rows,
        }


def profile(run: Run, source: Source) -> Profile:
    """The profile of a run; the sum of each list is all of its cycles."""
    found = counts(run)
    addresses = found.address.tolist()
    functions = [source.function(address) for address in addresses]
    places = [source.place(address) for address in addresses]
    mix: Counter[str] = Counter()
    for insn, executed in zip(found.insn.tolist(), found.executed.tolist(), strict=True):
        mix[mnemonic(insn)] += executed
    lost = found.lost.sum(axis=0)
    causes = {cause.name.lower(): int(lost[cause]) for cause in Cause if lost[cause]}
    return Profile(
        cycles=int(found.cycles.sum()),
        instructions=int(found.executed.sum()),
        categories=found.by_category(),
        causes=causes,
        misses={
            "instruction cache": int(found.times[:, Cause.FETCH].sum()),
            "data cache": int(found.times[:, Cause.LOAD_MISS].sum()),
        },
        mix=dict(mix.most_common()),
        functions=_rows(found, functions),
        lines=_rows(found, [line_name(*pair) for pair in zip(functions, places, strict=True)]),
    )


def mnemonic(insn: int) -> str:
    """What the instruction mix counts a packed instruction as."""
    op = Op(insn & 255)
    return custom_name(insn >> IMM) if op == Op.CUSTOM0 else op.name.lower().replace("_", ".")


def line_name(function: str, place: Place) -> str:
    return str(place) if place.file else f"? in {function}"


def _rows(found: Counts, names: Iterable[str]) -> tuple[Row, ...]:
    """The sums over instructions of one name."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        members[name].append(index)
    rows = []
    for name, mine in members.items():
        pick = np.array(mine)
        spent = np.concatenate([found.lost[pick], found.executed[pick, None]], axis=1)
        sums = np.bincount(found.category[pick].ravel(), spent.ravel(), minlength=len(CATEGORIES))
        categories = {key: int(value) for key, value in zip(CATEGORIES, sums, strict=True) if value}
        rows.append(Row(name, int(found.cycles[pick].sum()), int(found.executed[pick].sum()), categories))
    return tuple(sorted(rows, key=lambda row: (-row.cycles, row.name)))
