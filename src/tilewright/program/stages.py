"""The output of `explain` about a program: stages with lines of text, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilewright.program.program import HostStep, Launch, Program


@dataclass(frozen=True)
class Stage:
    """A part of a program: a title, and lines that are indented under it."""

    title: str
    lines: Sequence[str | Stage] = ()


@dataclass(frozen=True)
class Table:
    """A table with a title. Each row has one cell per column."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


#: The output of `explain`.
Stages = Sequence[Stage | Table]


def by_step(program: Program, launch: Callable[[Launch], Stage]) -> list[Stage]:
    """Return a stage for each step: the result of `launch` for a launch, the reason for a host step."""
    return [
        Stage(f"{step.name}: host, {step.reason}") if isinstance(step, HostStep) else launch(step)
        for step in program.steps
    ]


def text(stages: Iterable[str | Stage | Table]) -> str:
    """Return stages as text, with a blank line after each table."""
    return "\n".join(_lines(stages)) + "\n"


def _lines(stages: Iterable[str | Stage | Table]) -> list[str]:
    lines: list[str] = []
    for stage in stages:
        if isinstance(stage, str):
            lines.append(stage)
            continue
        under = _lines(stage.lines) if isinstance(stage, Stage) else _rows(stage)
        lines += [stage.title, *(f"  {line}" for line in under)]
        lines += [""] if isinstance(stage, Table) else []
    return lines


def _rows(table: Table) -> list[str]:
    if not table.rows:
        return ["none"]
    rows = (table.columns, *table.rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
