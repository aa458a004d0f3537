"""A profile for people: tables, the rows that matter first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .profile import Profile, Row

TOP = 12


def lines(profile: Profile, top: int = TOP) -> Iterator[str]:
    """The report's lines; `top` rows of each long table."""
    yield f"{profile.cycles:,} cycles, {profile.instructions:,} instructions"
    yield from _shares("where the cycles go", profile.categories, profile.cycles, len(profile.categories))
    yield from _shares("waits by cause", profile.causes, profile.cycles, len(profile.causes))
    yield from _rows("functions", profile.functions, profile.cycles, top)
    yield from _rows("source lines", profile.lines, profile.cycles, top)
    yield from _shares("instructions", profile.mix, profile.instructions, top)
    yield ""
    yield "misses: " + ", ".join(f"{name} {count:,}" for name, count in profile.misses.items())


def _shares(title: str, values: Mapping[str, int], whole: int, top: int) -> Iterator[str]:
    yield ""
    yield title
    ranked = sorted(values.items(), key=lambda item: -item[1])
    for name, value in ranked[:top]:
        yield f"  {100 * value / max(1, whole):5.1f} %  {value:>15,}  {name}"
    if ranked[top:]:
        yield f"           {sum(value for _, value in ranked[top:]):>15,}  {len(ranked) - top} more"


def _rows(title: str, rows: Sequence[Row], whole: int, top: int) -> Iterator[str]:
    yield ""
    yield title
    for row in rows[:top]:
        main = max(row.categories, key=lambda key: row.categories[key], default="")
        yield f"  {100 * row.cycles / max(1, whole):5.1f} %  {row.cycles:>15,}  {row.name}  ({main})"
    if rows[top:]:
        yield f"           {sum(row.cycles for row in rows[top:]):>15,}  {len(rows) - top} more"
