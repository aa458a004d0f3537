"""An operation, described once: what it means on arrays, what is refused and why, who runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import DType, Rounding
from tilewright.targets.bm1684x.values.elementwise import STEPS

TIU, DMA, HAU = "tiu", "dma", "hau"


#: What a command says beside its operands, and what holds where it says nothing.
ATTRIBUTES: Mapping[str, Any] = {
    **dict.fromkeys(("mode", "source_mode"), Rounding.HALF_TO_EVEN),
    **dict.fromkeys(("saturate", "rotated", "relu", "descending"), False),
    **dict.fromkeys(("left_transposed", "right_transposed", "both_transposed"), False),
    **dict.fromkeys(("left", "right", "pad", "base"), 0),
    **{"steps": STEPS, "window": None, "axis": 3, "threshold": 0.0},
}


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    """An attribute of a command, given or not."""
    return attributes.get(name, ATTRIBUTES[name])


@dataclass(frozen=True, eq=False)
class Values:
    """What a meaning sees: operands by name, types of operands and results, attributes of the command.

    `shapes` are those of the results. Optional operands are absent.
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
    """What rules see: types by operand and result, and attributes."""

    types: Mapping[str, DType]
    attributes: Mapping[str, Any]


#: The results by name, or the only one.
Meaning = Callable[[Values], Array | Mapping[str, Array]]
Touches = Callable[[Values, Mapping[str, Array]], Mapping[str, Array]]
#: Why a command is refused: a sentence; nothing where it is not.
Rule = Callable[[Signature], str]
#: The same from operands and results by name.
PlaceRule = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Operation:
    """`meaning` is a pure function of logical arrays; what it computes stands in `results` by name.

    `inexact`: the machine iterates in an undocumented way, results are within `ulps` of the true value here.
    `by_data`: what is written depends on values. `touches` says of operands and results of which a command reads or
    writes only some elements, by their values, which: bool, from its values and what it gave.
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
        """What it computes, by the names of its results."""
        found = self.meaning(values)
        return {"y": found} if isinstance(found, np.ndarray | np.generic) else found

    def refusal(self, types: Mapping[str, DType], attributes: Mapping[str, Any]) -> str:
        """Why the machine does not run it with these types and attributes; empty where it does."""
        signature = Signature(types, attributes)
        return next((reason for rule in self.rules if (reason := rule(signature))), "")


OPERATIONS: dict[str, Operation] = {}
#: Operands that a command may do without.
OPTIONAL = ("acc", "bias", "zero", "shift", "numbers", "y_before")


def define(
    engine: str, name: str, inputs: str, meaning: Meaning, *rules: Rule, outputs: str = "y", **more: Any
) -> None:
    """Add an operation to OPERATIONS; a name can be given once. `inputs`, `outputs`: names, separated by blanks."""
    if name in OPERATIONS:
        raise ValueError(f"two operations are called {name}")
    OPERATIONS[name] = Operation(name, engine, tuple(inputs.split()), meaning, rules, tuple(outputs.split()), **more)
