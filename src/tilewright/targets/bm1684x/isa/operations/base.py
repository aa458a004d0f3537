"""The description of an operation: its meaning on arrays, the rules that refuse it, and the engine that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import DType, Rounding
from tilewright.targets.bm1684x.values.elementwise import STEPS

TIU, DMA, HAU = "tiu", "dma", "hau"


#: The attributes of commands, and the default of each.
ATTRIBUTES: Mapping[str, Any] = {
    **dict.fromkeys(("mode", "source_mode"), Rounding.HALF_TO_EVEN),
    **dict.fromkeys(("saturate", "rotated", "relu", "descending"), False),
    **dict.fromkeys(("left_transposed", "right_transposed", "both_transposed"), False),
    **dict.fromkeys(("left", "right", "pad", "base"), 0),
    **{"steps": STEPS, "window": None, "axis": 3, "threshold": 0.0},
}


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    """Return an attribute of a command, or its default if the command does not give it."""
    return attributes.get(name, ATTRIBUTES[name])


@dataclass(frozen=True, eq=False)
class Values:
    """The arguments of a meaning: operands (`data`) by name, types of operands and results, and attributes.

    `shapes` are the shapes of the results. An optional operand that is absent has no entry.
    """

    data: Mapping[str, Array]
    types: Mapping[str, DType]
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any]

    def __getitem__(self, name: str) -> Array:
        return self.data[name]

    def attribute(self, name: str) -> Any:
        return attribute(self.attributes, name)

    @property
    def mode(self) -> Rounding:
        return self.attribute("mode")


class Signature(NamedTuple):
    """The argument of a rule: types by name of operand or result, and attributes."""

    types: Mapping[str, DType]
    attributes: Mapping[str, Any]


#: Computes the results by name, or the only result.
Meaning = Callable[[Values], Array | Mapping[str, Array]]
#: From the values and the results: by name, masks (bool) of the elements of operands and results that are touched.
Touches = Callable[[Values, Mapping[str, Array]], Mapping[str, Array]]
#: Returns the reason for refusing a command, or an empty string to accept it.
Rule = Callable[[Signature], str]
#: A rule on the operands and results by name.
PlaceRule = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Operation:
    """An operation. `meaning` is a pure function on logical arrays; `inputs` and `outputs` are the names it uses.

    `inexact`: the machine iterates in an undocumented way; the conformance check allows a few units in the last place.
    `by_data`: which elements are written depends on values. `touches` gives the elements that a command touches, for
    operands and results where they depend on values.
    """

    name: str
    engine: str
    inputs: tuple[str, ...]
    meaning: Meaning
    rules: tuple[Rule, ...] = ()
    outputs: tuple[str, ...] = ("y",)
    inexact: bool = False
    by_data: bool = False
    touches: Touches | None = None

    def results(self, values: Values) -> Mapping[str, Array]:
        """Return the computed results by name."""
        found = self.meaning(values)
        return {"y": found} if isinstance(found, np.ndarray | np.generic) else found

    def refusal(self, types: Mapping[str, DType], attributes: Mapping[str, Any]) -> str:
        """Return why the machine cannot run it with these types and attributes, or an empty string if it can."""
        signature = Signature(types, attributes)
        return next((reason for rule in self.rules if (reason := rule(signature))), "")


OPERATIONS: dict[str, Operation] = {}
#: Operands that a command may omit.
OPTIONAL = ("acc", "bias", "zero", "shift", "numbers", "y_before")


def define(
    engine: str, name: str, inputs: str, meaning: Meaning, *rules: Rule, outputs: str = "y", **more: Any
) -> None:
    """Add an operation to OPERATIONS; names are separated by blanks. Raises ValueError if it is there already."""
    if name in OPERATIONS:
        raise ValueError(f"two operations are called {name}")
    OPERATIONS[name] = Operation(name, engine, tuple(inputs.split()), meaning, rules, tuple(outputs.split()), **more)
