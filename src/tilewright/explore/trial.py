"""A trial: one machine of a study, and what was found of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from tilewright.explore.rules import Value
from tilewright.fields import record, types

#: What became of a machine: it was timed; the target refuses it; it breaks a rule; its bound is worse than the front.
Status = Literal["measured", "refused", "excluded", "pruned"]
MEASURED, REFUSED, EXCLUDED, PRUNED = STATUSES = get_args(Status)
#: The point of the base machine.
BASE = -1


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether objectives are nowhere worse than others, and somewhere better. All are to be small."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class Trial:
    """One machine: its point in the space, or BASE, its varying keys, and its results.

    `status` is one of STATUSES, and `reason` says why the machine was not measured. `values` are its keys, sizes and
    results by name. `layers` are the cycles of each layer on the machine, by model and name: a list with the cycles of
    each of `causes`, which add up to the layer's. `host` are the layers that the host runs, by model. `seconds` is the
    wall time that the trial took in its worker.
    """

    point: int
    set: Mapping[str, str]
    status: Status
    digest: str = ""
    reason: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    causes: Sequence[str] = ()
    layers: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    host: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def measured(self) -> bool:
        return self.status == MEASURED

    @property
    def rule(self) -> str:
        """The reason without its numbers, by which refused machines are counted."""
        return re.sub(r"\d[\d,.]*", "N", self.reason)

    def objectives(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """Return the values of the study's objectives."""
        return tuple(float(self.values[name]) for name in names)

    def by_cause(self, model: str, layer: str) -> dict[str, int]:
        """Return the cycles of a layer by cause; {} if the machine does not run it."""
        return dict(zip(self.causes, self.layers.get(model, {}).get(layer, ()), strict=False))

    def to_json(self) -> dict[str, Any]:
        host = {model: list(nodes) for model, nodes in self.host.items()}
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"host": host}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a trial. Raises FieldError if the data are malformed."""
        return cls(**record(types(cls), data, ""))
