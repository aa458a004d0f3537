"""The figures of a layer, a launch or a run: the meaning of each, and how it adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self


class Definition(NamedTuple):
    """The meaning of a cause of cycles, such as load bandwidth, and its remedy: one sentence for each."""

    means: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.means} {self.remedy}"


def by_size(causes: Mapping[str, int]) -> dict[str, int]:
    """Return the causes that have cycles, the largest first."""
    return dict(sorted(((name, cycles) for name, cycles in causes.items() if cycles), key=lambda item: -item[1]))


def with_rest(unit: str, cycles: int, waits: Mapping[str, int]) -> dict[str, int]:
    """Return the causes of `cycles`, the largest first: the `waits`, and the work of `unit` for all other cycles."""
    return by_size({unit: cycles - sum(waits.values()), **waits})


def _serial_sum(cycles: Iterable[int | None]) -> int | None:
    total = 0
    for term in cycles:
        if term is None:
            return None
        total += term
    return total


def _causes_sum(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for causes in rows:
        total.update(causes)
    return by_size(total)


def _figure(total: Callable[[Iterable[Any]], Any] | None, default: Any = 0) -> Any:
    """Declare a figure. `total` adds up its values for several layers or launches; None: the figure has no sum."""
    content = {"default_factory": dict} if default is dict else {"default": default}
    return field(**content, metadata={"total": total})


@dataclass(frozen=True, eq=False, kw_only=True)
class Figures:
    """The figures of a layer, a launch or a run, for one sample. They are 0 for work of the host."""

    cycles: int = _figure(sum)
    #: The time if each step waited for the previous step in the stream. The time is 0 if it is not known, and None if
    #: it is not defined: a step waits for a later step, which pushes its token or makes room for its token.
    serial_cycles: int | None = _figure(_serial_sum)
    #: The multiply-accumulates of the machine's instructions, without skipped padding taps, but with channels that only
    #: fill the array.
    executed_macs: int = _figure(sum)
    #: The peak of the array for the operands' type.
    macs_per_cycle: int = _figure(None)
    dram_read_bytes: int = _figure(sum)
    dram_write_bytes: int = _figure(sum)
    #: The idle cycles, by cause, of the unit that does the work.
    stalls: Mapping[str, int] = _figure(_causes_sum, dict)
    #: All cycles by cause, the largest first; each cycle has one cause.
    causes: Mapping[str, int] = _figure(_causes_sum, dict)
    #: The least number of cycles that the work can take on this machine in any order: the busy cycles of its busiest
    #: resource, at most `cycles`. The number is 0 if it is not known, or if a part of the work was done before the
    #: cycles begin: a layer's cycles begin when the previous layer ends.
    bound: int = _figure(sum)
    #: The argument that no order of the layer's instructions takes fewer cycles ("": no argument is known).
    optimal: str = _figure(None, "")

    def __post_init__(self) -> None:
        if self.bound > self.cycles:  # a part of the work was done before these cycles begin
            object.__setattr__(self, "bound", 0)

    @classmethod
    def total(cls, rows: Iterable[Figures]) -> Figures:
        """Return the sums of the figures of several layers, or of several launches."""
        figures = tuple(rows)
        sums = {key.name: key.metadata["total"] for key in fields(Figures) if key.metadata["total"]}
        return Figures(**{name: total(getattr(row, name) for row in figures) for name, total in sums.items()})

    @classmethod
    def of(cls, figures: Figures, *about: Any, **further: Any) -> Self:
        """Return an object of this subclass of Figures: the given figures, and the given further fields."""
        return cls(*about, **{**{key.name: getattr(figures, key.name) for key in fields(Figures)}, **further})

    @property
    def utilization(self) -> float:
        """Executed multiply-accumulates divided by the most that the array could do in these cycles; at most 1."""
        peak = self.cycles * self.macs_per_cycle
        return self.executed_macs / peak if peak else 0.0

    @property
    def binds(self) -> str:
        """The cause of most of the cycles; "" if there are none."""
        return next(iter(self.causes), "")

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; the keys are stable."""
        values = {key.name: getattr(self, key.name) for key in fields(Figures)}
        values |= {"stalls": dict(self.stalls), "causes": dict(self.causes)}
        return values | {"utilization": self.utilization, "binds": self.binds}
