"""The figures of a layer, a launch or a run: the meaning of each figure, and the rule for adding it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self


class Definition(NamedTuple):
    """Two sentences about a cause of cycles (such as load bandwidth): its meaning and a remedy."""

    means: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.means} {self.remedy}"


def by_size(causes: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(((name, cycles) for name, cycles in causes.items() if cycles), key=lambda item: -item[1]))


def with_rest(unit: str, cycles: int, waits: Mapping[str, int]) -> dict[str, int]:
    """Return the causes of `cycles`, the largest first: the `waits`; all other cycles are work of `unit`."""
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
    """Declare a figure. The function `total` adds up the figure over layers or launches (None: no sum)."""
    content = {"default_factory": dict} if default is dict else {"default": default}
    return field(**content, metadata={"total": total})


@dataclass(frozen=True, eq=False, kw_only=True)
class Figures:
    """The figures of a layer, a launch or a run, for one sample. All figures are 0 for a layer that the host runs."""

    cycles: int = _figure(sum)
    #: The time if each step waited for the previous step in the stream (0: not known). The time is None if the steps
    #: cannot run in stream order: a step needs a token of a later step, or room for a token that a later step makes.
    serial_cycles: int | None = _figure(_serial_sum)
    #: The multiply-accumulates that the machine's instructions request. Padding channels of the array count, and taps
    #: on padding pixels count unless the instructions skip them.
    executed_macs: int = _figure(sum)
    #: The largest possible number of multiply-accumulates per cycle, for the types of the operands.
    macs_per_cycle: int = _figure(None)
    dram_read_bytes: int = _figure(sum)
    dram_write_bytes: int = _figure(sum)
    #: The idle cycles of the unit that does the work, by cause.
    stalls: Mapping[str, int] = _figure(_causes_sum, dict)
    #: All cycles by cause, the largest first; each cycle has one cause.
    causes: Mapping[str, int] = _figure(_causes_sum, dict)
    #: A lower bound of the cycles, for any order of the instructions: the work of the busiest resource. The bound is 0
    #: if it is not known. The bound is also 0 if the layer began to work before the previous layer ended, because the
    #: cycles of a layer do not include this work.
    bound: int = _figure(sum)
    #: The reason why no order of the layer's instructions takes fewer cycles ("": no reason is known).
    optimal: str = _figure(None, "")

    def __post_init__(self) -> None:
        if self.bound > self.cycles:  # the layer began to work before the previous layer ended
            object.__setattr__(self, "bound", 0)

    @classmethod
    def total(cls, rows: Iterable[Figures]) -> Figures:
        figures = tuple(rows)
        sums = {key.name: key.metadata["total"] for key in fields(Figures) if key.metadata["total"]}
        return Figures(**{name: total(getattr(row, name) for row in figures) for name, total in sums.items()})

    @classmethod
    def of(cls, figures: Figures, *about: Any, **further: Any) -> Self:
        """Return an object of this subclass of Figures, made of the given figures and the values of other fields."""
        return cls(*about, **{**{key.name: getattr(figures, key.name) for key in fields(Figures)}, **further})

    @property
    def utilization(self) -> float:
        """The executed multiply-accumulates, as a fraction of the multiply-accumulates possible in these cycles."""
        peak = self.cycles * self.macs_per_cycle
        return self.executed_macs / peak if peak else 0.0

    @property
    def binds(self) -> str:
        """The cause with the most cycles ("" if there are no cycles)."""
        return next(iter(self.causes), "")

    def to_json(self) -> dict[str, Any]:
        values = {key.name: getattr(self, key.name) for key in fields(Figures)}
        values |= {"stalls": dict(self.stalls), "causes": dict(self.causes)}
        return values | {"utilization": self.utilization, "binds": self.binds}
