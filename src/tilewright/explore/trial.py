"""A trial: one machine of a study, with its results. A rule is a condition on these results, such as `dsp <= 220`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, get_args

from tilewright.errors import InputError, option
from tilewright.expressions import LONGEST, REAL, Expression, Form, FormError
from tilewright.fields import record, types

Value: TypeAlias = bool | int | float | str
FORM = Form(REAL, (int, float, str))
#: A machine is measured, refused by the target, excluded by a rule, or pruned because a bound is worse than the front.
Status = Literal["measured", "refused", "excluded", "pruned"]
MEASURED, REFUSED, EXCLUDED, PRUNED = STATUSES = get_args(Status)
#: The point of the base machine.
BASE = -1


def dominates(left: Sequence[float], right: Sequence[float]) -> bool:
    """Return whether `left` is nowhere larger than `right`, and smaller in one objective (Pareto dominance)."""
    pairs = list(zip(left, right, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@dataclass(frozen=True)
class Trial:
    """One machine: its point in the space (or BASE), its varying keys, and its results.

    `status` is one of STATUSES, and `reason` says why the machine was not measured. `values` maps the names of keys,
    sizes and results to their values. `layers[model][layer]` lists the layer's cycles by
    cause, in the order of `causes`. `host[model]` has the layers on the host. `seconds` is the wall time of the
    measurement.
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
        """The reason without its numbers, for counting refused machines by reason."""
        return re.sub(r"\d[\d,.]*", "N", self.reason)

    def objectives(self, names: tuple[str, ...]) -> tuple[float, ...]:
        return tuple(float(self.values[name]) for name in names)

    def by_cause(self, model: str, layer: str) -> dict[str, int]:
        """Return the cycles of a layer as {cause: cycles}, or {} if the host runs the layer."""
        return dict(zip(self.causes, self.layers.get(model, {}).get(layer, ()), strict=False))

    def to_json(self) -> dict[str, Any]:
        host = {model: list(nodes) for model, nodes in self.host.items()}
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"host": host}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a trial. Raises FieldError if the data are malformed."""
        return cls(**record(types(cls), data, ""))


@dataclass(frozen=True)
class Rule:
    """A condition that every machine of a study must fulfil."""

    text: str

    def __post_init__(self) -> None:
        """Raise InputError if the text is not a valid condition."""
        if len(self.text) > LONGEST:
            raise InputError(option("--where"), f"a rule has {len(self.text)} characters", f"the longest has {LONGEST}")
        _ = self._expression

    @cached_property
    def _expression(self) -> Expression:
        try:
            return Expression(self.text, FORM)
        except SyntaxError:
            reason = "is not an expression"
            remedy = "write it as in: dsp <= 220"
            raise InputError(option("--where"), f"'{self.text}' {reason}", remedy) from None
        except FormError as error:
            remedy = "use names, numbers, + - * / // % **, comparisons, and, or, not"
            raise InputError(option("--where"), f"'{self.text}': {error}", remedy) from None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._expression.names)

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether `values` fulfil the rule. Raises InputError if a value is missing or has a wrong type."""
        try:
            return bool(self._expression.value(values.__getitem__, str))
        except KeyError as error:
            names = ", ".join(sorted(values))
            reason = f"'{self.text}': there is no {error.args[0]}"
            raise InputError(option("--where"), reason, f"choose of {names}") from None
        except (TypeError, ArithmeticError) as error:
            raise InputError(option("--where"), f"'{self.text}' cannot be computed: {error}") from None
