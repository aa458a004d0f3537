"""Rules of a study: expressions over the keys and results of a machine, such as `dsp <= 220`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tilewright.errors import InputError, option
from tilewright.expressions import LONGEST, REAL, Expression, Form, FormError

Value: TypeAlias = bool | int | float | str
FORM = Form(REAL, (int, float, str))


@dataclass(frozen=True)
class Rule:
    """An expression that every machine of a study must fulfil."""

    text: str

    def __post_init__(self) -> None:
        """Raise InputError if the text is not such an expression."""
        if len(self.text) > LONGEST:
            raise InputError(option("--where"), f"a rule has {len(self.text)} characters", f"the longest has {LONGEST}")
        _ = self._expression

    @cached_property
    def _expression(self) -> Expression:
        try:
            return Expression(self.text, FORM)
        except SyntaxError:
            reason, remedy = "is not an expression", "write it as in: dsp <= 220"
            raise InputError(option("--where"), f"'{self.text}' {reason}", remedy) from None
        except FormError as error:
            remedy = "use names, numbers, + - * / // % **, comparisons, and, or, not"
            raise InputError(option("--where"), f"'{self.text}': {error}", remedy) from None

    @property
    def names(self) -> frozenset[str]:
        """The keys and results that the rule reads."""
        return frozenset(self._expression.names)

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the rule holds for `values`. Raises InputError if it cannot be computed from them."""
        try:
            return bool(self._expression.value(values.__getitem__, str))
        except KeyError as error:
            known = ", ".join(sorted(values))
            reason = f"'{self.text}': there is no {error.args[0]}"
            raise InputError(option("--where"), reason, f"choose of {known}") from None
        except (TypeError, ArithmeticError) as error:
            raise InputError(option("--where"), f"'{self.text}' cannot be computed: {error}") from None
